// RequestedWork: what a request of the C ABI names: an operation of a group, or a part of an engine above the groups.
#pragma once

#include <cstdint>
#include <exception>

#include "base/task/lane.h"

namespace aiacc {

class RequestedWork : public Work {
 public:
  virtual ~RequestedWork() = default;
  // Any thread, once done(): why it failed, or null.
  virtual const std::exception_ptr& error() const noexcept = 0;
  // Any thread: its number in its group; 0 before it has one.
  virtual std::uint64_t sequence() const noexcept { return 0; }
  // Any thread: a caller begins to wait for it, or looks whether it is done.
  virtual void expect() noexcept {}
  // Whether its beginning may hand the loop something that is to leave at once.
  virtual bool sends() const noexcept { return true; }
};

}  // namespace aiacc
