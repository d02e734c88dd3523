#include "transports/failover/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/printable.h"
#include "base/wire/codec.h"
#include "transports/failover/failover_port.h"

namespace aiacc::failover {
namespace {

using Placement = MessageReceiver::Placement;
using What = Shared::What;

// Short messages wait for nobody's receipt, so many have one.
constexpr std::size_t kMessagesOfReceipt = 64;
constexpr std::size_t kBytesOfReceipt = 128 << 10;
constexpr std::size_t kMostReceiptBytes = 1 << 20;
constexpr std::size_t kMostReceipts = 64;  // on their way

constexpr Placement kDropped{Placement::Action::kDrop, {}};

// The last bits of a message's number travel in those of `flags` that nobody uses. Within a class numbers arrive in order; those that are
// missing were withdrawn.
constexpr unsigned kNumberShift = 4;
constexpr std::uint64_t kNumbers = 1 << 12;

MessageHeader numbered(const MessageHeader& header, std::uint64_t number) noexcept {
  MessageHeader its = header;
  its.flags = static_cast<std::uint16_t>(its.flags | (number % kNumbers) << kNumberShift);
  return its;
}

MessageHeader plain(const MessageHeader& header) noexcept {
  MessageHeader its = header;
  its.flags &= (1 << kNumberShift) - 1;
  return its;
}

bool same(const MessageHeader& one, const MessageHeader& other) noexcept {
  return std::memcmp(&one, &other, sizeof one) == 0;
}

}  // namespace

void Record::sent(std::exception_ptr failure) noexcept { link->sent(*this, std::move(failure)); }

// --- sending ----------------------------------------------------------------------------------------------------------------

void Link::post(const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion,
                bool now) noexcept {
  if (why_) return shared_.notify_later({What::kTold, rank_, &completion, why_, {}});
  Class& its = class_of(header.traffic);
  Record& record = its.records.emplace_back();
  record.link = this;
  record.self = std::prev(its.records.end());
  record.header = header;
  record.number = its.posted++;
  record.promise(completion);
  record.lent = header.length > FailoverPort::kCopyBytes;
  if (state_ == State::kFirst && !record.lent) {  // it is told before the peer has it
    record.copy.reserve(header.length);
    for (const Buffer& piece : pieces) record.copy.insert(record.copy.end(), piece.data, piece.data + piece.bytes);
    record.pieces.push_back({record.copy.data(), record.copy.size()});
  } else {
    record.pieces.assign(pieces.begin(), pieces.end());
  }
  if (is_switching()) return;
  const bool by_first = state_ == State::kFirst;
  record.at = by_first ? Record::At::kFirst : Record::At::kSecond;
  MessagePort& port = by_first ? *shared_.first : *shared_.second;
  const MessageHeader sent = by_first ? numbered(header, record.number) : header;
  now ? port.post_now(rank_, sent, record.pieces, record) : port.post(rank_, sent, record.pieces, record);
}

// A message that failed over the first network goes over the second one, unless the peer is lost: then it is told with that.
void Link::sent(Record& record, std::exception_ptr error) noexcept {
  const Record::At at = std::exchange(record.at, Record::At::kNowhere);
  const bool over = record.withdrawn || at == Record::At::kSecond || state_ == State::kLost;
  if (!over && error) return go_on();
  SendCompletion* const told = over || record.received || !record.lent ? record.take_completion() : nullptr;
  if (over || record.received) erase(record);
  if (told != nullptr) told->sent(std::move(error));
  if (!shared_.closed) go_on();
}

void Link::withdraw(Record& record) noexcept {
  if (std::exchange(record.withdrawn, true)) return;
  switch (record.at) {
    case Record::At::kFirst: return shared_.first->withdraw(record);
    case Record::At::kSecond: return shared_.second->withdraw(record);
    case Record::At::kNowhere: break;
  }
  const auto error = std::make_exception_ptr(Error(Code::kAborted, "the sender withdrew this message"));
  shared_.notify_later({What::kTold, rank_, record.take_completion(), error, {}});
  erase(record);
}

void Link::erase(Record& record) noexcept { class_of(record.header.traffic).records.erase(record.self); }

// --- receiving over the first network ---------------------------------------------------------------------------------------

std::list<Link::Arriving>::iterator Link::find_arriving(const MessageHeader& header) noexcept {
  return std::find_if(arriving_.begin(), arriving_.end(),
                      [&](const Arriving& one) { return same(one.header, header); });
}

std::list<Link::Arriving>::iterator Link::find_numbered(const MessageHeader& header) noexcept {
  return std::find_if(arriving_.begin(), arriving_.end(),
                      [&](const Arriving& one) { return same(numbered(one.header, one.number), header); });
}

std::uint64_t Link::next_number(const MessageHeader& header) noexcept {
  Class& its = class_of(header.traffic);
  for (; its.offered % kNumbers != header.flags >> kNumberShift; ++its.offered) its.received.add(its.offered);
  return its.offered++;
}

Placement Link::first_header(const MessageHeader& header) noexcept {
  if (header.kind == MessageKind::kPath) return place_for_receipts(header, false);
  auto one = find_numbered(header);
  if (one == arriving_.end()) one = arriving_.insert(one, {plain(header), next_number(header), false, false});
  const Placement placement = shared_.receiver->on_header(rank_, one->header);
  if (shared_.closed) return kDropped;
  one->held = placement.action == Placement::Action::kHold;
  if (placement.action != Placement::Action::kDrop) return placement;
  const Arriving dropped = *one;
  arriving_.erase(one);
  came(dropped);
  return placement;
}

void Link::first_placed(const MessageHeader& header) noexcept {
  if (header.kind == MessageKind::kPath) return receipts_came(header);
  const auto one = find_numbered(header);
  if (one == arriving_.end()) return;
  const Arriving placed = *one;
  arriving_.erase(one);
  shared_.receiver->on_placed(rank_, placed.header);
  if (!shared_.closed) came(placed);
}

void Link::came(const Arriving& one) noexcept {
  class_of(one.header.traffic).received.add(one.number);
  ++unacknowledged_;
  unacknowledged_bytes_ += one.header.length;
  const bool is_awaited = one.header.length > FailoverPort::kCopyBytes;
  const bool many = unacknowledged_ >= kMessagesOfReceipt || unacknowledged_bytes_ >= kBytesOfReceipt;
  if (state_ == State::kFirst && !why_ && (is_awaited || many)) say(*shared_.first, "");
}

void Link::revoke(const MessageHeader& header) noexcept {
  const auto one = find_arriving(header);
  if (one == arriving_.end()) return shared_.second->revoke(rank_, header);
  if (!first_lost_) {
    one->revoked = true;
    return shared_.first->revoke(rank_, numbered(header, one->number));
  }
  if (std::exchange(one->revoked, true)) return;  // the peer may send it once more
  shared_.notify_later({What::kRevoked, rank_, nullptr, nullptr, header});
}

void Link::release() noexcept {
  if (!first_lost_) shared_.first->release(rank_);
  if (state_ != State::kFirst) shared_.second->release(rank_);
}

// --- receiving over the second network --------------------------------------------------------------------------------------

Placement Link::second_header(const MessageHeader& header) noexcept {
  if (header.kind == MessageKind::kPath) return place_for_receipts(header, true);
  const auto found = find_arriving(header);
  if (found == arriving_.end()) return shared_.receiver->on_header(rank_, header);
  const Arriving again = *found;
  arriving_.erase(found);
  if (again.revoked) return kDropped;  // its receiver has the place back
  const Placement placement = shared_.receiver->on_header(rank_, header);
  if (!shared_.closed && !again.held && placement.action == Placement::Action::kDrop) {
    shared_.notify_later({What::kRevoked, rank_, nullptr, nullptr, header});  // nobody will use the place that it had
  }
  return placement;
}

void Link::second_placed(const MessageHeader& header) noexcept {
  if (header.kind == MessageKind::kPath) return receipts_came(header);
  shared_.receiver->on_placed(rank_, header);
}

void Link::second_broken() noexcept {
  if (state_ != State::kFirst) shared_.receiver->on_path_broken(rank_);
}

// --- receipts ---------------------------------------------------------------------------------------------------------------

// `over`: why this rank uses the first network no more; "" if it does.
void Link::say(MessagePort& port, const std::string& over) noexcept {
  wire::Receipts receipts;
  receipts.over = !over.empty();
  receipts.reason = over;
  for (std::size_t traffic = 0; traffic < kTrafficClasses; ++traffic) {
    receipts.complete.push_back(classes_[traffic].received.complete());
    for (const auto& [first, end] : classes_[traffic].received.beyond()) {
      receipts.beyond.push_back({static_cast<std::uint8_t>(traffic), first, end});
    }
  }
  unacknowledged_ = unacknowledged_bytes_ = 0;
  std::erase_if(said_, [](const Said& one) { return one.done; });
  Said& said = said_.emplace_back(wire::encode(receipts));
  MessageHeader header;
  header.kind = MessageKind::kPath;
  header.traffic = TrafficClass::kControl;
  header.member = static_cast<std::uint32_t>(shared_.rank);
  header.sequence = said_count_++;
  header.length = header.total = said.bytes.size();
  const Buffer piece{said.bytes.data(), said.bytes.size()};
  port.post(rank_, header, std::span(&piece, 1), said);
}

// `replays`: the network may offer a message again.
Placement Link::place_for_receipts(const MessageHeader& header, bool replays) noexcept {
  if (why_) return kDropped;
  const auto [place, is_new] = coming_.try_emplace(header.sequence);
  const bool again = replays && place->second.size() == header.length;
  if (header.traffic != TrafficClass::kControl || header.length > kMostReceiptBytes || (!is_new && !again) ||
      coming_.size() > kMostReceipts) {
    if (is_new) coming_.erase(place);
    lose(std::make_exception_ptr(
        Error(Code::kProtocol, fmt::format("{}: it sent receipts that make no sense", shared_.name(rank_)), rank_)));
    return kDropped;
  }
  if (is_new) place->second.resize(header.length);
  return {Placement::Action::kInto, Buffer{place->second.data(), place->second.size()}};
}

void Link::receipts_came(const MessageHeader& header) noexcept {
  const auto place = coming_.find(header.sequence);
  if (place == coming_.end() || why_) return;
  try {
    const auto receipts = wire::decode<wire::Receipts>(place->second, "receipts of messages");
    coming_.erase(place);
    require_sense(receipts);
    if (!receipts.over) return note(receipts);
    theirs_ = receipts;
  } catch (const Error& error) {
    return lose(std::make_exception_ptr(
        Error(Code::kProtocol, fmt::format("{}: {}", shared_.name(rank_), error.message()), rank_)));
  }
  first_broken(theirs_->reason.empty() ? "the other rank gave it up" : printable(theirs_->reason));
  go_on();
}

void Link::require_sense(const wire::Receipts& receipts) const {
  bool senseless = receipts.complete.size() != kTrafficClasses;
  for (std::size_t traffic = 0; !senseless && traffic < kTrafficClasses; ++traffic) {
    senseless = receipts.complete[traffic] > classes_[traffic].posted;
  }
  for (const wire::Receipts::Beyond& one : receipts.beyond) {
    senseless =
        senseless || one.traffic >= kTrafficClasses || one.first >= one.end || one.end > classes_[one.traffic].posted;
  }
  if (senseless) throw Error(Code::kProtocol, "it has received messages that were not sent");
}

// Each completion may do anything, so none is told while another one is known here only.
void Link::note(const wire::Receipts& receipts) noexcept {
  std::array<bool, kTrafficClasses> any{};
  for (std::size_t traffic = 0; traffic < kTrafficClasses; ++traffic) {
    for (Record& record : classes_[traffic].records) {
      if (record.number >= receipts.complete[traffic]) break;
      any[traffic] = record.received = true;
    }
  }
  for (const wire::Receipts::Beyond& these : receipts.beyond) {
    for (Record& record : classes_[these.traffic].records) {
      if (record.number >= these.end) break;
      if (record.number >= these.first) any[these.traffic] = record.received = true;
    }
  }
  for (std::size_t traffic = 0; traffic < kTrafficClasses; ++traffic) {
    std::list<Record>& records = classes_[traffic].records;
    while (any[traffic]) {
      const auto one = std::find_if(records.begin(), records.end(), [](const Record& record) {
        return record.received && record.at == Record::At::kNowhere;
      });
      if (one == records.end()) break;
      SendCompletion* const told = one->completion == nullptr ? nullptr : one->take_completion();
      records.erase(one);
      if (told != nullptr) told->sent(nullptr);
      if (shared_.closed) return;
    }
  }
}

// --- from the first network to the second one -------------------------------------------------------------------------------

std::string Link::ends() const {
  const auto [lower, higher] = std::minmax(shared_.rank, rank_);
  return fmt::format("{} and {}", shared_.name(lower), shared_.name(higher));
}

void Link::first_broken(const std::string& reason) noexcept {
  if (state_ != State::kFirst || why_) return;
  reason_ = reason;
  const auto error = std::make_exception_ptr(Error(Code::kPeerFailed, fmt::format("{}: {}", ends(), reason), rank_));
  if (second_lost_) return lose(error);
  state_ = State::kLeaving;
  shared_.first->lose(rank_, error);
}

void Link::first_lost(std::exception_ptr error) noexcept {
  if (std::exchange(first_lost_, true)) return;
  if (state_ != State::kLeaving || why_) {
    if (!why_) lose(std::move(error));
    return finish();
  }
  state_ = State::kSwitching;
  for (auto one = arriving_.begin(); one != arriving_.end();) {
    const auto next = std::next(one);
    if (one->revoked) {
      shared_.notify_later({What::kRevoked, rank_, nullptr, nullptr, one->header});
      class_of(one->header.traffic).received.add(one->number);
      arriving_.erase(one);
    }
    one = next;
  }
  say(*shared_.second, reason_);
  go_on();
}

void Link::go_on() noexcept {
  if (state_ != State::kSwitching || !theirs_) return;
  for (const Class& its : classes_) {  // it tells of each message, perhaps after the loss
    if (std::any_of(its.records.begin(), its.records.end(),
                    [](const Record& one) { return one.at == Record::At::kFirst; }))
      return;
  }
  note(*std::exchange(theirs_, std::nullopt));  // what is posted from inside comes after what was posted before
  if (shared_.closed || why_) return;
  for (Class& its : classes_) {
    for (Record& record : its.records) {
      record.at = Record::At::kSecond;
      shared_.second->post(rank_, record.header, record.pieces, record);
    }
  }
  state_ = State::kSecond;
  shared_.remark(fmt::format("the path over {} between {} broke ({}); their messages go over {} from now on",
                             shared_.first_name, ends(), reason_, shared_.second_name));
  shared_.link_changed();
}

// --- loss -------------------------------------------------------------------------------------------------------------------

void Link::lose(std::exception_ptr why) noexcept {
  if (why_) return;
  why_ = std::move(why);
  if (!first_lost_) shared_.first->lose(rank_, why_);
  if (!second_lost_) shared_.second->lose(rank_, why_);
}

void Link::second_lost(std::exception_ptr error) noexcept {
  if (std::exchange(second_lost_, true)) return;
  if (state_ != State::kFirst && !why_) lose(std::move(error));
  finish();
}

void Link::finish() noexcept {
  if (!why_ || !first_lost_ || !second_lost_ || state_ == State::kLost) return;
  state_ = State::kLost;
  arriving_.clear();
  for (Class& its : classes_) {
    for (;;) {  // what a network has it tells by itself
      const auto one = std::find_if(its.records.begin(), its.records.end(),
                                    [](const Record& record) { return record.at == Record::At::kNowhere; });
      if (one == its.records.end()) break;
      SendCompletion* const told = one->completion == nullptr ? nullptr : one->take_completion();
      its.records.erase(one);
      if (told != nullptr) told->sent(why_);
      if (shared_.closed) return;
    }
  }
  shared_.receiver->on_peer_lost(rank_, why_);
  if (!shared_.closed) shared_.link_changed();
}

void Link::forget() noexcept {
  for (Class& its : classes_) its.records.clear();
  arriving_.clear();
  said_.clear();
  coming_.clear();
}

}  // namespace aiacc::failover
