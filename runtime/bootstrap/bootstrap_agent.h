// AgentBootstrap: the provider for ranks started by aiaccrun. It connects to the agent of this host (AIACC_AGENT),
// which knows every rank here, holds the start barrier and passes on the host's segment. The connection stays open
// until the rank leaves: the agent reports lost ranks over it, and its end means that the agent itself is gone.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/io/real_clock.h"
#include "base/io/real_loop.h"
#include "base/io/real_net.h"
#include "base/task/scope.h"
#include "base/wire/agent_messages.h"
#include "base/wire/channel.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/networks.h"

namespace aiacc {

class AgentBootstrap final : public Bootstrap, private Root::Owner {
 public:
  // `rank` and `size` are this process's own view, which the agent checks. `several_hosts`: not all ranks are on this
  // host. `version` is the library's; `network` is for messages to other hosts.
  AgentBootstrap(io::RealLoop& loop, std::string address, int rank, int size, bool several_hosts, std::string version,
                 const NetworkSettings& network = {});
  ~AgentBootstrap() override;

  Task<BootstrapResult> join(Stop& stop) override;
  void observe(BootstrapObserver& observer) noexcept override;
  void lost_peer(int rank) noexcept override;
  void lost_path(const std::string& sentence) noexcept override;
  Task<void> leave(Instant end, Stop& stop) override;

 private:
  void require_own_user(const io::Stream& stream) const;
  Task<std::optional<wire::Frame>> wait_for_others(Stop& stop);
  BootstrapResult bootstrapped_of(const wire::Welcome& welcome, Fd segment);
  std::unique_ptr<MessagePort> port_of(const wire::Welcome& welcome, const View& world);
  Task<void> listen();
  Task<void> report_lost_peer(int rank);
  Task<void> report_lost_path(std::string sentence);
  void send_in_place(Task<void> sending) noexcept;
  void agent_is_gone(const std::string& how) noexcept;
  void root_ended(Root& root, std::exception_ptr error) noexcept override;

  io::RealLoop& loop_;
  io::RealNet net_;
  io::RealEntropy entropy_;
  std::string address_;
  int rank_;
  int size_;
  const MessagePort* port_ = nullptr;     // the context's; outlives leave()
  std::optional<NetworkPorts> networks_;  // to ranks of other hosts, if there are any; used until start
  std::string version_;
  std::string host_name_;
  std::unique_ptr<wire::Channel> channel_;
  BootstrapObserver* observer_ = nullptr;
  bool leaving_ = false;
  Stop stop_;
  Event ended_;
  std::unique_ptr<Root> listener_;
  std::unique_ptr<Root> report_;  // runs once this rank has lost a peer or a path
};

}  // namespace aiacc
