// Places to meet: an address that the user names, and the caller's own store.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/io/resolve.h"
#include "runtime/meeting.h"

namespace aiacc {

// AIACC_RENDEZVOUS=host:port, with the secret from a file.
class NamedPlace final : public MeetingPlace {
 public:
  NamedPlace(io::HostPort place, const wire::Secret& secret) : place_(std::move(place)), secret_(secret) {}

  std::unique_ptr<io::Listener> open(io::Net& net) override;
  wire::Secret secret() const override { return secret_; }
  Found find(Duration limit) override;
  std::string name() const override;

 private:
  io::HostPort place_;
  wire::Secret secret_;
};

// aiacc_store_t (include/aiacc/aiacc.h), with the caller's part in closures. Each returns 0, or what the caller's returned.
struct Store {
  std::function<int(const std::string& key, const std::string& value)> put;
  std::function<int(const std::string& key, std::string& value, std::int64_t timeout_ms)> get;
  std::function<int(const std::string& key, std::int64_t timeout_ms)> wait;
};

// Rank 0 listens where it likes, and puts that and a fresh secret into the store. A value that an earlier job left there is
// found out: nobody answers with proof, and the store is asked again.
class StoredPlace final : public MeetingPlace {
 public:
  // `job` tells apart jobs that share a store.
  StoredPlace(Store store, const std::string& job);

  std::unique_ptr<io::Listener> open(io::Net& net) override;
  wire::Secret secret() const override { return secret_; }
  Found find(Duration limit) override;
  std::string name() const override;

 private:
  Store store_;
  std::string key_;
  wire::Secret secret_;
  bool waited_ = false;
};

}  // namespace aiacc
