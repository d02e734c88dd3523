#include "runtime/real_context.h"

#include <fmt/format.h>

#include <new>

#include "base/io/real_net.h"
#include "base/io/resolve.h"
#include "base/json.h"
#include "base/log.h"
#include "base/whole_file.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/group/groups.h"
#include "runtime/lane_task.h"
#include "runtime/metrics/metrics.h"
#include "runtime/metrics/metrics_export.h"
#include "runtime/timeline/timeline.h"
#include "runtime/watch/record_file.h"
#include "runtime/watch/recorder.h"

namespace aiacc {
namespace {

constexpr std::size_t kPageBytes = 4096;
// A rank that only computes has not seen yet what its agent says, and which ranks have died. The loop looks for it while it waits for a
// timer, if that is not over at once.
constexpr Duration kLook = std::chrono::microseconds(50);

}  // namespace

RealContext::RealContext(const RuntimeConfig& config) : config_(config), lane_(loop_, &loop_, "aiacc-progress") {
  io::RealLoop::SpinPolicy policy = loop_.spin_policy();
  policy.spin = config.spin;
  policy.yield = config.yield;
  loop_.set_spin_policy(policy);
}

RealContext::~RealContext() = default;

Group& RealContext::world() noexcept { return context_->world(); }

const std::string& RealContext::transport() const noexcept { return context_->transport(); }

Json RealContext::recent_operations() { return operations_of(*context_); }

std::shared_ptr<RealContext> RealContext::make(const RuntimeConfig& config) {
  const auto owners_gone = [](RealContext* context) {
    if (context->requests_.owners_are_gone()) delete context;
  };
  return {new RealContext(config), owners_gone};
}

std::shared_ptr<RealContext> RealContext::join(const RuntimeConfig& config, const MakeBootstrap& make_bootstrap) {
  return std::move(join_all(config, {make_bootstrap}).front());
}

std::vector<std::shared_ptr<RealContext>> RealContext::join_all(const RuntimeConfig& config,
                                                                const std::vector<MakeBootstrap>& make_bootstraps) {
  std::vector<std::shared_ptr<RealContext>> contexts;
  for (const MakeBootstrap& make_bootstrap : make_bootstraps) {
    contexts.push_back(make(config));
    contexts.back()->bootstrap(make_bootstrap);
  }
  for (const auto& context : contexts) context->open_world();
  return contexts;
}

void RealContext::bootstrap(const MakeBootstrap& make_bootstrap) {
  bootstrap_ = make_bootstrap(loop_);
  LaneTask::run(
      lane_, config_.init_timeout,
      fmt::format("the job did not come together within {:.6g} s (AIACC_INIT_TIMEOUT)", seconds(config_.init_timeout)),
      [this](Stop& stop) { return bootstrap_on_lane(stop); });
}

Task<void> RealContext::bootstrap_on_lane(Stop& stop) {
  BootstrapResult bootstrapped = co_await bootstrap_->join(stop);
  log_ = std::make_unique<Logger>(config_.log, fmt::format("rank {} on {}", bootstrapped.rank, bootstrapped.host_name),
                                  clock_);
  for (const std::string& remark : bootstrapped.remarks) AIACC_LOG(*log_, kBootstrap, kWarn, "{}", remark);
  if (bootstrapped.port != nullptr) {
    if (bootstrapped.rank == 0) {
      AIACC_LOG(*log_, kNet, kInfo, "the network between the hosts of this job is {}", bootstrapped.network);
    }
    protect(bootstrapped);
    bootstrapped.port->tell_remarks_to(
        [this](const std::string& remark) { AIACC_LOG(*log_, kNet, kWarn, "{}", remark); });
  }
  ProgressWatch::Reporter& reporter = *this;
  context_ = std::make_unique<Context>(lane_, compute_, std::move(bootstrapped), config_, reporter);
  bootstrap_->observe(*context_);
  context_->tell_losses_to(*bootstrap_);
}

void RealContext::protect(const BootstrapResult& bootstrapped) {
  switch (config_.encryption) {
    case Encryption::kData: return bootstrapped.port->encrypt();
    case Encryption::kIntegrity: return bootstrapped.port->authenticate();
    case Encryption::kNone: break;
  }
  if (config_.plain_on_purpose || bootstrapped.rank != 0 || bootstrapped.world->hosts() < 2) return;
  AIACC_LOG(*log_, kNet, kWarn,
            "the messages of this job travel unprotected between its {} hosts: who sees them and can send packets can "
            "change results. AIACC_ENCRYPT=integrity or data protects them; AIACC_ENCRYPT=none ends this warning",
            bootstrapped.world->hosts());
}

bool RealContext::takes_notes() const noexcept { return log_->logs(LogPart::kCollective, LogLevel::kInfo); }

void RealContext::note(const std::string& sentence) noexcept { AIACC_LOG(*log_, kCollective, kInfo, "{}", sentence); }

void RealContext::late(const std::string& sentence) noexcept {
  AIACC_LOG(*log_, kCollective, kWarn, "{}", sentence);
  write_records(*context_, sentence);
}

// Logs this rank's last operations, which explain why ranks disagree or wait for each other. After the loss of a peer or
// path the cause is known, and a line of every other rank would hide the lost rank's own output; the line is then of level
// info.
void RealContext::failed(Context& context, const Group& group, const Error& error) noexcept {
  constexpr std::size_t kLogged = 4;
  const bool riddle =
      error.code() != Code::kPeerFailed && error.code() != Code::kUnreachable && error.code() != Code::kAborted;
  const LogLevel level = riddle ? LogLevel::kWarn : LogLevel::kInfo;
  write_records(context, error.message());
  if (!log_->logs(LogPart::kCollective, level)) return;
  try {
    const Instant now = loop_.now();
    std::string list;
    for (const Record& record : context.recorder().last(kLogged))
      list += (list.empty() ? "" : "; ") + record.describe(now);
    log_->write(LogPart::kCollective, level,
                fmt::format("{} is over ({}). The last operations of this rank: {}", group.describe(),
                            code_name(error.code()), list.empty() ? "none" : list));
  } catch (...) {  // no memory for the line; the caller gets the error in any case
  }
}

void RealContext::write_records(Context& context, const std::string& reason) noexcept {
  if (config_.records.empty()) return;
  try {
    const int rank = static_cast<int>(context.self().id);
    write_record_file(config_.records, rank, context.host_name(), reason, operations_of(context));
  } catch (const std::exception& error) {
    AIACC_LOG(*log_, kCollective, kWarn, "{}", error.what());
  }
}

Json RealContext::operations_of(Context& context) {
  const Instant now = loop_.now();
  const std::int64_t wall_ns = clock_.wall_ns();
  Json::Array operations;
  for (const Record& record : context.recorder().last()) operations.push_back(record.to_json(now, wall_ns));
  return operations;
}

void RealContext::open_world() {
  try {
    LaneTask::run(lane_, config_.init_timeout,
                  fmt::format("not all ranks of this host had set up their part of the shared memory after {:.6g} s "
                              "(AIACC_INIT_TIMEOUT)",
                              seconds(config_.init_timeout)),
                  [this](Stop& stop) { return context_->open(stop); });
  } catch (const Error& error) {
    if (!config_.elastic || error.code() != Code::kPeerFailed) throw;
    leave_unopened();
    throw WorldLost(error.code(), error.message(), error.peer());
  }
  if (!config_.timeline.empty()) begin_timeline();
  if (!config_.metrics.empty()) begin_metrics();
}

// So that the agent does not take it for lost.
void RealContext::leave_unopened() noexcept {
  try {
    LaneTask::run(lane_, config_.init_timeout, "leaving took too long", [this](Stop& stop) { return shut_down(stop); });
  } catch (const std::exception& error) {
    AIACC_LOG(*log_, kBootstrap, kInfo, "{}", error.what());
  }
}

// So it is worth more than its metrics.
void RealContext::begin_metrics() noexcept {
  constexpr Duration kResolver = std::chrono::seconds(5);
  try {
    const MetricsPlace place = MetricsPlace::of(config_.metrics, world().rank(), world().local_rank());
    std::unique_ptr<io::Listener> listener;
    if (place.file.empty()) {
      const std::vector<io::Address> addresses = io::resolve({place.host, place.port}, kResolver);
      listener = io::RealNet(loop_).listen(addresses.front());
    } else if (const int error = check_writable(place.file); error != 0) {
      throw system_error(fmt::format("cannot write to {}", place.file), error);
    }
    const MetricsOwner owner{world().rank(), world().size(), context_->host_name()};
    metrics_export_ = std::make_unique<MetricsExport>(
        loop_, place, std::move(listener), [this, owner] { return metrics_text(owner, context_->metrics()); },
        [this](const std::string& sentence) { AIACC_LOG(*log_, kCore, kWarn, "{}", sentence); });
    lane_.start(*metrics_export_);
  } catch (const std::exception& error) {
    metrics_export_.reset();
    AIACC_LOG(*log_, kCore, kWarn, "there will be no metrics (AIACC_METRICS): {}", error.what());
  }
}

void RealContext::end_metrics() noexcept {
  if (metrics_export_ == nullptr) return;
  try {
    LaneTask::run(lane_, Duration::max(), "", [this](Stop& stop) { return metrics_export_->close(stop); });
  } catch (const std::exception& error) {
    AIACC_LOG(*log_, kCore, kWarn, "{}", error.what());
  }
}

// A job is worth more than its timeline.
void RealContext::begin_timeline() noexcept {
  try {
    start_timeline(config_.timeline);
  } catch (const std::exception& error) {
    AIACC_LOG(*log_, kCore, kWarn, "there will be no timeline (AIACC_TIMELINE): {}", error.what());
  }
}

void RealContext::start_timeline(const std::string& file) {
  LaneTask::run(lane_, Duration::max(), "", [&](Stop&) { return start_timeline_on_lane(file); });
}

Task<void> RealContext::start_timeline_on_lane(std::string file) {
  context_->timeline().start(file);
  co_return;
}

void RealContext::stop_timeline() {
  LaneTask::run(lane_, Duration::max(), "", [this](Stop& stop) { return context_->timeline().stop(stop); });
}

int RealContext::hosts_updated() {
  int what = 0;
  LaneTask::run(lane_, Duration::max(), "", [&](Stop& stop) { return hosts_updated_on_lane(&what, stop); });
  return what;
}

Task<void> RealContext::hosts_updated_on_lane(int* what, Stop& stop) {
  co_await sleep_for(loop_, kLook, stop);
  *what = context_->hosts_updated();
}

Json RealContext::metrics() {
  Json json;
  LaneTask::run(lane_, Duration::max(), "", [&](Stop&) { return metrics_on_lane(&json); });
  return json;
}

Task<void> RealContext::metrics_on_lane(Json* json) {
  *json = metrics_json({world().rank(), world().size(), context_->host_name()}, context_->metrics());
  co_return;
}

void RealContext::drain() {
  do {
    LaneTask::run(lane_, config_.init_timeout,
                  fmt::format("operations of this rank were still running {:.6g} s after it began to leave "
                              "(AIACC_INIT_TIMEOUT)",
                              seconds(config_.init_timeout)),
                  [this](Stop& stop) { return context_->become_idle(stop); });
  } while (completions_.drain());
}

void RealContext::leave() {
  std::exception_ptr failed;
  Group& group = world();
  // This comes first, because other ranks may read memory of this rank's groups until their own operations have ended.
  try {
    drain();
  } catch (...) {
    failed = std::current_exception();
  }
  // Who waits for this rank in one of them, instead of leaving, is told that it makes no call there any more.
  if (!failed) collect_groups();
  // Rank 0 collects the timeline: the others send theirs before the barrier, and it writes the last of them after it. Where ranks leave
  // alone, it ends with rank 0.
  const bool leads = group.rank() == 0;
  if (!leads) stop_timeline();
  if (group.size() > 1 && !failed) {
    try {
      end_world();
    } catch (const Error& error) {
      // The group had ended with an earlier error, which its members know; they may have left, so nobody takes part.
      if (error.code() != Code::kAborted) failed = std::current_exception();
    } catch (...) {
      failed = std::current_exception();
    }
  }
  if (leads) stop_timeline();
  end_metrics();
  try {
    LaneTask::run(
        lane_, config_.init_timeout,
        fmt::format("leaving the job took longer than {:.6g} s (AIACC_INIT_TIMEOUT)", seconds(config_.init_timeout)),
        [&](Stop& stop) { return shut_down(stop); });
  } catch (...) {
    if (!failed) failed = std::current_exception();
  }
  if (failed) std::rethrow_exception(failed);
}

// From its end on this rank needs nobody, and nobody this rank.
void RealContext::end_world() {
  LaneTask::run(lane_, Duration::max(), "", [this](Stop& stop) { return end_world_on_lane(stop); });
  if (!bootstrap_->leaves_alone()) world().run(Call{}, {}, {}, nullptr);
}

// Who waits for another call of this rank on the world than its last barrier is told, and where ranks leave alone, and there is none,
// who waits for any. The loss of a rank is an error, as in a barrier, if this rank has seen it by then.
Task<void> RealContext::end_world_on_lane(Stop& stop) {
  const bool alone = bootstrap_->leaves_alone();
  world().say_last(alone ? 0 : 1);
  if (!alone) co_return;
  co_await sleep_for(loop_, kLook, stop);
  world().check_alive();
  static_cast<void>(world().may_close([](int) { return false; }));
}

Task<void> RealContext::shut_down(Stop& stop) {
  LeaveDeadline deadline(loop_);
  co_await context_->close(deadline, stop);
  deadline.start();
  co_await bootstrap_->leave(deadline.of_job(), stop);
}

Group& RealContext::make_group(Group& parent, GroupOrder order) {
  Group* made = nullptr;
  LaneTask::run(
      lane_, config_.init_timeout,
      fmt::format("no room for another group came free within {:.6g} s (AIACC_INIT_TIMEOUT): groups that this "
                  "rank has freed wait for their other members to free them too",
                  seconds(config_.init_timeout)),
      [&](Stop& stop) { return context_->groups().make(parent.view(), std::move(order), &made, stop); });
  return *made;
}

void RealContext::collect_groups() {
  LaneTask::run(lane_, Duration::max(), "", [this](Stop&) { return context_->groups().collect(); });
}

void RealContext::adopt(std::unique_ptr<RequestedWork> operation) noexcept {
  std::lock_guard lock(orphans_mutex_);
  std::erase_if(orphans_, [](const auto& orphan) { return orphan->done(); });
  if (operation->done()) return;
  orphans_.reserve(orphans_.size() + 1);
  orphans_.push_back(std::move(operation));
}

void RealContext::abort_group(Group& group, const std::string& reason) {
  LaneTask::run(lane_, Duration::max(), "", [&](Stop& stop) { return abort_on_lane(group, reason, stop); });
}

// Returns when the notices to other hosts were sent, because this rank may make no further call for long.
Task<void> RealContext::abort_on_lane(Group& group, std::string reason, Stop& stop) {
  group.abort_by_user(reason);
  if (context_->messenger() != nullptr) co_await context_->messenger()->flush(stop);
}

Task<void> RealContext::allocate_shared(SharedMemory* memory) {
  memory->range = context_->host()->allocate(memory->bytes);
  memory->data = context_->host()->view(context_->host()->rank(), memory->range);
  co_return;
}

Task<void> RealContext::free_shared(HostRange range) {
  context_->host()->free(range);
  co_return;
}

SharedMemory RealContext::allocate(std::size_t bytes) {
  SharedMemory memory;
  memory.bytes = bytes;
  if (context_->host() == nullptr) {
    memory.data = static_cast<std::byte*>(::operator new(bytes, std::align_val_t(kPageBytes)));
    return memory;
  }
  LaneTask::run(lane_, Duration::max(), "", [&](Stop&) { return allocate_shared(&memory); });
  return memory;
}

void RealContext::free(const SharedMemory& memory) {
  if (context_->host() == nullptr) {
    ::operator delete(memory.data, std::align_val_t(kPageBytes));
    return;
  }
  LaneTask::run(lane_, Duration::max(), "", [&](Stop&) { return free_shared(memory.range); });
}

}  // namespace aiacc
