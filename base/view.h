// View: the members of a group. Immutable and shared by all contexts of a process, so data of O(world) size exists
// once. A world is view 0 of its job; groups, shrink and grow make further views (design decision 7).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace aiacc {

// A process that takes part in a job. Its id never changes and is never reused for another process, except that a
// replacement has a higher incarnation.
struct Member {
  std::uint32_t id = 0;  // rank in the world at its start
  std::uint32_t incarnation = 0;
  std::uint32_t host = 0;  // index of its host in the job: members with equal hosts may share memory (verified later)
  bool operator==(const Member&) const = default;
};

class View {
 public:
  // `parent` is the id of the view that it was derived from (0 for a world); `key` distinguishes views with the same
  // members.
  View(std::uint64_t job, std::uint64_t parent, std::uint64_t key, std::uint32_t epoch, std::vector<Member> members);

  // A 64-bit hash of job, parent, key and the ordered members; members verify the whole at first contact.
  std::uint64_t id() const noexcept { return id_; }
  std::uint64_t job() const noexcept { return job_; }
  std::uint32_t epoch() const noexcept { return epoch_; }
  int size() const noexcept { return static_cast<int>(members_.size()); }
  const Member& member(int rank) const noexcept { return members_[static_cast<std::size_t>(rank)]; }
  std::span<const Member> members() const noexcept { return members_; }
  // Rank of a member in this view, or -1.
  int rank_of(const Member& member) const noexcept;

  // Ranks on the same host as `rank`, ascending; computed once for all hosts when the view is made.
  std::span<const int> ranks_on_host_of(int rank) const noexcept;
  int hosts() const noexcept { return static_cast<int>(begins_.size()); }

  // Hosts are numbered 0 .. hosts() - 1 in the order of their indices in the job.
  int host_of(int rank) const noexcept { return host_of_[static_cast<std::size_t>(rank)]; }
  std::span<const int> ranks_on_host(int host) const noexcept;  // ascending
  // The index of this rank among its host's ranks.
  int local_rank_of(int rank) const noexcept { return local_rank_of_[static_cast<std::size_t>(rank)]; }
  // The lowest number of ranks on a host, and the highest.
  int fewest_on_a_host() const noexcept { return fewest_; }
  int most_on_a_host() const noexcept { return most_; }
  // All ranks, host after host.
  std::span<const int> host_by_host() const noexcept { return by_host_; }

 private:
  std::uint64_t job_;
  std::uint64_t id_;
  std::uint32_t epoch_;
  int fewest_ = 0;
  int most_ = 0;
  std::vector<Member> members_;
  std::vector<int> by_host_;        // ranks grouped by host, ascending within one
  std::vector<int> begins_;         // where each host's ranks begin in by_host_
  std::vector<int> host_of_;        // of each rank
  std::vector<int> local_rank_of_;  // of each rank
};

using ViewPtr = std::shared_ptr<const View>;

}  // namespace aiacc
