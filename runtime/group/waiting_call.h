// WaitingCall: an asynchronous call that waits without an operation. It is all there is of the call: a record where messages are
// matched, or in a queue of collectives (collectives/plain_queue.h), without a coroutine, a Stop or a deadline of its own.
//
//   WaitingSmall    a small collective of a group on one host, or among hosts with one rank each (runtime/group/waiting_small.h)
//   WaitingReceive  a recv from a rank of this host (runtime/group/waiting_receive.h)
//   RemoteReceive   a recv from a rank of another host, and RemoteSend a send to one that has credit for it
//                   (runtime/group/remote_message.h)
//
// What seldom happens is an operation's: one that waits long (the progress watch supervises it, and meets its deadline), or
// fails, becomes a GroupOperation, which goes on with it from there, under the same ticket and record. One that nobody has
// looked after yet ends with its group, by the group's Stop (WaitingCalls).
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "base/intrusive_list.h"
#include "base/task/slab_pool.h"
#include "collectives/intra/intra_messages.h"
#include "collectives/plain_call.h"
#include "collectives/plain_queue.h"
#include "runtime/group/group_operation.h"
#include "runtime/group/requested_work.h"

namespace aiacc {

class WaitingCall : public RequestedWork, public ListNode<WaitingCall> {
 public:
  ~WaitingCall() override;
  // In a pool of the context. Whoever frees it does so before the context is destroyed.
  static void* operator new(std::size_t, SlabPool& pool) { return pool.take(); }
  static void operator delete(void* self, SlabPool&) noexcept { SlabPool::give_back(self); }
  static void operator delete(void* self) noexcept { SlabPool::give_back(self); }

  // --- any thread ------------------------------------------------------------------------------------------------------
  const std::exception_ptr& error() const noexcept override;
  std::uint64_t sequence() const noexcept override { return sequence_; }

  // --- the lane's thread -----------------------------------------------------------------------------------------------
  virtual PlainCall plain() const noexcept = 0;
  Call call() const noexcept { return plain().call(); }
  virtual bool receives() const noexcept = 0;
  Instant began() const noexcept { return began_; }
  Instant deadline() const noexcept;
  std::uint64_t record() const noexcept;
  // It begins as what plain() says, and is not posted yet.
  inline void begin_as(const PlainCall& its) noexcept;  // runtime/group/message_now.h
  // From now on it is supervised as an operation, and ends with it.
  void become_operation();
  // For that operation: goes on until the call is over, and throws why it failed.
  virtual Task<void> go_on(Operation& operation) = 0;

 protected:
  struct Upgrade;
  explicit WaitingCall(Group& group) noexcept;

  // Posts it, which may end it.
  virtual void post() noexcept = 0;
  // Ends it without its message or result. True: now, or it is over already; otherwise released() follows.
  virtual bool withdraw() noexcept = 0;
  virtual Buffer memory() const noexcept = 0;
  // The low bits of its number in the recorder.
  virtual std::uint32_t recorded() const noexcept = 0;
  virtual void set_recorded(std::uint32_t low) noexcept = 0;

  Group& group() const noexcept { return group_; }
  // Has it ended, or does its operation?
  bool ended(std::exception_ptr error) noexcept;
  void released() noexcept;
  void fail_later(std::exception_ptr error) noexcept;
  Task<void> arrival(Stop& stop);
  void rethrow() const;
  bool withdrawn() const noexcept;

 private:
  friend class WaitingCalls;

  void begin() noexcept final;
  bool failed() const noexcept;
  void stopped(const std::exception_ptr& reason) noexcept;
  void end(Code code) noexcept;

  Group& group_;
  std::uint64_t sequence_ = 0;
  Instant began_{};
  std::unique_ptr<Upgrade> upgrade_;  // once it has failed, or is an operation
};

// Those of a group.
class WaitingCalls final : public IntraMessages::Posted::Owner,
                           public PlainQueue::Owner,
                           private Stop::Waiter,
                           private Job {
 public:
  explicit WaitingCalls(Group& group) noexcept : group_(group) {}
  // One begins.
  void add() noexcept;
  // It is to become an operation soon.
  void hand_over(WaitingCall& call) noexcept;
  void some_ended() noexcept;

 private:
  void received(IntraMessages::Posted& receive, std::exception_ptr error) noexcept override;
  void received_all(std::span<IntraMessages::Posted* const> receives) noexcept override;
  void item_ended(PlainQueue::Item& item, std::exception_ptr error) noexcept override;
  void call_ended(WaitingCall& call, std::exception_ptr error) noexcept;
  void on_stop(const std::exception_ptr& reason) noexcept override;
  void run() noexcept override;

  Group& group_;
  IntrusiveList<WaitingCall> handed_over_;
};

}  // namespace aiacc
