// CompletionThread: runs user callbacks for completed operations. The progress engine never runs user code, because
// that may hold a lock (an interpreter's, a framework's) that the thread driving the lane waits for. The thread is
// created on demand.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "base/task/driver_thread.h"

namespace aiacc {

class CompletionThread {
 public:
  class Item {
   public:
    virtual ~Item() = default;
    virtual void run() noexcept = 0;  // on the thread, with no lock held

   private:
    friend class CompletionThread;
    std::unique_ptr<Item> next_;
  };

  explicit CompletionThread(std::string name) : name_(std::move(name)) {}
  ~CompletionThread();  // runs the remaining items
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;

  // Any thread, before the first post(). Throws kSystem if the thread cannot be created.
  void prepare();
  // Any thread; items run in the order of the posts.
  void post(std::unique_ptr<Item> item) noexcept;
  // Waits until every item has run; false if there was none. Must not be called on the thread itself.
  bool drain() noexcept;

 private:
  void serve() noexcept;

  std::string name_;
  std::mutex mutex_;  // guards all members below
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::unique_ptr<Item> first_;
  Item* last_ = nullptr;
  bool running_ = false;
  bool stopping_ = false;
  std::unique_ptr<DriverThread> thread_;
};

}  // namespace aiacc
