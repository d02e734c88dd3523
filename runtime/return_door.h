// Where ranks that lost their connection come back to rank 0, for the life of the job: the place at which they met is free for
// the next job.
#pragma once

#include <memory>

#include "base/io/clock.h"
#include "base/wire/reception.h"

namespace aiacc {

class ReturnDoor final : private wire::Reception::Owner {
 public:
  class Owner {
   public:
    virtual bool may_return(int rank) const noexcept = 0;
    // It has proved itself, and was told that it may.
    virtual void returned(int rank, std::unique_ptr<io::Stream> stream, const wire::SessionKeys& keys) = 0;

   protected:
    ~Owner() = default;
  };

  // Owner and entropy outlive the door.
  ReturnDoor(Loop& loop, Owner& owner, std::unique_ptr<io::Listener> listener, io::Entropy& entropy)
      : owner_(owner),
        entropy_(entropy),
        port_(listener->address().port),
        reception_(loop, static_cast<wire::Reception::Owner&>(*this), std::move(listener)) {}

  std::uint16_t port() const noexcept { return port_; }
  // `secret` and `job` are the roster's, of `size` ranks.
  void open(const wire::Secret& secret, std::uint64_t job, int size);

 private:
  Task<void> greet(std::unique_ptr<io::Stream> stream, bool* stranger, Stop& stop) override;
  void turned_away() noexcept override {}  // what is told of strangers is told when all have met

  Owner& owner_;
  io::Entropy& entropy_;
  std::uint16_t port_;
  wire::Secret secret_;
  wire::ListenerHandshake::Expected expected_;
  wire::Reception reception_;
};

}  // namespace aiacc
