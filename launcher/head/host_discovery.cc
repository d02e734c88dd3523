#include "launcher/head/host_discovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <span>

#include "launcher/agent/exit_rules.h"
#include "launcher/agent/process_tree.h"
#include "launcher/cli/host_list.h"
#include "launcher/head/start_failure.h"

namespace aiacc::launcher {

HostDiscovery::HostDiscovery(Loop& loop, io::Host& host, const HostSource& source, Owner& owner)
    : loop_(loop), host_(host), source_(source), owner_(owner) {}

Task<void> HostDiscovery::run(Stop& stop) {
  for (;;) {
    std::optional<std::vector<HostPlan>> hosts;
    std::string failure;
    try {
      hosts = source_.hosts_of(co_await ask(stop));
    } catch (const Error& error) {
      if (stop.requested()) throw;
      failure = error.message();
    }
    if (hosts) owner_.hosts_listed(*hosts);
    if (!failure.empty() && failure != reported_) owner_.discovery_failed(failure);
    reported_ = failure;
    owner_.discovery_tick();
    co_await sleep_for(loop_, kInterval, stop);
  }
}

// Throws Error, with the sentence for the user. What the script leaves in its process group ends with it.
Task<std::string> HostDiscovery::ask(Stop& stop) {
  const io::SpawnSpec spec = source_.script();
  const std::string name = quoted(spec.argv.front());
  const std::unique_ptr<io::Process> process = host_.spawn(spec);
  Output out, err;
  std::exception_ptr error;
  {
    Stop limited(stop);
    const Deadline deadline(
        loop_, after(loop_.now(), kLimit), limited,
        fmt::format("the script {}, which finds hosts, did not end within {:g} s", name, seconds(kLimit)));
    Scope reading(loop_, limited);
    try {
      reading.spawn(read(process->out.get(), &out, reading.stop()));
      reading.spawn(read(process->err.get(), &err, reading.stop()));
      co_await process->wait(limited);
      co_await kill_group(loop_, host_, process->id(), kLimit, limited);
    } catch (...) {
      error = std::current_exception();
    }
    if (error) {
      reading.stop().request(error);
      Stop own;  // also when the job ends: it returns only after the script is gone
      process->signal_group(SIGKILL);
      co_await kill_group(loop_, host_, process->id(), kLimit, own);
    }
    try {
      co_await reading.join();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  const io::ExitStatus status = *process->ended();
  if (!status.ok()) {
    const std::vector<std::string> last = last_lines(err.text, 1);
    throw Error(Code::kSystem, fmt::format("the script {}, which finds hosts, {}{}", name, describe_status(status),
                                           last.empty() ? "" : ": " + last.front()));
  }
  if (out.too_long) {
    throw Error(Code::kSystem,
                fmt::format("the script {}, which finds hosts, printed more than {} bytes", name, kHostFileLimit));
  }
  co_return std::move(out.text);
}

// Reads to the end of the stream, and keeps no more than is a list of hosts.
Task<void> HostDiscovery::read(io::Stream* from, Output* output, Stop& stop) {
  std::vector<std::byte> bytes(4096);
  for (;;) {
    const std::size_t got = co_await from->read_some(bytes, stop);
    if (got == 0) co_return;
    const std::size_t room = kHostFileLimit - output->text.size();
    output->text.append(reinterpret_cast<const char*>(bytes.data()), std::min(got, room));
    output->too_long = output->too_long || got > room;
  }
}

}  // namespace aiacc::launcher
