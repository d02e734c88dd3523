// Phases: runs an operation over messages as several phases, in the operation's exchange or one of their own.
#pragma once

#include <optional>
#include <vector>

#include "collectives/inter/inter_call.h"

namespace aiacc::inter {

class Phases {
 public:
  explicit Phases(Operation& op)
      : op_(op),
        part_{.whole = op.whole(),
              .ranks = op.inputs(),
              .exchange = op.part == nullptr ? nullptr : op.part->exchange,
              .members = is_among_some(op) ? op.part->members : std::span<const int>(),
              .position = is_among_some(op) ? op.part->position : 0,
              .first_step = op.part == nullptr ? 0 : op.part->first_step},
        shards_{op.call.count, static_cast<std::size_t>(ranks_in(op))} {
    if (part_.exchange == nullptr) {
      own_.emplace(*op.team.mailbox, op.team.view, op.team.rank, op.sequence, op.whole().fingerprint(),
                   CallNote(op.whole().summary()));
      own_->set_traffic(op.traffic);
      part_.exchange = &*own_;
    }
    for (std::size_t position = 0; position < shards_.parts; ++position) {
      blocks_.push_back({shards_.offset(position), shards_.length(position)});
    }
  }
  // A call on the operation's elements, split into one shard for each rank.
  Operation phase(Collective kind, Buffer send, Buffer recv) { return phase(kind, op_.call.reduction, send, recv); }
  Operation phase(Collective kind, const Reduction& reduction, Buffer send, Buffer recv) {
    Call call = op_.call;
    call.kind = kind;
    call.reduction = reduction;
    call.uneven = true;
    call.blocks = blocks_;
    return {op_.team, call, op_.sequence, op_.stop, send, recv, &part_};
  }
  // A call on all of the operation's elements.
  Operation whole_phase(Collective kind, const Reduction& reduction, Buffer send, Buffer recv) {
    Call call = op_.call;
    call.kind = kind;
    call.reduction = reduction;
    return {op_.team, call, op_.sequence, op_.stop, send, recv, &part_};
  }
  Extent own() const noexcept { return blocks_[static_cast<std::size_t>(position_in(op_))]; }
  Buffer own_shard(const Buffer& buffer) const noexcept { return own_shard(buffer, op_.call.element_bytes()); }
  Buffer own_shard(const Buffer& buffer, std::size_t element) const noexcept {
    return buffer.slice(own().begin * element, own().count * element);
  }
  std::size_t shard_bytes() const noexcept { return shards_.length(0) * op_.call.element_bytes(); }

 private:
  Operation& op_;
  std::optional<Exchange> own_;
  PartOf part_;
  Parts shards_;
  std::vector<Extent> blocks_;
};

}  // namespace aiacc::inter
