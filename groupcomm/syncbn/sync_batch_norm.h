// SyncBatchNorm: batch normalisation in training, over the batches of all ranks of a group: y = (x - mean) / deviation *
// weight + bias, with mean and variance of a channel over all ranks' elements of it.
//
// Each pass blocks in one allreduce (passes.h). Nothing is negotiated: the order of calls is that of the model's graph, equal
// on all ranks. Messages lie in memory that the ranks of a host share, so that on a host they are not copied.
#pragma once

#include <mutex>
#include <string>

#include "groupcomm/syncbn/passes.h"
#include "runtime/group/group.h"
#include "runtime/real_context.h"

namespace aiacc::syncbn {

class SyncBatchNorm {
 public:
  // Uses `group` alone: no other calls are made on it. Both outlive this object.
  SyncBatchNorm(RealContext& context, Group& group, std::string name);
  ~SyncBatchNorm();
  SyncBatchNorm(const SyncBatchNorm&) = delete;
  SyncBatchNorm& operator=(const SyncBatchNorm&) = delete;

  // As in Passes.
  void forward(const Batch& batch, const Layer& layer, const void* x, void* y, double* saved);
  void backward(const Batch& batch, const void* weight, const double* saved, const void* x, const void* dy, void* dx,
                void* dweight, void* dbias);
  // This rank has no more batches: waits until all ranks have called it. Between a pass and this the ranks' calls differ, which
  // all of them are told at once.
  void join();

 private:
  void exchange();
  std::byte* message(std::size_t bytes);

  RealContext& context_;
  Group& group_;
  std::mutex mutex_;  // guards all below: calls of several threads take turns
  SharedMemory message_;
  Passes passes_;
};

}  // namespace aiacc::syncbn
