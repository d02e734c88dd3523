#include "base/task/completion_thread.h"

#include <utility>

namespace aiacc {

CompletionThread::~CompletionThread() {
  std::unique_ptr<DriverThread> thread;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
    thread = std::move(thread_);
  }
  if (thread != nullptr) thread->join();
}

void CompletionThread::prepare() {
  std::lock_guard lock(mutex_);
  if (thread_ == nullptr) thread_ = std::make_unique<DriverThread>(name_, [this] { serve(); });
}

void CompletionThread::post(std::unique_ptr<Item> item) noexcept {
  std::lock_guard lock(mutex_);
  Item* const posted = item.get();
  (last_ == nullptr ? first_ : last_->next_) = std::move(item);
  last_ = posted;
  wake_.notify_one();
}

bool CompletionThread::drain() noexcept {
  std::unique_lock lock(mutex_);
  if (first_ == nullptr && !running_) return false;
  idle_.wait(lock, [this] { return first_ == nullptr && !running_; });
  return true;
}

void CompletionThread::serve() noexcept {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return first_ != nullptr || stopping_; });
    if (first_ == nullptr) return;
    std::unique_ptr<Item> item = std::move(first_);
    first_ = std::move(item->next_);
    if (first_ == nullptr) last_ = nullptr;
    running_ = true;
    lock.unlock();
    item->run();
    item.reset();
    lock.lock();
    running_ = false;
    if (first_ == nullptr) idle_.notify_all();
  }
}

}  // namespace aiacc
