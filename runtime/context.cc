#include "runtime/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/error_about.h"
#include "runtime/group/group.h"
#include "runtime/group/groups.h"
#include "runtime/group/remote_message.h"
#include "runtime/group/waiting_receive.h"
#include "runtime/group/waiting_small.h"
#include "runtime/metrics/metrics.h"
#include "runtime/timeline/timeline.h"

namespace aiacc {

Context::Context(Lane& lane, Compute& compute, BootstrapResult bootstrapped, const RuntimeConfig& config,
                 ProgressWatch::Reporter& reporter)
    : lane_(lane),
      compute_(compute),
      config_(config),
      job_name_(std::move(bootstrapped.job_name)),
      host_name_(std::move(bootstrapped.host_name)),
      transport_(std::move(bootstrapped.transport)),
      algorithm_table_(std::move(bootstrapped.algorithm_table)),
      world_view_(std::move(bootstrapped.world)),
      rank_(bootstrapped.rank),
      host_(std::move(bootstrapped.host)),
      port_(std::move(bootstrapped.port)),
      services_(lane.loop(), world_view_, rank_, port_.get(), host_.get(), *this),
      messenger_(port_ == nullptr
                     ? nullptr
                     : std::make_unique<Messenger>(lane.loop(), *port_, world_view_, rank_, &services_.receiver())),
      operation_pool_(sizeof(GroupOperation)),
      waiting_pool_(std::max(sizeof(WaitingReceive), sizeof(WaitingSmall)), SlabPool::Takers::kOneAtATime),
      remote_message_pool_(std::max(sizeof(RemoteReceive), sizeof(RemoteSend)), SlabPool::Takers::kOneAtATime),
      reporter_(reporter),
      timeline_(std::make_unique<Timeline>(services_, world_view_, rank_, host_name_, port_.get(),
                                           [this](const std::string& sentence) { reporter_.late(sentence); })),
      metrics_(std::make_unique<Metrics>()),
      watch_(lane.loop(), config.late_after, reporter),
      paths_(lane.loop(), rank_, config.path_timeout, *this),
      idle_(lane.loop()),
      world_(std::make_unique<Group>(*this, world_view_, rank_, "the world", config.timeout)),
      groups_(std::make_unique<Groups>(*this)) {
  if (config.horovod_timeline) timeline_->use_names(TimelineNames::of_horovod());
  if (messenger_ != nullptr) messenger_->set_observer(this);
}

Context::~Context() = default;

// In an elastic job, a world that has lost a rank does not open: the lost one may never have set up its memory, and the
// next world is there for the others. In other jobs the program decides what to do without the lost rank.
Task<void> Context::open(Stop& stop) {
  if (!config_.elastic) {
    co_await world_->open(stop);
    co_return;
  }
  if (first_loss_) std::rethrow_exception(first_loss_);
  Stop opening(stop);
  struct Scoped {
    explicit Scoped(Stop*& place, Stop& stop) : where(place) { where = &stop; }
    ~Scoped() { where = nullptr; }
    Stop*& where;
  } scoped(opening_, opening);
  co_await world_->open(opening);
}

Task<void> Context::become_idle(Stop& stop) {
  while (!watch_.idle()) {
    idle_.reset();
    co_await idle_.wait(stop);
  }
}

Task<void> Context::close(LeaveDeadline& deadline, Stop& stop) {
  if (host_ != nullptr) host_->say_leaving();
  co_await become_idle(stop);
  co_await services_.close();
  std::set<int> told = services_.partners();
  // Without a last barrier, members of its other groups may still wait for this rank there, also those that it has exchanged
  // nothing with.
  if (world_->aborted()) told.merge(groups_->members_elsewhere());
  co_await groups_->close();
  co_await world_->close(Group::Memory::kMayBeRead);
  if (messenger_ != nullptr) co_await messenger_->leave(told, deadline, stop);
}

int Context::domain_rank_of(const Member& member) const noexcept {
  const auto local = world_view_->ranks_on_host_of(rank_);
  const int rank = world_view_->rank_of(member);
  return static_cast<int>(std::find(local.begin(), local.end(), rank) - local.begin());
}

void Context::services_active(bool active) {
  if (!active) return serving_.back().end();
  serving_.remove_if([](const Serving& before) { return before.done(); });
  serving_.emplace_back();
  try {
    lane_.start(serving_.back());
  } catch (...) {
    serving_.pop_back();
    throw;
  }
}

void Context::group_aborted(std::uint64_t group, const std::exception_ptr& error) noexcept {
  if (Group* aborted = find_group(group); aborted != nullptr) aborted->aborted_between_hosts(error);
}

Receiving Context::receiving(std::uint64_t group) noexcept {
  Group* asked = find_group(group);
  return asked == nullptr ? Receiving{} : asked->receiving();
}

void Context::receiving_reported(std::uint64_t group, int rank, const Receiving& said) noexcept {
  if (Group* asking = find_group(group); asking != nullptr) asking->receiving_reported(rank, said);
}

Group* Context::find_group(std::uint64_t id) noexcept {
  return id == world_->view().id() ? world_.get() : groups_->find(id);
}

void Context::tell_losses_to(Bootstrap& bootstrap) noexcept {
  bootstrap_ = &bootstrap;
  if (lost_rank_ != kNoPeer) bootstrap_->lost_peer(lost_rank_);
  if (!lost_path_.empty()) bootstrap_->lost_path(lost_path_);
}

void Context::lost_peer(const Member& member) noexcept {
  if (lost_rank_ != kNoPeer) return;
  lost_rank_ = world_view_->rank_of(member);
  if (bootstrap_ != nullptr && lost_rank_ != kNoPeer) bootstrap_->lost_peer(lost_rank_);
}

void Context::lost_path(const std::string& sentence) noexcept {
  if (!lost_path_.empty()) return;
  try {
    lost_path_ = sentence;
  } catch (const std::bad_alloc&) {
    return;
  }
  if (bootstrap_ != nullptr) bootstrap_->lost_path(lost_path_);
}

void Context::path_lost(int rank, const std::string& sentence) {
  for (const std::uint64_t id : messenger_->mailbox().groups_waiting_for(rank)) {
    if (Group* group = find_group(id); group != nullptr) group->path_lost(world_view_->member(rank), sentence);
  }
}

std::string Context::obstacle(const Member& member) const {
  const int rank = world_view_->rank_of(member);
  return port_ == nullptr || rank < 0 ? std::string() : port_->obstacle(rank);
}

bool Context::leaving(int rank) const noexcept {
  const Member& member = world_view_->member(rank);
  const bool here = host_ != nullptr && member.host == world_view_->member(rank_).host;
  return here && host_->leaving(domain_rank_of(member));
}

void Context::on_rank_lost(int rank, std::exception_ptr error) noexcept {
  if (!first_loss_) first_loss_ = error;
  if (opening_ != nullptr) opening_->request(error);
  const Member& lost = world_view_->member(rank);
  if (host_ != nullptr && lost.host == world_view_->member(rank_).host) host_->mark_dead(domain_rank_of(lost));
  world_->member_lost(lost, error);
  groups_->rank_lost(lost, error);
  if (rank != rank_ && lost.host == world_view_->member(rank_).host) services_.peer_lost(rank, error);
  if (port_ != nullptr && rank != rank_) port_->lose(rank, std::move(error));
}

}  // namespace aiacc
