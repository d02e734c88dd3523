// Rendezvous endpoints: an address that the user names, and the caller's own store.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/io/resolve.h"
#include "runtime/rendezvous/rendezvous.h"

namespace aiacc {

// AIACC_RENDEZVOUS=host:port, with the secret from a file.
class AddressEndpoint final : public RendezvousEndpoint {
 public:
  AddressEndpoint(io::HostPort endpoint, const wire::Secret& secret)
      : endpoint_(std::move(endpoint)), secret_(secret) {}

  std::unique_ptr<io::Listener> open(io::Net& net) override;
  wire::Secret secret() const override { return secret_; }
  Found find(Duration limit) override;
  std::string obstacle() const override;
  std::string name() const override;

 private:
  io::HostPort endpoint_;
  wire::Secret secret_;
};

// aiacc_store_t (include/aiacc/aiacc.h), with the caller's part in closures. Each returns 0, or the caller's own error
// number.
struct Store {
  std::function<int(const std::string& key, const std::string& value)> put;
  std::function<int(const std::string& key, std::string& value, std::int64_t timeout_ms)> get;
  std::function<int(const std::string& key, std::int64_t timeout_ms)> wait;
};

// Rank 0 listens on a free port, and puts its address and a new secret into the store. A stale value of an earlier job
// is detected, because nobody there authenticates; then the store is read again.
class StoreEndpoint final : public RendezvousEndpoint {
 public:
  // `job` distinguishes jobs that share a store.
  StoreEndpoint(Store store, const std::string& job);

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
