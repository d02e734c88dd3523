// Phases of one operation over messages, in its exchange or one of their own.
#pragma once

#include <optional>
#include <vector>

#include "collectives/net/net_call.h"

namespace aiacc::net {

class Phases {
 public:
  explicit Phases(Operation& op)
      : op_(op),
        part_{.whole = op.whole(),
              .ranks = op.inputs(),
              .exchange = op.part == nullptr ? nullptr : op.part->exchange,
              .members = is_among_some(op) ? op.part->members : std::span<const int>(),
              .place = is_among_some(op) ? op.part->place : 0,
              .first_step = op.part == nullptr ? 0 : op.part->first_step},
        shards_{op.call.count, static_cast<std::size_t>(ranks_in(op))} {
    if (part_.exchange == nullptr) {
      own_.emplace(*op.team.mailbox, op.team.view, op.team.rank, op.sequence, op.whole().fingerprint(),
                   CallNote(op.whole().summary()));
      part_.exchange = &*own_;
    }
    for (std::size_t place = 0; place < shards_.parts; ++place) {
      blocks_.push_back({shards_.offset(place), shards_.length(place)});
    }
  }
  // A call on the operation's elements, cut into a shard for each rank.
  Operation phase(Collective kind, Buffer send, Buffer recv) { return phase(kind, op_.call.reduction, send, recv); }
  Operation phase(Collective kind, const Reduction& reduction, Buffer send, Buffer recv) {
    Call call = op_.call;
    call.kind = kind;
    call.reduction = reduction;
    call.uneven = true;
    call.blocks = blocks_;
    return {op_.team, call, op_.sequence, op_.stop, send, recv, &part_};
  }
  // A call on all of them.
  Operation whole_phase(Collective kind, const Reduction& reduction, Buffer send, Buffer recv) {
    Call call = op_.call;
    call.kind = kind;
    call.reduction = reduction;
    return {op_.team, call, op_.sequence, op_.stop, send, recv, &part_};
  }
  Extent own() const noexcept { return blocks_[static_cast<std::size_t>(place_in(op_))]; }
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

}  // namespace aiacc::net
