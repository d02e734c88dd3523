// What a Link and that of the peer say to each other, and the receipts.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/printable.h"
#include "base/wire/codec.h"
#include "transports/failover/link.h"

namespace aiacc::failover {
namespace {

using Placement = MessageReceiver::Placement;

constexpr std::size_t kMostComingBytes = 1 << 20;
constexpr std::size_t kMostComing = 64;  // at once

}  // namespace

// `over`: why this rank uses the first network no more; "" if it does.
void Link::say_receipts(MessagePort& port, const std::string& over) noexcept {
  wire::Receipts receipts;
  receipts.epoch = epoch_;
  receipts.over = !over.empty();
  receipts.reason = over;
  for (std::size_t traffic = 0; traffic < kTrafficClasses; ++traffic) {
    receipts.complete.push_back(classes_[traffic].received.complete());
    for (const auto& [first, end] : classes_[traffic].received.beyond()) {
      receipts.beyond.push_back({static_cast<std::uint8_t>(traffic), first, end});
    }
  }
  unacknowledged_ = unacknowledged_bytes_ = 0;
  say(port, TrafficClass::kControl, receipts);
}

// Probes go over the first network, all other steps over the second one.
void Link::say(wire::Return::Step step, TrafficClass traffic) noexcept {
  wire::Return message;
  message.step = step;
  message.epoch = epoch_;
  say(step == wire::Return::Step::kProbe ? *shared_.first : *shared_.second, traffic, message);
}

void Link::say_in_each_class(wire::Return::Step step) noexcept {
  for (std::size_t traffic = 0; traffic < kTrafficClasses; ++traffic) say(step, static_cast<TrafficClass>(traffic));
}

template <wire::Message T>
void Link::say(MessagePort& port, TrafficClass traffic, const T& message) noexcept {
  std::erase_if(said_, [](const Said& one) { return one.done; });
  wire::Bytes bytes;
  wire::Writer writer(bytes);
  writer.put(T::kType);
  writer.put(message);
  Said& said = said_.emplace_back(std::move(bytes));
  MessageHeader header;
  header.kind = MessageKind::kPath;
  header.traffic = traffic;
  header.member = static_cast<std::uint32_t>(shared_.rank);
  header.sequence = said_count_++;
  header.length = header.total = said.bytes.size();
  const Buffer piece{said.bytes.data(), said.bytes.size()};
  port.post(rank_, header, std::span(&piece, 1), said);
}

// The second network may offer a message again.
Placement Link::place_for(Over over, const MessageHeader& header) noexcept {
  if (why_) return {};
  const auto [place, is_new] = coming_.try_emplace(header.sequence, Coming{over, {}});
  wire::Bytes& bytes = place->second.bytes;
  const bool again = over == Over::kSecond && place->second.over == over && bytes.size() == header.length;
  if (header.length > kMostComingBytes || (!is_new && !again) || coming_.size() > kMostComing) {
    if (is_new) coming_.erase(place);
    lose(std::make_exception_ptr(
        Error(Code::kProtocol,
              fmt::format("{}: it sent a message about the path that makes no sense", shared_.name(rank_)), rank_)));
    return {};
  }
  if (is_new) bytes.resize(header.length);
  return {Placement::Action::kInto, Buffer{bytes.data(), bytes.size()}};
}

void Link::path_message_came(Over over, const MessageHeader& header) noexcept {
  const auto place = coming_.find(header.sequence);
  if (place == coming_.end() || why_) return;
  try {
    const wire::Bytes bytes = std::move(place->second.bytes);
    coming_.erase(place);
    wire::Reader reader(bytes, "a message about the path");
    std::uint16_t type = 0;
    reader.get(type);
    if (type == wire::Receipts::kType && header.traffic == TrafficClass::kControl) {
      wire::Receipts receipts;
      reader.get(receipts);
      reader.expect_end();
      return receipts_came(over, receipts);
    }
    if (type != wire::Return::kType)
      throw Error(Code::kProtocol, "it sent a message about the path that makes no sense");
    wire::Return step;
    reader.get(step);
    reader.expect_end();
    step_came(over, header.traffic, step);
  } catch (const Error& error) {
    lose(std::make_exception_ptr(
        Error(Code::kProtocol, fmt::format("{}: {}", shared_.name(rank_), error.message()), rank_)));
  }
}

void Link::receipts_came(Over over, const wire::Receipts& receipts) {
  // The peer did not know yet that this rank had abandoned the trial, if it says so of one.
  if (receipts.epoch != epoch_ || (state_ == State::kSecond && trial_ == Trial::kNone)) return;
  require_sense(receipts);
  if (!receipts.over) {
    if (over == Over::kFirst) note(receipts);
    return;
  }
  theirs_ = receipts;
  if (state_ != State::kLeaving && state_ != State::kSwitching) {
    leave_first(receipts.reason.empty() ? "the other rank gave it up" : printable(receipts.reason));
  }
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

}  // namespace aiacc::failover
