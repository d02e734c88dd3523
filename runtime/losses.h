// Losses: which ranks are lost, however often and from wherever it is heard: told to the observer once a rank, and kept until
// there is one.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "runtime/bootstrap.h"

namespace aiacc {

class Losses {
 public:
  void observe(BirthObserver& observer) noexcept {
    observer_ = &observer;
    for (const Error& error : std::exchange(untold_, {})) tell(error);
  }
  void lose(int rank, const std::string& sentence) {
    for (const int lost : lost_) {
      if (lost == rank) return;
    }
    lost_.push_back(rank);
    const Error error(Code::kPeerFailed, sentence, rank);
    observer_ == nullptr ? untold_.push_back(error) : tell(error);
  }
  // BirthObserver's
  bool leaving(int rank) const noexcept { return observer_ != nullptr && observer_->leaving(rank); }

 private:
  void tell(const Error& error) noexcept { observer_->on_rank_lost(error.peer(), std::make_exception_ptr(error)); }

  BirthObserver* observer_ = nullptr;
  std::vector<int> lost_;
  std::vector<Error> untold_;
};

}  // namespace aiacc
