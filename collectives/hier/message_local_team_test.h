// MessageLocalTeam: a LocalTeam whose members reach each other by messages only, the plainest way: each member packs what
// another needs and sends it. It shows that collectives over hosts need nothing of shared memory. For tests only.
#pragma once

#include <cstring>
#include <deque>
#include <vector>

#include "base/task/scope.h"
#include "collectives/hier/local_team.h"
#include "collectives/inter/inter_call.h"

namespace aiacc::hier {

class MessagePhases final : public LocalPhases {
 public:
  using Owners = std::span<const intra::Extents>;

  explicit MessagePhases(const Team& team)
      : team_(team), peers_(team.view->ranks_on_host_of(team.rank)), me_(team.view->local_rank_of(team.rank)) {}

  Task<void> reduce_scatter(Operation& phase, Owners owners, Buffer into) override {
    Run run(*this, phase);
    const bool owns = me_ < static_cast<int>(owners.size());
    for (int owner = 0; owner < static_cast<int>(owners.size()); ++owner) {
      if (owner == me_) continue;
      co_await pack(run, owners[static_cast<std::size_t>(owner)], run.to(owner, bytes_of(run, owners, owner)));
    }
    const std::size_t mine = owns ? bytes_of(run, owners, me_) : 0;
    for (int member = 0; owns && member < size(); ++member) run.from(member, mine);
    if (mine > 0) co_await pack(run, owners[static_cast<std::size_t>(me_)], run.arrived(me_));
    co_await transfer(run);
    if (mine == 0) co_return;
    std::vector<Buffer> operands;
    for (int member = 0; member < size(); ++member) operands.push_back(run.arrived(member));
    const std::size_t count = owners[static_cast<std::size_t>(me_)].count();
    const Buffer result = into.slice(0, count * phase.call.reduction.result_bytes());
    co_await team_.compute.reduce({&result, 1}, operands, count, phase.call.reduction, {.ranks = phase.inputs()},
                                  phase.stop);
  }

  Task<void> all_gather(Operation& phase, Owners owners) override {
    Run run(*this, phase);
    for (int owner = 0; owner < static_cast<int>(owners.size()); ++owner) {
      const std::size_t bytes = bytes_of(run, owners, owner);
      if (owner != me_) {
        run.from(owner, bytes);
        continue;
      }
      for (int member = 0; member < size(); ++member) {
        if (member == me_) continue;
        const Buffer to = run.to(member, bytes);
        for (const auto& [at, extent] : pieces(owners, owner))
          co_await copy(run, to, at, phase.recv, extent.begin, extent.count);
      }
    }
    co_await transfer(run);
    for (int owner = 0; owner < static_cast<int>(owners.size()); ++owner) {
      if (owner == me_) continue;
      for (const auto& [at, extent] : pieces(owners, owner))
        co_await copy(run, phase.recv, extent.begin, run.arrived(owner), at, extent.count);
    }
  }

  Task<void> exchange(Operation& phase) override {
    const int root = local(phase.call.root);
    switch (phase.call.kind) {
      case Collective::kReduce: {
        std::vector<intra::Extents> owners(static_cast<std::size_t>(root) + 1);
        owners.back().add({0, phase.call.count});
        co_await reduce_scatter(phase, owners, phase.recv);
        break;
      }
      default: co_await exchange_blocks(phase, root);
    }
  }

  Buffer pack_memory(std::size_t) override { return {}; }

 private:
  // What each member has for this one and gets from it.
  struct Run {
    Run(MessagePhases& of, Operation& operation) : op(operation), step(of.phases_++) {
      for (int member = 0; member < of.size(); ++member) {
        sends.emplace_back();
        recvs.emplace_back();
      }
    }
    Buffer to(int member, std::size_t bytes) { return make(sends[static_cast<std::size_t>(member)], bytes); }
    Buffer from(int member, std::size_t bytes) { return make(recvs[static_cast<std::size_t>(member)], bytes); }
    Buffer arrived(int member) { return recvs[static_cast<std::size_t>(member)]->buffer(); }
    Buffer make(std::optional<inter::Scratch>& place, std::size_t bytes) { return place.emplace(op, bytes).buffer(); }

    Operation& op;
    const std::uint32_t step;
    std::deque<std::optional<inter::Scratch>> sends;
    std::deque<std::optional<inter::Scratch>> recvs;
  };

  int size() const { return static_cast<int>(peers_.size()); }
  int local(int rank) const { return static_cast<int>(std::find(peers_.begin(), peers_.end(), rank) - peers_.begin()); }
  static std::size_t bytes_of(const Run& run, Owners owners, int owner) {
    return owners[static_cast<std::size_t>(owner)].count() * run.op.call.element_bytes();
  }
  static std::vector<intra::Extents::Piece> pieces(Owners owners, int owner) {
    const intra::Extents& extents = owners[static_cast<std::size_t>(owner)];
    return extents.pieces(0, extents.count());
  }
  // Elements; of equal memory nothing is copied.
  Task<void> copy(Run& run, Buffer to, std::size_t at, Buffer from, std::size_t begin, std::size_t count) {
    const std::size_t element = run.op.call.element_bytes();
    const Buffer target = to.slice(at * element, count * element);
    const Buffer source = from.slice(begin * element, count * element);
    if (count > 0 && target.data != source.data) co_await team_.compute.copy(target, source, run.op.stop);
  }
  Task<void> pack(Run& run, const intra::Extents& extents, Buffer to) {
    const std::vector<intra::Extents::Piece> all = extents.pieces(0, extents.count());
    for (const auto& [at, extent] : all) co_await copy(run, to, at, run.op.send, extent.begin, extent.count);
  }

  // Blocks from each member to each: a barrier sends empty ones.
  Task<void> exchange_blocks(Operation& phase, int root) {
    Run run(*this, phase);
    const std::size_t element = phase.call.element_bytes();
    for (int member = 0; member < size(); ++member) {
      const Extent out = outgoing(phase, root, member);
      const Extent in = incoming(phase, root, member);
      if (connected(phase.call.kind, root, me_, member)) {
        const Buffer to = run.to(member, out.count * element);
        co_await copy(run, to, 0, phase.send, out.begin, out.count);
      }
      if (connected(phase.call.kind, root, member, me_)) run.from(member, in.count * element);
    }
    co_await transfer(run);
    for (int member = 0; member < size(); ++member) {
      if (!connected(phase.call.kind, root, member, me_)) continue;
      const Extent in = incoming(phase, root, member);
      const Buffer from = member == me_ ? run.sends[static_cast<std::size_t>(me_)]->buffer() : run.arrived(member);
      co_await copy(run, phase.recv, in.begin, from, 0, in.count);
    }
  }
  static bool connected(Collective kind, int root, int from, int to) {
    if (kind == Collective::kBroadcast) return from == root && to != root;
    if (kind == Collective::kScatter) return from == root;
    return kind != Collective::kGather || to == root;
  }
  static Extent whole(const Operation& phase, const Buffer& buffer) {
    return {0, buffer.bytes / phase.call.element_bytes()};
  }
  Extent outgoing(const Operation& phase, int root, int member) const {
    switch (phase.call.kind) {
      case Collective::kBarrier: return {};
      case Collective::kAlltoall: return phase.call.block(member);
      case Collective::kScatter: return me_ == root ? phase.call.block(member) : Extent{};
      default: return whole(phase, phase.send);
    }
  }
  Extent incoming(const Operation& phase, int root, int member) const {
    switch (phase.call.kind) {
      case Collective::kBarrier: return {};
      case Collective::kAlltoall: return phase.call.recv_block(member);
      case Collective::kAllgather: return phase.call.block(member);
      case Collective::kGather: return me_ == root ? phase.call.block(member) : Extent{};
      default: return whole(phase, phase.recv);
    }
  }

  // Side by side: a long message waits for its receive.
  Task<void> transfer(Run& run) {
    Scope scope(team_.loop, run.op.stop);
    for (int member = 0; member < size(); ++member) {
      if (member == me_) continue;
      if (run.sends[static_cast<std::size_t>(member)]) scope.spawn(send(run, member, scope.stop()));
      if (run.recvs[static_cast<std::size_t>(member)]) scope.spawn(recv(run, member, scope.stop()));
    }
    co_await scope.join();
  }
  Task<void> send(Run& run, int to, Stop& stop) {
    const Buffer data = run.sends[static_cast<std::size_t>(to)]->buffer();
    co_await run.op.part->exchange->send(peers_[static_cast<std::size_t>(to)], tag(run), data, stop);
  }
  Task<void> recv(Run& run, int from, Stop& stop) {
    const Buffer into = run.arrived(from);
    co_await run.op.part->exchange->recv(peers_[static_cast<std::size_t>(from)], tag(run), into, stop);
  }
  // No algorithm between hosts has that number.
  static Tag tag(const Run& run) { return {run.step, 15}; }

  Team team_;
  std::span<const int> peers_;
  int me_;
  std::uint32_t phases_ = 0;  // that have begun: the same number on every member
};

class MessageLocalTeam final : public LocalTeam {
 public:
  explicit MessageLocalTeam(const Team& team) {
    for (int i = 0; i < 3; ++i) phases_.emplace_back(team);
  }
  LocalPhases& phases_of(std::uint64_t sequence) noexcept override { return phases_[sequence % phases_.size()]; }

 private:
  std::deque<MessagePhases> phases_;
};

}  // namespace aiacc::hier
