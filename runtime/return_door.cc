#include "runtime/return_door.h"

#include <utility>

namespace aiacc {

void ReturnDoor::open(const wire::Secret& secret, std::uint64_t job, int size) {
  secret_ = secret;
  expected_ = {wire::Purpose::kControl, job, 0, size};
  reception_.open();
}

Task<void> ReturnDoor::greet(std::unique_ptr<io::Stream> stream, bool* stranger, Stop& stop) {
  wire::ListenerHandshake handshake(secret_, expected_, entropy_);
  const bool proved = co_await wire::hear_proof(handshake, *stream, stop);
  if (!proved) co_return;
  *stranger = false;
  const int rank = handshake.who().from;
  const bool welcome = owner_.may_return(rank);
  const wire::Bytes verdict = handshake.decide(welcome ? wire::Verdict::kAccepted : wire::Verdict::kGone, "");
  co_await io::write_all(*stream, verdict, stop);
  if (welcome) owner_.returned(rank, std::move(stream), handshake.keys());
}

}  // namespace aiacc
