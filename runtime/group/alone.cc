#include "runtime/group/alone.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

namespace aiacc {
namespace {

Error sizes_differ(const Operation& operation, std::size_t sent, std::size_t expected) {
  return Error(Code::kMismatch,
               fmt::format("rank {} sends itself {} bytes with tag {} and expects {}: sizes must agree",
                           operation.team.rank, sent, operation.call.tag, expected),
               operation.team.rank);
}

// Whether the result is the input, bit for bit, and there already. Of booleans a kernel leaves 0 or 1.
bool is_done(const Reduction& reduction, const Buffer& send, const Buffer& recv) noexcept {
  const bool as_it_is = reduction.prescale == 1.0 && reduction.postscale == 1.0 && reduction.type != DType::kBool &&
                        !reduction.operands.named() && !reduction.results.named();
  return as_it_is && send.data == recv.data;
}

}  // namespace

Task<void> run_alone(Operation& operation) {
  const Call& call = operation.call;
  Compute& compute = operation.team.compute;
  switch (call.kind) {
    case Collective::kAllreduce:
    case Collective::kReduce:
    case Collective::kReduceScatter: {
      if (is_done(call.reduction, operation.send, operation.recv)) break;
      const std::array destinations{operation.recv};
      const std::array operands{operation.send};
      co_await compute.reduce(destinations, operands, call.count, call.reduction, {true, true, 1}, operation.stop);
      break;
    }
    case Collective::kGroupedAllreduce:
      for (const Tensor& tensor : call.tensors) {
        if (is_done(call.reduction, tensor.send, tensor.recv)) continue;
        const std::array destinations{tensor.recv};
        const std::array operands{tensor.send};
        const std::size_t count = tensor.send.bytes / call.element_bytes();
        co_await compute.reduce(destinations, operands, count, call.reduction, {true, true, 1}, operation.stop);
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
      if (from.bytes > 0 && from.data != to.data) co_await compute.copy(to, from, operation.stop);
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

bool Loopback::has_unexpected(std::uint32_t tag) const noexcept {
  const auto its = tags_.find(tag);
  return its != tags_.end() && !its->second.unexpected.empty();
}

void Loopback::drop_if_empty(std::uint32_t tag) noexcept {
  const auto its = tags_.find(tag);
  if (its != tags_.end() && its->second.unexpected.empty() && its->second.recvs.empty()) tags_.erase(its);
}

Task<void> Loopback::send(Operation& operation) {
  const std::uint32_t tag = operation.call.tag;
  ByTag& its = tags_[tag];
  Waiting* recv = its.recvs.pop_front();
  drop_if_empty(tag);
  if (recv == nullptr) {
    UnexpectedMessage& unexpected = tags_[tag].unexpected.emplace_back(operation.team.loop, operation.send.bytes);
    observer_.unexpected_message(tag);
    const Buffer copy{unexpected.bytes.data(), unexpected.bytes.size()};
    try {
      if (copy.bytes > 0) co_await operation.team.compute.copy(copy, operation.send, operation.stop);
    } catch (...) {
      unexpected.error = std::current_exception();
    }
    const std::exception_ptr error = unexpected.error;
    unexpected.copied.set();  // from here on the message belongs to its receiver
    if (error) std::rethrow_exception(error);
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
  Waiting& receiver = *recv;
  try {
    co_await operation.team.compute.copy(into, operation.send, operation.stop);
  } catch (...) {
    receiver.error = std::current_exception();
  }
  const std::exception_ptr error = receiver.error;
  met.set();
  if (error) std::rethrow_exception(error);
}

Task<void> Loopback::recv(Operation& operation) {
  const std::uint32_t tag = operation.call.tag;
  if (has_unexpected(tag)) {
    std::list<UnexpectedMessage> mine;
    std::list<UnexpectedMessage>& its = tags_[tag].unexpected;
    mine.splice(mine.end(), its, its.begin());
    drop_if_empty(tag);
    Stop none;  // a stop cannot end this wait: the send still writes to the message, and it ends with the group
    co_await mine.front().copied.wait(none);
    if (mine.front().error) std::rethrow_exception(mine.front().error);
    std::vector<std::byte>& bytes = mine.front().bytes;
    if (bytes.size() != operation.recv.bytes) throw sizes_differ(operation, bytes.size(), operation.recv.bytes);
    const Buffer from{bytes.data(), bytes.size()};
    co_await operation.team.compute.copy(operation.recv, from, operation.stop);
    co_return;
  }
  Event met(operation.team.loop);
  Waiting self(operation, met);
  tags_[tag].recvs.push_back(self);
  try {
    co_await met.wait(operation.stop);
  } catch (...) {
    self.error = std::current_exception();
    self.unlink();
    drop_if_empty(tag);
  }
  // A matched send copies into this receive's buffer, so a stopped receive waits for it.
  Stop none;
  if (self.matched) co_await met.wait(none);
  if (self.error) std::rethrow_exception(self.error);
}

}  // namespace aiacc
