// How a rank that lost its connection to rank 0 comes back to it (docs/wire-protocol.md, "Coming back").
#pragma once

#include <memory>

#include "runtime/meeting_call.h"

namespace aiacc {

class WayBack {
 public:
  // `address` is where rank 0 is found again, `secret` and `job` are the roster's. `net` and `entropy` outlive it.
  WayBack(Loop& loop, io::Net& net, io::Entropy& entropy, const wire::Secret& secret, std::uint64_t job, int rank,
          io::Address address)
      : loop_(loop),
        net_(net),
        entropy_(entropy),
        secret_(secret),
        job_(job),
        rank_(rank),
        address_(std::move(address)) {}

  // A new connection, after as long as rank 0 lives and needs. Throws kPeerFailed with how it was seen that rank 0 is gone.
  Task<std::unique_ptr<wire::SecureChannel>> go(Stop& stop);

 private:
  Loop& loop_;
  io::Net& net_;
  io::Entropy& entropy_;
  wire::Secret secret_;
  std::uint64_t job_;
  int rank_;
  io::Address address_;
};

}  // namespace aiacc
