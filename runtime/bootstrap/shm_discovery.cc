#include "runtime/bootstrap/shm_discovery.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/io/descriptor_passing.h"
#include "base/io/same_host.h"
#include "base/wire/agent_messages.h"
#include "base/wire/channel.h"
#include "transports/host/memfd_domain.h"

namespace aiacc {
namespace {

constexpr Duration kRetryPause = std::chrono::milliseconds(5);

std::uint64_t random_u64(io::Entropy& entropy) {
  std::uint64_t random = 0;
  entropy.fill(std::as_writable_bytes(std::span(&random, 1)));
  return random;
}

}  // namespace

ShmDomainDiscovery::ShmDomainDiscovery(io::RealLoop& loop, std::uint64_t slice_bytes)
    : loop_(loop),
      slice_bytes_(slice_bytes),
      net_(loop),
      name_(io::random_local_name(entropy_)),
      user_(::geteuid()),
      member_connected_(loop) {
  acceptor_.emplace(loop_, static_cast<wire::Acceptor::Owner&>(*this), net_.listen(io::Address::local(name_)));
}

ShmDomainDiscovery::~ShmDomainDiscovery() = default;

Task<void> ShmDomainDiscovery::greet(std::unique_ptr<io::Stream> stream, wire::Acceptor::Newcomer& newcomer,
                                     Stop& stop) {
  if (!io::is_of_user(*stream, user_)) co_return;
  const wire::ListenerHandshake::Expected expected{wire::Purpose::kLocalPeer, job_, rank_, size_};
  wire::ListenerHandshake handshake(secret_, expected, entropy_);
  const bool proved = co_await wire::accept_proof(handshake, *stream, stop, newcomer.heard);
  if (!proved) co_return;
  newcomer.unauthenticated = false;
  const wire::Bytes verdict = handshake.decide(wire::Verdict::kAccepted, "");
  co_await io::write_all(*stream, verdict, stop);
  members_[handshake.who().from] = std::move(stream);
  member_connected_.set();
}

// kNotHere: no process of this user on this host listens at that name. kBroken: one does, but the handshake broke; the next
// attempt may succeed.
Task<ShmDomainDiscovery::DialResult> ShmDomainDiscovery::dial(std::int32_t other, std::string name, Stop& stop) {
  std::unique_ptr<io::Stream> stream = co_await io::connect_on_this_host(net_, std::move(name), user_, stop);
  if (stream == nullptr) co_return DialResult::kNotHere;
  io::accept_descriptors(*stream);
  try {
    const auto storage = std::make_unique<wire::HandshakeStorage>();
    const wire::Introduction introduction{wire::Purpose::kLocalPeer, job_, rank_, other};
    wire::DialerHandshake handshake(secret_, introduction, entropy_);
    co_await io::write_all(*stream, handshake.hello(), stop);
    const std::span<const std::byte> challenge = co_await wire::read_handshake(*stream, *storage, stop);
    const wire::Bytes proof = handshake.prove(challenge, "");
    co_await io::write_all(*stream, proof, stop);
    const std::span<const std::byte> verdict = co_await wire::read_handshake(*stream, *storage, stop);
    handshake.conclude(verdict);
  } catch (const Error&) {
    if (stop.requested()) throw;
    co_return DialResult::kBroken;
  }
  to_first_ = std::move(stream);
  co_return DialResult::kReached;
}

Task<std::int32_t> ShmDomainDiscovery::find_first(const wire::Roster& roster, std::int32_t rank, Stop& stop) {
  rank_ = rank;
  size_ = static_cast<std::int32_t>(roster.ranks.size());
  job_ = roster.job;
  secret_ = wire::Secret::from(roster.secret);
  acceptor_->open();
  for (std::int32_t other = 0; other < rank;) {
    const std::string& name = roster.ranks[static_cast<std::size_t>(other)].local_name;
    DialResult result = DialResult::kNotHere;
    if (!name.empty()) result = co_await dial(other, name, stop);
    if (result == DialResult::kReached) co_return other;
    if (result == DialResult::kNotHere) {
      ++other;
    } else {
      co_await sleep_for(loop_, kRetryPause, stop);
    }
  }
  co_return rank;
}

Task<std::unique_ptr<HostDomain>> ShmDomainDiscovery::share(const std::vector<std::int32_t>& firsts, Stop& stop) {
  const std::int32_t first = firsts[static_cast<std::size_t>(rank_)];
  std::vector<std::int32_t> members;  // ascending
  for (std::int32_t rank = 0; rank < size_; ++rank) {
    if (firsts[static_cast<std::size_t>(rank)] == first) members.push_back(rank);
  }
  std::unique_ptr<HostDomain> domain;
  if (members.size() > 1 && first == rank_) {
    domain = co_await send_segment(members, stop);
  } else if (members.size() > 1) {
    const auto mine = std::find(members.begin(), members.end(), rank_) - members.begin();
    domain = co_await receive_segment(static_cast<int>(mine), static_cast<int>(members.size()), stop);
  }
  acceptor_.reset();
  members_.clear();
  to_first_.reset();
  co_return domain;
}

Task<std::unique_ptr<HostDomain>> ShmDomainDiscovery::send_segment(const std::vector<std::int32_t>& members,
                                                                   Stop& stop) {
  const int count = static_cast<int>(members.size());
  wire::ShareSegment here;
  here.nonce = random_u64(entropy_);
  std::optional<HostSegment> segment;
  std::unique_ptr<HostDomain> domain;
  std::optional<Error> failed;
  try {
    segment.emplace(HostSegment::create(count, slice_bytes_, here.nonce));
    domain = MemfdDomain::attach(segment->descriptor(), here.nonce, 0, count, loop_);
  } catch (const Error& error) {
    failed = error;
  }
  for (const std::int32_t member : members) {
    if (member == rank_) continue;
    while (!members_.contains(member)) {
      member_connected_.reset();
      co_await member_connected_.wait(stop);
    }
    wire::Channel channel(loop_, std::move(members_[member]));
    if (failed) {
      const wire::Refused refused{static_cast<std::int32_t>(failed->code()), failed->message()};
      co_await channel.send(refused, stop);
    } else {
      co_await channel.send(here, segment->descriptor(), stop);
    }
  }
  if (failed) throw Error(*failed);
  co_return domain;
}

Task<std::unique_ptr<HostDomain>> ShmDomainDiscovery::receive_segment(int local_rank, int count, Stop& stop) {
  wire::Channel channel(loop_, std::move(to_first_));
  const std::optional<wire::Frame> frame = co_await channel.receive(stop);
  if (!frame) {
    throw Error(Code::kPeerFailed,
                fmt::format("the first rank of the host of rank {} ended before it had shared its memory", rank_));
  }
  if (frame->type == wire::Refused::kType) {
    const auto refused = frame->as<wire::Refused>();
    throw Error(static_cast<Code>(refused.code), refused.sentence);
  }
  const auto there = frame->as<wire::ShareSegment>();
  const Fd segment = io::take_descriptor(channel.stream());
  if (!segment) {
    throw Error(Code::kProtocol,
                "the host's memory did not arrive: this process is at its limit of descriptors (ulimit -n)");
  }
  co_return MemfdDomain::attach(segment.get(), there.nonce, local_rank, count, loop_);
}

}  // namespace aiacc
