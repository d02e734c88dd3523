#include "transports/failover/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transports/failover/failover_port.h"

namespace aiacc::failover {
namespace {

using Placement = MessageReceiver::Placement;
using What = Shared::What;

// Short messages wait for nobody's receipt, so many have one.
constexpr std::size_t kMessagesOfReceipt = 64;
constexpr std::size_t kBytesOfReceipt = 128 << 10;

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
  const bool by_second = state_ == State::kSecond;
  std::list<Record>& records = by_second ? by_second_ : its.records;
  Record& record = records.emplace_back();
  record.link = this;
  record.in = &records;
  record.self = std::prev(records.end());
  record.header = header;
  record.promise(completion);
  record.lent = header.length > FailoverPort::kCopyBytes;
  record.pieces.assign(pieces.begin(), pieces.end());
  if (!by_second) record.number = its.posted++;
  if (is_switching()) return;
  if (!by_second) return transmit_first(record, now);
  record.at = Record::At::kSecond;
  MessagePort& port = *shared_.second;
  now ? port.post_now(rank_, header, record.pieces, record) : port.post(rank_, header, record.pieces, record);
}

void Link::transmit_first(Record& record, bool now) noexcept {
  if (!record.lent) {  // it is told before the peer has it
    record.copy.reserve(record.header.length);
    for (const Buffer& piece : record.pieces) {
      record.copy.insert(record.copy.end(), piece.data, piece.data + piece.bytes);
    }
    record.pieces.assign(1, {record.copy.data(), record.copy.size()});
  }
  record.at = Record::At::kFirst;
  const MessageHeader sent = numbered(record.header, record.number);
  MessagePort& port = *shared_.first;
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

void Link::erase(Record& record) noexcept { record.in->erase(record.self); }

// --- receiving over the first network ---------------------------------------------------------------------------------------

std::list<Link::Arriving>::iterator Link::find_arriving(const MessageHeader& header) noexcept {
  return std::find_if(arriving_.begin(), arriving_.end(),
                      [&](const Arriving& one) { return same(one.header, header); });
}

std::list<Link::Arriving>::iterator Link::find_numbered(const MessageHeader& header) noexcept {
  return std::find_if(arriving_.begin(), arriving_.end(), [&](const Arriving& one) {
    return !one.again && same(numbered(one.header, one.number), header);
  });
}

std::uint64_t Link::next_number(const MessageHeader& header) noexcept {
  Class& its = class_of(header.traffic);
  for (; its.offered % kNumbers != header.flags >> kNumberShift; ++its.offered) its.received.add(its.offered);
  return its.offered++;
}

Placement Link::first_header(const MessageHeader& header) noexcept {
  auto one = find_numbered(header);
  if (one == arriving_.end()) one = arriving_.insert(one, {plain(header), next_number(header)});
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
  const bool by_first = state_ == State::kFirst || state_ == State::kReturning;
  if (by_first && !why_ && (is_awaited || many)) say_receipts(*shared_.first, "");
}

void Link::revoke(const MessageHeader& header) noexcept {
  const auto one = find_arriving(header);
  if (one == arriving_.end()) return shared_.second->revoke(rank_, header);
  if (!one->again) {
    one->revoked = true;
    return shared_.first->revoke(rank_, numbered(header, one->number));
  }
  if (std::exchange(one->revoked, true)) return;  // the peer may send it once more
  shared_.notify_later({What::kRevoked, rank_, nullptr, nullptr, header});
}

// What the second network holds is older, if the first one has been left and holds something again.
void Link::release() noexcept {
  if (state_ != State::kFirst || epoch_ > 0) shared_.second->release(rank_);
  if (!first_lost_) shared_.first->release(rank_);
}

// --- receiving over the second network --------------------------------------------------------------------------------------

Placement Link::second_header(const MessageHeader& header) noexcept {
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

// --- what the networks tell ---------------------------------------------------------------------------------------------------

Placement Link::on_header(Over over, const MessageHeader& header) noexcept {
  if (header.kind == MessageKind::kPath) return place_for(over, header);
  return over == Over::kFirst ? first_header(header) : second_header(header);
}

void Link::on_placed(Over over, const MessageHeader& header) noexcept {
  if (header.kind == MessageKind::kPath) return path_message_came(over, header);
  if (over == Over::kFirst) return first_placed(header);
  shared_.receiver->on_placed(rank_, header);
}

void Link::on_lost(Over over, std::exception_ptr error) noexcept {
  over == Over::kFirst ? first_lost(std::move(error)) : second_lost(std::move(error));
}

void Link::on_broken(Over over) noexcept {
  if (over == Over::kSecond) {
    if (state_ != State::kFirst) shared_.receiver->on_path_broken(rank_);
    return;
  }
  const std::optional<BrokenPath> path = shared_.first->broken_path(rank_);
  first_broken(path && !path->reason.empty() ? path->reason : "it was lost");
}

// --- from the first network to the second one -------------------------------------------------------------------------------

std::string Link::ends() const {
  const auto [lower, higher] = std::minmax(shared_.rank, rank_);
  return fmt::format("{} and {}", shared_.name(lower), shared_.name(higher));
}

void Link::first_broken(const std::string& reason) noexcept {
  if (why_) return;
  if (trial_ != Trial::kNone) return abandon();
  if (state_ == State::kFirst || state_ == State::kReturning) leave_first(reason);
}

void Link::leave_first(const std::string& reason) noexcept {
  end_trial();
  tells_ = state_ == State::kFirst;
  reason_ = reason;
  const auto error = std::make_exception_ptr(Error(Code::kPeerFailed, fmt::format("{}: {}", ends(), reason), rank_));
  if (second_lost_) return lose(error);
  state_ = State::kLeaving;
  shared_.first->lose(rank_, error);
}

void Link::first_lost(std::exception_ptr error) noexcept {
  if (std::exchange(first_lost_, true)) return;
  std::erase_if(coming_, [](const auto& one) { return one.second.over == Over::kFirst; });
  if (!why_ && trial_ != Trial::kNone) return abandon();
  if (!why_ && state_ == State::kSecond) return await_trial();
  if (!why_ && state_ == State::kReturning) leave_first(as_error(error).message());
  if (state_ != State::kLeaving || why_) {
    if (!why_) lose(std::move(error));
    return finish();
  }
  state_ = State::kSwitching;
  for (auto one = arriving_.begin(); one != arriving_.end();) {
    const auto next = std::next(one);
    if (!std::exchange(one->again, true) && one->revoked) {
      shared_.notify_later({What::kRevoked, rank_, nullptr, nullptr, one->header});
      class_of(one->header.traffic).received.add(one->number);
      arriving_.erase(one);
    }
    one = next;
  }
  say_receipts(*shared_.second, reason_);
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
  use_second();
  if (!tells_) return;
  shared_.remark(fmt::format("the path over {} between {} broke ({}); their messages go over {} from now on",
                             shared_.first_name, ends(), reason_, shared_.second_name));
}

// All that the peer has not got.
void Link::use_second() noexcept {
  for (Class& its : classes_) {
    while (!its.records.empty()) {
      Record& record = its.records.front();
      by_second_.splice(by_second_.end(), its.records, record.self);
      record.in = &by_second_;
      record.at = Record::At::kSecond;
      shared_.second->post(rank_, record.header, record.pieces, record);
    }
    its = Class();
  }
  unacknowledged_ = unacknowledged_bytes_ = 0;
  state_ = State::kSecond;
  await_trial();
  shared_.link_changed();
}

// --- loss -------------------------------------------------------------------------------------------------------------------

void Link::lose(std::exception_ptr why) noexcept {
  if (why_) return;
  why_ = std::move(why);
  trial_ = Trial::kNone;
  disarm();
  if (!first_lost_) shared_.first->lose(rank_, why_);
  if (!second_lost_) shared_.second->lose(rank_, why_);
}

void Link::second_lost(std::exception_ptr error) noexcept {
  if (std::exchange(second_lost_, true)) return;
  if ((state_ != State::kFirst || !by_second_.empty()) && !why_) lose(std::move(error));
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
  disarm();
  for (Class& its : classes_) its.records.clear();
  by_second_.clear();
  arriving_.clear();
  said_.clear();
  coming_.clear();
}

}  // namespace aiacc::failover
