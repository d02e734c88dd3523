#include "base/sim/sim_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/error.h"

namespace aiacc::sim {
namespace {

constexpr Duration kSpawnTime = std::chrono::microseconds(500);  // fork and exec
constexpr Duration kNoticeTime = std::chrono::microseconds(20);  // from the end of a process to the notification
constexpr io::PeerIdentity kNobodyYet{1000, 0};

bool stops(int number) noexcept {
  return number == SIGSTOP || number == SIGTSTP || number == SIGTTIN || number == SIGTTOU;
}
bool harmless(int number) noexcept {
  return number == 0 || number == SIGCHLD || number == SIGURG || number == SIGWINCH;
}

}  // namespace

// --- the parts of a process ---------------------------------------------------------------------------------------------

class SimMachine::Inbox final : public io::Signals {
 public:
  explicit Inbox(Record& record) noexcept;
  Task<int> next(Stop& stop) override {
    while (signals_.empty()) {
      came_.reset();
      co_await came_.wait(stop);
    }
    const int number = signals_.front();
    signals_.pop_front();
    co_return number;
  }
  void stop_self() noexcept override;
  void add(int number) {
    signals_.push_back(number);
    came_.set();
  }

 private:
  Record& record_;
  std::deque<int> signals_;
  ::aiacc::Event came_;
};

class SimMachine::ProcessHost final : public io::Host {
 public:
  explicit ProcessHost(Record& record) noexcept : record_(record) {}
  std::string name() const override;
  void adopt_orphans() override;
  std::unique_ptr<io::Process> spawn(const io::SpawnSpec& spec) override;
  std::vector<io::ProcessId> descendants() override;
  void signal(io::ProcessId process, int number) noexcept override;
  char state(io::ProcessId process) override;
  std::optional<std::string> read_file(const std::string& path) override;

 private:
  Record& record_;
};

class SimMachine::Record final : public SimSelf, private Root::Owner {
 public:
  Record(SimMachine& on, io::ProcessId process, SimLoop& existing)
      : machine(on), id(process), group(process), session(process), loop_(&existing) {}
  Record(SimMachine& on, io::ProcessId process, Record& spawner, const io::SpawnSpec& how)
      : machine(on),
        id(process),
        parent(spawner.id),
        group(how.group == io::SpawnSpec::Group::kInherit ? spawner.group : process),
        session(how.group == io::SpawnSpec::Group::kNewSession ? process : spawner.session),
        dies_with_parent(how.die_with_parent),
        spec(how),
        own_loop_(std::make_unique<SimLoop>(on.world_, fmt::format("{} {} on {}", process, how.argv[0], on.name_))),
        loop_(own_loop_.get()) {}
  ~Record() override {
    if (!root_ || finished_) return;
    stop_.request(std::make_exception_ptr(Error(Code::kAborted, "the simulation is over")));
    loop_->bury();
  }

  io::ProcessId process() const noexcept override { return id; }
  SimLoop& loop() noexcept override { return *loop_; }
  Stop& stop() noexcept override { return stop_; }
  io::Host& host() noexcept override { return host_; }
  io::Net& net() noexcept override { return net_; }
  io::Signals& signals() noexcept override {
    catches = true;
    return inbox;
  }
  void ignore(int number) noexcept override { ignored.insert(number); }
  const std::vector<std::string>& argv() const noexcept override { return spec.argv; }
  std::string env(const std::string& wanted) const override {
    for (const std::string& entry : spec.env) {
      if (entry.starts_with(wanted + "=")) return entry.substr(wanted.size() + 1);
    }
    return {};
  }

  void begin(const SimProgram& program) {
    root_.emplace(*loop_, run(this, program), static_cast<Root::Owner&>(*this));
    machine.world_.schedule(spawn_event_, after(machine.world_.now(), kSpawnTime), loop_->node());
  }

  SimMachine& machine;
  io::ProcessId id;
  io::ProcessId parent = 0;
  io::ProcessId group;
  io::ProcessId session;
  bool dies_with_parent = false;
  bool subreaper = false;
  bool catches = false;
  bool stopped = false;
  io::SpawnSpec spec;
  std::set<int> ignored;
  std::vector<int> pending;  // received while it was stopped
  std::optional<io::ExitStatus> status;
  std::vector<Handle*> handles;

 private:
  struct SpawnEvent final : Event {
    explicit SpawnEvent(Record& record) noexcept : Event(EventKind::kProcess), owner(record) {}
    void happen() noexcept override { owner.root_->start(); }
    Record& owner;
  };
  static Task<void> run(Record* self, SimProgram program) {
    const int code = co_await program(*self);
    self->code_ = code;
  }
  void root_ended(Root&, std::exception_ptr error) noexcept override {
    finished_ = true;
    machine.end(*this, error ? io::ExitStatus{0, SIGABRT} : io::ExitStatus{code_, 0});
  }

  std::unique_ptr<SimLoop> own_loop_;
  SimLoop* loop_;
  Stop stop_;
  ProcessHost host_{*this};
  SimNet net_{machine.network_, *loop_, machine.number_, {kNobodyYet.uid, id}};

 public:
  Inbox inbox{*this};

 private:
  std::optional<Root> root_;
  bool finished_ = false;
  int code_ = 0;
  SpawnEvent spawn_event_{*this};
};

// The spawner's view of its child.
class SimMachine::Handle final : public io::Process {
 public:
  Handle(Record& child, SimLoop& loop)
      : machine_(child.machine), child_(&child), id_(child.id), loop_(loop), ended_(loop), stopped_(loop) {
    child.handles.push_back(this);
  }
  ~Handle() override {
    if (child_ != nullptr) std::erase(child_->handles, this);
  }
  io::ProcessId id() const noexcept override { return id_; }
  Task<io::ExitStatus> wait(Stop& stop) override {
    while (!known_) co_await ended_.wait(stop);
    co_return *known_;
  }
  std::optional<io::ExitStatus> ended() const noexcept override { return known_; }
  Task<int> stopped(Stop& stop) override {
    while (stops_.empty()) {
      stopped_.reset();
      co_await stopped_.wait(stop);
    }
    const int number = stops_.front();
    stops_.pop_front();
    co_return number;
  }
  void signal(int number) noexcept override {
    if (child_ != nullptr && !child_->status) machine_.signal(*child_, number);
  }
  void signal_group(int number) noexcept override {
    if (!known_ && child_ != nullptr) machine_.signal_group(child_->group, number);
  }

  void notice_end(io::ExitStatus status) {
    news_ = status;
    machine_.world_.schedule(notice_, after(loop_.now(), kNoticeTime), loop_.node());
  }
  void notice_stop(int number) {
    stops_.push_back(number);
    stopped_.set();
  }
  void forget() noexcept { child_ = nullptr; }

 private:
  struct Notice final : Event {
    explicit Notice(Handle& handle) noexcept : Event(EventKind::kProcess), owner(handle) {}
    void happen() noexcept override {
      owner.known_ = owner.news_;
      owner.ended_.set();
    }
    Handle& owner;
  };
  SimMachine& machine_;
  Record* child_;
  io::ProcessId id_;
  SimLoop& loop_;
  ::aiacc::Event ended_;
  ::aiacc::Event stopped_;
  std::optional<io::ExitStatus> known_, news_;
  std::deque<int> stops_;
  Notice notice_{*this};
};

// --- operations of a process on its machine --------------------------------------------------------------------------

SimMachine::Inbox::Inbox(Record& record) noexcept : record_(record), came_(record.loop()) {}
void SimMachine::Inbox::stop_self() noexcept { record_.machine.signal(record_, SIGSTOP); }

std::string SimMachine::ProcessHost::name() const { return record_.machine.name_; }
void SimMachine::ProcessHost::adopt_orphans() { record_.subreaper = true; }

std::unique_ptr<io::Process> SimMachine::ProcessHost::spawn(const io::SpawnSpec& spec) {
  SimMachine& machine = record_.machine;
  Record& child = machine.spawn(record_, spec);
  auto handle = std::make_unique<Handle>(child, record_.loop());
  const SimNetwork::End here{record_.loop(), machine.number_, {kNobodyYet.uid, record_.id}};
  const SimNetwork::End there{child.loop(), machine.number_, {kNobodyYet.uid, child.id}};
  const auto connect = [&](bool wanted, std::unique_ptr<io::Stream>& ours, std::unique_ptr<io::Stream>& theirs,
                           const char* what) {
    if (wanted) {
      std::tie(ours, theirs) = machine.network_.pair(here, there, fmt::format("{} of process {}", what, child.id));
    } else {
      theirs = null_stream(child.loop());
    }
  };
  connect(spec.in == io::SpawnSpec::Stdio::kPipe, handle->in, child.in, "standard input");
  connect(spec.out == io::SpawnSpec::Stdio::kPipe, handle->out, child.out, "standard output");
  connect(spec.err == io::SpawnSpec::Stdio::kPipe, handle->err, child.err, "standard error");
  if (spec.channel) connect(true, handle->channel, child.channel, "the channel");
  return handle;
}

std::vector<io::ProcessId> SimMachine::ProcessHost::descendants() {
  std::vector<io::ProcessId> found;
  for (const auto& [id, record] : record_.machine.processes_) {
    if (!record->status && record_.machine.descends(*record, record_.id)) found.push_back(id);
  }
  return found;
}

void SimMachine::ProcessHost::signal(io::ProcessId process, int number) noexcept {
  Record* found = record_.machine.find(process);
  if (found != nullptr && !found->status) record_.machine.signal(*found, number);
}

char SimMachine::ProcessHost::state(io::ProcessId process) {
  Record* found = record_.machine.find(process);
  if (found == nullptr || found->status) return '\0';
  return found->stopped ? 'T' : 'S';
}

std::optional<std::string> SimMachine::ProcessHost::read_file(const std::string& path) {
  const auto found = record_.machine.files_.find(path);
  return found == record_.machine.files_.end() ? std::nullopt : std::optional(found->second);
}

// --- the machine -----------------------------------------------------------------------------------------------------------

SimMachine::SimMachine(World& world, SimNetwork& network, int number, std::string name)
    : world_(world), network_(network), number_(number), name_(std::move(name)) {}

SimMachine::~SimMachine() {
  // Children first: their parents' frames hold handles of them.
  while (!processes_.empty()) {
    for (Handle* handle : processes_.rbegin()->second->handles) handle->forget();
    processes_.erase(std::prev(processes_.end()));
  }
}

SimSelf& SimMachine::log_in(SimLoop& loop) {
  const io::ProcessId id = next_id_++;
  auto record = std::make_unique<Record>(*this, id, loop);
  record->subreaper = true;
  return *processes_.emplace(id, std::move(record)).first->second;
}

SimMachine::Record* SimMachine::find(io::ProcessId id) noexcept {
  const auto found = processes_.find(id);
  return found == processes_.end() ? nullptr : found->second.get();
}

SimMachine::Record& SimMachine::spawn(Record& parent, const io::SpawnSpec& spec) {
  const std::string& program = spec.program.empty() ? spec.argv.at(0) : spec.program;
  const auto found = programs_.find(program);
  if (found == programs_.end()) {
    throw io::SpawnError(fmt::format("cannot start {}: no such program on {}", program, name_), ENOENT);
  }
  const io::ProcessId id = next_id_++;
  Record& child = *processes_.emplace(id, std::make_unique<Record>(*this, id, parent, spec)).first->second;
  child.begin(found->second);
  return child;
}

bool SimMachine::descends(const Record& record, io::ProcessId ancestor) const noexcept {
  for (io::ProcessId id = record.parent; id != 0;) {
    if (id == ancestor) return true;
    id = processes_.at(id)->parent;
  }
  return false;
}

void SimMachine::end(Record& record, io::ExitStatus status) noexcept {
  record.status = status;
  io::ProcessId heir = record.parent;
  while (heir != 0 && !(processes_.at(heir)->subreaper && !processes_.at(heir)->status))
    heir = processes_.at(heir)->parent;
  std::vector<Record*> doomed;
  for (auto& [id, child] : processes_) {
    if (child->parent != record.id || child->status) continue;
    child->parent = heir;
    if (child->dies_with_parent) doomed.push_back(child.get());
  }
  for (Handle* handle : record.handles) handle->notice_end(status);
  world_.kill(record.loop().node());
  for (Record* child : doomed) {
    if (!child->status) end(*child, {0, SIGKILL});
  }
}

void SimMachine::signal(Record& record, int number) noexcept {
  if (harmless(number) && !(record.catches && number == SIGCHLD)) return;
  if (number == SIGKILL) {
    end(record, {0, SIGKILL});
  } else if (number == SIGCONT) {
    if (!record.stopped) return;
    record.stopped = false;
    world_.thaw(record.loop().node());
    for (int pending : std::exchange(record.pending, {})) {
      if (!record.status) signal(record, pending);
    }
  } else if (stops(number) && (number == SIGSTOP || !record.catches)) {
    if (record.stopped || record.ignored.contains(number)) return;
    record.stopped = true;
    world_.freeze(record.loop().node());
    for (Handle* handle : record.handles) handle->notice_stop(number);
  } else if (record.stopped) {
    record.pending.push_back(number);
  } else if (record.ignored.contains(number)) {
    return;
  } else if (record.catches) {
    record.inbox.add(number);
  } else {
    end(record, {0, number});
  }
}

void SimMachine::signal_group(io::ProcessId group, int number) noexcept {
  std::vector<Record*> members;
  for (auto& [id, record] : processes_) {
    if (record->group == group && !record->status) members.push_back(record.get());
  }
  for (Record* member : members) {
    if (!member->status) signal(*member, number);
  }
}

}  // namespace aiacc::sim
