#include "launcher/roles.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/config.h"
#include "base/io/bound_port.h"
#include "base/io/host_addresses.h"
#include "base/io/limits.h"
#include "base/io/machine_mark.h"
#include "base/io/process_role.h"
#include "base/io/real_clock.h"
#include "base/io/real_host.h"
#include "base/io/real_loop.h"
#include "base/io/real_net.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/keeper.h"
#include "launcher/agent/segment.h"
#include "launcher/channel/marker.h"

namespace aiacc::launcher {

namespace {

constexpr const char* kOwnFile = "/proc/self/exe";
constexpr int kChannel = 3;  // the descriptor of a SpawnSpec's channel in the child

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

class RealAgentPlatform final : public AgentPlatform {
 public:
  io::Entropy& entropy() override { return entropy_; }
  std::uint32_t user() override { return ::geteuid(); }
  io::ProcessId process() override { return ::getpid(); }
  std::uint16_t hold_port() override {
    port_.emplace();
    return port_->number();
  }
  SharedSegment make_segment(int ranks, std::uint64_t slice_bytes) override {
    return create_segment(ranks, slice_bytes, entropy_);
  }
  const Topology& topology() override {
    if (!topology_) topology_ = Topology::load();
    return *topology_;
  }
  std::vector<std::string> environment() override { return process_environment(); }
  std::vector<std::string> addresses() override { return io::host_addresses(environment()); }
  std::string machine() override { return io::machine_mark(); }
  std::string program() override {
    std::error_code unknown;
    return std::filesystem::read_symlink(kOwnFile, unknown).string();
  }

 private:
  io::RealEntropy entropy_;
  std::optional<io::BoundPort> port_;
  std::optional<Topology> topology_;
};

io::SpawnSpec agent_spec() {
  io::SpawnSpec spec;
  spec.argv = {kAgentName};
  spec.program = kOwnFile;
  spec.in = io::SpawnSpec::Stdio::kInherit;
  spec.out = io::SpawnSpec::Stdio::kInherit;
  spec.group = io::SpawnSpec::Group::kNewSession;
  spec.die_with_parent = false;  // it must outlive a keeper that dies, to end the ranks in its place
  spec.channel = true;
  spec.env = process_environment();
  return spec;
}

wire::Greeting read_greeting() {
  wire::FrameBuffer frames;
  for (;;) {
    if (const auto frame = frames.next()) return frame->as<wire::Greeting>();
    const std::span<std::byte> space = frames.space();
    const ssize_t got = ::read(0, space.data(), space.size());
    if (got == 0 || (got < 0 && errno != EINTR)) throw Error(Code::kPeerFailed, "aiaccrun is gone");
    if (got > 0) frames.commit(static_cast<std::size_t>(got));
  }
}

// From now on only the agent has the control channel, so aiaccrun sees its end when the agent dies.
void detach_from_control() {
  io::close_standard_descriptor(0);
  io::close_standard_descriptor(1);
}

// Tells aiaccrun why the keeper cannot work, in place of the agent's first message. Nothing else runs here, so it may
// block.
int report_failure(int exit_code, MessageId id, const std::string& sentence) {
  wire::NotStarted message;
  message.exit_code = exit_code;
  message.message = static_cast<std::uint8_t>(id);
  message.sentence = sentence;
  const auto frame = wire::encode_frame(message);
  try {
    const std::string answer = answer_to(read_greeting().marker);
    (void)!::write(1, answer.data(), answer.size());
    (void)!::write(1, frame.data(), frame.size());
  } catch (const Error&) {
    // aiaccrun is gone: nobody to tell.
  }
  return exit_code;
}

int run_keeper(bool isolate) {
  try {
    if (isolate) io::enter_pid_namespace();
  } catch (const Error& error) {
    return report_failure(kExitUsage, MessageId::kIsolate, error.message());
  }
  try {
    io::RealLoop loop;
    io::RealHost host(loop);
    Stop stop;
    return loop.run(keep(loop, host, agent_spec(), detach_from_control, stop)).shell_code();
  } catch (const Error& error) {
    return report_failure(kExitLauncher, MessageId::kLimit, error.message());
  }
}

int run_agent() {
  io::raise_descriptor_limit();
  io::RealLoop loop;
  io::RealNet net(loop);
  io::RealHost host(loop);
  host.adopt_orphans();
  const auto from_head = io::adopt(loop, Fd(::fcntl(0, F_DUPFD_CLOEXEC, kChannel + 1)), "aiaccrun");
  const auto to_head = io::adopt(loop, Fd(::fcntl(1, F_DUPFD_CLOEXEC, kChannel + 1)), "aiaccrun");
  const auto keeper = io::adopt(loop, Fd(kChannel), "the keeper");
  detach_from_control();
  RealAgentPlatform platform;
  Agent agent(loop, net, host, platform, *from_head, *to_head, *keeper);
  Stop stop;
  loop.run(agent.run(stop));
  return 0;
}

}  // namespace

bool is_role(int argc, char** argv) noexcept {
  if (argc == 0) return false;
  const std::string_view name = base_name(argv[0]);
  return name == kKeeperName || name == kAgentName || (argc > 1 && std::strcmp(argv[1], kRemoteKeeper) == 0);
}

int run_role(int argc, char** argv) {
  const bool isolate = argc > 1 && std::strcmp(argv[argc - 1], kIsolateWord) == 0;
  if (base_name(argv[0]) != kAgentName) {
    io::set_process_name(kKeeperName);
    if (base_name(argv[0]) != kKeeperName) io::detach_from_parent();
    return run_keeper(isolate);
  }
  io::set_process_name(kAgentName);
  try {
    return run_agent();
  } catch (const Error& error) {
    const std::string line = message_line(unexpected(error), error.message()) + "\n";
    (void)!::write(2, line.data(), line.size());
    return kExitLauncher;
  }
}

io::SpawnSpec keeper_spec(bool isolate) {
  io::SpawnSpec spec = agent_spec();
  spec.argv = {kKeeperName};
  if (isolate) spec.argv.emplace_back(kIsolateWord);
  spec.in = io::SpawnSpec::Stdio::kPipe;
  spec.out = io::SpawnSpec::Stdio::kPipe;
  spec.channel = false;
  return spec;
}

io::SpawnSpec starter_spec(std::vector<std::string> command, std::vector<std::string> environment) {
  io::SpawnSpec spec;
  spec.argv = std::move(command);
  spec.in = io::SpawnSpec::Stdio::kPipe;
  spec.out = io::SpawnSpec::Stdio::kPipe;
  spec.err = io::SpawnSpec::Stdio::kPipe;
  // Ctrl-C must not reach it, and it must not ask questions on the terminal.
  spec.group = io::SpawnSpec::Group::kNewSession;
  spec.env = std::move(environment);
  return spec;
}

}  // namespace aiacc::launcher
