#include "runtime/rendezvous/rendezvous.h"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <utility>

#include "base/io/processes.h"
#include "base/task/scope.h"

namespace aiacc {
namespace {

// A rank watches at most a quarter as many processes as it may have descriptors, which are 1,024 nearly everywhere.
constexpr std::size_t kMostThatLeaveAlone = 256;

constexpr Duration kFirstWord = std::chrono::seconds(20);
constexpr Duration kNextWord = std::chrono::seconds(60);

Task<void> tell_awaited(Loop& loop, const Rendezvous& rendezvous, const TellUser& tell, Stop& stop) {
  const Instant began = loop.now();
  try {
    for (Duration pause = kFirstWord;; pause = kNextWord) {
      co_await sleep_for(loop, pause, stop);
      const std::string awaited = rendezvous.awaited();
      if (!awaited.empty())
        tell(fmt::format("the job has not come together for {:.0f} s: {}", seconds(loop.now() - began), awaited));
    }
  } catch (const Error&) {  // the end of gather()
  }
}

}  // namespace

Task<wire::Roster> gather_and_tell(Loop& loop, Rendezvous& rendezvous, const TellUser& tell, Stop& stop) {
  Scope scope(loop, stop);
  scope.spawn(tell_awaited(loop, rendezvous, tell, scope.stop()));
  std::optional<wire::Roster> roster;
  std::exception_ptr failed;
  try {
    roster = co_await rendezvous.gather(stop);
  } catch (...) {
    failed = std::current_exception();
  }
  scope.stop().request(std::make_exception_ptr(Error(Code::kAborted, "the wait is over")));
  co_await scope.join();
  if (failed) std::rethrow_exception(failed);
  co_return std::move(*roster);
}

bool can_leave_alone(const wire::Roster& roster, const std::vector<std::int32_t>& firsts) {
  if (roster.ranks.size() > kMostThatLeaveAlone) return false;
  std::set<std::string> processes;  // ranks that are threads of one process do not watch each other
  for (std::size_t rank = 0; rank < roster.ranks.size(); ++rank) {
    const std::string& process = roster.ranks[rank].process;
    if (firsts[rank] != firsts[0] || !processes.insert(process).second) return false;
    if (rank > 0 && !io::see_each_other(roster.ranks[0].process, process)) return false;
  }
  return true;
}

std::string too_late(Duration limit, const std::string& arrivals) {
  return fmt::format("the job did not come together within {:.6g} s (AIACC_INIT_TIMEOUT): {}", seconds(limit),
                     arrivals);
}

void check_firsts(const std::vector<std::int32_t>& firsts, int size) {
  if (firsts.size() != static_cast<std::size_t>(size)) {
    throw Error(Code::kProtocol, fmt::format("rank 0 tells where {} ranks are, in a job of {}", firsts.size(), size));
  }
  for (std::int32_t rank = 0; rank < size; ++rank) {
    const std::int32_t first = firsts[static_cast<std::size_t>(rank)];
    if (first >= 0 && first <= rank && firsts[static_cast<std::size_t>(first)] == first) continue;
    throw Error(Code::kProtocol,
                fmt::format("rank {} says that rank {} is the first of its host, and that is not what rank {} says",
                            rank, first, first));
  }
}

}  // namespace aiacc
