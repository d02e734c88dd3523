// The module aiacc-ucx.so: module_api.h over UCP. Active messages with a header of ours; of those that are sent by
// rendezvous the receiver gets a descriptor and fetches the payload into place. One context and one worker for each open().
//
// UCX reads its settings from the environment when it is loaded and in open(); module_loader.h says what it finds there.
#include <pthread.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "aiacc/aiacc.h"
#include "transports/active/module_api.h"

namespace aiacc::active {

struct Worker {
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  Callbacks callbacks;
  std::size_t pending = 0;  // requests
  std::size_t eager_bytes = 0;
  std::vector<Endpoint*> endpoints;
};

struct Endpoint {
  Worker* worker;
  void* peer;
  ucp_ep_h ep = nullptr;
  bool closing = false;
};

namespace {

#define AIACC_TEXT(number) #number
#define AIACC_VERSION(major, minor, patch) AIACC_TEXT(major) "." AIACC_TEXT(minor) "." AIACC_TEXT(patch)
constexpr char kLibraryVersion[] = AIACC_VERSION(AIACC_VERSION_MAJOR, AIACC_VERSION_MINOR, AIACC_VERSION_PATCH);

constexpr unsigned kMessageId = 1;
// In a segment of TCP besides the payload: the header of an active message, those of UCX.
constexpr std::size_t kSegmentHeaders = 1 << 10;
static_assert(sizeof(Extent) == sizeof(ucp_dt_iov_t) && offsetof(Extent, bytes) == offsetof(ucp_dt_iov_t, length));

void say(char* problem, std::size_t room, const char* what, ucs_status_t status) noexcept {
  std::snprintf(problem, room, "%s: %s", what, ucs_status_string(status));
}

// --- callbacks of UCX ---------------------------------------------------------------------------------------------------

ucs_status_t on_message(void* argument, const void* header, size_t header_bytes, void* data, size_t bytes,
                        const ucp_am_recv_param_t* param) noexcept {
  auto* const worker = static_cast<Worker*>(argument);
  if (worker->callbacks.arrived == nullptr) return UCS_OK;
  const bool eager = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0;
  const bool kept = worker->callbacks.arrived(worker->callbacks.owner, header, header_bytes, data, bytes, eager);
  return kept ? UCS_INPROGRESS : UCS_OK;
}

void on_sent(void* request, ucs_status_t status, void* user) noexcept {
  auto& operation = *static_cast<Operation*>(user);
  Worker& worker = *operation.worker;
  ucp_request_free(request);
  --worker.pending;
  if (worker.callbacks.sent == nullptr) return;
  worker.callbacks.sent(worker.callbacks.owner, operation, status == UCS_OK ? nullptr : ucs_status_string(status));
}

void on_fetched(void* request, ucs_status_t status, size_t, void* user) noexcept {
  auto& operation = *static_cast<Operation*>(user);
  Worker& worker = *operation.worker;
  ucp_request_free(request);
  --worker.pending;
  if (worker.callbacks.fetched == nullptr) return;
  worker.callbacks.fetched(worker.callbacks.owner, operation, status == UCS_OK ? nullptr : ucs_status_string(status));
}

void on_broken(void* argument, ucp_ep_h, ucs_status_t status) noexcept {
  const auto* const endpoint = static_cast<Endpoint*>(argument);
  const Callbacks& callbacks = endpoint->worker->callbacks;
  if (endpoint->closing || callbacks.broken == nullptr) return;
  callbacks.broken(callbacks.owner, endpoint->peer, ucs_status_string(status));
}

void end(Endpoint* endpoint) noexcept {
  Worker& worker = *endpoint->worker;
  std::erase(worker.endpoints, endpoint);
  if (worker.callbacks.closed != nullptr) worker.callbacks.closed(worker.callbacks.owner, endpoint->peer);
  delete endpoint;
}

void on_closed(void* request, ucs_status_t, void* user) noexcept {
  auto* const endpoint = static_cast<Endpoint*>(user);
  ucp_request_free(request);
  --endpoint->worker->pending;
  end(endpoint);
}

// --- worker -------------------------------------------------------------------------------------------------------------

ucs_status_t make_context(Worker& worker) noexcept {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return status;
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "aiacc";
  status = ucp_init(&params, config, &worker.context);
  ucp_config_release(config);
  return status;
}

// UCX has no query for this, but prints it: "#      resource 1  :  md 1  dev 1  flags -- tcp/eth0".
std::vector<std::string> resources(ucp_context_h context) {
  std::vector<std::string> found;
  char* printed = nullptr;
  std::size_t length = 0;
  FILE* const memory = open_memstream(&printed, &length);
  if (memory == nullptr) return found;
  ucp_context_print_info(context, memory);
  std::fclose(memory);
  char* rest = nullptr;
  for (char* line = strtok_r(printed, "\n", &rest); line != nullptr; line = strtok_r(nullptr, "\n", &rest)) {
    const char* const name = std::strrchr(line, ' ');
    if (std::strstr(line, "resource ") == nullptr || name == nullptr || std::strchr(name, '/') == nullptr) continue;
    found.emplace_back(name + 1);
  }
  std::free(printed);
  return found;
}

// Over TCP alone, where UCX's rendezvous waits for the receiver and then copies the payload out of segments too. As many as a segment
// holds: of a longer payload UCX would gather the segments in memory of its own.
std::size_t eager_bytes_of(const Worker& worker, const char* segment) {
  const std::vector<std::string> all = resources(worker.context);
  const auto is_tcp = [](const std::string& one) { return one.starts_with("tcp/"); };
  if (all.empty() || !std::all_of(all.begin(), all.end(), is_tcp)) return 0;
  char* unit = nullptr;
  std::size_t bytes = std::strtoull(segment, &unit, 10);
  if (*unit == 'k' || *unit == 'K') bytes <<= 10;
  if (*unit == 'm' || *unit == 'M') bytes <<= 20;
  return bytes > kSegmentHeaders ? bytes - kSegmentHeaders : 0;
}

ucs_status_t make_worker(Worker& worker) noexcept {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  const ucs_status_t status = ucp_worker_create(worker.context, &params, &worker.worker);
  if (status != UCS_OK) return status;
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;  // with UCP_AM_FLAG_PERSISTENT_DATA, UCX would copy each
  handler.cb = on_message;
  handler.arg = &worker;
  return ucp_worker_set_am_recv_handler(worker.worker, &handler);
}

void close(Worker* worker) noexcept;

Worker* open(const char* segment, char* problem, std::size_t room) noexcept {
  auto* const worker = new (std::nothrow) Worker;
  if (worker == nullptr) {
    std::snprintf(problem, room, "no memory");
    return nullptr;
  }
  // UCX starts a thread, which must not take the user's signals.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  ucs_status_t status = make_context(*worker);
  const char* const failed = status != UCS_OK ? "no context" : "no worker";
  if (status == UCS_OK) status = make_worker(*worker);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (status == UCS_OK) {
    worker->eager_bytes = eager_bytes_of(*worker, segment);
    return worker;
  }
  say(problem, room, failed, status);
  close(worker);
  return nullptr;
}

void disconnect(Endpoint* endpoint) noexcept;

void close(Worker* worker) noexcept {
  worker->callbacks = {};
  for (Endpoint* each : std::vector<Endpoint*>(worker->endpoints)) disconnect(each);
  // A forced close needs no peer, but UCX 1.13 never ends a fetch that the sender has not answered, and aborts the process when
  // its endpoint is destroyed. Such a worker stays, with its endpoints closed: nobody drives it, so it touches no memory.
  for (int turn = 0; turn < 10'000 && worker->pending > 0; ++turn) ucp_worker_progress(worker->worker);
  if (worker->pending > 0) return;
  if (worker->worker != nullptr) ucp_worker_destroy(worker->worker);
  if (worker->context != nullptr) ucp_cleanup(worker->context);
  for (Endpoint* each : worker->endpoints) delete each;
  delete worker;
}

void call_back(Worker* worker, const Callbacks& callbacks) noexcept { worker->callbacks = callbacks; }

const char* version() noexcept { return ucp_get_version_string(); }

std::size_t address(Worker* worker, std::uint8_t* bytes, std::size_t room) noexcept {
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
  attributes.address_flags = 0;
  if (ucp_worker_query(worker->worker, &attributes) != UCS_OK) return 0;
  const std::size_t length = attributes.address_length;
  if (length <= room) std::memcpy(bytes, attributes.address, length);
  ucp_worker_release_address(worker->worker, attributes.address);
  return length <= room ? length : 0;
}

void describe(Worker* worker, char* text, std::size_t room) noexcept {
  text[0] = '\0';
  std::size_t used = 0;
  for (const std::string& each : resources(worker->context)) {
    const int wrote = std::snprintf(text + used, room - used, "%s%s", used == 0 ? "" : ", ", each.c_str());
    if (wrote < 0 || static_cast<std::size_t>(wrote) >= room - used) break;
    used += static_cast<std::size_t>(wrote);
  }
}

std::size_t eager_bytes(Worker* worker) noexcept { return worker->eager_bytes; }

int descriptor(Worker* worker) noexcept {
  int fd = -1;
  return ucp_worker_get_efd(worker->worker, &fd) == UCS_OK ? fd : -1;
}

bool arm(Worker* worker) noexcept { return ucp_worker_arm(worker->worker) == UCS_OK; }
bool progress(Worker* worker) noexcept { return ucp_worker_progress(worker->worker) != 0; }

// --- endpoints ------------------------------------------------------------------------------------------------------------

Endpoint* connect(Worker* worker, const std::uint8_t* address, std::size_t, void* peer, char* problem,
                  std::size_t room) noexcept {
  auto* const endpoint = new (std::nothrow) Endpoint{worker, peer};
  if (endpoint == nullptr) {
    std::snprintf(problem, room, "no memory");
    return nullptr;
  }
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address);
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = on_broken;
  params.err_handler.arg = endpoint;
  const ucs_status_t status = ucp_ep_create(worker->worker, &params, &endpoint->ep);
  if (status != UCS_OK) {
    std::snprintf(problem, room, "%s", ucs_status_string(status));
    delete endpoint;
    return nullptr;
  }
  worker->endpoints.push_back(endpoint);
  return endpoint;
}

void disconnect(Endpoint* endpoint) noexcept {
  if (endpoint->closing) return;
  endpoint->closing = true;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  params.cb.send = on_closed;
  params.user_data = endpoint;
  void* const request = ucp_ep_close_nbx(endpoint->ep, &params);
  if (UCS_PTR_IS_PTR(request)) {
    ++endpoint->worker->pending;
  } else {
    end(endpoint);
  }
}

Began began(Worker* worker, void* request, const char** problem) noexcept {
  if (request == nullptr) return Began::kDone;
  if (UCS_PTR_IS_ERR(request)) {
    *problem = ucs_status_string(UCS_PTR_STATUS(request));
    return Began::kFailed;
  }
  ++worker->pending;
  return Began::kPending;
}

Began send(Endpoint* endpoint, const void* header, std::size_t header_bytes, const Extent* extents, std::size_t count,
           bool rendezvous, Operation& operation, const char** problem) noexcept {
  operation.worker = endpoint->worker;
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_DATATYPE;
  params.flags = rendezvous ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
  params.cb.send = on_sent;
  params.user_data = &operation;
  params.datatype = count == 1 ? ucp_dt_make_contig(1) : ucp_dt_make_iov();
  if (count == 0) params.datatype = ucp_dt_make_contig(1);
  const void* const data = count == 1 ? extents[0].data : count == 0 ? nullptr : static_cast<const void*>(extents);
  const std::size_t length = count == 1 ? extents[0].bytes : count;
  return began(endpoint->worker, ucp_am_send_nbx(endpoint->ep, kMessageId, header, header_bytes, data, length, &params),
               problem);
}

Began fetch(Worker* worker, void* payload, void* into, std::size_t bytes, Operation& operation,
            const char** problem) noexcept {
  operation.worker = worker;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.recv_am = on_fetched;
  params.user_data = &operation;
  return began(worker, ucp_am_recv_data_nbx(worker->worker, payload, into, bytes, &params), problem);
}

void drop(Worker* worker, void* payload) noexcept { ucp_am_data_release(worker->worker, payload); }

}  // namespace
}  // namespace aiacc::active

extern "C" __attribute__((visibility("default"))) const aiacc::active::Module* aiacc_ucx_module() {
  using namespace aiacc::active;
  static const Module kTable = {kModuleAbi, kLibraryVersion, version,     open,       close, call_back,
                                address,    describe,        eager_bytes, descriptor, arm,   progress,
                                connect,    disconnect,      send,        fetch,      drop};
  return &kTable;
}
