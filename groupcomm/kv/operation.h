// Operation: one call of a worker: it begins a key, pushes to it, pulls from it, or both. What a request of aiacc_kv_push names.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/task/loop.h"
#include "groupcomm/kv/layout.h"
#include "groupcomm/kv/part.h"
#include "runtime/group/requested_work.h"

namespace aiacc::kv {

class Store;

// The caller's memory is the store's until the operation is done.
struct Order {
  enum class What : std::uint8_t { kInit, kPush, kPull, kPushPull };
  What what = What::kPush;
  std::string key;
  Shape shape;  // kInit
  const void* in = nullptr;
  void* out = nullptr;
  std::uint64_t in_count = 0, out_count = 0;  // elements of the caller's memory, if not of rows
  bool some_in = false, some_out = false;     // rows only
  std::vector<std::uint64_t> in_rows, out_rows;
  int priority = 0;
  Duration timeout = Duration::max();

  bool pushes() const noexcept { return what == What::kPush || what == What::kPushPull; }
  bool pulls() const noexcept { return what == What::kPull || what == What::kPushPull; }
};

class Operation final : public RequestedWork {
 public:
  Operation(std::shared_ptr<Store> store, Order order) noexcept : store_(std::move(store)), order_(std::move(order)) {}
  const std::exception_ptr& error() const noexcept override { return error_; }
  const Order& order() const noexcept { return order_; }

 private:
  friend class Store;
  // Rows of one part: `rows` in the part, `places` in the caller's arrays.
  struct PartRows {
    std::vector<std::uint64_t> rows;
    std::vector<std::uint64_t> places;
  };
  struct Alarm final : Timer {
    explicit Alarm(Operation& of) : operation(of) {}
    void expired() noexcept override;
    Operation& operation;
  };
  void begin() noexcept override;

  std::shared_ptr<Store> store_;
  Order order_;
  std::exception_ptr error_;
  // The lane's, while it runs.
  enum class Path : std::uint8_t { kNone, kRequests, kTogether };
  Path path_ = Path::kNone;
  Instant deadline_ = kNever;
  std::vector<PartRows> in_, out_;  // by part, where rows are named
  std::size_t left_ = 0;            // requests that are not answered
  Alarm alarm_{*this};
};

}  // namespace aiacc::kv
