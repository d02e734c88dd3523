#include "transports/ofi/fabric.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "transports/ofi/wire.h"

namespace aiacc::active {
namespace {

constexpr long kMillisecond = 1'000'000;

std::string failure(const char* call, int status) {
  return std::string("a failure of ") + call + ": " + fi_strerror(-status);
}

// Whether FI_AV_REMOVE_CLEANUP is set (ofi_library.cc), which the user may have changed. libfabric reads it once, when a process first
// uses it; if that was before aiacc did, what it read then is not known.
bool closes_removed() {
  fi_param* parameters = nullptr;
  int count = 0;
  if (fi_getparams(&parameters, &count) != 0) return false;
  bool closes = false;
  for (const fi_param& each : std::span(parameters, static_cast<std::size_t>(count))) {
    if (std::string_view(each.name) != "FI_AV_REMOVE_CLEANUP" || each.value == nullptr) continue;
    const std::string_view value = each.value;
    closes = value == "1" || value == "on" || value == "true" || value == "yes";
  }
  fi_freeparams(parameters);
  return closes;
}

// Other hosts reach no loopback device, and no link-local address without a device's number.
bool is_reachable(const fi_info& info) {
  if (info.src_addr == nullptr) return true;
  if (info.addr_format == FI_SOCKADDR_IN) {
    return (ntohl(static_cast<const sockaddr_in*>(info.src_addr)->sin_addr.s_addr) >> 24) != 127;
  }
  if (info.addr_format == FI_SOCKADDR_IN6) {
    const in6_addr& address = static_cast<const sockaddr_in6*>(info.src_addr)->sin6_addr;
    return !IN6_IS_ADDR_LOOPBACK(&address) && !IN6_IS_ADDR_LINKLOCAL(&address);
  }
  return true;
}

// Sends to an address of shm that does not exist any more end the process in libfabric 1.17. "fi_shm://4711:0:0"
bool exists(const std::string& name) {
  const std::size_t scheme = name.find("://");
  const std::string file = "/dev/shm/" + std::string(name.c_str() + (scheme == std::string::npos ? 0 : scheme + 3));
  return access(file.c_str(), F_OK) == 0;
}

}  // namespace

Fabric::~Fabric() {
  if (endpoint_ != nullptr) fi_close(&endpoint_->fid);
  if (queue_ != nullptr) fi_close(&queue_->fid);
  if (addresses_ != nullptr) fi_close(&addresses_->fid);
  if (domain_ != nullptr) fi_close(&domain_->fid);
  if (fabric_ != nullptr) fi_close(&fabric_->fid);
  if (info_ != nullptr) fi_freeinfo(info_);
  if (waiter_ >= 0) ::close(waiter_);
  if (timer_ >= 0) ::close(timer_);
}

std::string Fabric::open(const std::string& providers) {
  for (std::size_t at = 0; at <= providers.size();) {
    const std::size_t end = std::min(providers.find(',', at), providers.size());
    if (end > at && choose(providers.substr(at, end - at))) return open_objects();
    at = end + 1;
  }
  return "no provider of " + providers + " with endpoints of type RDM";
}

// Reads leave the place to the provider, which must give it back without the peer's help. rxm does so over TCP, by closing its
// connection. Others have not been tried.
bool Fabric::choose(const std::string& provider) {
  if (provider == "tcp;ofi_rxm") info_ = find(provider, FI_MSG | FI_RMA);
  reads_ = info_ != nullptr && closes_removed();
  if (info_ != nullptr && !reads_) fi_freeinfo(std::exchange(info_, nullptr));
  if (info_ == nullptr) info_ = find(provider, FI_MSG);
  return info_ != nullptr;
}

// Of the provider's devices the first that other hosts can reach.
fi_info* Fabric::find(const std::string& provider, std::uint64_t capabilities) {
  fi_info* const hints = fi_allocinfo();
  if (hints == nullptr) return nullptr;
  hints->caps = capabilities;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->fabric_attr->prov_name = strdup(provider.c_str());
  fi_info* found = nullptr;
  fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &found);
  fi_freeinfo(hints);
  const fi_info* best = nullptr;
  for (const fi_info* each = found; each != nullptr; each = each->next) {
    if (each->ep_attr->max_msg_size < kWireBytes) continue;
    if (best == nullptr || (is_reachable(*each) && !is_reachable(*best))) best = each;
  }
  fi_info* const chosen = best == nullptr ? nullptr : fi_dupinfo(best);
  if (found != nullptr) fi_freeinfo(found);
  return chosen;
}

Registration Fabric::expose(const Extent& memory, std::uint64_t key, Exposed& as) noexcept {
  fid_mr* region = nullptr;
  if (fi_mr_reg(domain_, memory.data, memory.bytes, FI_REMOTE_READ, 0, key, 0, &region, nullptr) != 0) return {};
  const bool by_address = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  as = {by_address ? reinterpret_cast<std::uint64_t>(memory.data) : 0, fi_mr_key(region), memory.bytes};
  return Registration(region);
}

std::string Fabric::open_objects() {
  int status = fi_fabric(info_->fabric_attr, &fabric_, nullptr);
  if (status != 0) return failure("fi_fabric", status);
  status = fi_domain(fabric_, info_, &domain_, nullptr);
  if (status != 0) return failure("fi_domain", status);
  fi_av_attr attributes{};
  attributes.type = FI_AV_TABLE;
  status = fi_av_open(domain_, &attributes, &addresses_, nullptr);
  if (status != 0) return failure("fi_av_open", status);
  if (std::string problem = open_queue(); !problem.empty()) return problem;
  status = fi_endpoint(domain_, info_, &endpoint_, nullptr);
  if (status != 0) return failure("fi_endpoint", status);
  status = fi_ep_bind(endpoint_, &addresses_->fid, 0);
  if (status == 0) status = fi_ep_bind(endpoint_, &queue_->fid, FI_TRANSMIT | FI_RECV);
  if (status != 0) return failure("fi_ep_bind", status);
  status = fi_enable(endpoint_);
  if (status != 0) return failure("fi_enable", status);
  if (std::string problem = read_address(); !problem.empty()) return problem;
  return open_waiter();
}

std::string Fabric::open_queue() {
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_MSG;
  int status = -FI_ENOSYS;
  for (const fi_wait_obj wait : {FI_WAIT_FD, FI_WAIT_NONE}) {
    attributes.wait_obj = wait;
    status = fi_cq_open(domain_, &attributes, &queue_, nullptr);
    queue_has_descriptor_ = wait == FI_WAIT_FD;
    if (status == 0) return {};
  }
  return failure("fi_cq_open", status);
}

std::string Fabric::open_waiter() {
  waiter_ = epoll_create1(EPOLL_CLOEXEC);
  timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  epoll_event event{};
  event.events = EPOLLIN;
  if (waiter_ < 0 || timer_ < 0 || epoll_ctl(waiter_, EPOLL_CTL_ADD, timer_, &event) != 0) {
    return std::string("no timer: ") + fi_strerror(errno);
  }
  if (!queue_has_descriptor_) return {};
  int descriptor = -1;
  const int status = fi_control(&queue_->fid, FI_GETWAIT, &descriptor);
  if (status != 0) return failure("FI_GETWAIT", status);
  if (epoll_ctl(waiter_, EPOLL_CTL_ADD, descriptor, &event) != 0) return std::string("no epoll: ") + fi_strerror(errno);
  return {};
}

std::string Fabric::read_address() {
  const std::string name = provider();
  std::size_t bytes = 0;
  fi_getname(&endpoint_->fid, nullptr, &bytes);  // says how many
  address_.resize(name.size() + 1 + bytes);
  std::memcpy(address_.data(), name.c_str(), name.size() + 1);
  const int status = fi_getname(&endpoint_->fid, address_.data() + name.size() + 1, &bytes);
  return status == 0 ? std::string() : failure("fi_getname", status);
}

fi_addr_t Fabric::insert(const std::vector<std::byte>& address, std::string& why) noexcept {
  const auto* const text = reinterpret_cast<const char*>(address.data());
  const std::string theirs(text, strnlen(text, address.size()));
  if (theirs != provider()) {
    why = "its provider is " + theirs + ", and this rank's is " + provider() +
          "; AIACC_OFI_PROVIDER sets one for all ranks";
    return FI_ADDR_NOTAVAIL;
  }
  if (address.size() != address_.size() && info_->addr_format != FI_ADDR_STR) {
    why = "its address has another length";
    return FI_ADDR_NOTAVAIL;
  }
  const std::string name(text + theirs.size() + 1,
                         address.size() - theirs.size() - 1);  // with a zero behind it, for FI_ADDR_STR
  if (theirs == "shm" && !exists(name)) {
    why = "its shared memory does not exist";
    return FI_ADDR_NOTAVAIL;
  }
  fi_addr_t inserted = FI_ADDR_NOTAVAIL;
  const int count = fi_av_insert(addresses_, name.c_str(), 1, &inserted, 0, nullptr);
  if (count != 1) why = count < 0 ? failure("fi_av_insert", count) : "fi_av_insert does not take its address";
  return count == 1 ? inserted : FI_ADDR_NOTAVAIL;
}

bool Fabric::arm(bool soon) noexcept {
  if (queue_has_descriptor_) {
    fid* waited = &queue_->fid;
    if (fi_trywait(fabric_, &waited, 1) != FI_SUCCESS) return false;
  }
  itimerspec limit{};
  if (soon || !queue_has_descriptor_) {
    limit.it_value.tv_nsec = kMillisecond;
  } else {
    limit.it_value.tv_sec = 1;  // whatever a provider does not show there
  }
  timerfd_settime(timer_, 0, &limit, nullptr);
  return true;
}

}  // namespace aiacc::active
