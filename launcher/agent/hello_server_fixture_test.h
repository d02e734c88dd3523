// A HelloServer over real local sockets. The clients are coroutines of this process; a fake process table shows them as orphans
// that the agent adopted, so each may claim any rank. For tests only.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>

#include "base/io/descriptor_passing.h"
#include "base/io/real_loop.h"
#include "base/io/real_net.h"
#include "launcher/agent/hello_server.h"

namespace aiacc::launcher {

inline constexpr io::ProcessId kAgent = 5;

class OrphanHost final : public io::Host {
 public:
  char process_state = 'S';
  io::ProcessId parent = kAgent;
  std::string name() const override { return "a"; }
  void adopt_orphans() override {}
  std::unique_ptr<io::Process> spawn(const io::SpawnSpec&) override { return nullptr; }
  std::vector<io::ProcessId> descendants() override { return {}; }
  void signal(io::ProcessId, int) noexcept override {}
  char state(io::ProcessId) override { return process_state; }
  std::optional<std::string> read_file(const std::string& path) override {
    if (path != "/proc/" + std::to_string(::getpid()) + "/stat") return std::nullopt;
    return std::to_string(::getpid()) + " (rank) S " + std::to_string(parent) + " 777 777 0";
  }
};

class HelloServerTest : public testing::Test, protected HelloServer::Owner, private Root::Owner {
 protected:
  // A simulated rank.
  struct Client {
    std::unique_ptr<io::Stream> stream;
    std::unique_ptr<FrameReader> frames;
    std::unique_ptr<FrameSender> sender;
  };

  HelloServerTest() : ended_(loop_) {}

  // With a `size`, the job has further ranks on another host.
  void serve(int ranks, int size = 0, bool elastic = false) {
    HelloServer::Config config;
    config.elastic = elastic;
    config.several_hosts = size > ranks;
    config.secret = config.several_hosts ? "secret" : "";
    config.host_name = "a";
    config.user = user_;
    config.agent = kAgent;
    config.job = 42;
    for (int rank = 0; rank < ranks; ++rank) {
      config.ranks.push_back(rank);
      config.hosts_of_ranks.push_back(0);
    }
    for (int rank = ranks; rank < size; ++rank) config.hosts_of_ranks.push_back(1);
    HelloServer::Owner& owner = *this;
    server_ = std::make_unique<HelloServer>(loop_, host_, std::move(config), owner);
    server_->set_processes(std::vector<io::ProcessId>(static_cast<std::size_t>(ranks), 1));
    listener_address_ = io::Address::local("aiacc-test-" + std::to_string(::getpid()));
    Root::Owner& watcher = *this;
    root_ = std::make_unique<Root>(loop_, server_->serve(net_.listen(listener_address_), stop_), watcher);
    root_->start();
  }
  void TearDown() override {
    stop_.request(std::make_exception_ptr(Error(Code::kAborted, "the test is over")));
    loop_.run_until([this] { return ended_.is_set(); });
  }

  Client hello(int rank, int size, const std::string& version = "1.0") {
    Client client;
    client.stream = loop_.run(net_.connect(listener_address_, stop_));
    io::accept_descriptors(*client.stream);
    client.frames = std::make_unique<FrameReader>(*client.stream);
    wire::Hello message;
    message.rank = rank;
    message.size = size;
    message.library_version = version;
    message.ports.ports = {wire::tcp_address(static_cast<std::uint16_t>(7000 + rank))};
    send(client, message);
    return client;
  }
  template <wire::Message T>
  void send(Client& client, const T& message) {
    const wire::Bytes bytes = wire::encode_frame(message);
    loop_.run(io::write_all(*client.stream, bytes, stop_));
  }
  // The next message, which must come within ten seconds.
  wire::Frame next(Client& client) {
    Stop patience(stop_);
    Deadline deadline(loop_, loop_.now() + std::chrono::seconds(10), patience, "no message came");
    std::optional<wire::Frame> frame = loop_.run(client.frames->next(patience));
    return frame.value_or(wire::Frame{});
  }
  // Gives the server time to take a hello that is not answered.
  void settle(std::size_t connected) {
    loop_.run_until([&] { return connected_.size() >= connected; });
  }

  void rank_connected(int local) override { connected_.push_back(local); }
  void rank_initialised(int local) override { initialised_.push_back(local); }
  void rank_finalized(int local) override { finalized_.push_back(local); }
  void hello_refused(MessageId id, const std::string& sentence) override { refusals_.emplace_back(id, sentence); }
  SharedSegment make_segment(int) override {
    ++segments_;
    return {std::make_shared<const Fd>(::memfd_create("test", MFD_CLOEXEC)), static_cast<std::uint64_t>(segments_)};
  }
  void host_ready(const std::string& version, std::vector<wire::RankPorts> ports, std::uint32_t) override {
    ready_.emplace_back(version, std::move(ports));
  }
  void rank_lost(int rank, const std::string& sentence) override { lost_.emplace_back(rank, sentence); }
  void root_ended(Root&, std::exception_ptr) noexcept override { ended_.set(); }

  std::uint32_t user_ = ::geteuid();
  io::RealLoop loop_;
  io::RealNet net_{loop_};
  OrphanHost host_;
  Stop stop_;
  Event ended_;
  io::Address listener_address_;
  std::unique_ptr<HelloServer> server_;
  std::unique_ptr<Root> root_;
  std::vector<int> connected_, initialised_, finalized_;
  std::vector<std::pair<MessageId, std::string>> refusals_;
  std::vector<std::pair<std::string, std::vector<wire::RankPorts>>> ready_;
  std::vector<std::pair<int, std::string>> lost_;
  int segments_ = 0;
};

inline wire::OpenWorld world_of(int size) {
  wire::OpenWorld world;
  world.hosts = {{"a", {"10.0.0.1"}}, {"b", {"10.0.0.2"}}};
  for (int rank = 0; rank < size; ++rank) {
    world.ports.push_back({{wire::tcp_address(static_cast<std::uint16_t>(9000 + rank))}});
  }
  return world;
}

}  // namespace aiacc::launcher
