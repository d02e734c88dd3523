#include "groupcomm/gradient/group_rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "transports/exchange.h"

namespace aiacc::gradient {
namespace {

// The name of a round in error messages and straggler diagnoses.
struct RoundNote {
  std::uint64_t round;
  std::string describe() const { return fmt::format("round {} of a gradient engine's negotiation", round); }
};

std::uint64_t lines_key(const View& view) noexcept { return Hash64().add("gradient rounds").add(view.id()).value(); }

}  // namespace

struct GroupRounds::Shared {
  Shared(HostDomain& in, std::uint64_t its_key) : domain(in), key(its_key) {
    memory = domain.allocate(kPlaces * kPlaceBytes);
    try {
      line = domain.claim_lines(key, kLines);
    } catch (...) {
      domain.free(memory);
      throw;
    }
    at = domain.view(domain.rank(), memory);
  }
  ~Shared() {
    domain.release_lines(key);
    if (domain.leaving(domain.rank())) return;  // members that are late read the memory when this one has gone
    domain.free(memory);
  }
  HostDomain& domain;
  std::uint64_t key;
  HostRange memory;
  std::byte* at;
  std::uint32_t line;
};

GroupRounds::GroupRounds(Group& group, Observer& observer)
    : group_(group),
      observer_(observer),
      loop_(group.team().loop),
      domain_(group.local_size() > 1 ? group.context().host() : nullptr),
      stop_(group.stop()),
      changed_(loop_),
      ended_(loop_) {
  const View& view = group.view();
  for (const int rank : view.ranks_on_host_of(group.rank())) {
    ranks_.push_back(rank);
    if (domain_ != nullptr) domain_ranks_.push_back(group.context().domain_rank_of(view.member(rank)));
  }
  local_rank_ = group.local_rank();
  for (int host = 0; host < view.hosts(); ++host) leaders_.push_back(view.ranks_on_host(host).front());
  plan_ = dissemination_plan(view.host_of(group.rank()), view.hosts());
  std::reverse(plan_.begin(), plan_.end());
  lines_.resize(ranks_.size());
  if (domain_ == nullptr) return;
  shared_ = std::make_shared<Shared>(*domain_, lines_key(view));
  group.keep(shared_);
  lines_[static_cast<std::size_t>(local_rank_)] = shared_->line;
  domain_->publish(shared_->line, kMemory, shared_->memory.offset + 1);
}

GroupRounds::~GroupRounds() = default;

void GroupRounds::start() {
  root_.emplace(loop_, serve(this), static_cast<Root::Owner&>(*this));
  root_->start();
}

void GroupRounds::begin(std::uint64_t round, const Word& word) {
  AIACC_INVARIANT(round == begun_ + 1, "a member begins each round once, in order");
  begun_ = round;
  word_ = word;
  if (domain_ != nullptr) {
    write(kContribution + round % 2, word);
    domain_->publish(shared_->line, kBegun, round);
  }
  changed_.set();
}

Task<void> GroupRounds::close() {
  closing_ = true;
  if (!root_) co_return;
  stop_.request(std::make_exception_ptr(Error(Code::kAborted, "the gradient engine was freed")));
  Stop none;
  co_await ended_.wait(none);
}

void GroupRounds::root_ended(Root&, std::exception_ptr error) noexcept {
  ended_.set();
  if (error && !closing_) observer_.rounds_failed(error);
}

// --- shared memory ---------------------------------------------------------------------------------------------------

FlagRef GroupRounds::flag(int member, Flag word) const noexcept {
  const auto at = static_cast<std::size_t>(member);
  return {domain_ranks_[at], lines_[at], word};
}

void GroupRounds::write(std::uint64_t place, const Word& word) {
  std::byte* const at = shared_->at + place * kPlaceBytes;
  const std::uint64_t bytes = word.encode({at + sizeof bytes, kMostBytes});
  std::memcpy(at, &bytes, sizeof bytes);
}

void GroupRounds::merge(std::span<const std::byte> word) {
  other_.decode(word);
  merged_.merge(other_);
}

std::span<const std::byte> GroupRounds::read(int member, std::uint64_t place) const {
  const auto owner = static_cast<std::size_t>(member);
  const ControlLine& line = domain_->line(domain_ranks_[owner], lines_[owner]);
  const std::uint64_t offset = line.word[kMemory].load(std::memory_order_acquire) - 1;
  const std::byte* const at = domain_->view(domain_ranks_[owner], offset + place * kPlaceBytes, kPlaceBytes);
  std::uint64_t bytes;
  std::memcpy(&bytes, at, sizeof bytes);
  if (bytes > kMostBytes) {
    throw Error(Code::kProtocol,
                fmt::format("rank {} gives a word of {} bytes to a round of negotiation, and at most {} are possible",
                            ranks_[owner], bytes, kMostBytes),
                ranks_[owner]);
  }
  return {at + sizeof bytes, static_cast<std::size_t>(bytes)};
}

Task<void> GroupRounds::find(int member) {
  const auto at = static_cast<std::size_t>(member);
  const FlagRef claims = HostDomain::claims(domain_ranks_[at]);
  while (true) {
    const std::uint64_t seen =
        domain_->line(claims.owner, claims.line).word[claims.word].load(std::memory_order_acquire);
    if (const auto found = domain_->find_lines(domain_ranks_[at], lines_key(group_.view()), kLines)) {
      lines_[at] = *found;
      co_return;
    }
    co_await domain_->at_least(claims, seen + 1, stop_);
  }
}

// --- rounds ----------------------------------------------------------------------------------------------------------

Task<void> GroupRounds::serve(GroupRounds* self) {
  for (int member = 0; member < static_cast<int>(self->ranks_.size()); ++member) {
    if (member != self->local_rank_ && (self->leads() || member == 0)) co_await self->find(member);
  }
  for (std::uint64_t round = 1;; ++round) {
    if (self->leads()) {
      co_await self->lead(round);
    } else {
      co_await self->follow(round);
    }
    self->observer_.result(round, self->merged_);
    // The result of the next round may be there already, so this loop alone could occupy the lane.
    co_await yield_turn(self->loop_, self->stop_);
  }
}

void GroupRounds::ask(std::uint64_t round) {
  if (begun_ < round) observer_.asked(round);
}

Task<void> GroupRounds::follow(std::uint64_t round) {
  const FlagRef begun = flag(0, kBegun);
  const FlagRef result = flag(0, kResult);
  co_await domain_->at_least(begun, round, stop_);
  ask(round);
  co_await domain_->at_least(result, round, stop_);
  merged_.decode(read(0, kMerged + round % 2));
}

Task<void> GroupRounds::arrive(GroupRounds* self, int member, std::uint64_t round, Stop& stop) {
  const FlagRef begun = self->flag(member, kBegun);
  co_await self->domain_->at_least(begun, round, stop);
  self->ask(round);
}

Task<void> GroupRounds::lead(std::uint64_t round) {
  Scope arriving(loop_, stop_);
  Mailbox* const mailbox = group_.team().mailbox;
  std::optional<Exchange> exchange;
  std::vector<Step> steps(mailbox == nullptr ? 0 : plan_.size());
  if (mailbox != nullptr) {
    const WireId id(Exchange::kPairSequence | round, Tag(), group_.rank());
    exchange.emplace(*mailbox, group_.team().view, group_.rank(), id, Hash64().add("gradient round").value(),
                     CallNote(RoundNote{round}));
    exchange->set_traffic(OperationTraffic::all_in(TrafficClass::kLatency));
  }
  Scope receiving(loop_, stop_);
  std::exception_ptr error;
  try {
    // Receives of all steps are posted now: another leader may be in its last step when its first message arrives here.
    for (std::size_t step = 0; step < steps.size(); ++step) {
      const std::vector<int>& from = plan_[step].from;
      steps[step].words.resize(from.size());
      for (std::size_t i = 0; i < from.size(); ++i) {
        const int leader = leaders_[static_cast<std::size_t>(from[i])];
        receiving.spawn(receive(this, &*exchange, leader, tag_of(step, i), &steps[step], i, round, receiving.stop()));
      }
    }
    for (int member = 1; member < static_cast<int>(ranks_.size()); ++member) {
      arriving.spawn(arrive(this, member, round, arriving.stop()));
    }
    while (begun_ < round) {
      changed_.reset();
      co_await changed_.wait(stop_);
    }
    co_await arriving.join();
    merged_ = word_;
    for (int member = 1; member < static_cast<int>(ranks_.size()); ++member) {
      merge(read(member, kContribution + round % 2));
    }
    if (exchange) co_await disseminate(*exchange, steps);
  } catch (...) {
    error = std::current_exception();
  }
  if (error) {
    arriving.stop().request(error);
    receiving.stop().request(error);
  }
  for (Scope* scope : {&arriving, &receiving}) {  // both, also if one has failed: children use what is here
    try {
      co_await scope->join();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  if (domain_ == nullptr) co_return;
  write(kMerged + round % 2, merged_);
  domain_->publish(shared_->line, kResult, round);
}

// --- between hosts ---------------------------------------------------------------------------------------------------

Task<void> GroupRounds::send(GroupRounds* self, Exchange* exchange, int to, std::uint32_t tag, Stop& stop) {
  // A copy, because words that arrive in this step are merged while this one is being sent.
  Bytes word(self->merged_.most_encoded());
  Buffer buffer;
  buffer.data = word.data();
  buffer.bytes = self->merged_.encode(word);
  ++self->messages_;
  co_await exchange->send(to, tag, buffer, stop);
}

Task<void> GroupRounds::receive(GroupRounds* self, Exchange* exchange, int from, std::uint32_t tag, Step* step,
                                std::size_t which, std::uint64_t round, Stop& stop) {
  Bytes& word = step->words[which];
  word.resize(kMostBytes);
  Buffer buffer;
  buffer.data = word.data();
  buffer.bytes = word.size();
  Transfer transfer = exchange->recv_at_most(from, tag, buffer, stop);
  co_await transfer;
  word.resize(transfer.received());
  ++step->arrived;
  self->changed_.set();
  self->ask(round);
}

Task<void> GroupRounds::disseminate(Exchange& exchange, std::vector<Step>& steps) {
  for (std::size_t step = 0; step < steps.size(); ++step) {
    const std::vector<int>& to = plan_[step].to;
    Scope sending(loop_, stop_);
    for (std::size_t i = 0; i < to.size(); ++i) {
      const int leader = leaders_[static_cast<std::size_t>(to[i])];
      sending.spawn(send(this, &exchange, leader, tag_of(step, i), sending.stop()));
    }
    co_await sending.join();
    while (steps[step].arrived < steps[step].words.size()) {
      changed_.reset();
      co_await changed_.wait(stop_);
    }
    for (const Bytes& word : steps[step].words) merge(word);
  }
}

}  // namespace aiacc::gradient
