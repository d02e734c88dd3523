#include "runtime/rendezvous/rendezvous_arrivals.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/io/net.h"
#include "base/io/resolve.h"
#include "base/wire/arrivals_text.h"

namespace aiacc {
namespace {

constexpr std::size_t kMostAddresses = 16;  // of a rank

// "tcp:10.0.0.5:4242" → "10.0.0.5".
std::string numeric_of(const std::string& description) {
  try {
    return io::Address::parse(description).name;
  } catch (const Error&) {
    return "";
  }
}

// `from` is empty for rank 0 itself.
std::string place_of(const wire::Arrive& arrive, const std::string& from) {
  return fmt::format("on host {}{}", arrive.host_name, from.empty() ? "" : fmt::format(" ({})", from));
}

// `from` is empty for rank 0 itself.
wire::RosterEntry entry_of(const wire::Arrive& arrive, const std::string& from) {
  wire::RosterEntry entry;
  entry.host_name = arrive.host_name;
  entry.addresses = arrive.addresses;
  if (entry.addresses.size() > kMostAddresses) entry.addresses.resize(kMostAddresses);
  entry.ports = arrive.ports;
  entry.local_name = arrive.local_name;
  entry.process = arrive.process;
  const std::string seen = from.empty() ? "" : numeric_of(from);
  entry.near = from.empty() || io::is_loopback(seen);
  if (seen.empty() || entry.near) return entry;
  std::erase(entry.addresses, seen);
  entry.addresses.insert(entry.addresses.begin(), seen);
  return entry;
}

}  // namespace

Arrivals::Arrivals(wire::Arrive me, std::string endpoint)
    : me_(std::move(me)), endpoint_(std::move(endpoint)), clients_(static_cast<std::size_t>(me_.size)) {}

std::string Arrivals::describe(const wire::Arrive& arrive, const std::string& from) {
  return fmt::format("rank {} ({}{}{})", arrive.rank, arrive.host_name, from.empty() ? "" : ", ", from);
}

std::optional<Arrivals::Refusal> Arrivals::check_version(const wire::Arrive& head, int rank,
                                                         const std::string& from) const {
  if (head.version == me_.version && head.protocol == me_.protocol) return std::nullopt;
  return Refusal{
      Error(Code::kMismatch, wire::version_mismatch_text(fmt::format("rank {} ({}) uses", rank, from), head.version,
                                                         fmt::format("rank 0 ({})", me_.host_name), me_.version)),
      true};
}

std::optional<Arrivals::Refusal> Arrivals::check(const wire::Arrive& arrive, const std::string& from) const {
  const std::string name = describe(arrive, from);
  if (arrive.job != me_.job) {
    return Refusal{
        Error(Code::kMismatch, fmt::format("{} is of the job '{}', and at {} the job '{}' meets: give each job "
                                           "a place of its own",
                                           name, arrive.job, endpoint_, me_.job))};
  }
  if (arrive.size != me_.size) {
    return Refusal{
        Error(Code::kMismatch, fmt::format("{} says that the job has {} ranks, and rank 0 ({}) says {}: start "
                                           "all ranks with the same size, and each job at a place of its own",
                                           name, arrive.size, me_.host_name, me_.size)),
        true};
  }
  if (arrive.rank < 1 || arrive.rank >= me_.size) throw Error(Code::kProtocol, "it is no rank of this job");
  const std::optional<Client>& holder = clients_[static_cast<std::size_t>(arrive.rank)];
  if (holder && holder->connected && !is_same_process(arrive)) {
    return Refusal{Error(Code::kInvalidState,
                         fmt::format("{} comes to {}, where rank {} is taken ({}): start one process a rank, and "
                                     "each job at a place of its own",
                                     name, endpoint_, arrive.rank, describe(holder->arrive, holder->from)))};
  }
  return std::nullopt;
}

bool Arrivals::is_same_process(const wire::Arrive& arrive) const {
  const std::optional<Client>& before = clients_[static_cast<std::size_t>(arrive.rank)];
  return before && before->arrive.host_name == arrive.host_name && before->arrive.ports == arrive.ports &&
         before->arrive.local_name == arrive.local_name;
}

void Arrivals::add(const wire::Arrive& arrive, const std::string& from) {
  clients_[static_cast<std::size_t>(arrive.rank)] = Client{arrive, from, true};
}

std::string Arrivals::host_address(int rank) const {
  const Client& client = *clients_[static_cast<std::size_t>(rank)];
  const std::string seen = numeric_of(client.from);
  const std::vector<std::string>& named = client.arrive.addresses;
  const bool own = named.empty() || std::find(named.begin(), named.end(), seen) != named.end();
  return own ? seen : named.front();
}

std::size_t Arrivals::missing() const {
  return static_cast<std::size_t>(
      std::count_if(clients_.begin() + 1, clients_.end(),
                    [](const std::optional<Client>& client) { return !client || !client->connected; }));
}

std::string Arrivals::text() const {
  using State = wire::RankArrival::State;
  std::vector<wire::RankArrival> ranks(clients_.size());
  ranks.front() = {State::kHere, place_of(me_, "")};
  for (std::size_t rank = 1; rank < clients_.size(); ++rank) {
    const std::optional<Client>& client = clients_[rank];
    if (!client) continue;
    ranks[rank] = {client->connected ? State::kHere : State::kLeft, place_of(client->arrive, client->from)};
  }
  return wire::arrivals_text(ranks, "came to " + endpoint_);
}

std::vector<wire::RosterEntry> Arrivals::roster() const {
  std::vector<wire::RosterEntry> entries{entry_of(me_, "")};
  for (std::size_t rank = 1; rank < clients_.size(); ++rank) {
    entries.push_back(entry_of(clients_[rank]->arrive, clients_[rank]->from));
  }
  return entries;
}

}  // namespace aiacc
