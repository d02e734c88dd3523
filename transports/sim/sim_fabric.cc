#include "transports/sim/sim_fabric.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "transports/sim/sim_port.h"

namespace aiacc::sim {

SimFabric::SimFabric(World& world, ViewPtr members, FabricModel model)
    : world_(world),
      members_(std::move(members)),
      model_(model),
      ports_(static_cast<std::size_t>(members_->size())),
      nodes_(static_cast<std::size_t>(members_->size()), kNobody) {
  world.watch_deaths(*this);
}

SimFabric::~SimFabric() = default;

std::unique_ptr<SimPort> SimFabric::open(int rank, SimLoop& loop) {
  AIACC_INVARIANT(port(rank) == nullptr, "a rank has one port");
  auto opened = std::make_unique<SimPort>(*this, rank, loop);
  ports_[static_cast<std::size_t>(rank)] = opened.get();
  nodes_[static_cast<std::size_t>(rank)] = loop.node();
  return opened;
}

void SimFabric::cut(int rank, int other) {
  LinkState& state = links_[std::minmax(rank, other)];
  if (state.cut) return;
  state.cut = true;
  state.since = world_.now();
  if (SimPort* one = port(rank); one != nullptr) one->path_broken(other);
  if (SimPort* one = port(other); one != nullptr) one->path_broken(rank);
  const std::uint64_t cuts = ++state.cuts;
  world_.at(after(world_.now(), model_.lease), [this, rank, other, cuts] {
    const LinkState& now = links_[std::minmax(rank, other)];
    if (!now.cut || now.cuts != cuts) return;
    const std::string why = fmt::format("was silent for {} s", seconds(model_.lease));
    if (port(rank) != nullptr) port(rank)->expect_loss(other, world_.now(), why);
    if (port(other) != nullptr) port(other)->expect_loss(rank, world_.now(), why);
  });
}

void SimFabric::heal(int rank, int other) {
  links_[std::minmax(rank, other)].cut = false;
  for (TrafficClass traffic :
       {TrafficClass::kControl, TrafficClass::kLatency, TrafficClass::kBulk, TrafficClass::kBackground}) {
    channel(rank, other, traffic).resume();
    channel(other, rank, traffic).resume();
  }
}

void SimFabric::slow(int rank, int other, unsigned factor) { links_[std::minmax(rank, other)].factor = factor; }

void SimFabric::node_died(NodeId node) noexcept {
  const auto found = std::find(nodes_.begin(), nodes_.end(), node);
  if (found == nodes_.end()) return;
  const int gone = static_cast<int>(found - nodes_.begin());
  for (SimPort* survivor : ports_) {
    if (survivor == nullptr || survivor->rank_ == gone || !survivor->peers_.contains(gone)) continue;
    const Duration noticed = model_.detection + latency(gone, survivor->rank_);
    survivor->expect_loss(gone, after(world_.now(), noticed), "has died");
  }
}

const LinkModel& SimFabric::link(int from, int to) const noexcept {
  return members_->member(from).host == members_->member(to).host ? model_.within_host : model_.between_hosts;
}

const SimFabric::LinkState* SimFabric::state(int from, int to) const noexcept {
  if (links_.empty()) return nullptr;
  const auto found = links_.find(std::minmax(from, to));
  return found == links_.end() ? nullptr : &found->second;
}

bool SimFabric::is_cut(int from, int to) const noexcept {
  const LinkState* known = state(from, to);
  return known != nullptr && known->cut;
}

Duration SimFabric::latency(int from, int to) {
  const LinkModel& model = link(from, to);
  const auto jitter = static_cast<std::uint64_t>(model.jitter.count());
  const Duration span = model.latency + Duration(static_cast<std::int64_t>(world_.random().below(jitter)));
  const LinkState* known = state(from, to);
  return known == nullptr ? span : span * known->factor;
}

Duration SimFabric::transfer(int from, int to, std::uint64_t bytes) const noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide ns = static_cast<Wide>(bytes) * 1'000'000'000 / link(from, to).bytes_per_second;
  const LinkState* known = state(from, to);
  return Duration(static_cast<std::int64_t>(ns)) * (known == nullptr ? 1 : known->factor);
}

SimChannel& SimFabric::channel(int from, int to, TrafficClass traffic) {
  std::unique_ptr<SimChannel>& slot = channels_[{from, to, traffic}];
  if (slot == nullptr) slot = std::make_unique<SimChannel>(*this, from, to);
  return *slot;
}

std::string SimFabric::name(int rank) const {
  const NodeId node = nodes_[static_cast<std::size_t>(rank)];
  return node == kNobody ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, world_.name(node));
}

void SimFabric::recycle(SimMessages& messages) noexcept {
  constexpr std::size_t kKeepBytes = 64 << 10;
  for (SimMessage& message : messages) {
    message.pieces.clear();
    message.payload.clear();
    if (message.payload.capacity() > kKeepBytes) message.payload.shrink_to_fit();
    message.elided = false;
    message.sending = nullptr;
    message.take_completion();
  }
  spare_.splice(spare_.begin(), messages);
}

}  // namespace aiacc::sim
