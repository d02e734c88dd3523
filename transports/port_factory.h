// PortFactory: one network of this rank, from the address that peers are told to the port. NetworkPorts: all of them, and the
// choice of the one that a job uses.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "base/wire/port_address.h"
#include "base/wire/secret.h"
#include "transports/message.h"

namespace aiacc {

// What a port is told of its job. By world rank, this rank included.
struct PortWorld {
  struct Peer {
    std::string name;                         // in sentences: "rank 3 on host b"
    std::vector<std::string> host_addresses;  // numeric, the most likely to be reachable first
    std::vector<std::uint8_t> address;        // what the peer's factory of this transport gave
  };
  int rank = 0;
  std::uint64_t job = 0;
  wire::Secret secret;
  std::vector<Peer> peers;
  // How long nobody may listen at a peer's addresses before it counts as lost. Not at once: an address may lead to another host
  // than the peer's.
  Duration refused_limit{};
};

class PortFactory {
 public:
  virtual ~PortFactory() = default;
  // The name under which peers find its address: "tcp".
  virtual std::string_view transport() const noexcept = 0;
  // What peers need to reach this rank, valid until open() or the factory's end.
  virtual std::vector<std::uint8_t> address() const = 0;
  // What it uses, for people: "UCX 1.13.1: tcp/eth0"; "" if the name says all.
  virtual std::string description() const { return {}; }
  // Called once. Throws kProtocol if a peer's address makes no sense.
  virtual std::unique_ptr<MessagePort> open(PortWorld world) = 0;
};

// The factories of one rank, the preferred first.
class NetworkPorts {
 public:
  void add(std::unique_ptr<PortFactory> factory) { factories_.push_back(std::move(factory)); }
  // open() throws kUnsupported unless the ranks choose this transport: the user has asked for it.
  void require(std::string_view transport) { required_ = transport; }
  // open() throws kInvalidArgument unless all ranks have this value of the setting; "" stands for unset. Once at most.
  void require_alike(std::string_view setting, std::string_view value);
  // A setting whose value at rank 0 is that of all ranks; of the others it is not read. Once at most, by every rank.
  void take_from_rank_0(std::string_view setting, std::string_view value);
  // Where the ranks choose another transport and all have this one, too, they go on over it when a path of the other one breaks, and try
  // that again after `failback`; never, if that is zero.
  void fall_back_to(std::string_view transport, Loop& loop, Duration failback);
  wire::RankPorts addresses() const;
  // Opens a port of the transport that choose_transport() names, and of fall_back_to()'s; `world.peers[i].address` is filled in from
  // ranks[i].
  std::unique_ptr<MessagePort> open(PortWorld world, std::span<const wire::RankPorts> ranks);
  // Once opened: "ucx (UCX 1.13.1: tcp/eth0)".
  const std::string& opened() const noexcept { return opened_; }
  // Once opened: "tcp".
  const std::string& opened_transport() const noexcept { return opened_transport_; }
  // Once opened: rank 0's value of the setting that is taken from it; "" if it gave none.
  const std::string& from_rank_0() const noexcept { return from_rank_0_; }

 private:
  PortFactory& factory_of(std::string_view transport) const;
  std::unique_ptr<MessagePort> open_one(PortWorld world, std::span<const wire::RankPorts> ranks,
                                        std::string_view transport);
  void compare_settings(std::span<const wire::RankPorts> ranks, std::span<const PortWorld::Peer> names) const;

  std::vector<std::unique_ptr<PortFactory>> factories_;
  std::string required_;
  std::string fallback_;
  Loop* loop_ = nullptr;  // of fallback_
  Duration failback_{};
  std::string setting_;
  std::string value_;
  std::string given_setting_;
  std::string given_value_;
  std::string from_rank_0_;
  std::string opened_;
  std::string opened_transport_;
};

// The transport of a job: the first one of rank 0 that all ranks have. The same on all ranks, because all know the same lists.
// `names` are for the sentence. Throws kUnsupported if there is none.
const std::string& choose_transport(std::span<const wire::RankPorts> ranks, std::span<const PortWorld::Peer> names);

}  // namespace aiacc
