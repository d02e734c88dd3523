// Arrivals: rank 0's record of the ranks that have arrived at the rendezvous: which it admits, the message for ranks
// that wait, the roster. Pure: no I/O.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/wire/rendezvous_messages.h"

namespace aiacc {

class Arrivals {
 public:
  // `me` describes rank 0 like a client's Arrive; `endpoint` names the endpoint in messages.
  Arrivals(wire::Arrive me, std::string endpoint);

  // Why an arriving rank is refused. If the reason shows that the job is misconfigured, the whole job ends.
  struct Refusal {
    Error why;
    bool for_all = false;
  };
  // `from` is its address as seen from here. Throws kProtocol for a message that no rank sends. A known rank may arrive
  // again, even while its broken connection still looks intact.
  std::optional<Refusal> check_version(const wire::Arrive& head, int rank, const std::string& from) const;
  std::optional<Refusal> check(const wire::Arrive& arrive, const std::string& from) const;

  // Whether this is the process that arrived as that rank before, perhaps on a new connection.
  bool is_same_process(const wire::Arrive& arrive) const;

  // The Arrive of a rank that has arrived.
  const wire::Arrive& arrive_of(int rank) const { return clients_[static_cast<std::size_t>(rank)]->arrive; }

  // The address of the rank's host: the address that its connection came from, if the rank lists it as its own
  // (otherwise there may be a NAT between), or else the first address that it lists.
  std::string host_address(int rank) const;

  void add(const wire::Arrive& arrive, const std::string& from);
  // The rank's connection is gone; it may arrive again.
  void disconnected(int rank) { clients_[static_cast<std::size_t>(rank)]->connected = false; }
  std::size_t missing() const;

  // wire::arrivals_text().
  std::string text() const;
  std::vector<wire::RosterEntry> roster() const;

  // "rank 3 (node-7, tcp:192.0.2.7:40112)"
  static std::string describe(const wire::Arrive& arrive, const std::string& from);

 private:
  struct Client {
    wire::Arrive arrive;
    std::string from;
    bool connected = true;
  };
  wire::Arrive me_;
  std::string endpoint_;
  std::vector<std::optional<Client>> clients_;  // by rank; rank 0's own entry stays empty
};

}  // namespace aiacc
