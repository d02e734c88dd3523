// RealContext: a Context of a living process, with the loop, lane and processor that drive it. What the C ABI's handles
// name. Shared: by its handle, by requests and by calls in progress; the last one to let go destroys it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/data/cpu_compute.h"
#include "base/io/real_clock.h"
#include "base/io/real_loop.h"
#include "base/log.h"
#include "base/task/completion_thread.h"
#include "base/task/lane.h"
#include "runtime/context.h"

namespace aiacc {

struct SharedMemory {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  HostRange range;
};

class RealContext final : private ProgressWatch::Reporter {
 public:
  using MakeBootstrap = std::function<std::unique_ptr<Bootstrap>(io::RealLoop& loop)>;

  // Comes up through the provider; throws its sentence, or kTimeout after config.init_timeout.
  static std::shared_ptr<RealContext> join(const RuntimeConfig& config, const MakeBootstrap& make_bootstrap);
  // The same for ranks that share this thread: each is born before the first waits for the others.
  static std::vector<std::shared_ptr<RealContext>> join_all(const RuntimeConfig& config,
                                                            const std::vector<MakeBootstrap>& make_bootstraps);
  ~RealContext();

  Context& context() noexcept { return *context_; }
  Group& world() noexcept { return context_->world(); }
  Logger& log() noexcept { return *log_; }

  // Waits for running operations, and for callbacks, which may begin others.
  void settle();
  // Leaves the job in order: waits for running operations, meets the others in a barrier if the world is not aborted, and
  // says goodbye. It has left when this returns, also by an exception (what went wrong on the way). Called once.
  void leave();

  // A group of some ranks of `parent`; it lives until Group::let_go() and a while longer.
  Group& make_group(Group& parent, GroupOrder order);
  // Gives back what groups held that nobody needs any more.
  void collect_groups();
  CompletionThread& completions() noexcept { return completions_; }
  // What this rank did last, the oldest first (runtime/recorder.h). Any thread.
  Json recent_operations() { return operations_of(*context_); }
  // Keeps a running operation that nobody asks for any more.
  void adopt(std::unique_ptr<GroupOperation> operation) noexcept;
  void abort_group(Group& group, const std::string& reason);

  // Memory that the ranks of this host share, in whole pages; in a world of one it is the process's own. The caller gives it
  // back before the context goes.
  SharedMemory allocate(std::size_t bytes);
  void free(const SharedMemory& memory);

 private:
  explicit RealContext(const RuntimeConfig& config);
  void late(const std::string& sentence) noexcept override;
  void failed(Context& context, const Group& group, const Error& error) noexcept override;
  void write_records(Context& context, const std::string& reason) noexcept;
  Json operations_of(Context& context);
  void be_born(const MakeBootstrap& make_bootstrap);
  void meet_others();
  Task<void> be_born_on_lane(Stop& stop);
  Task<void> go_down(Stop& stop);
  Task<void> abort_on_lane(Group& group, std::string reason, Stop& stop);
  Task<void> allocate_shared(SharedMemory* memory);
  Task<void> free_shared(HostRange range);

  RuntimeConfig config_;
  io::RealLoop loop_;
  CpuCompute compute_;
  Lane lane_;
  std::unique_ptr<Bootstrap> bootstrap_;
  io::RealClock clock_;
  std::optional<Logger> log_;  // once it is known who we are
  std::unique_ptr<Context> context_;
  std::mutex orphans_mutex_;
  std::vector<std::unique_ptr<GroupOperation>> orphans_;
  CompletionThread completions_{"aiacc-callback"};
};

}  // namespace aiacc
