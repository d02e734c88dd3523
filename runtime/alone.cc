#include "runtime/alone.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

namespace aiacc {
namespace {

Error sizes_differ(const Operation& operation, std::size_t sent, std::size_t expected) {
  return Error(Code::kMismatch,
               fmt::format("rank {} sends itself {} bytes with tag {} and expects {}: sizes must agree",
                           operation.team.rank, sent, operation.call.tag, expected),
               operation.team.rank);
}

}  // namespace

Task<void> run_alone(Operation& operation) {
  const Call& call = operation.call;
  Compute& compute = operation.team.compute;
  switch (call.kind) {
    case Collective::kAllreduce:
    case Collective::kReduce:
    case Collective::kReduceScatter: {
      const std::array destinations{operation.recv};
      const std::array operands{operation.send};
      co_await compute.reduce(destinations, operands, call.count, call.reduction, {true, true, 1});
      break;
    }
    case Collective::kGroupedAllreduce:
      for (const Tensor& tensor : call.tensors) {
        const std::array destinations{tensor.recv};
        const std::array operands{tensor.send};
        const std::size_t count = tensor.send.bytes / call.element_bytes();
        co_await compute.reduce(destinations, operands, count, call.reduction, {true, true, 1});
      }
      break;
    case Collective::kAllgather:
    case Collective::kAlltoall:
    case Collective::kGather:
    case Collective::kScatter: {
      const std::size_t element = call.element_bytes();
      const bool sends_blocks = call.kind == Collective::kAlltoall || call.kind == Collective::kScatter;
      const bool recvs_blocks = call.kind != Collective::kScatter;
      const Extent out = sends_blocks ? call.block(0) : Extent{0, operation.send.bytes / element};
      const Extent in = call.kind == Collective::kAlltoall ? call.recv_block(0)
                        : recvs_blocks                     ? call.block(0)
                                                           : Extent{0, out.count};
      const Buffer from = operation.send.slice(out.begin * element, out.count * element);
      const Buffer to = operation.recv.slice(in.begin * element, in.count * element);
      if (from.bytes > 0 && from.data != to.data) co_await compute.copy(to, from);
      break;
    }
    case Collective::kBroadcast:
    case Collective::kBarrier: break;
    default: throw Error(Code::kInternal, "a group of one does not know this collective");
  }
}

Task<void> Loopback::run(Operation& operation) {
  return operation.call.kind == Collective::kSend ? send(operation) : recv(operation);
}

// The oldest that waits for this tag, unlinked.
Loopback::Waiting* Loopback::waiting_for(std::uint32_t tag) {
  Waiting* found = nullptr;
  recvs_.for_each([&](Waiting& waiting) {
    if (found == nullptr && waiting.operation.call.tag == tag) found = &waiting;
  });
  if (found != nullptr) found->unlink();
  return found;
}

bool Loopback::has_unasked(std::uint32_t tag) const noexcept {
  return std::any_of(early_.begin(), early_.end(), [tag](const Early& each) { return each.tag == tag; });
}

Task<void> Loopback::send(Operation& operation) {
  Waiting* recv = waiting_for(operation.call.tag);
  if (recv == nullptr) {
    Early& early = early_.emplace_back(Early{operation.call.tag, std::vector<std::byte>(operation.send.bytes)});
    if (operation.send.bytes > 0) std::memcpy(early.bytes.data(), operation.send.data, operation.send.bytes);
    watches_.for_each([](Watch& watch) { watch.news_.set(); });
    co_return;
  }
  Event& met = recv->met;
  recv->matched = true;
  const Buffer into = recv->operation.recv;
  if (into.bytes != operation.send.bytes) {
    const Error error = sizes_differ(operation, operation.send.bytes, into.bytes);
    recv->error = std::make_exception_ptr(error);
    met.set();
    throw error;
  }
  co_await operation.team.compute.copy(into, operation.send);
  met.set();
}

Task<void> Loopback::recv(Operation& operation) {
  const auto early =
      std::find_if(early_.begin(), early_.end(), [&](const Early& each) { return each.tag == operation.call.tag; });
  if (early != early_.end()) {
    std::list<Early> mine;
    mine.splice(mine.end(), early_, early);
    std::vector<std::byte>& bytes = mine.front().bytes;
    if (bytes.size() != operation.recv.bytes) throw sizes_differ(operation, bytes.size(), operation.recv.bytes);
    const Buffer from{bytes.data(), bytes.size()};
    co_await operation.team.compute.copy(operation.recv, from);
    co_return;
  }
  Event met(operation.team.loop);
  Waiting self(operation, met);
  recvs_.push_back(self);
  try {
    co_await met.wait(operation.stop);
  } catch (...) {
    self.error = std::current_exception();
  }
  // Once matched, the send is copying to our buffer: a stop has to wait for it.
  Stop none;
  if (self.matched) co_await met.wait(none);
  if (self.error) std::rethrow_exception(self.error);
}

}  // namespace aiacc
