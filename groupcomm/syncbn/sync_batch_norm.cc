#include "groupcomm/syncbn/sync_batch_norm.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "base/error.h"

namespace aiacc::syncbn {

SyncBatchNorm::SyncBatchNorm(RealContext& context, Group& group, std::string name)
    : context_(context), group_(group), passes_(std::move(name)) {}

SyncBatchNorm::~SyncBatchNorm() {
  try {
    if (message_.data != nullptr) context_.free(message_);
  } catch (...) {  // the host's memory ends with the job
  }
}

void SyncBatchNorm::forward(const Batch& batch, const Layer& layer, const void* x, void* y, double* saved) {
  const std::lock_guard lock(mutex_);
  passes_.begin_forward(batch, x);
  exchange();
  passes_.end_forward(batch, layer, x, y, saved);
}

void SyncBatchNorm::backward(const Batch& batch, const void* weight, const double* saved, const void* x, const void* dy,
                             void* dx, void* dweight, void* dbias) {
  const std::lock_guard lock(mutex_);
  passes_.begin_backward(batch, saved, x, dy, dweight, dbias);
  exchange();
  passes_.end_backward(batch, weight, saved, x, dy, dx);
}

void SyncBatchNorm::exchange() {
  if (group_.size() == 1) return;
  Buffer buffer;
  buffer.bytes = passes_.message_bytes();
  buffer.data = message(buffer.bytes);
  const Call call = passes_.call();
  try {
    if (group_.run_in_place(call, buffer, passes_)) return;
  } catch (const Error& error) {
    if (error.code() != Code::kMismatch) throw;
    throw passes_.explained(error);
  }
  passes_.read(buffer.data);
}

void SyncBatchNorm::join() {
  const std::lock_guard lock(mutex_);
  if (group_.size() == 1) return;
  CallOptions options;
  options.name = "aiacc_syncbn_join";
  options.timeout = Duration::max();  // the others may have batches for hours
  Call call;                          // a barrier, of no pass
  call.reduction.type = DType::kUInt8;
  try {
    group_.run(call, {}, {}, &options);
  } catch (const Error& error) {
    if (error.code() != Code::kMismatch) throw;
    throw Error(Code::kMismatch, fmt::format("SyncBN '{}', out of batches here: {}", passes_.name(), error.message()),
                error.peer());
  }
}

// Memory for a message. Where there is none, the others, which wait for this rank, are told.
std::byte* SyncBatchNorm::message(std::size_t bytes) {
  if (bytes <= message_.bytes) return message_.data;
  try {
    if (message_.data != nullptr) context_.free(std::exchange(message_, {}));
    message_ = context_.allocate(std::bit_ceil(bytes));
  } catch (const Error& error) {
    context_.abort_group(group_,
                         fmt::format("SyncBN '{}' has no memory for its message: {}", passes_.name(), error.message()));
    throw;
  }
  return message_.data;
}

}  // namespace aiacc::syncbn
