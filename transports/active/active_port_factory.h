// ActivePortFactory: opens ActivePort. Its address is that of workers of the library, which exist from its construction on: one for
// all traffic classes, or for control and latency another one than for bulk and background (Library::separates_bulk). A class
// whose DSCP or priority is not that of the others of a worker has one of its own, because all that a worker sends is marked alike.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/real_loop.h"
#include "base/io/traffic_marks.h"
#include "transports/active/active_port.h"
#include "transports/active/library.h"
#include "transports/port_factory.h"

namespace aiacc {

class ActivePortFactory final : public PortFactory {
 public:
  using Marks = ActivePort::Marks;

  // `settings`: of the library, "UCX_TLS=tcp". Throws kUnsupported with the reason where there is no such library, or none of
  // the transports and devices that the settings name. Library and loop outlive the port.
  ActivePortFactory(io::RealLoop& loop, const active::Library& library, std::span<const std::string> settings = {},
                    const Marks& marks = {});
  ~ActivePortFactory() override;

  std::string_view transport() const noexcept override { return library_.transport; }
  std::vector<std::uint8_t> address() const override;
  std::unique_ptr<MessagePort> open(PortWorld world) override;

  // "UCX 1.13.1: tcp/eth0, rc_mlx5/mlx5_0:1"
  std::string description() const override;

 private:
  void open_workers(std::span<const std::string> settings);
  std::optional<ActivePort::Peer> read(std::span<const std::uint8_t> address) const;

  io::RealLoop& loop_;
  const active::Library& library_;
  const active::Module& module_;
  const Marks marks_;
  ActivePort::WorkerOfClass worker_of_{};
  std::vector<active::Worker*> workers_;
};

}  // namespace aiacc
