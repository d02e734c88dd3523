// PathWatch: supervises broken network paths to ranks of other hosts. If operations wait for a path, it is reported
// once after it has been broken for kReportAfter, and after the path timeout the groups that wait for it end. That is
// not the loss of a rank: agents or rank 0 report dead processes and hosts, while a path may break with both ends
// alive.
//
// Both ends notice it. The end with the lower rank aborts the groups first; if its abort notice reaches the other end
// through a third host within kForTheNotice, all members get the same error.
//
// One timer, armed only while a path is broken. It looks every second, so that it notices when an operation begins to
// wait for a broken path.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/task/loop.h"
#include "transports/message.h"

namespace aiacc {

class PathWatch final : private Timer {
 public:
  static constexpr Duration kReportAfter = std::chrono::seconds(5);
  static constexpr Duration kForTheNotice = std::chrono::seconds(1);

  class Owner {
   public:
    virtual std::optional<BrokenPath> broken_path(int rank) const = 0;
    virtual bool rank_is_lost(int rank) const noexcept = 0;
    // Whether a transfer waits for this rank.
    virtual bool waits_for(int rank) = 0;
    virtual void report_path(const std::string& sentence) = 0;
    // Ends the groups that wait for this rank.
    virtual void path_lost(int rank, const std::string& sentence) = 0;

   protected:
    ~Owner() = default;
  };

  // `rank` is this rank.
  PathWatch(Loop& loop, int rank, Duration timeout, Owner& owner) noexcept
      : loop_(loop), rank_(rank), timeout_(timeout), owner_(owner) {}

  void broke(int rank) noexcept;

 private:
  struct Path {
    int rank;
    Instant used_since = kNever;  // since when operations have waited for it while broken
    Instant broken_since{};
    std::string reported;  // the description of its ends, once it was reported
  };
  void expired() noexcept override { look(); }
  void look() noexcept;
  // False: the path needs no supervision any more.
  bool look_at(Path& path, Instant now, Instant& next);

  Loop& loop_;
  int rank_;
  Duration timeout_;
  Owner& owner_;
  std::vector<Path> paths_;
};

}  // namespace aiacc
