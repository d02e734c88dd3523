// The machines and processes of a launch in virtual time: aiaccrun's head on one machine; keeper, agent and ranks on three others;
// a simulated ssh between them. For tests only.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <csignal>
#include <deque>
#include "base/sim/sim_host.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/keeper.h"
#include "launcher/cli/host_list.h"
#include "launcher/cli/options.h"
#include "launcher/head/head.h"

namespace aiacc::launcher {
using namespace std::chrono_literals;
using sim::SimSelf;

inline constexpr int kHosts = 3;
inline constexpr int kRanksOfHost = 2;
inline constexpr Duration kLease = 30s;
inline constexpr Duration kBound = 5s;
// Must exist because the agent checks; the simulator runs its own program instead.
inline constexpr const char* kProgram = "/bin/sh";
inline constexpr std::uint16_t kPort = 22;

inline Task<void> pump(io::Stream* from, io::Stream* to, Stop* stop) {
  std::vector<std::byte> bytes(4096);
  for (;;) {
    const std::size_t moved = co_await from->read_some(bytes, *stop);
    if (moved == 0) break;
    const std::span<const std::byte> part = std::span(bytes).first(moved);
    co_await io::write_all(*to, part, *stop);
  }
  to->shutdown_write();
}

// Copies in both directions until `far_out` ends.
inline Task<void> join_streams(Loop* loop, io::Stream* in, io::Stream* far_in, io::Stream* far_out, io::Stream* out,
                               Stop* stop) {
  Scope scope(*loop, *stop);
  scope.spawn(pump(in, far_in, &scope.stop()));
  try {
    co_await pump(far_out, out, &scope.stop());
  } catch (const Error&) {
  }
  scope.stop().request(std::make_exception_ptr(Error(Code::kAborted, "the session is over")));
  try {
    co_await scope.join();
  } catch (const Error&) {
  }
}

class Platform final : public AgentPlatform {
 public:
  Platform(SimSelf& self, std::string address, std::string machine)
      : entropy_(self.loop().world(), self.loop().node()), address_(std::move(address)), machine_(std::move(machine)) {}
  io::Entropy& entropy() override { return entropy_; }
  std::uint32_t user() override { return 1000; }
  io::ProcessId process() override { return 0; }
  std::uint16_t hold_port() override { return 4711; }
  std::string program() override { return "/usr/bin/aiaccrun"; }
  SharedSegment make_segment(int, std::uint64_t) override { return {}; }
  const Topology& topology() override { return topology_; }
  std::vector<std::string> environment() override { return {"PATH=/usr/bin:/bin"}; }
  std::vector<std::string> addresses() override { return {address_}; }
  std::string machine() override { return machine_; }

 private:
  sim::SimEntropy entropy_;
  std::string address_;
  std::string machine_;
  Topology topology_ = Topology::synthetic("core:4 pu:1");
};

// What aiaccrun writes on its standard error.
class Said final : public io::Stream {
 public:
  explicit Said(Loop& loop) : loop_(loop) {}
  void shutdown_write() noexcept override {}
  std::optional<io::PeerIdentity> peer_identity() const noexcept override { return std::nullopt; }
  std::string describe() const override { return "standard error"; }
  std::string text;

 protected:
  Loop& loop() noexcept override { return loop_; }
  bool try_io(io::IoAwait& io) override {
    if (io.data() != nullptr) text.append(reinterpret_cast<const char*>(io.data()), io.bytes());
    for (const io::Piece& piece : io.pieces()) text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    io.set_moved(io.bytes());
    return true;
  }
  void begin_io(io::IoAwait&) noexcept override {}
  void cancel_io(io::IoAwait&) noexcept override {}

 private:
  Loop& loop_;
};

// The machines, the job on them, and its outcome.
class Cluster {
 public:
  // `least` as with --min-np, 0: without it; `replaces` as with --max-np.
  explicit Cluster(std::uint64_t seed, int least = 0, bool replaces = false)
      : world(seed), min_ranks(least), max_ranks(replaces ? kHosts * kRanksOfHost : 0) {
    for (int host = 0; host <= kHosts; ++host) {
      machines.push_back(std::make_unique<sim::SimMachine>(world, network, host, name_of(host)));
      logins.push_back(std::make_unique<sim::SimLoop>(world, "login on " + name_of(host)));
      selves.push_back(&machines.back()->log_in(*logins.back()));
      install(host);
    }
    for (int host = 1; host <= kHosts; ++host) start(host, "sshd");
    world.run_until(after(world.now(), 10ms));
    start(0, "aiaccrun");
  }

  static std::string name_of(int host) { return host == 0 ? "head" : fmt::format("h{}", host); }
  static std::string address_of(int host) { return fmt::format("192.0.2.{}", host + 1); }

  void start(int host, const std::string& program) {
    io::SpawnSpec spec;
    spec.argv = {program};
    spec.group = io::SpawnSpec::Group::kNewSession;
    daemons[host].push_back(selves[static_cast<std::size_t>(host)]->host().spawn(spec));
  }

  // The live processes of a role on a host: "aiaccrun", "ssh", "keeper", "agent", "rank".
  std::vector<io::ProcessId> living(int host, const std::string& role) const {
    std::vector<io::ProcessId> found;
    const auto all = born.find({host, role});
    if (all == born.end()) return found;
    for (const io::ProcessId process : all->second) {
      if (selves[static_cast<std::size_t>(host)]->host().state(process) != 0) found.push_back(process);
    }
    return found;
  }
  // "agent on h2", … for every live process on other hosts than `but_hosts`.
  std::vector<std::string> left(const std::vector<int>& but_hosts = {}) const {
    std::vector<std::string> found;
    for (const auto& [where, processes] : born) {
      const auto& [host, role] = where;
      if (std::find(but_hosts.begin(), but_hosts.end(), host) != but_hosts.end()) continue;
      if (!living(host, role).empty()) found.push_back(role + " on " + name_of(host));
    }
    return found;
  }
  std::string machine_of(int host) const { return alike || twice >= 0 ? "a machine" : name_of(host); }
  void signal(int host, io::ProcessId process, int number) {
    selves[static_cast<std::size_t>(host)]->host().signal(process, number);
  }

  sim::World world;
  const int min_ranks;
  const int max_ranks;
  sim::SimNetwork network{world};
  int leaves_at_once = -1;  // a host whose ranks exit with 0
  std::map<std::pair<int, std::string>, std::vector<io::ProcessId>> born;
  std::optional<int> exit_code;
  const std::string* said = nullptr;            // by aiaccrun, while it runs
  std::vector<std::vector<int>> same_machines;  // as aiaccrun's head detected them
  bool alike = false;                           // every machine describes itself in the same way
  int twice = -1;                               // this host's name leads to the machine of the one before
  int fails = -1;                               // the rank that exits with 7 after a second
  int lies = -1;                                // the host whose agent sends `lie` after a second
  wire::Bytes lie;
  // With a script that finds hosts: how many hosts the job begins with, and what the script prints, from when on.
  int begins = 0;
  std::string listed;
  int script_code = 0;
  bool script_hangs = false;
  int most = 0;
  Duration elastic_timeout{};

 private:
  void install(int host);
  static Task<int> head(Cluster* cluster, SimSelf* self);
  static Task<int> ssh(Cluster* cluster, SimSelf* self);
  static Task<int> sshd(Cluster* cluster, int host, SimSelf* self);
  static Task<void> serve(SimSelf* self, std::unique_ptr<io::Stream> stream, Stop* stop);
  static Task<int> sleep_on(SimSelf* self);
  static Task<int> keeper(Cluster* cluster, int host, SimSelf* self);
  static Task<int> agent(Cluster* cluster, int host, SimSelf* self);
  static Task<void> say_lie(Cluster* cluster, SimSelf* self, io::Stream* to, Stop* stop);
  static Task<int> rank(Cluster* cluster, int host, SimSelf* self);
  static Task<int> script(Cluster* cluster, SimSelf* self);
  static HostLink::Settings link_to(Cluster* cluster, const std::string& name, int index);
  static wire::StartJob job_on(const std::string& name, int index);

  class Listed final : public HostSource {
   public:
    explicit Listed(Cluster* cluster) : cluster_(cluster) {}
    io::SpawnSpec script() const override {
      io::SpawnSpec spec;
      spec.argv = {"hosts"};
      spec.out = spec.err = io::SpawnSpec::Stdio::kPipe;
      spec.group = io::SpawnSpec::Group::kNewSession;
      return spec;
    }
    std::vector<HostPlan> hosts_of(const std::string& printed) const override {
      std::vector<HostPlan> hosts;
      for (const HostSpec& spec : parse_host_file("the output of hosts", printed)) {
        HostPlan& host = hosts.emplace_back();
        host.name = spec.name;
        host.slots = spec.slots;
      }
      return hosts;
    }
    HostLink::Settings link_to(const HostPlan& host, int index) const override {
      return Cluster::link_to(cluster_, host.name, index);
    }
    wire::StartJob job_on(const HostPlan& host, int index) const override { return Cluster::job_on(host.name, index); }
    std::vector<std::string> environment_of(const RankPlan& rank, const JobSize&) const override {
      return {fmt::format("AIACC_RANK={}", rank.rank)};
    }

   private:
    Cluster* cluster_;
  };

  // The agent inherits its keeper's streams, as a child inherits descriptors.
  struct Control {
    std::unique_ptr<io::Stream> in, out;
  };
  std::map<int, std::deque<Control>> controls;  // by host, from the keeper's start to the agent's
  std::vector<std::unique_ptr<sim::SimMachine>> machines;
  std::vector<std::unique_ptr<sim::SimLoop>> logins;
  std::vector<SimSelf*> selves;
  std::map<int, std::vector<std::unique_ptr<io::Process>>> daemons;
};

inline void Cluster::install(int host) {
  sim::SimMachine& machine = *machines.back();
  const auto enrolled = [this, host](const std::string& role, auto body) {
    return [this, host, role, body](SimSelf& self) -> Task<int> {  // not a coroutine itself
      born[{host, role}].push_back(self.process());
      return body(self);
    };
  };
  if (host == 0) {
    machine.install("aiaccrun", enrolled("aiaccrun", [this](SimSelf& self) { return head(this, &self); }));
    machine.install("ssh", enrolled("ssh", [this](SimSelf& self) { return ssh(this, &self); }));
    machine.install("hosts", enrolled("script", [this](SimSelf& self) { return script(this, &self); }));
    return;
  }
  machine.install("sshd", [this, host](SimSelf& self) { return sshd(this, host, &self); });
  machine.install("keeper", enrolled("keeper", [this, host](SimSelf& self) { return keeper(this, host, &self); }));
  machine.install("agent", enrolled("agent", [this, host](SimSelf& self) { return agent(this, host, &self); }));
  machine.install(kProgram, enrolled("rank", [this, host](SimSelf& self) { return rank(this, host, &self); }));
  machine.install("child", enrolled("child of a rank", [](SimSelf& self) { return sleep_on(&self); }));
}

inline Task<int> Cluster::sleep_on(SimSelf* self) {
  co_await sleep_for(self->loop(), std::chrono::hours(1000), self->stop());
  co_return 0;
}

inline Task<int> Cluster::head(Cluster* cluster, SimSelf* self) {
  Head::Settings settings;
  settings.kill_grace = 2s;
  settings.min_ranks = cluster->min_ranks;
  settings.max_ranks = cluster->max_ranks;
  settings.in = self->in.get();
  settings.start_limit = 300s;
  const Listed source(cluster);
  const int hosts = cluster->begins > 0 ? cluster->begins : kHosts;
  for (int host = 1; host <= hosts; ++host) {
    settings.hosts.push_back(link_to(cluster, name_of(host), host - 1));
    wire::StartJob& job = settings.jobs.emplace_back(job_on(name_of(host), host - 1));
    for (int rank = 0; rank < hosts * kRanksOfHost; ++rank) {
      job.hosts_of_ranks.push_back(static_cast<std::uint32_t>(rank / kRanksOfHost));
      if (rank / kRanksOfHost != job.host) continue;
      wire::StartRank& one = job.ranks.emplace_back();
      one.rank = rank;
      one.local_rank = rank % kRanksOfHost;
      one.environment = {fmt::format("AIACC_RANK={}", rank)};
    }
  }
  if (cluster->begins > 0) {
    Growth::Settings& growth = settings.growth.emplace();
    growth.source = &source;
    growth.most_ranks = settings.max_ranks = cluster->most;
    growth.start_limit = 20s;
    settings.elastic_timeout = cluster->elastic_timeout;
    for (const wire::StartJob& job : settings.jobs) {
      HostPlan& host = growth.hosts.emplace_back();
      host.name = job.host_name;
      host.slots = kRanksOfHost;
      for (const wire::StartRank& rank : job.ranks) host.ranks.push_back(rank.rank);
    }
  }
  sim::SimEntropy entropy(cluster->world, self->loop().node());
  Said said(self->loop());
  cluster->said = &said.text;
  Head head(self->loop(), self->host(), self->signals(), entropy, *self->out, said, std::move(settings));
  const int code = co_await head.run(self->stop());
  cluster->exit_code = code;
  cluster->same_machines = head.same_machines();
  co_return code;
}

// A name beyond those of the machines leads nowhere.
inline HostLink::Settings Cluster::link_to(Cluster* cluster, const std::string& name, int index) {
  HostLink::Settings link;
  link.index = index;
  link.name = name;
  link.ssh = true;
  link.lease = kLease;
  const int host = std::stoi(name.substr(1));
  io::SpawnSpec& spec = link.starts.emplace_back();
  spec.argv = {"ssh", address_of(host == cluster->twice ? host - 1 : host)};
  spec.in = spec.out = spec.err = io::SpawnSpec::Stdio::kPipe;
  spec.group = io::SpawnSpec::Group::kNewSession;
  return link;
}

inline wire::StartJob Cluster::job_on(const std::string& name, int index) {
  wire::StartJob job;
  job.version = version_text();
  job.host_name = name;
  job.host = index;
  job.argv = {kProgram};
  job.cwd = "/";
  job.over_own = true;
  return job;
}

inline Task<int> Cluster::script(Cluster* cluster, SimSelf* self) {
  if (cluster->script_hangs) co_await sleep_on(self);
  co_await io::write_all(*self->out, std::as_bytes(std::span(cluster->listed)), self->stop());
  co_return cluster->script_code;
}

inline Task<int> Cluster::ssh(Cluster*, SimSelf* self) {
  const io::Address address = io::Address::tcp(self->argv().at(1), kPort);
  const std::unique_ptr<io::Stream> there = co_await self->net().connect(address, self->stop());
  co_await join_streams(&self->loop(), self->in.get(), there.get(), there.get(), self->out.get(), &self->stop());
  co_return 255;
}

inline Task<int> Cluster::sshd(Cluster* cluster, int host, SimSelf* self) {
  const std::unique_ptr<io::Listener> listener = self->net().listen(io::Address::tcp(address_of(host), kPort));
  Scope sessions(self->loop(), self->stop());
  try {
    for (;;) {
      std::unique_ptr<io::Stream> stream = co_await listener->accept(sessions.stop());
      Task<void> session = serve(self, std::move(stream), &sessions.stop());
      sessions.spawn(std::move(session));
    }
  } catch (const Error&) {
  }
  co_await sessions.join();
  static_cast<void>(cluster);
  co_return 0;
}

inline Task<void> Cluster::serve(SimSelf* self, std::unique_ptr<io::Stream> stream, Stop* stop) {
  io::SpawnSpec spec;
  spec.argv = {"keeper"};
  spec.in = spec.out = io::SpawnSpec::Stdio::kPipe;
  spec.group = io::SpawnSpec::Group::kNewSession;
  spec.die_with_parent = false;
  const std::unique_ptr<io::Process> process = self->host().spawn(spec);
  try {
    co_await join_streams(&self->loop(), stream.get(), process->in.get(), process->out.get(), stream.get(), stop);
  } catch (const Error&) {
  }
}

inline Task<int> Cluster::keeper(Cluster* cluster, int host, SimSelf* self) {
  // Until the agent runs, the streams belong to a process that cannot die: a real agent has them from its fork on.
  for (io::Stream* stream : {self->in.get(), self->out.get()}) {
    cluster->network.hand_over(*stream, {*cluster->logins[static_cast<std::size_t>(host)], host, {1000, 0}});
  }
  cluster->controls[host].push_back({std::move(self->in), std::move(self->out)});
  io::SpawnSpec spec;
  spec.argv = {"agent"};
  spec.group = io::SpawnSpec::Group::kNewSession;
  spec.die_with_parent = false;
  spec.channel = true;
  const io::ExitStatus status = co_await keep(
      self->loop(), self->host(), spec, [] {}, self->stop());
  co_return status.shell_code();
}

inline Task<int> Cluster::agent(Cluster* cluster, int host, SimSelf* self) {
  Control control = std::move(cluster->controls.at(host).front());
  cluster->controls.at(host).pop_front();
  for (io::Stream* stream : {control.in.get(), control.out.get()}) {
    cluster->network.hand_over(*stream, {self->loop(), host, {1000, self->process()}});
  }
  self->host().adopt_orphans();
  Platform platform(*self, address_of(host), cluster->machine_of(host));
  Agent agent(self->loop(), self->net(), self->host(), platform, *control.in, *control.out, *self->channel);
  Scope scope(self->loop(), self->stop());
  if (host == cluster->lies) scope.spawn(say_lie(cluster, self, control.out.get(), &scope.stop()));
  co_await agent.run(self->stop());
  co_await scope.join();
  co_return 0;
}

// Written between two messages of the agent, which sends none for a long time after its start.
inline Task<void> Cluster::say_lie(Cluster* cluster, SimSelf* self, io::Stream* to, Stop* stop) {
  co_await sleep_for(self->loop(), 1s, *stop);
  co_await io::write_all(*to, cluster->lie, *stop);
}

// Every other rank ignores SIGTERM, and each rank has a child in a session of its own.
inline Task<int> Cluster::rank(Cluster* cluster, int host, SimSelf* self) {
  if (host == cluster->leaves_at_once) co_return 0;
  const int number = std::stoi(self->env("AIACC_RANK"));
  if (number % 2 == 1) self->ignore(SIGTERM);
  io::SpawnSpec spec;
  spec.argv = {"child"};
  spec.group = io::SpawnSpec::Group::kNewSession;
  spec.die_with_parent = false;
  const std::unique_ptr<io::Process> child = self->host().spawn(spec);
  if (number == cluster->fails) {
    co_await sleep_for(self->loop(), 1s, self->stop());
    co_return 7;
  }
  const int code = co_await sleep_on(self);
  co_return code;
}

// --- the tests -------------------------------------------------------------------------------------------------------

// A random host on which processes of that role run.
inline int place_of(const std::string& role, sim::Random& random) {
  return role == "aiaccrun" || role == "ssh" ? 0 : 1 + static_cast<int>(random.below(kHosts));
}

inline std::string text_of(const std::vector<std::string>& left) {
  std::string text;
  for (const std::string& one : left) text += (text.empty() ? "" : ", ") + one;
  return text;
}

}  // namespace aiacc::launcher
