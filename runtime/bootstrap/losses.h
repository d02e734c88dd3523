// Losses: collects reports of lost ranks from all sources. The observer is told once for each rank; reports are kept
// until there is an observer.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "runtime/bootstrap/bootstrap.h"

namespace aiacc {

class Losses {
 public:
  void observe(BootstrapObserver& observer) noexcept {
    observer_ = &observer;
    for (const Error& error : std::exchange(unreported_, {})) tell(error);
  }
  void lose(int rank, const std::string& sentence) {
    for (const int lost : lost_) {
      if (lost == rank) return;
    }
    lost_.push_back(rank);
    const Error error(Code::kPeerFailed, sentence, rank);
    observer_ == nullptr ? unreported_.push_back(error) : tell(error);
  }
  // As BootstrapObserver::leaving().
  bool leaving(int rank) const noexcept { return observer_ != nullptr && observer_->leaving(rank); }

 private:
  void tell(const Error& error) noexcept { observer_->on_rank_lost(error.peer(), std::make_exception_ptr(error)); }

  BootstrapObserver* observer_ = nullptr;
  std::vector<int> lost_;
  std::vector<Error> unreported_;
};

}  // namespace aiacc
