// Groups: the groups of one rank beside its world, from their making to the time when nobody needs them any more.
//
// Ids are hashes (design decision 7): of the parent's id, the members in their order, the caller's key, and how many groups
// of that description this rank has made before. All members make theirs in the same order, so they agree without a message.
//
// To free a group is a local call and makes no round either. It stays, with its lines in the host's segment, until all its
// members on this host are done with it (runtime/group_board.h); that is looked at whenever a group is made or freed, and a
// group that finds no free lines waits for those that are on their way out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/group.h"

namespace aiacc {

// What a group is made of.
struct GroupOrder {
  // Creations of different sorts are counted apart: a split does not depend on what else was made of the same ranks.
  enum class Sort : std::uint8_t { kList, kSplit, kMesh };
  Sort sort = Sort::kList;
  std::vector<int> ranks;  // of the parent, in the order of the group; this rank is among them
  std::uint64_t key = 0;
  std::string name;    // for messages; empty: made of the ranks
  Duration timeout{};  // of operations that name none; zero: the configuration's
};

class Groups {
 public:
  explicit Groups(Context& context) noexcept : context_(context) {}

  // All on the lane's thread.
  // A group of some ranks of `parent`. `*made` lives until it was let go and its members are done with it. Throws
  // kOutOfMemory if there are too many groups at once.
  Task<void> make(const View& parent, GroupOrder order, Group** made, Stop& stop);
  // Ends those that were let go and that nobody needs any more.
  Task<void> collect();
  // Ends all: nothing runs in them, and their members have met.
  Task<void> close();

  Group* find(std::uint64_t id) noexcept;
  void rank_lost(const Member& member, const std::exception_ptr& error);
  std::size_t size() const noexcept { return groups_.size(); }

 private:
  std::uint64_t key_of(const View& parent, const GroupOrder& order);
  std::unique_ptr<Group> made_of(const View& parent, const GroupOrder& order, std::uint64_t key);
  bool may_close(Group& group);
  bool some_leave() const noexcept;

  struct Loss {
    Member member;
    std::exception_ptr error;
  };

  Context& context_;
  std::map<std::uint64_t, std::unique_ptr<Group>> groups_;  // by the views' ids
  std::map<std::uint64_t, std::uint64_t> made_;             // groups of each description
  std::vector<Loss> lost_;
};

}  // namespace aiacc
