// Submissions: what this rank has submitted and not launched, and which tensors are owed a follow-up launch (negotiator.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "groupcomm/gradient/tensor_table.h"

namespace aiacc::gradient {

class Submissions {
 public:
  explicit Submissions(const TensorTable& table) : table_(table) {}

  // Room for the tensors that the table has now.
  void grow();

  // A local tensor, with or without an index. `finite`: no rank needs a warning of it.
  void submit(std::uint32_t local, bool finite, Instant now);
  // A tensor that was submitted without an index has got one.
  void mapped(std::uint32_t local);
  // The tensor is in a launch. True if this rank's submission is in it.
  bool launch(std::uint32_t index);

  bool ready(std::uint32_t index) const noexcept { return tensors_[index].ready; }
  std::size_t pending() const noexcept { return pending_; }  // with and without an index
  bool any_pending_without_index() const noexcept { return without_index_ != 0; }
  bool pending_without_index(std::uint32_t local) const noexcept { return unmapped_[local]; }

  // What no round has taken up yet.
  std::size_t fresh() const noexcept { return fresh_; }
  std::uint64_t fresh_bytes() const noexcept { return fresh_bytes_; }
  Instant oldest_fresh() const noexcept { return oldest_fresh_; }
  bool fresh_owed() const noexcept { return fresh_owed_; }  // others wait for it
  void contributed() noexcept;
  void all_fresh(Instant now);  // what is pending was not contributed to rounds of this kind

  // After a cut: all ranks owe the tensor a follow-up. `absent`: this rank has contributed zeros to the first launch.
  void owe(std::uint32_t index, bool absent);
  bool owed(std::uint32_t index) const noexcept { return index < tensors_.size() && tensors_[index].owed; }
  bool owed_to_me(std::uint32_t index) const noexcept { return tensors_[index].owed && !tensors_[index].absent; }
  bool any_owed() const noexcept { return owed_ != 0; }
  // Of the owed tensors: some that this rank has contributed and that is therefore outstanding here.
  bool any_owed_to_me() const noexcept { return owed_ != absent_; }
  // As the word says it: submitted, or owed by others only.
  bool ready_or_given(std::uint32_t index) const noexcept {
    const Tensor& tensor = tensors_[index];
    return tensor.ready || (tensor.owed && !tensor.absent);
  }

  // The last pending or recently launched tensor that is not finite, kNoIndex if there is none.
  std::uint32_t not_finite() const noexcept { return not_finite_; }
  // It was told in a result. It stays while it is pending or owed by others: their step must hear of it too.
  void told_not_finite() noexcept;

 private:
  struct Tensor {
    bool ready = false;
    bool finite = true;
    bool owed = false;
    bool absent = false;
  };

  const TensorTable& table_;
  std::vector<Tensor> tensors_;                // by index
  std::vector<bool> unmapped_, unmapped_bad_;  // by local id
  std::size_t pending_ = 0, without_index_ = 0, fresh_ = 0, owed_ = 0, absent_ = 0;
  std::uint64_t fresh_bytes_ = 0;
  Instant oldest_fresh_ = kNever;
  bool fresh_owed_ = false;
  std::uint32_t not_finite_ = kNoIndex;
};

}  // namespace aiacc::gradient
