// The module aiacc-ofi.so: transports/active/module_api.h over libfabric. worker.h does it.
#include <pthread.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "aiacc/aiacc.h"
#include "transports/ofi/worker.h"

namespace aiacc::active {
namespace {

#define AIACC_TEXT(number) #number
#define AIACC_VERSION(major, minor, patch) AIACC_TEXT(major) "." AIACC_TEXT(minor) "." AIACC_TEXT(patch)
constexpr char kLibraryVersion[] = AIACC_VERSION(AIACC_VERSION_MAJOR, AIACC_VERSION_MINOR, AIACC_VERSION_PATCH);

const char* version() noexcept {
  static char text[16];
  std::snprintf(text, sizeof text, "%u.%u", FI_MAJOR(fi_version()), FI_MINOR(fi_version()));
  return text;
}

// Providers install handlers of signals (shm) or start threads, which would take the user's signals.
class SignalsUntouched {
 public:
  SignalsUntouched() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask_);
    for (int signal = 1; signal < kSignals; ++signal) sigaction(signal, nullptr, &actions_[signal]);
  }
  ~SignalsUntouched() {
    for (int signal = 1; signal < kSignals; ++signal) {
      struct sigaction now {};
      sigaction(signal, nullptr, &now);
      if (now.sa_handler != actions_[signal].sa_handler) sigaction(signal, &actions_[signal], nullptr);
    }
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  SignalsUntouched(const SignalsUntouched&) = delete;
  SignalsUntouched& operator=(const SignalsUntouched&) = delete;

 private:
  static constexpr int kSignals = 32;  // those of the C library and of realtime are not theirs
  sigset_t mask_{};
  struct sigaction actions_[kSignals] = {};
};

Worker* open(const char* choice, char* problem, std::size_t room) noexcept {
  auto* const worker = new (std::nothrow) Worker;
  if (worker == nullptr) {
    std::snprintf(problem, room, "no memory");
    return nullptr;
  }
  std::string failed;
  {
    const SignalsUntouched untouched;
    failed = worker->open(choice);
  }
  if (failed.empty()) return worker;
  std::snprintf(problem, room, "%s", failed.c_str());
  delete worker;
  return nullptr;
}

// Endpoints of shm in one process share their mappings, and libfabric 1.17 ends the process when one sends to another that is
// closed. They stay, driven by nobody, until the process ends.
void close(Worker* worker) noexcept {
  std::unique_ptr<Worker> mine(worker);
  worker->call_back({});
  if (worker->fabric().provider() != "shm") return;
  static std::mutex mutex;
  static std::vector<std::unique_ptr<Worker>> kept;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(mine));
}

void call_back(Worker* worker, const Callbacks& callbacks) noexcept { worker->call_back(callbacks); }

std::size_t address(Worker* worker, std::uint8_t* bytes, std::size_t room) noexcept {
  const std::vector<std::byte>& mine = worker->fabric().address();
  if (mine.size() > room) return 0;
  std::memcpy(bytes, mine.data(), mine.size());
  return mine.size();
}

void describe(Worker* worker, char* text, std::size_t room) noexcept {
  std::snprintf(text, room, "%s/%s", worker->fabric().provider().c_str(), worker->fabric().device().c_str());
}

std::size_t eager_bytes(Worker*) noexcept { return 0; }

int descriptor(Worker* worker) noexcept { return worker->fabric().descriptor(); }
bool arm(Worker* worker) noexcept { return worker->arm(); }
bool progress(Worker* worker) noexcept { return worker->progress(); }

Endpoint* connect(Worker* worker, const std::uint8_t* address, std::size_t bytes, void* peer, char* problem,
                  std::size_t room) noexcept {
  std::string why;
  Endpoint* const endpoint = worker->connect(std::as_bytes(std::span(address, bytes)), peer, why);
  if (endpoint == nullptr) std::snprintf(problem, room, "%s", why.c_str());
  return endpoint;
}

void disconnect(Endpoint* endpoint) noexcept { endpoint->worker->disconnect(endpoint); }

Began send(Endpoint* endpoint, const void* header, std::size_t header_bytes, const Extent* extents, std::size_t count,
           bool rendezvous, Operation& operation, const char** problem) noexcept {
  operation.worker = endpoint->worker;
  const std::span<const std::byte> text(static_cast<const std::byte*>(header), header_bytes);
  const Began began = endpoint->worker->send(*endpoint, text, std::span(extents, count), rendezvous, operation);
  if (began == Began::kFailed) *problem = "the message is too long to be sent at once";
  return began;
}

Began fetch(Worker* worker, void* payload, void* into, std::size_t bytes, Operation& operation,
            const char** problem) noexcept {
  operation.worker = worker;
  if (worker->fetch(payload, into, bytes, operation)) return Began::kPending;
  *problem = "the sender's address makes no sense";
  return Began::kFailed;
}

void drop(Worker* worker, void* payload) noexcept { worker->drop(payload); }

}  // namespace
}  // namespace aiacc::active

extern "C" __attribute__((visibility("default"))) const aiacc::active::Module* aiacc_ofi_module() {
  using namespace aiacc::active;
  static const Module kTable = {kModuleAbi, kLibraryVersion, version,     open,       close, call_back,
                                address,    describe,        eager_bytes, descriptor, arm,   progress,
                                connect,    disconnect,      send,        fetch,      drop};
  return &kTable;
}
