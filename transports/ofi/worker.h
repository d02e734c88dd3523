// Worker: messages of libfabric, and above them what module_api.h promises.
//
// A message is composed in a Buffer, and a short payload copied out of the one that it arrives in. libfabric cannot take a send or
// a receive back from a provider without closing the endpoint, and that serves all peers; Buffers can wait for a peer that has
// stopped.
//
// A long payload stays with the sender until the receiver wants it. Where the provider can close a connection to one peer, the
// receiver reads it into its place (Reads), and disconnect() closes the connection where either end has lent its memory to it.
// Elsewhere the provider gets no memory of the caller's: the receiver grants the payload, and it comes in chunks, in Buffers.
// Numbers name sends and fetches on the wire; what comes for one that has ended is dropped.
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transports/active/module_api.h"
#include "transports/ofi/fabric.h"
#include "transports/ofi/reads.h"
#include "transports/ofi/wire.h"

namespace aiacc::active {

struct Peer;

struct Endpoint {
  Worker* worker = nullptr;
  Peer* peer = nullptr;
  void* callers = nullptr;  // what the callbacks are told
};

// One message, on its way out or to come.
struct Buffer : Pending {
  explicit Buffer(std::size_t room)
      : owned(std::make_unique_for_overwrite<std::byte[]>(room)), text(owned.get(), room) {}

  Peer* to = nullptr;     // null: it is for receiving
  std::size_t place = 0;  // in Peer::outstanding
  std::size_t bytes = 0;
  Operation* operation = nullptr;  // that ends with it
  std::uint64_t send = 0;          // that it is a chunk of
  bool of_former = false;          // it was for an endpoint that is closed
  const std::unique_ptr<std::byte[]> owned;
  const std::span<std::byte> text;

  WireHeader& header() noexcept { return *reinterpret_cast<WireHeader*>(text.data()); }
};

struct Peer {
  fi_addr_t address = FI_ADDR_NOTAVAIL;
  std::unique_ptr<Endpoint> endpoint;  // null: the caller has none, and only answers go there
  std::deque<Buffer*> waiting;         // for the provider to take them
  std::vector<Buffer*> outstanding;    // which it has taken
  std::string problem;                 // not "": it is to be told that the endpoint is broken
  bool has_failed = false;             // libfabric has given up what was on its way there
  // From then on it gets payloads in chunks: to take memory back that was lent to it, its address would be removed once more, and there
  // libfabric 1.17 crashes at times.
  bool had_endpoint = false;
};

class Worker {
 public:
  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();

  // Returns what failed, "" if nothing did.
  std::string open(const std::string& providers);

  const Fabric& fabric() const noexcept { return *fabric_; }
  void call_back(const Callbacks& callbacks) noexcept { callbacks_ = callbacks; }
  bool arm() noexcept;
  bool progress() noexcept;

  Endpoint* connect(std::span<const std::byte> address, void* callers, std::string& why);
  void disconnect(Endpoint* endpoint) noexcept;
  // kFailed: eager, and too long for one message.
  Began send(Endpoint& endpoint, std::span<const std::byte> header, std::span<const Extent> extents, bool rendezvous,
             Operation& operation);
  // False: nobody can be answered at the address in the offer.
  bool fetch(void* payload, void* into, std::size_t bytes, Operation& operation);
  void drop(void* payload);

 private:
  struct Send {
    Operation* operation = nullptr;
    Peer* to = nullptr;
    std::span<const Extent> extents;
    std::size_t skip = 0;  // of the first extent, which has been sent
    std::uint64_t bytes = 0;
    std::uint64_t sent = 0;
    std::uint64_t granted = 0;
    std::uint64_t fetch = 0;  // the receiver's number
    std::size_t under_way = 0;
    std::vector<Registration> exposed;
  };
  struct Fetch {
    Operation* operation = nullptr;
    Peer* from = nullptr;
    std::uint64_t send = 0;  // the sender's number
    std::byte* into = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t received = 0;
    std::uint64_t granted = 0;
  };
  using Sends = std::map<std::uint64_t, Send>;
  using Fetches = std::map<std::uint64_t, Fetch>;

  Buffer* take(std::size_t bytes);
  void give(Buffer* buffer) noexcept;
  Buffer* compose(Peer& to, WireKind kind, std::span<const std::byte> header, std::size_t more);
  void queue(Buffer* buffer);
  bool flush(Peer& peer);
  void receive_into(Buffer* buffer);
  bool post_receives();
  Peer* peer_of(std::span<const std::byte> address, std::string& why);

  void completed(const fi_cq_msg_entry& entry);
  void failed(const fi_cq_err_entry& entry);
  bool read_error();
  void read_ended(const Reads::Ended& ended);
  void sent(Buffer* buffer, const char* problem);
  void tell_broken();

  void arrived(Buffer* buffer, std::size_t bytes);
  void offered(Buffer* buffer, std::size_t bytes);
  void granted(const WireHeader& header);
  void ended(const WireHeader& header);
  void chunk_came(const WireHeader& header, std::span<const std::byte> bytes);
  bool tell_arrived(Buffer* buffer, const WireHeader& header, void* payload, std::uint64_t bytes, bool eager);
  void pump(Sends::iterator one);
  void expose(Send& send, Buffer& offer);
  void copy_out(Send& from, std::byte* to, std::size_t bytes);
  void grant(std::uint64_t number, Fetch& to);
  void refuse(Buffer& offer);
  void end(Peer& from, std::uint64_t send);

  std::unique_ptr<Fabric> fabric_;
  Callbacks callbacks_;
  std::vector<std::unique_ptr<Buffer>> buffers_;  // all
  std::vector<Buffer*> free_;
  std::vector<Buffer*> free_small_;
  std::vector<Buffer*> to_receive_;               // that the provider has not taken yet
  std::map<std::vector<std::byte>, Peer> peers_;  // by address
  std::vector<Peer*> blocked_;                    // with waiting buffers
  std::vector<Peer*> broken_;                     // to be told
  Sends sends_;
  Fetches fetches_;  // in chunks
  Reads reads_;
  std::vector<Reads::Ended> failed_reads_;  // to be told
  std::uint64_t last_number_ = 0;
};

}  // namespace aiacc::active
