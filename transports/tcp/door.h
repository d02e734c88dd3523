// Door: lets in who proves to be a rank of this job (base/wire/reception.h).
#pragma once

#include <memory>

#include "base/wire/reception.h"
#include "transports/tcp/dial.h"
#include "transports/tcp/shared.h"

namespace aiacc::tcp {

class DoorOwner {
 public:
  virtual wire::Verdict judge(int rank, const Terms& theirs) noexcept = 0;
  virtual Terms terms_for(int rank) noexcept = 0;
  virtual void let_in(int rank, std::unique_ptr<io::Stream> stream, const Terms& theirs, wire::Bytes preface) = 0;
  // It is of this job, and the two will never talk.
  virtual void turn_away(int rank, const Error& why) noexcept = 0;

 protected:
  ~DoorOwner() = default;
};

class Door final : private wire::Reception::Owner {
 public:
  Door(Shared& shared, DoorOwner& owner, std::unique_ptr<io::Listener> listener);
  void open() { reception_.open(); }
  void close() noexcept { reception_.close(); }

 private:
  Task<void> greet(std::unique_ptr<io::Stream> stream, bool* stranger, Stop& stop) override;
  void turned_away() noexcept override {
    if (!shared_.closed) ++shared_.refused;
  }

  Shared& shared_;
  DoorOwner& owner_;
  wire::Reception reception_;
};

}  // namespace aiacc::tcp
