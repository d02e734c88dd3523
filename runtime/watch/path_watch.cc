#include "runtime/watch/path_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace aiacc {
namespace {

constexpr Duration kBetweenLooks = std::chrono::seconds(1);

}  // namespace

void PathWatch::broke(int rank) noexcept {
  try {
    const auto known =
        std::find_if(paths_.begin(), paths_.end(), [rank](const Path& path) { return path.rank == rank; });
    if (known == paths_.end()) paths_.push_back({rank, kNever, loop_.now(), {}});
    look();
  } catch (const std::bad_alloc&) {  // the deadlines of the operations end them
  }
}

void PathWatch::look() noexcept {
  const Instant now = loop_.now();
  Instant next = kNever;
  try {
    // Ending a group may break other paths, which are appended to paths_ meanwhile.
    for (std::size_t i = 0; i < paths_.size();) {
      Path path = paths_[i];
      if (look_at(path, now, next)) {
        paths_[i++] = std::move(path);
      } else {
        paths_.erase(paths_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  } catch (const std::bad_alloc&) {
    next = after(now, kBetweenLooks);
  }
  if (next == kNever) {
    disarm();
  } else {
    loop_.arm(*this, next);
  }
}

bool PathWatch::look_at(Path& path, Instant now, Instant& next) {
  if (owner_.rank_is_lost(path.rank)) return false;
  const std::optional<BrokenPath> broken = owner_.broken_path(path.rank);
  if (!broken) {
    if (!path.reported.empty()) {
      owner_.report_path(fmt::format("The path between {} carries messages again after {:.0f} s.", path.reported,
                                     seconds(now - path.broken_since)));
    }
    return false;
  }
  path.broken_since = broken->since;
  next = std::min(next, after(now, kBetweenLooks));
  if (!owner_.waits_for(path.rank)) {
    path.used_since = kNever;
    return true;
  }
  path.used_since = std::min(path.used_since, now);
  const std::string reason = broken->reason.empty() ? "no attempt to connect has ended" : broken->reason;

  const Instant report = after(broken->since, kReportAfter);
  const Instant end = after(std::max(broken->since, path.used_since), timeout_);
  if (path.reported.empty()) {
    if (now >= report) {
      path.reported = broken->ends;
      owner_.report_path(
          fmt::format("The path between {} has been broken for {:.0f} s: {}. What needs it waits for {:.0f} s more "
                      "(AIACC_PATH_TIMEOUT).",
                      broken->ends, seconds(now - broken->since), reason, seconds(std::max(end - now, Duration(0)))));
    } else {
      next = std::min(next, report);
    }
  }
  const Instant mine = rank_ < path.rank ? end : after(end, kForTheNotice);
  if (now < mine) {
    next = std::min(next, mine);
    return true;
  }
  owner_.path_lost(path.rank,
                   fmt::format("the path between {} was broken for {:.0f} s (AIACC_PATH_TIMEOUT): {}. No rank is known "
                               "to have failed: look at the network between these hosts",
                               broken->ends, seconds(now - broken->since), reason));
  path.used_since = kNever;
  return true;
}

}  // namespace aiacc
