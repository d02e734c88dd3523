// How an agent ends its ranks, their remaining descendants, and then itself: by order, or because aiaccrun or the
// keeper is gone.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launcher/agent/agent.h"
#include "launcher/agent/process_tree.h"

namespace aiacc::launcher {

namespace {

constexpr Duration kDrainLook = std::chrono::seconds(1);
constexpr Duration kDeliveryLimit =
    std::chrono::seconds(10);  // for a starter that does not pass the end of the input on

}  // namespace

void Agent::end_ranks(const wire::EndRanks& order) {
  ending_ = true;
  for (Rank& rank : ranks_) {
    if (std::exchange(rank.unsettled, false)) count_exit();
  }
  if (order.everyone) {
    const std::vector<io::ProcessId> all = host_.descendants();
    for (int number : order.signals) {
      for (io::ProcessId process : all) host_.signal(process, number);
    }
  } else {
    for (int number : order.signals) signal_ranks(number);
  }
  if (order.kill_after_ms < 0) return;
  kill_at_ = std::min(kill_at_, after(loop_.now(), std::chrono::milliseconds(order.kill_after_ms)));
  loop_.arm(kill_timer_, kill_at_);
}

void Agent::lost() {
  Escalation escalation(kShortGrace);
  const Escalation::Step step = escalation.lost();
  wire::EndRanks order;
  order.signals.assign(step.signals.begin(), step.signals.end());
  order.kill_after_ms = std::chrono::duration_cast<std::chrono::milliseconds>(step.kill_after).count();
  order.everyone = true;
  end_ranks(order);
}

void Agent::head_lost() {
  head_closed_.set();
  if (std::exchange(head_gone_, true)) return;
  for (CreditGate& gate : gates_) gate.discard();
  to_head_.discard();
  lost();
  decided_.set();
}

Task<void> Agent::watch_keeper(Stop& stop) {
  std::byte nothing[1];
  try {
    while (co_await keeper_.read_some(nothing, stop) > 0) {
    }
  } catch (const Error&) {
    if (stop.requested()) throw;
  }
  wire::KeeperLost message;
  to_head_.send(message);
  lost();
}

Task<void> Agent::killer(Stop& stop) {
  co_await kill_now_.wait(stop);
  const std::vector<io::ProcessId> left = co_await kill_descendants(loop_, host_, kKillLimit, stop);
  if (left.empty()) co_return;
  notify(MessageId::kLeftover, fmt::format("cannot end {}: the kernel holds them in a system call (state D)",
                                           describe_processes(host_, left)));
  all_exited_.set();
}

// Ends processes that the ranks left behind, forwards what is still in the pipes, then says good-bye.
Task<void> Agent::finish(Stop& stop) {
  co_await all_exited_.wait(stop);
  const std::vector<io::ProcessId> left = host_.descendants();
  if (!left.empty()) {
    if (!ending_) {
      notify(MessageId::kLeftover, fmt::format("ended {} process{} that ranks left behind: {}", left.size(),
                                               left.size() == 1 ? "" : "es", describe_processes(host_, left)));
    }
    co_await end_descendants(loop_, host_, kShortGrace, stop);
  }
  co_await drain(stop);
  wire::JobEnded message;
  message.dropped_bytes = dropped_;
  if (hellos_ != nullptr) message.unauthenticated = hellos_->unauthenticated();
  to_head_.send(message);
  co_await delivered(stop);
}

// aiaccrun closes the agent's input once it has read the agent's last message. An agent that ended before that could lose
// what is still on its way: slurmstepd closes its connection to srun when the task has ended, and if srun sends anything
// then, the connection is reset.
Task<void> Agent::delivered(Stop& stop) {
  co_await to_head_.flushed(stop);
  Stop patience(stop);
  Deadline deadline(loop_, after(loop_.now(), kDeliveryLimit), patience, "aiaccrun does not close");
  try {
    co_await head_closed_.wait(patience);
  } catch (const Error&) {
    stop.throw_if_requested();
  }
}

// All writers are dead, so each pipe ends at once, unless a process outside the job has a descriptor of it.
Task<void> Agent::drain(Stop& stop) {
  while (pumping_ > 0) {
    {
      Stop look(stop);
      Deadline deadline(loop_, after(loop_.now(), kDrainLook), look, "output is still open");
      try {
        co_await pumps_done_.wait(look);
        break;
      } catch (const Error&) {
        stop.throw_if_requested();
      }
    }
    auto waits = [](const OutputPump& one) { return one.finished() || one.waits_for_data(); };
    if (std::all_of(pumps_.begin(), pumps_.end(), waits)) break;
  }
}

}  // namespace aiacc::launcher
