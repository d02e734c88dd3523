// The provider of ranks that aiaccrun started: asks the agent of this host (AIACC_AGENT), which knows every rank here, holds
// the fence and hands out the host's segment. The connection stays open for life: over it the agent tells of deaths, and
// its end says that the agent itself is gone.
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
#include "runtime/bootstrap.h"
#include "transports/tcp/tcp_port.h"

namespace aiacc {

class AgentBootstrap final : public Bootstrap, private Root::Owner {
 public:
  // `rank` and `size` are what this process believes; the agent compares. `several_hosts`: not all ranks are on this one.
  // `version` is the library's; `tcp`: of connections to other hosts.
  AgentBootstrap(io::RealLoop& loop, std::string address, int rank, int size, bool several_hosts, std::string version,
                 io::TcpSettings tcp = {});
  ~AgentBootstrap() override;

  Task<Birth> join(Stop& stop) override;
  void observe(BirthObserver& observer) noexcept override;
  void lost_peer(int rank) noexcept override;
  Task<void> leave(Stop& stop) override;

 private:
  Task<std::optional<wire::Frame>> wait_for_others(Stop& stop);
  Birth birth_of(const wire::Welcome& welcome, Fd segment);
  std::unique_ptr<MessagePort> port_of(const wire::Welcome& welcome, const View& world);
  Task<void> listen();
  Task<void> tell_lost(int rank);
  void agent_is_gone(const std::string& how) noexcept;
  void root_ended(Root& root, std::exception_ptr error) noexcept override;

  io::RealLoop& loop_;
  io::RealNet net_;
  io::RealEntropy entropy_;
  std::string address_;
  int rank_;
  int size_;
  const TcpPort* port_ = nullptr;                // the context's; it lives at least until leave() is over
  std::unique_ptr<io::Listener> data_listener_;  // for ranks of other hosts, if there are any; until the birth
  std::string version_;
  std::string host_name_;
  std::unique_ptr<wire::Channel> channel_;
  BirthObserver* observer_ = nullptr;
  bool leaving_ = false;
  Stop stop_;
  Event ended_;
  std::unique_ptr<Root> listener_;
  std::unique_ptr<Root> teller_;  // once this rank has lost a peer
};

}  // namespace aiacc
