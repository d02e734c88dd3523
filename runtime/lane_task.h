// Runs a task on a lane while the calling thread waits: how a context starts and leaves.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>

#include "base/task/lane.h"
#include "base/task/scope.h"

namespace aiacc {

class LaneTask final : public Work, private Root::Owner {
 public:
  using MakeTask = std::function<Task<void>(Stop& stop)>;

  // Its owner starts it on `lane`, and keeps it until it is done.
  LaneTask(Lane& lane, Duration timeout, std::string sentence, MakeTask make)
      : lane_(lane), timeout_(timeout), sentence_(std::move(sentence)), make_(std::move(make)) {}

  // Runs the task that `make` returns; throws its error, or kTimeout with `sentence` after `timeout`.
  static void run(Lane& lane, Duration timeout, std::string sentence, MakeTask make) {
    LaneTask task(lane, timeout, std::move(sentence), std::move(make));
    lane.run(task);
    if (task.error_) std::rethrow_exception(task.error_);
  }

  const std::exception_ptr& error() const noexcept { return error_; }

 private:
  struct Running {
    Running(Loop& loop, Duration timeout, std::string sentence)
        : deadline(loop, after(loop.now(), timeout), stop, std::move(sentence)) {}
    Stop stop;
    Deadline deadline;
    std::optional<Root> root;
  };

  void begin() noexcept override {
    try {
      running_.emplace(lane_.loop(), timeout_, sentence_);
      running_->root.emplace(lane_.loop(), make_(running_->stop), static_cast<Root::Owner&>(*this));
    } catch (...) {
      end(std::current_exception());
      return;
    }
    running_->root->start();
  }
  void root_ended(Root&, std::exception_ptr error) noexcept override { end(std::move(error)); }
  void end(std::exception_ptr error) noexcept {
    running_.reset();
    error_ = std::move(error);
    finish();
  }

  Lane& lane_;
  Duration timeout_;
  std::string sentence_;
  MakeTask make_;
  std::optional<Running> running_;
  std::exception_ptr error_;
};

}  // namespace aiacc
