#include "transports/ofi/reads.h"

#include <algorithm>
#include <utility>

#include "transports/ofi/worker.h"

namespace aiacc::active {
namespace {

// At most of one read, so that other messages of the sender's get their turn between two.
constexpr std::size_t kReadBytes = 512 << 10;

}  // namespace

void Reads::begin(Peer& from, std::uint64_t send, std::span<const Exposed> what, std::byte* into,
                  Operation& operation) {
  Fetch& fetch = fetches_[++last_];
  fetch.what = {&operation, &from, send, nullptr};
  fetch.left.assign(what.rbegin(), what.rend());
  fetch.into = into;
  to_post_.push_back(last_);
}

Reads::Read* Reads::take() {
  if (free_.empty()) {
    Read* const made = reads_.emplace_back(std::make_unique<Read>()).get();
    made->is_read = true;
    return made;
  }
  Read* const read = free_.back();
  free_.pop_back();
  return read;
}

// Connections that are not there yet do not keep others waiting.
bool Reads::post(Fabric& fabric, std::vector<Ended>& failed) {
  bool any = false;
  for (std::size_t asked = to_post_.size(); asked > 0; --asked) {
    const std::uint64_t number = to_post_.front();
    to_post_.pop_front();
    const auto fetch = fetches_.find(number);
    if (fetch == fetches_.end() || fetch->second.what.problem != nullptr) continue;
    switch (post(fabric, number, fetch->second, any)) {
      case Posted::kAll: break;
      case Posted::kSome: to_post_.push_back(number); break;
      case Posted::kFailed:
        if (!fetch->second.over()) break;
        failed.push_back(fetch->second.what);
        fetches_.erase(fetch);
        break;
    }
  }
  return any;
}

Reads::Posted Reads::post(Fabric& fabric, std::uint64_t number, Fetch& fetch, bool& any) {
  while (!fetch.left.empty()) {
    Exposed& next = fetch.left.back();
    const std::size_t bytes = std::min<std::uint64_t>(next.bytes, kReadBytes);
    Read* const read = take();
    read->fetch = number;
    const ssize_t status = fi_read(fabric.endpoint(), fetch.into, bytes, nullptr, fetch.what.from->address,
                                   next.address, next.key, &read->context);
    if (status != 0) free_.push_back(read);
    if (status == -FI_EAGAIN) return Posted::kSome;
    if (status != 0) {
      fetch.what.problem = fi_strerror(static_cast<int>(-status));
      return Posted::kFailed;
    }
    any = true;
    ++fetch.under_way;
    fetch.into += bytes;
    next.address += bytes;
    next.bytes -= bytes;
    if (next.bytes == 0) fetch.left.pop_back();
  }
  return Posted::kAll;
}

std::optional<Reads::Ended> Reads::completed(Pending& pending, const char* problem) {
  auto& read = static_cast<Read&>(pending);
  const auto found = fetches_.find(std::exchange(read.fetch, 0));
  free_.push_back(&read);
  if (found == fetches_.end()) return std::nullopt;  // abandoned
  Fetch& fetch = found->second;
  --fetch.under_way;
  if (problem != nullptr) fetch.what.problem = problem;
  if (!fetch.over()) return std::nullopt;
  const Ended ended = fetch.what;
  fetches_.erase(found);
  return ended;
}

bool Reads::abandon(const Peer& from, std::vector<Operation*>& operations) {
  bool any = false;
  std::erase_if(fetches_, [&](const auto& one) {
    const Fetch& fetch = one.second;
    if (fetch.what.from != &from) return false;
    any |= fetch.under_way > 0;
    operations.push_back(fetch.what.operation);
    return true;
  });
  return any;
}

}  // namespace aiacc::active
