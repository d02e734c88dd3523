// Groups: all groups of one rank except its world, from creation until no member needs them any more.
//
// Ids are hashes (design decision 7): of the parent's id, the members in their order, the caller's key, and the number
// of groups of that description that this rank has created before. All members create them in the same order, so they
// agree on ids without communication.
//
// Freeing a group is local too. It stays, with its lines in the host's segment, until all its members on this host are
// done with it (runtime/group/group_board.h). This is checked whenever a group is created or freed; a new group that
// finds no free lines waits for freed groups to go.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/task/stop.h"
#include "base/task/task.h"
#include "base/time.h"
#include "base/view.h"
#include "transports/message.h"

namespace aiacc {

class Context;
class Group;

// The description of a group to create.
struct GroupOrder {
  // Each sort has its own count, so that a split does not depend on other groups of the same ranks.
  enum class Sort : std::uint8_t { kList, kSplit, kMesh, kEngine };
  Sort sort = Sort::kList;
  std::vector<int> ranks;  // of the parent, in the order of the group; this rank is among them
  std::uint64_t key = 0;
  std::string name;                                // for messages; empty: derived from the ranks
  Duration timeout{};                              // default of its operations; zero: the configuration's
  std::optional<TrafficClass> traffic_class = {};  // likewise
};

class Groups {
 public:
  explicit Groups(Context& context) noexcept;
  ~Groups();

  // All on the lane's thread. Creates a group of some ranks of `parent`. `*made` lives until Group::handles_gone() was called
  // and its members are done with it. Throws kOutOfMemory if there are too many groups at once.
  Task<void> make(const View& parent, GroupOrder order, Group** made, Stop& stop);
  // Destroys groups that were let go and that no member needs any more.
  Task<void> collect();
  // Closes all groups. Nothing runs in them, and their members have passed a barrier.
  Task<void> close();

  // Ranks of the world on other hosts, at most kMostToTell, that share a group of at most so many members with this one, or did until
  // this one freed it.
  static constexpr std::size_t kMostToTell = 64;
  std::set<int> members_elsewhere() const;

  Group* find(std::uint64_t id) noexcept;
  void rank_lost(const Member& member, const std::exception_ptr& error);
  std::size_t size() const noexcept { return groups_.size(); }

 private:
  std::uint64_t key_of(const View& parent, const GroupOrder& order);
  std::unique_ptr<Group> made_of(const View& parent, const GroupOrder& order, std::uint64_t key);
  bool may_close(Group& group);
  bool some_leave() const noexcept;
  void add_elsewhere(const Group& group, std::set<int>& ranks) const;
  void remember_elsewhere(const Group& group);

  struct Loss {
    Member member;
    std::exception_ptr error;
  };

  Context& context_;
  std::map<std::uint64_t, std::unique_ptr<Group>> groups_;  // by View::id()
  std::map<std::uint64_t, std::uint64_t> made_;             // number of groups created of each description
  std::vector<Loss> lost_;
  std::deque<int> former_elsewhere_;  // of groups that are gone, the last of which comes last
};

}  // namespace aiacc
