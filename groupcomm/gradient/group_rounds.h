// GroupRounds: the rounds of a group's members. Within a host a round goes through shared memory: each member writes its
// word into its own memory and publishes the round's number; the leader, the member with the lowest rank, merges them. Between
// hosts the leaders spread what they have merged by radix-4 dissemination (dissemination.h), the longest distance first. The leader
// then publishes the result.
//
// A member that has not begun a round is asked as soon as another has: members watch their leader, the leader watches its
// members and has posted all receives of the round. All of this runs on the lane, so a rank that computes is served by its
// progress thread.
//
// A word that is written stays until every member has read it: whoever has the result of a round knows that all have begun it,
// and so have read all of the round before. Two places for each are therefore enough.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/task/scope.h"
#include "groupcomm/gradient/dissemination.h"
#include "groupcomm/gradient/word.h"
#include "runtime/group/group.h"

namespace aiacc::gradient {

class GroupRounds final : private Root::Owner {
 public:
  // The longest word.
  static constexpr std::size_t kMostBytes = 16 << 10;

  // Called on the lane's thread.
  class Observer {
   public:
    // Another member has begun a round that this one has not.
    virtual void asked(std::uint64_t round) = 0;
    virtual void result(std::uint64_t round, const Word& merged) = 0;
    // No round ends any more: the group is over, or a member does not keep to the protocol.
    virtual void rounds_failed(const std::exception_ptr& error) noexcept = 0;

   protected:
    ~Observer() = default;
  };

  // All on the lane's thread. `group` and `observer` outlive it.
  GroupRounds(Group& group, Observer& observer);
  ~GroupRounds();
  GroupRounds(const GroupRounds&) = delete;
  GroupRounds& operator=(const GroupRounds&) = delete;

  void start();
  // This rank's word of a round: 1, 2, 3 … in order, each after the result of the one before.
  void begin(std::uint64_t round, const Word& word);
  // Takes part no longer. Every round that this rank has begun has its result, or the others learn by other means that it is over.
  Task<void> close();
  // How many messages this rank has sent to other hosts.
  std::uint64_t messages() const noexcept { return messages_; }

 private:
  static constexpr std::uint32_t kLines = 1;
  enum Flag : std::uint32_t { kBegun, kMemory, kResult };
  static constexpr std::size_t kPlaceBytes = kMostBytes + 8;  // with the length
  enum Place : std::uint64_t { kContribution = 0, kMerged = 2, kPlaces = 4 };
  using Bytes = std::vector<std::byte>;
  struct Step {  // of a round between hosts
    std::vector<Bytes> words;
    std::size_t arrived = 0;
  };

  // What peers read: it lives until no member of the host needs the group any more.
  struct Shared;

  bool leads() const noexcept { return local_rank_ == 0; }
  static Task<void> serve(GroupRounds* self);
  Task<void> find(int member);
  Task<void> follow(std::uint64_t round);
  Task<void> lead(std::uint64_t round);
  static Task<void> arrive(GroupRounds* self, int member, std::uint64_t round, Stop& stop);
  static Task<void> send(GroupRounds* self, Exchange* exchange, int to, std::uint32_t tag, Stop& stop);
  static Task<void> receive(GroupRounds* self, Exchange* exchange, int from, std::uint32_t tag, Step* step,
                            std::size_t which, std::uint64_t round, Stop& stop);
  Task<void> disseminate(Exchange& exchange, std::vector<Step>& steps);
  static std::uint32_t tag_of(std::size_t step, std::size_t which) noexcept {
    return static_cast<std::uint32_t>(step * (kDisseminationRadix - 1) + which);
  }
  void ask(std::uint64_t round);
  FlagRef flag(int member, Flag word) const noexcept;
  std::span<const std::byte> read(int member, std::uint64_t place) const;
  void write(std::uint64_t place, const Word& word);
  void merge(std::span<const std::byte> word);
  void root_ended(Root& root, std::exception_ptr error) noexcept override;

  Group& group_;
  Observer& observer_;
  Loop& loop_;
  HostDomain* domain_;  // null if this rank is alone on its host
  std::shared_ptr<Shared> shared_;
  std::vector<int> ranks_;         // in the group, of the members on this host
  std::vector<int> domain_ranks_;  // the same members in the domain
  int local_rank_ = 0;             // index of this rank in both
  std::vector<std::uint32_t> lines_;
  std::vector<int> leaders_;             // of each host, by host
  std::vector<DisseminationStep> plan_;  // among the leaders, the longest distance first

  Stop stop_;
  std::uint64_t begun_ = 0;
  Word word_;    // what this rank contributes to the round begun_
  Word merged_;  // of the round in progress
  Word other_;   // another rank's, while it is merged
  std::uint64_t messages_ = 0;
  Event changed_;
  Event ended_;
  bool closing_ = false;
  std::optional<Root> root_;
};

}  // namespace aiacc::gradient
