// RealContext: a Context of a real process with the loop, lane and Compute that it runs on. The C ABI's context handles
// refer to it. It is shared by its handle, by requests and by calls in progress; the last of them destroys it. Requests are many and
// short-lived, so they are counted apart (BiasedCount).
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/biased_count.h"
#include "base/data/cpu_compute.h"
#include "base/io/real_clock.h"
#include "base/io/real_loop.h"
#include "base/task/completion_thread.h"
#include "base/task/lane.h"
#include "runtime/runtime_config.h"
#include "runtime/shared_memory.h"
#include "runtime/watch/progress_watch.h"

namespace aiacc {

class Bootstrap;
struct BootstrapResult;
class Context;
struct GroupOrder;
class Json;
class Logger;
class MetricsExport;
class RequestedWork;

// A rank was lost while the world of an elastic job opened. This rank has left that world in order and may join the next.
class WorldLost final : public Error {
 public:
  using Error::Error;
};

class RealContext final : private ProgressWatch::Reporter {
 public:
  using MakeBootstrap = std::function<std::unique_ptr<Bootstrap>(io::RealLoop& loop)>;

  // Joins through the provider; throws its error, kTimeout after config.init_timeout, or WorldLost.
  static std::shared_ptr<RealContext> join(const RuntimeConfig& config, const MakeBootstrap& make_bootstrap);
  // The same for ranks that share this thread: all are created before the first one waits for the others.
  static std::vector<std::shared_ptr<RealContext>> join_all(const RuntimeConfig& config,
                                                            const std::vector<MakeBootstrap>& make_bootstraps);
  ~RealContext();

  Context& context() noexcept { return *context_; }
  Group& world() noexcept;
  Logger& log() noexcept { return *log_; }

  // Waits for running operations, and for callbacks, which may begin others.
  void drain();
  // Leaves the job in order: waits for running operations, runs a barrier if the world is not aborted and ranks do not leave alone
  // (Bootstrap::leaves_alone), and shuts down its connections. It has left when this returns or throws; the exception says what went wrong. Called once.
  void leave();

  // Creates a group of some ranks of `parent`. It lives at least until Group::handles_gone().
  Group& make_group(Group& parent, GroupOrder order);
  // Releases freed groups that no member needs any more.
  void collect_groups();
  CompletionThread& completions() noexcept { return completions_; }
  // A trace of this rank and others (runtime/timeline/timeline.h); the file is rank 0's.
  void start_timeline(const std::string& file);
  void stop_timeline();
  // What is known of the next world of an elastic job (Context::hosts_updated).
  int hosts_updated();
  // What components have counted (runtime/metrics/metrics.h).
  Json metrics();
  // The last operations of this rank, the oldest first (runtime/watch/recorder.h). Any thread.
  Json recent_operations();
  const std::string& transport() const noexcept;  // between hosts: "tcp"; "" on one host
  // Takes ownership of a running operation whose request was freed.
  void adopt(std::unique_ptr<RequestedWork> operation) noexcept;
  void abort_group(Group& group, const std::string& reason);

  // A request refers to it from now on: any thread, and who holds the lane. The caller shares it.
  void add_request() noexcept { requests_.add(); }
  void add_request_here() noexcept { requests_.add_here(); }
  // So many do no longer. Any thread: it may be gone then.
  void end_requests(std::int64_t count) noexcept {
    if (requests_.end(count)) delete this;
  }

  // Memory that the ranks of this host share, in whole pages; in a world of one it is private. The caller frees it
  // before the context is destroyed.
  SharedMemory allocate(std::size_t bytes);
  void free(const SharedMemory& memory);

 private:
  explicit RealContext(const RuntimeConfig& config);
  static std::shared_ptr<RealContext> make(const RuntimeConfig& config);
  void late(const std::string& sentence) noexcept override;
  bool takes_notes() const noexcept override;
  void note(const std::string& sentence) noexcept override;
  void failed(Context& context, const Group& group, const Error& error) noexcept override;
  void write_records(Context& context, const std::string& reason) noexcept;
  Json operations_of(Context& context);
  void bootstrap(const MakeBootstrap& make_bootstrap);
  void open_world();
  void leave_unopened() noexcept;
  void begin_timeline() noexcept;
  void begin_metrics() noexcept;
  void end_metrics() noexcept;
  Task<void> bootstrap_on_lane(Stop& stop);
  void protect(const BootstrapResult& bootstrapped);
  void end_world();
  Task<void> end_world_on_lane(Stop& stop);
  Task<void> shut_down(Stop& stop);
  Task<void> start_timeline_on_lane(std::string file);
  Task<void> metrics_on_lane(Json* json);
  Task<void> hosts_updated_on_lane(int* what, Stop& stop);
  Task<void> abort_on_lane(Group& group, std::string reason, Stop& stop);
  Task<void> allocate_shared(SharedMemory* memory);
  Task<void> free_shared(HostRange range);

  BiasedCount requests_;
  RuntimeConfig config_;
  io::RealLoop loop_;
  CpuCompute compute_;
  Lane lane_;
  std::unique_ptr<Bootstrap> bootstrap_;
  io::RealClock clock_;
  std::unique_ptr<Logger> log_;  // set once this rank's identity is known
  std::unique_ptr<Context> context_;
  std::unique_ptr<MetricsExport> metrics_export_;
  std::mutex orphans_mutex_;
  std::vector<std::unique_ptr<RequestedWork>> orphans_;
  CompletionThread completions_{"aiacc-callback"};
};

}  // namespace aiacc
