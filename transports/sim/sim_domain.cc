#include "transports/sim/sim_domain.h"

#include "base/error.h"

namespace aiacc::sim {

SimHostMemory::SimHostMemory(World& world, int ranks, std::uint64_t slice_bytes, Duration visible_after)
    : visible_after_(visible_after),
      nonce_(world.random().next()),
      segment_(HostSegment::create(ranks, slice_bytes, nonce_)),
      members_(static_cast<std::size_t>(ranks)) {}

std::unique_ptr<SimDomain> SimHostMemory::attach(int rank, SimLoop& loop) {
  SimDomain*& member = members_[static_cast<std::size_t>(rank)];
  AIACC_INVARIANT(member == nullptr, "a rank attaches to its host once");
  auto mapping = SegmentMapping::map(segment_.descriptor(), nonce_, static_cast<int>(members_.size()));
  auto domain = std::make_unique<SimDomain>(*this, std::move(mapping), rank, loop);
  member = domain.get();
  return domain;
}

SimDomain::SimDomain(SimHostMemory& host, std::shared_ptr<SegmentMapping> mapping, int rank, SimLoop& loop)
    : SegmentDomain(std::move(mapping), rank), host_(host), loop_(loop) {}

SimDomain::~SimDomain() { host_.members_[static_cast<std::size_t>(rank_)] = nullptr; }

void SimDomain::publish(std::uint32_t line, std::uint32_t word_index, std::uint64_t value) noexcept {
  word(rank_, line, word_index).store(value, std::memory_order_seq_cst);
  for (SimDomain* member : host_.members_) {
    if (member != nullptr) member->hear();
  }
}

// Called when any rank publishes: this rank checks its waits after the simulated visibility delay.
void SimDomain::hear() noexcept {
  if (news_.scheduled()) return;
  bool any = false;
  waits_.for_each([&any](FlagAwait& wait) { any = any || wait.reached(); });
  if (any) loop_.world().schedule(news_, after(loop_.now(), host_.visible_after_), loop_.node());
}

void SimDomain::complete_reached() noexcept {
  waits_.for_each([](FlagAwait& wait) {
    if (!wait.reached()) return;
    static_cast<ListNode<FlagAwait>&>(wait).unlink();
    wait.complete();
  });
}

}  // namespace aiacc::sim
