// For tests: two components that live on service messages, as the gradient engine and the KVStore will.
//   Agreement   small words, many rounds in flight: the AND of what all members have, by dissemination
//   Store       requests and replies with payloads; the server answers one after the other and holds what waits
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/task/scope.h"
#include "transports/service/service.h"
#include "transports/service/services.h"

namespace aiacc {

class Agreement final : private ServiceHandler {
 public:
  static constexpr ServiceId kId = 1;

  Agreement(Services& services, const ViewPtr& view, int rank, std::size_t instances)
      : loop_(services.loop()), rounds_(instances), service_(services, view, rank, kId, *this) {
    while ((1 << most_) < view->size()) ++most_;
    for (Rounds& each : rounds_) each.got.resize(static_cast<std::size_t>(most_));
  }

  // This member has `bits` in that instance.
  void begin(std::size_t instance, std::uint64_t bits) {
    rounds_[instance].value = bits;
    rounds_[instance].begun = true;
    say(instance);
    go_on(instance);
  }
  bool done() const noexcept { return done_ == rounds_.size(); }
  std::uint64_t result(std::size_t instance) const { return rounds_[instance].value; }
  Instant ended_at(std::size_t instance) const { return rounds_[instance].ended; }
  std::size_t refused() const noexcept { return refused_; }
  const std::vector<std::string>& sentences() const noexcept { return sentences_; }
  const std::vector<int>& lost() const noexcept { return lost_; }
  Service& service() noexcept { return service_; }

 private:
  struct Rounds {
    bool begun = false;
    int round = 0;
    std::uint64_t value = 0;
    std::vector<std::optional<std::uint64_t>> got;
    Instant ended{};
  };

  void on_message(ServiceMessage message) noexcept override {
    const std::size_t instance = message.word() >> 8;
    std::uint64_t bits = 0;
    ASSERT_EQ(message.bytes().size(), sizeof bits);
    std::memcpy(&bits, message.bytes().data(), sizeof bits);
    auto& got = rounds_[instance].got[message.word() & 0xff];
    EXPECT_FALSE(got) << "a word came twice";
    got = bits;
    go_on(instance);
  }
  void on_refused(int, std::uint64_t, const Error& why) noexcept override {
    ++refused_;
    sentences_.push_back(why.message());
  }
  void on_peer_lost(int rank, const Error& why) noexcept override {
    lost_.push_back(rank);
    sentences_.push_back(why.message());
  }

  void say(std::size_t instance) {
    const Rounds& its = rounds_[instance];
    if (its.round == most_) return;
    const int to = (service_.rank() + (1 << its.round)) % service_.view().size();
    const auto posted = service_.post(to, std::uint64_t{instance} << 8 | static_cast<std::uint64_t>(its.round),
                                      std::as_bytes(std::span(&its.value, 1)));
    EXPECT_NE(posted, Service::Posted::kNoCredit);
  }
  void go_on(std::size_t instance) {
    Rounds& its = rounds_[instance];
    if (!its.begun) return;
    while (its.round < most_ && its.got[static_cast<std::size_t>(its.round)]) {
      its.value &= *its.got[static_cast<std::size_t>(its.round++)];
      say(instance);
    }
    if (its.round != most_ || its.ended != Instant{}) return;
    its.ended = loop_.now();
    ++done_;
  }

  Loop& loop_;
  int most_ = 0;
  std::vector<Rounds> rounds_;
  std::size_t done_ = 0;
  std::size_t refused_ = 0;
  std::vector<std::string> sentences_;
  std::vector<int> lost_;
  Service service_;
};

class Store final : private ServiceHandler, private Root::Owner {
 public:
  static constexpr ServiceId kId = 2;
  // Of its own: a reply must not wait for the credit of requests, which the asking end may need to be free of first.
  static constexpr ServiceId kReplies = 3;

  Store(Services& services, const ViewPtr& view, int rank, std::size_t credit)
      : loop_(services.loop()),
        news_(loop_),
        service_(services, view, rank, kId, *this, {credit, TrafficClass::kBulk}),
        replies_(services, view, rank, kReplies, *this, {credit, TrafficClass::kBulk}),
        serving_(loop_, serve(), static_cast<Root::Owner&>(*this)) {
    serving_.start();
  }

  // What the server of that rank makes of `bytes`.
  static std::byte served(std::byte byte, int rank) { return byte ^ static_cast<std::byte>(rank + 1); }

  // Sends `bytes` to the server of rank `to`; its answer.
  Task<void> ask(int to, ServiceBytes bytes, ServiceBytes* answer, Stop& stop) {
    const std::uint64_t id = ++asked_;
    Pending& mine = pending_.try_emplace(id, loop_, to).first->second;
    std::exception_ptr error;
    try {
      co_await service_.send(to, id << 1, std::move(bytes), stop);
      co_await mine.answered.wait(stop);
    } catch (...) {
      error = std::current_exception();
    }
    if (mine.error) error = mine.error;
    *answer = std::move(mine.answer);
    pending_.erase(id);
    if (error) std::rethrow_exception(error);
  }

  // The server stops to serve; returns when it has.
  void stop() noexcept { stop_.request(std::make_exception_ptr(Error(Code::kAborted, "the store is closing"))); }
  bool stopped() const noexcept { return stopped_; }
  // While paused the server holds what comes.
  void pause(bool paused) {
    paused_ = paused;
    news_.set();
  }
  std::size_t holds() const noexcept { return queue_.size(); }
  std::size_t bytes_held() const noexcept { return bytes_held_; }
  std::size_t most_bytes_held() const noexcept { return most_held_; }
  const std::vector<int>& lost() const noexcept { return lost_; }
  Service& service() noexcept { return service_; }

 private:
  struct Pending {
    Pending(Loop& loop, int whom) : answered(loop), to(whom) {}
    Event answered;
    int to;
    ServiceBytes answer;
    std::exception_ptr error;
  };

  void on_message(ServiceMessage message) noexcept override {
    if ((message.word() & 1) != 0) {
      const auto asked = pending_.find(message.word() >> 1);
      ASSERT_NE(asked, pending_.end());
      asked->second.answer = message.take_bytes();
      asked->second.answered.set();
      return;
    }
    bytes_held_ += message.bytes().size();
    most_held_ = std::max(most_held_, bytes_held_);
    queue_.push_back(std::move(message));
    news_.set();
  }
  void on_refused(int, std::uint64_t word, const Error& why) noexcept override {
    if (const auto asked = pending_.find(word >> 1); asked != pending_.end()) fail(asked->second, why);
  }
  void on_peer_lost(int rank, const Error& why) noexcept override {
    if (std::find(lost_.begin(), lost_.end(), rank) == lost_.end()) lost_.push_back(rank);  // of both services
    for (auto& [id, pending] : pending_) {
      if (pending.to == rank) fail(pending, why);
    }
  }
  static void fail(Pending& pending, const Error& why) noexcept {
    pending.error = std::make_exception_ptr(why);
    pending.answered.set();
  }
  void root_ended(Root&, std::exception_ptr) noexcept override { stopped_ = true; }

  Task<void> serve() {
    while (true) {
      while (queue_.empty() || paused_) {
        news_.reset();
        co_await news_.wait(stop_);
      }
      ServiceMessage next = std::move(queue_.front());
      queue_.pop_front();
      const std::size_t size = next.bytes().size();
      ServiceBytes answer = next.take_bytes();
      for (std::byte& byte : answer.span()) byte = served(byte, service_.rank());
      try {
        co_await replies_.send(next.from(), next.word() | 1, std::move(answer), stop_);
      } catch (const Error& error) {
        if (error.code() != Code::kPeerFailed) throw;
      }
      bytes_held_ -= size;
    }
  }

  Loop& loop_;
  Stop stop_;
  Event news_;
  bool paused_ = false;
  bool stopped_ = false;
  std::size_t bytes_held_ = 0;
  std::size_t most_held_ = 0;
  std::uint64_t asked_ = 0;
  std::vector<int> lost_;
  std::map<std::uint64_t, Pending> pending_;
  Service service_;
  Service replies_;
  std::deque<ServiceMessage> queue_;
  Root serving_;
};

inline ServiceBytes some_bytes(std::size_t size, int salt) {
  ServiceBytes bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes.data()[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(salt));
  return bytes;
}

inline bool is_answer(const ServiceBytes& answer, std::size_t size, int salt, int server) {
  if (answer.size() != size) return false;
  const ServiceBytes asked = some_bytes(size, salt);
  return std::equal(answer.data(), answer.data() + size, asked.data(),
                    [server](std::byte got, std::byte sent) { return got == Store::served(sent, server); });
}

}  // namespace aiacc
