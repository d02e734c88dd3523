// Calls for the tests of the collectives on one host. For tests only.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "collectives/operation.h"
#include "tests/host_world.h"

namespace aiacc::intra {

using Bytes = std::vector<std::byte>;

enum class Memory { kPrivate, kShared, kMixed, kDevice };

inline Call call_of(Collective kind, std::size_t count, DType type = DType::kFloat32, ReduceOp op = ReduceOp::kSum,
                    int root = 0) {
  Call call;
  call.kind = kind;
  call.count = kind == Collective::kBarrier ? 0 : count;
  call.reduction = {.type = type, .op = op};
  call.root = root;
  return call;
}

// A buffer of the kind that the case requires for this rank.
class Place {
 public:
  Place(Rank& rank, Memory memory, std::size_t bytes) : domain_(rank.domain) {
    shared_ = memory == Memory::kShared || (memory == Memory::kMixed && rank.rank() % 2 == 1);
    if (memory == Memory::kDevice) {
      device_ = rank.thread->allocate_device(bytes + 8).slice(4, bytes);
      data_ = sim::ThreadedCompute::behind(device_->data);
    } else if (shared_) {
      range_ = domain_.allocate(bytes + 1);
      data_ = domain_.view(rank.rank(), range_);
    } else {
      heap_.resize(bytes + 8);
      data_ = heap_.data() + 4;  // misaligned
    }
  }
  ~Place() {
    if (shared_) domain_.free(range_);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  std::byte* data() const { return data_; }
  // A part of it as an argument of a call.
  Buffer part(std::size_t offset, std::size_t bytes) const {
    return device_ ? device_->slice(offset, bytes) : Buffer{data_ + offset, bytes};
  }

 private:
  HostDomain& domain_;
  std::optional<Buffer> device_;
  bool shared_;
  HostRange range_;
  Bytes heap_;
  std::byte* data_ = nullptr;
};

}  // namespace aiacc::intra
