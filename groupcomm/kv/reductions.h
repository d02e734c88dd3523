// Reductions: the allreduces by which the workers of a store sum rounds of it themselves, in a group of the workers' own. They begin
// in the order in which a server has told of them, which is the same on each worker.
#pragma once

#include <exception>
#include <list>
#include <memory>
#include <string>

#include "groupcomm/kv/layout.h"
#include "runtime/group/group.h"

namespace aiacc::kv {

class Operation;

class Reductions final : private GroupOperation::Observer {
 public:
  class Owner {
   public:
    // `error` is null on success. Its ranks are those of the workers' group.
    virtual void reduced(Operation& operation, const std::exception_ptr& error) noexcept = 0;

   protected:
    ~Owner() = default;
  };

  // Both outlive it.
  Reductions(Group& workers, Owner& owner);
  ~Reductions();
  Reductions(const Reductions&) = delete;
  Reductions& operator=(const Reductions&) = delete;

  // On the lane's thread, as all here. `in` and `out` are those of the operation, which may be the same.
  void start(Operation& operation, const Shape& shape, const void* in, void* out, CallOptions options);
  // An allreduce has failed, and no other will be well.
  bool over() const noexcept { return group_.aborted(); }
  // Why; null before.
  const std::exception_ptr& why() const noexcept { return group_.stop().reason(); }
  void abort(const std::exception_ptr& why) noexcept { group_.abort(why); }
  // Ends those that run, and returns when none does.
  Task<void> close(const std::string& reason);

 private:
  struct Running {
    std::unique_ptr<GroupOperation> allreduce;
    Operation* operation;
    bool ended = false;
  };
  struct Reap final : Job {
    explicit Reap(Reductions& of) : reductions(of) {}
    void run() noexcept override { reductions.reap(); }
    Reductions& reductions;
  };

  void operation_ended(GroupOperation& allreduce) noexcept override;
  void reap() noexcept;

  Group& group_;
  Owner& owner_;
  std::list<Running> running_;
  Reap reap_{*this};
  Event quiet_;
};

}  // namespace aiacc::kv
