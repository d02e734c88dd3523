// WaitingReceive: an asynchronous recv from a rank of this host whose message is not there yet. It is all there is of the call: a
// record in the post's queue, without a coroutine, a Stop or a deadline of its own. Its message is copied when it is found.
//
// What seldom happens is an operation's: a recv that waits long (the progress watch supervises it, and meets its deadline), or
// fails, becomes a GroupOperation, which goes on with it from there, under the same ticket and record. A recv that nobody has
// looked after yet ends with its group, by the group's Stop (WaitingReceives).
#pragma once

#include <memory>
#include <optional>

#include "base/intrusive_list.h"
#include "base/task/slab_pool.h"
#include "collectives/intra/intra_post.h"
#include "runtime/group/group_operation.h"
#include "runtime/group/requested_work.h"

namespace aiacc {

class WaitingReceive final : public RequestedWork, public ListNode<WaitingReceive>, public IntraPost::Posted {
 public:
  // For a call that the post of `group` can take (IntraPost::prepare_to_post).
  WaitingReceive(Group& group, const Call& call, const Buffer& recv);
  ~WaitingReceive() override;
  // In the context's pool. Whoever frees it does so before the context is destroyed.
  static void* operator new(std::size_t, SlabPool& pool) { return pool.take(); }
  static void operator delete(void* self, SlabPool&) noexcept { SlabPool::give_back(self); }
  static void operator delete(void* self) noexcept { SlabPool::give_back(self); }

  // --- any thread ------------------------------------------------------------------------------------------------------
  const std::exception_ptr& error() const noexcept override;
  std::uint64_t sequence() const noexcept override { return sequence_; }

  // --- the lane's thread -----------------------------------------------------------------------------------------------
  Instant began() const noexcept { return began_; }
  Instant deadline() const noexcept;
  std::uint64_t record() const noexcept;
  // From now on it is supervised as an operation, and ends with it.
  void become_operation();
  // For that operation: waits until the message is there, and throws why it is not.
  Task<void> arrive(Stop& stop);

 private:
  friend class WaitingReceives;
  struct Upgrade;

  void begin() noexcept override;
  bool received(std::exception_ptr error) noexcept;
  void stopped(const std::exception_ptr& reason) noexcept;
  void end(Code code) noexcept;

  Group& group_;
  std::uint64_t sequence_ = 0;
  Instant began_{};
  std::unique_ptr<Upgrade> upgrade_;  // once it has failed, or is an operation
};

// Those of a group.
class WaitingReceives final : public IntraPost::Posted::Owner, private Stop::Waiter, private Job {
 public:
  explicit WaitingReceives(Group& group) noexcept : group_(group) {}
  // The group's post finds the message of `receive`, from now on.
  void add(WaitingReceive& receive) noexcept;

 private:
  void received(IntraPost::Posted& receive, std::exception_ptr error) noexcept override;
  void on_stop(const std::exception_ptr& reason) noexcept override;
  void run() noexcept override;

  Group& group_;
  IntrusiveList<WaitingReceive> failed_;  // alone, and not with the group
};

}  // namespace aiacc
