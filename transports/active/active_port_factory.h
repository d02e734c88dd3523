// ActivePortFactory: opens ActivePort. Its address is that of a worker of the library, which exists from its construction on.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/real_loop.h"
#include "transports/active/library.h"
#include "transports/port_factory.h"

namespace aiacc {

namespace active {
struct Module;
struct Worker;
}  // namespace active

class ActivePortFactory final : public PortFactory {
 public:
  // `settings`: of the library, "UCX_TLS=tcp". Throws kUnsupported with the reason where there is no such library, or none of
  // the transports and devices that the settings name. Library and loop outlive the port.
  ActivePortFactory(io::RealLoop& loop, const active::Library& library, std::span<const std::string> settings = {});
  ~ActivePortFactory() override;

  std::string_view transport() const noexcept override { return library_.transport; }
  std::vector<std::uint8_t> address() const override;
  std::unique_ptr<MessagePort> open(PortWorld world) override;

  // "UCX 1.13.1: tcp/eth0, rc_mlx5/mlx5_0:1"
  std::string description() const override;

 private:
  bool makes_sense(std::span<const std::uint8_t> address) const;

  io::RealLoop& loop_;
  const active::Library& library_;
  const active::Module& module_;
  active::Worker* worker_;
};

}  // namespace aiacc
