#include "transports/match_group.h"

#include "transports/exchange.h"

namespace aiacc {

UnexpectedMessage& MatchGroup::keep(int from, const MessageHeader& header, bool has_payload) {
  UnexpectedMessage& kept = unexpected.emplace_back(from, header, has_payload);
  kept.self = std::prev(unexpected.end());
  early_by_match.add(kept, WireId::hash_of(header.sequence, header.tag(), from));
  const bool pair = (header.sequence & kPairSequence) != 0;
  if (pair) {
    early_by_tag.add(kept, hash_of_tag(header.step));
  } else {
    early_by_call.add(kept, WireId(header.sequence).hash());
  }
  return kept;
}

UnexpectedMessage* MatchGroup::find_early(MessageKind kind, bool placed, std::uint64_t sequence, Tag tag,
                                          int from) noexcept {
  if (unexpected.empty()) return nullptr;
  return early_by_match.find(WireId::hash_of(sequence, tag, from), [&](const UnexpectedMessage& one) {
    return one.header.kind == kind && one.placed == placed && one.from == from && one.header.tag() == tag &&
           one.header.sequence == sequence;
  });
}

const UnexpectedMessage* MatchGroup::unexpected_unlike(std::uint64_t sequence, std::uint64_t fingerprint) noexcept {
  if (unexpected.empty()) return nullptr;
  return early_by_call.find(WireId(sequence).hash(), [&](const UnexpectedMessage& one) {
    return one.header.sequence == sequence && one.header.fingerprint != fingerprint;
  });
}

Exchange* MatchGroup::find(const WireId& operation) noexcept {
  return exchanges.find(operation.hash(), [&](const Exchange& exchange) { return exchange.id() == operation; });
}

MessageRecord* MatchGroup::find_record(MessageRecord::Kind kind, std::uint64_t sequence, Tag tag,
                                       int peer) const noexcept {
  if (records_by_match.size() == 0) return nullptr;
  return records_by_match.find(WireId::hash_of(sequence, tag, peer), [&](const MessageRecord& record) {
    return record.kind() == kind && record.matches(sequence, tag, peer);
  });
}

PostedRequest* MatchGroup::find(const MatchIndex<PostedRequest>& index, int from,
                                const MessageHeader& header) const noexcept {
  return index.find(WireId::hash_of(header.sequence, header.tag(), from),
                    [&](const PostedRequest& request) { return request.matches(header.sequence, header.tag(), from); });
}

const CallNote* MatchGroup::other_call(std::uint64_t sequence, std::uint64_t fingerprint) noexcept {
  if ((sequence & kPairSequence) != 0) return nullptr;  // a point-to-point call is compared when it is matched
  const Exchange* mine = exchanges.find(WireId(sequence).hash(), [&](const Exchange& exchange) {
    return exchange.id().sequence == sequence && exchange.fingerprint() != fingerprint;
  });
  return mine != nullptr ? &mine->note() : past.unlike(sequence, fingerprint);
}

}  // namespace aiacc
