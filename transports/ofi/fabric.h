// Fabric: the objects of libfabric that a worker uses, and how it waits for them.
//
// One endpoint of type RDM and one completion queue. The provider makes progress only from inside of our calls (FI_PROGRESS_MANUAL).
// Who blocks waits for one descriptor (epoll) of two: the queue's, if the provider has one, and a timer, because what cannot be sent
// yet has none, and nor has a provider such as shm.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transports/active/module_api.h"
#include "transports/ofi/wire.h"

namespace aiacc::active {

// Memory that peers may read while it exists.
struct CloseRegistration {
  void operator()(fid_mr* region) const noexcept { fi_close(&region->fid); }
};
using Registration = std::unique_ptr<fid_mr, CloseRegistration>;

class Fabric {
 public:
  Fabric() = default;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  ~Fabric();

  // `providers`: separated by commas; the first that there is. Returns what failed, "" if nothing did.
  std::string open(const std::string& providers);

  fid_ep* endpoint() const noexcept { return endpoint_; }
  fid_cq* queue() const noexcept { return queue_; }
  std::size_t receives() const noexcept { return info_->rx_attr->size; }
  // "tcp;ofi_rxm"
  std::string provider() const { return info_->fabric_attr->prov_name; }
  std::string device() const { return info_->domain_attr->name; }
  // The provider's name, a zero, and the endpoint's name; peers connect() with it.
  const std::vector<std::byte>& address() const noexcept { return address_; }
  // FI_ADDR_NOTAVAIL: `why` says why it is no address of this provider.
  fi_addr_t insert(const std::vector<std::byte>& address, std::string& why) noexcept;

  // Closes the connection to the peer, if there is one: from then on nothing that it was given for reads is touched. Where
  // reads().
  void remove(fi_addr_t peer) noexcept { fi_av_remove(addresses_, &peer, 1, 0); }

  // Whether peers read each other's memory here, and a connection can be closed so that memory comes back from it.
  bool reads() const noexcept { return reads_; }
  // Null: it cannot be registered. `key`: by which peers read it, where the provider lets its user choose.
  Registration expose(const Extent& memory, std::uint64_t key, Exposed& as) noexcept;

  int descriptor() const noexcept { return waiter_; }
  // Before a block: false if there is progress to make first. `soon`: wakes up after a millisecond.
  bool arm(bool soon) noexcept;

 private:
  bool choose(const std::string& provider);
  fi_info* find(const std::string& provider, std::uint64_t capabilities);
  std::string open_objects();
  std::string open_queue();
  std::string open_waiter();
  std::string read_address();

  fi_info* info_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_av* addresses_ = nullptr;
  fid_cq* queue_ = nullptr;
  fid_ep* endpoint_ = nullptr;
  std::vector<std::byte> address_;
  bool reads_ = false;
  bool queue_has_descriptor_ = false;
  int waiter_ = -1;
  int timer_ = -1;
};

}  // namespace aiacc::active
