#include "launcher/head/first_hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <numeric>
#include <optional>
#include <utility>

namespace aiacc::launcher {

namespace {

class FirstHosts final : private HostDiscovery::Owner {
 public:
  FirstHosts(Loop& loop, io::Host& host, const HostSource& source, const FirstHostsSettings& settings)
      : settings_(settings), enough_(loop), discovery_(loop, host, source, *this) {}

  Task<void> find(Stop& stop) { return discovery_.run(stop); }
  Event::Await enough(Stop& stop) noexcept { return enough_.wait(stop); }
  std::optional<std::vector<HostPlan>>& found() noexcept { return found_; }
  int slots() const noexcept { return slots_; }

 private:
  void hosts_listed(const std::vector<HostPlan>& hosts) override {
    std::vector<HostPlan> usable = hosts;
    std::erase_if(usable, [this](const HostPlan& one) {
      return std::find(settings_.unusable.begin(), settings_.unusable.end(), one.name) != settings_.unusable.end();
    });
    slots_ =
        std::accumulate(usable.begin(), usable.end(), 0, [](int sum, const HostPlan& one) { return sum + one.slots; });
    if (slots_ >= settings_.least) {
      found_ = std::move(usable);
      enough_.set();
    } else if (!std::exchange(said_, true)) {
      settings_.say(MessageId::kWaiting, fmt::format("waiting for {} slot{} (--min-np): the script lists {}",
                                                     settings_.least, settings_.least == 1 ? "" : "s", slots_));
    }
  }
  void discovery_failed(const std::string& sentence) override {
    settings_.say(MessageId::kDiscovery, sentence + "; it is run again");
  }
  void discovery_tick() override {}

  const FirstHostsSettings& settings_;
  Event enough_;
  std::optional<std::vector<HostPlan>> found_;
  int slots_ = 0;
  bool said_ = false;
  HostDiscovery discovery_;
};

// Returns the signal by which the user ends the job.
Task<void> wait_for_end(io::Signals* signals, int* number, Event* over, Stop& stop) {
  for (;;) {
    const int came = co_await signals->next(stop);
    if (came == SIGTSTP) signals->stop_self();
    if (came != SIGINT && came != SIGTERM && came != SIGHUP && came != SIGQUIT) continue;
    *number = came;
    over->set();
    co_return;
  }
}

Task<void> wait_for_hosts(FirstHosts* hosts, Event* over, Stop& stop) {
  co_await hosts->enough(stop);
  over->set();
}

}  // namespace

Task<std::variant<std::vector<HostPlan>, JobResult>> first_hosts(Loop& loop, io::Host& host, io::Signals& signals,
                                                                 const HostSource& source,
                                                                 const FirstHostsSettings& settings, Stop& stop) {
  const Instant began = loop.now();
  FirstHosts hosts(loop, host, source, settings);
  Event over(loop);
  int signal = 0;
  Scope scope(loop, stop);
  scope.spawn(hosts.find(scope.stop()));
  scope.spawn(wait_for_end(&signals, &signal, &over, scope.stop()));
  scope.spawn(wait_for_hosts(&hosts, &over, scope.stop()));
  bool timed_out = false;
  {
    Stop patience(scope.stop());
    const Deadline deadline(loop, settings.limit > Duration::zero() ? after(began, settings.limit) : kNever, patience,
                            "no hosts");
    try {
      co_await over.wait(patience);
    } catch (const Error&) {
      timed_out = !scope.stop().requested();
    }
  }
  scope.stop().request(std::make_exception_ptr(Error(Code::kAborted, "the hosts are known")));
  try {
    co_await scope.join();
  } catch (const Error&) {
    stop.throw_if_requested();
  }
  if (hosts.found() && signal == 0) co_return std::move(*hosts.found());
  JobResult result;
  result.ranks_started = false;
  result.took = loop.now() - began;
  if (signal != 0 || !timed_out) {
    result.cause = Cause::kInterrupted;
    result.interrupted_by = signal;
    co_return result;
  }
  result.cause = Cause::kTooFew;
  result.sentence = fmt::format("the script listed {} slot{} and never {} (--min-np) within {:g} s (--elastic-timeout)",
                                hosts.slots(), hosts.slots() == 1 ? "" : "s", settings.least, seconds(settings.limit));
  co_return result;
}

}  // namespace aiacc::launcher
