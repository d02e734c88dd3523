#include "groupcomm/gradient/submissions.h"

namespace aiacc::gradient {

void Submissions::grow() {
  tensors_.resize(table_.agreed_tensors());
  unmapped_.resize(table_.local_tensors());
  unmapped_bad_.resize(table_.local_tensors());
}

void Submissions::submit(std::uint32_t local, bool finite, Instant now) {
  ++pending_;
  if (fresh_++ == 0) oldest_fresh_ = now;
  fresh_bytes_ += table_.local(local).bytes;
  const std::uint32_t index = table_.index_of(local);
  if (index == kNoIndex) {
    unmapped_[local] = true;
    ++without_index_;
    unmapped_bad_[local] = !finite;
    return;
  }
  Tensor& tensor = tensors_[index];
  tensor.ready = true;
  tensor.finite = finite;
  if (!finite) not_finite_ = index;
  if (tensor.owed) fresh_owed_ = true;
}

void Submissions::mapped(std::uint32_t local) {
  if (!unmapped_[local]) return;
  unmapped_[local] = false;
  --without_index_;
  const std::uint32_t index = table_.index_of(local);
  tensors_[index].ready = true;
  tensors_[index].finite = !unmapped_bad_[local];
  if (unmapped_bad_[local]) not_finite_ = index;
}

bool Submissions::launch(std::uint32_t index) {
  Tensor& tensor = tensors_[index];
  if (tensor.owed) {
    --owed_;
    if (tensor.absent) --absent_;
    tensor.owed = tensor.absent = false;
  }
  if (!tensor.ready) return false;
  tensor.ready = false;
  --pending_;
  return true;
}

void Submissions::contributed() noexcept {
  fresh_ = 0;
  fresh_bytes_ = 0;
  oldest_fresh_ = kNever;
  fresh_owed_ = false;
}

void Submissions::all_fresh(Instant now) {
  contributed();
  fresh_ = pending_;
  if (pending_ != 0) oldest_fresh_ = now;
  for (std::uint32_t index = 0; index < tensors_.size(); ++index) {
    if (!tensors_[index].ready) continue;
    fresh_bytes_ += table_.agreed(index).bytes;
    if (tensors_[index].owed) fresh_owed_ = true;
  }
}

void Submissions::owe(std::uint32_t index, bool absent) {
  tensors_[index].owed = true;
  tensors_[index].absent = absent;
  ++owed_;
  if (absent) ++absent_;
}

void Submissions::told_not_finite() noexcept {
  if (not_finite_ == kNoIndex) return;
  not_finite_ = kNoIndex;
  for (std::uint32_t index = 0; index < tensors_.size(); ++index)
    if (ready_or_given(index) && !tensors_[index].finite) not_finite_ = index;
}

}  // namespace aiacc::gradient
