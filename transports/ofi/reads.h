// Reads: payloads that are fetched by reading the sender's memory (RMA) straight into their place, without a copy on either side.
//
// The provider has the place until its completions have come, or the connection to the sender is closed (Fabric::remove()).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transports/active/module_api.h"
#include "transports/ofi/fabric.h"
#include "transports/ofi/wire.h"

namespace aiacc::active {

struct Peer;

// What the provider names a completion by.
struct Pending {
  fi_context2 context{};  // first, because the provider names it by its address
  bool is_read = false;
};

class Reads {
 public:
  struct Ended {
    Operation* operation = nullptr;
    Peer* from = nullptr;
    std::uint64_t send = 0;
    const char* problem = nullptr;
  };

  // Reads `from`'s memory into `into`. post() does it.
  void begin(Peer& from, std::uint64_t send, std::span<const Exposed> what, std::byte* into, Operation& operation);
  // Gives the provider what it takes now. Whether it took anything; `failed` gets those that it will never take.
  bool post(Fabric& fabric, std::vector<Ended>& failed);
  bool waiting() const noexcept { return !to_post_.empty(); }
  // The fetch that ends with this completion, if one does.
  std::optional<Ended> completed(Pending& read, const char* problem);
  // Forgets those from `from`, whose connection the caller closes. Whether the provider had any of their memory.
  bool abandon(const Peer& from, std::vector<Operation*>& operations);

 private:
  struct Fetch {
    Ended what;
    std::vector<Exposed> left;  // not posted yet, the next one last
    std::byte* into = nullptr;
    std::size_t under_way = 0;
    bool over() const noexcept { return under_way == 0 && (left.empty() || what.problem != nullptr); }
  };
  struct Read : Pending {
    std::uint64_t fetch = 0;
  };
  enum class Posted { kAll, kSome, kFailed };

  Read* take();
  Posted post(Fabric& fabric, std::uint64_t number, Fetch& fetch, bool& any);

  std::map<std::uint64_t, Fetch> fetches_;
  std::deque<std::uint64_t> to_post_;  // fetches, oldest first
  std::vector<std::unique_ptr<Read>> reads_;
  std::vector<Read*> free_;
  std::uint64_t last_ = 0;
};

}  // namespace aiacc::active
