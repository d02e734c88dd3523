// Outgoing: a frame that a peer is to get. Fetch: a payload that is on its way into its place.
#pragma once

#include <cstdint>
#include <list>
#include <vector>

#include "transports/active/frame.h"
#include "transports/active/module_api.h"

namespace aiacc::active {

class Link;

struct Outgoing : Operation, SendCompletion::Message {
  Link* link = nullptr;
  std::list<Outgoing>* in = nullptr;  // the list where it is
  std::list<Outgoing>::iterator self{};
  FramedMessage message;
  FramedCounts counts;          // of a farewell
  std::uint64_t bytes = 0;      // of the payload, without the parts of it that were sent
  std::vector<std::byte> copy;  // the payload, of a short message or a part
  std::vector<Extent> extents;  // the payload, without the parts of it that were sent
  bool lent = false;            // the extents are the poster's memory
  bool withdrawn = false;       // and its poster waits for them
  Instant since{};              // when it was withdrawn
  std::exception_ptr error;     // once it has ended
};

struct Fetch : Operation {
  Link* link = nullptr;
  std::list<Fetch>::iterator self{};
  MessageHeader header;
  std::uint64_t number = 0;
  bool asks = false;       // to be told when it has come
  bool failed = false;     // it has ended without its payload, and its place waits for the loss of the peer
  bool abandoned = false;  // it has failed because its endpoint is gone, and the module has not said so
  bool forgotten = false;  // nobody waits for its place
  bool revoked = false;
  Instant since{};  // when it was revoked
};

}  // namespace aiacc::active
