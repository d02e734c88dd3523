#include "groupcomm/gradient/launches.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/data/magnitude.h"
#include "groupcomm/gradient/slots.h"
#include "runtime/context.h"
#include "runtime/group/group.h"

namespace aiacc::gradient {
namespace {

constexpr const char* kVoteName = "the step time of a gradient engine";
constexpr const char* kExchangeName = "the tensors of a gradient engine";

std::size_t bytes_of(const Call& call) noexcept { return call.count * size_of(call.reduction.type); }

}  // namespace

Launches::Launches(Group& group, Owner& owner, int in_flight, Duration timeout, bool looks)
    : group_(group),
      owner_(owner),
      in_flight_(static_cast<std::size_t>(std::max(in_flight, 1))),
      timeout_(timeout),
      looks_(looks),
      spans_hosts_(group.local_size() < group.size()),
      alone_(group.team().view->most_on_a_host() == 1),
      memory_(group.local_size() > 1 ? group.context().host() : nullptr),
      quiet_(group.team().loop) {
  quiet_.set();
}

Launches::~Launches() {
  for (const auto& flight : flights_) {
    if (flight->memory.data != nullptr) memory_.give(flight->memory);
  }
}

void Launches::launch(std::unique_ptr<Flight> launched, const std::string& name) {
  Flight& flight = *launched;
  flights_.push_back(std::move(launched));
  flight.preferred = preferred_;
  if (flight.kind.is_table()) {
    count_rows(flight, name);
  } else {
    place_elements(flight);
    if (spans_hosts_) flight.codec = flight.kind.codec_between_hosts();
    flight.prepared = !is_encoded_here(flight);
  }
  if (flight.prepared) {
    for (Queued& call : calls_of(flight, name)) queue_.push_back(std::move(call));
  } else {
    queue_.push_back({&flight, {}, {}, {}, {}, name, true});
  }
  start_more();
  settle();
}

// Where they are reduced: in their places, or in other memory if this rank gives zeros for some.
void Launches::place_elements(Flight& flight) {
  const bool all_mine =
      std::all_of(flight.parts.begin(), flight.parts.end(), [](const Part& part) { return part.mine; });
  std::size_t bytes = 0;
  for (const Part& part : flight.parts) bytes += Slots::padded(part.bytes);
  if (!all_mine) flight.other.resize(bytes);
  std::size_t at = 0;
  for (Part& part : flight.parts) {
    part.data = all_mine ? part.tensor->place : flight.other.data() + at;
    if (!all_mine && part.mine && part.bytes > 0) std::memcpy(part.data, part.tensor->place, part.bytes);
    at += Slots::padded(part.bytes);
  }
}

// Of tables: how many rows each rank has. The rest follows from that, and comes right behind it.
void Launches::count_rows(Flight& flight, const std::string& name) {
  constexpr std::size_t kPieces = 8;  // that a portion has
  flight.rows =
      std::make_unique<RowExchange>(flight.kind, group_.rank(), group_.size(), memory_, kPieces * flight.piece_bytes);
  for (const Part& part : flight.parts)
    flight.rows->add(part.table_rows, part.mine ? part.tensor->table->given.view() : RowsView{});
  RowExchange::Step step = flight.rows->count();
  ++flight.calls;
  queue_.push_back({&flight, step.call, step.send, step.recv, {}, name});
}

std::deque<Launches::Queued> Launches::move_rows(Flight& flight, const std::string& name) {
  std::deque<Queued> calls;
  for (RowExchange::Step& step : flight.rows->move(flight.piece_bytes)) {
    if (step.call.kind == Collective::kAllreduce) step.call.preferred = flight.preferred;
    calls.push_back({&flight, step.call, step.send, step.recv, {}, name});
  }
  flight.calls += calls.size();
  flight.prepared = !flight.rows->has_more();
  if (!flight.prepared) calls.push_back({&flight, {}, {}, {}, {}, name, true});
  for (std::size_t table = 0; table < flight.parts.size(); ++table) {
    Part& part = flight.parts[table];
    if (part.mine) part.bytes = flight.rows->moved_bytes(table);
  }
  return calls;
}

void Launches::take_rows(Flight& flight) {
  flight.rows->finish();
  for (std::size_t table = 0; table < flight.parts.size(); ++table) {
    Part& part = flight.parts[table];
    part.rows = std::move(flight.rows->sum(table));
    const std::size_t count = part.rows.size() * flight.kind.row_elements;
    part.not_finite = looks_ && !all_finite(flight.kind.type, part.rows.elements(), count);
  }
}

// When it is the turn of a launch whose calls could not be made before.
bool Launches::can_prepare(const Flight& flight) const {
  return flight.rows != nullptr ? flight.calls == 0 : has_last_results(flight);
}

void Launches::prepare(Queued turn) {
  Flight& flight = *turn.flight;
  flight.prepared = true;  // but for tables that move in portions
  std::deque<Queued> calls = flight.rows != nullptr ? move_rows(flight, turn.name) : encode(flight, turn.name);
  while (!calls.empty()) {
    queue_.push_front(std::move(calls.back()));
    calls.pop_back();
  }
}

std::deque<Launches::Queued> Launches::calls_of(Flight& flight, const std::string& name) {
  if (is_grouped(flight)) return grouped(flight, name);
  std::size_t bytes = 0;  // with the gaps between the tensors, which are zero on every rank
  std::byte* data = nullptr;
  for (const Part& part : flight.parts) {
    if (part.bytes == 0) continue;
    if (data == nullptr) data = part.data;
    bytes = Slots::padded(bytes) + part.bytes;
  }
  return in_pieces(flight, data, bytes, reduction_of(flight), name);
}

// A tensor that is long enough may be in its caller's memory, on some ranks: none sees where it is on others.
bool Launches::is_grouped(const Flight& flight) const noexcept {
  if (flight.parts.size() == 1) return false;
  return !flight.in_a_row || (alone_ && std::any_of(flight.parts.begin(), flight.parts.end(), [&](const Part& part) {
                                return flight.kind.needs_no_pack(part.bytes);
                              }));
}

Reduction Launches::reduction_of(const Flight& flight) noexcept {
  Reduction reduction = flight.kind.reduction();
  reduction.codec = flight.codec;
  return reduction;
}

std::deque<Launches::Queued> Launches::in_pieces(Flight& flight, std::byte* data, std::size_t bytes,
                                                 const Reduction& reduction, const std::string& name) {
  std::deque<Queued> calls;
  Slots::for_each_piece(bytes, flight.piece_bytes, [&](std::size_t at, std::size_t length) {
    Call call;
    call.kind = Collective::kAllreduce;
    call.preferred = flight.preferred;
    call.reduction = reduction;
    call.count = length / size_of(reduction.type);
    ++flight.calls;
    const Buffer buffer{data + at, length};
    calls.push_back({&flight, call, buffer, buffer, {}, name});
  });
  if (calls.empty()) calls.push_back(empty_call(flight, name));
  return calls;
}

// Of tensors without elements: like any launch it ends on no rank before all have begun it, on which a break of the schedule relies.
Launches::Queued Launches::empty_call(Flight& flight, const std::string& name) const {
  flight.other.resize(sizeof(std::uint64_t));
  Call call;
  call.kind = Collective::kAllreduce;
  call.reduction.type = DType::kUInt64;
  call.count = 1;
  ++flight.calls;
  const Buffer buffer{flight.other.data(), flight.other.size()};
  return {&flight, call, buffer, buffer, {}, name};
}

std::deque<Launches::Queued> Launches::grouped(Flight& flight, const std::string& name) {
  Queued queued{&flight, {}, {}, {}, {}, name};
  queued.call.kind = Collective::kGroupedAllreduce;
  queued.call.preferred = flight.preferred;
  queued.call.reduction = reduction_of(flight);
  for (const Part& part : flight.parts) {
    if (part.bytes == 0) continue;
    const Buffer buffer = Buffer{part.data, part.bytes};
    queued.tensors.push_back({buffer, buffer});
    queued.call.count += part.bytes / size_of(flight.kind.type);
  }
  std::deque<Queued> calls;
  if (queued.tensors.empty()) {
    calls.push_back(empty_call(flight, name));
    return calls;
  }
  ++flight.calls;
  calls.push_back(std::move(queued));
  return calls;
}

void Launches::exchange(std::vector<std::byte> payload) {
  AIACC_INVARIANT(payload_.empty(), "one exchange at a time");
  payload_ = std::move(payload);
  queue_.push_back({nullptr, {}, {}, {}, {}, kExchangeName});
  start_more();
}

void Launches::vote(std::span<const std::uint64_t> numbers) {
  auto flight = std::make_unique<Flight>();
  flight->vote = flight->prepared = true;
  const auto bytes = std::as_bytes(numbers);
  flight->other.assign(bytes.begin(), bytes.end());
  flight->calls = 1;
  Call call;
  call.kind = Collective::kAllreduce;
  call.reduction.type = DType::kUInt64;
  call.reduction.op = ReduceOp::kMax;
  call.count = numbers.size();
  const Buffer buffer{flight->other.data(), flight->other.size()};
  queue_.push_back({flight.get(), call, buffer, buffer, {}, kVoteName});
  flights_.push_back(std::move(flight));
  start_more();
}

// Between hosts a call waits for messages most of its time, and short ones have hardly anything under way.
bool Launches::may_begin(const Queued& next) const noexcept {
  constexpr std::size_t kTimesShort = 4;
  const std::size_t running = running_.size() - votes_running_;
  if (running < in_flight_) return true;
  if (!spans_hosts_ || next.flight == nullptr || running >= kTimesShort * in_flight_) return false;
  std::size_t bytes = bytes_of(next.call);
  for (const Running& one : running_) bytes += one.bytes;
  return bytes <= in_flight_ * next.flight->piece_bytes;
}

// An exchange is two calls, which follow each other on every rank: nothing begins in between.
void Launches::start_more() noexcept {
  while (!queue_.empty() && !exchanging_ && !failed_) {
    const Flight* const flight = queue_.front().flight;
    const bool votes = flight != nullptr && flight->vote;
    if (!votes && !may_begin(queue_.front())) break;
    const bool is_place = queue_.front().is_place;
    if (is_place && !can_prepare(*flight)) break;
    Queued next = std::move(queue_.front());
    queue_.pop_front();
    try {
      is_place ? prepare(std::move(next)) : start(std::move(next));
    } catch (...) {
      failed_ = true;
      owner_.launches_failed(std::current_exception());
    }
  }
}

void Launches::start(Queued queued) {
  if (queued.flight != nullptr) {
    ++(queued.flight->vote ? votes_running_ : calls_);
    queued.call.tensors = queued.tensors;
    return run(queued.flight, queued.call, queued.send, queued.recv, std::move(queued.name));
  }
  exchanging_ = true;
  exchange_step_ = 0;
  size_ = payload_.size();
  sizes_.assign(static_cast<std::size_t>(group_.size()), 0);
  Call call;
  call.kind = Collective::kAllgather;
  call.reduction.type = DType::kUInt64;
  call.count = 1;
  run(queued.flight, call, Buffer{reinterpret_cast<std::byte*>(&size_), sizeof size_},
      Buffer{reinterpret_cast<std::byte*>(sizes_.data()), sizes_.size() * sizeof size_}, std::move(queued.name));
}

void Launches::run(Flight* flight, const Call& call, Buffer send, Buffer recv, std::string name) {
  CallOptions options;
  options.name = std::move(name);
  options.timeout = timeout_;
  if (flight != nullptr && flight->times.began == Instant{}) note(flight, &Times::began);
  running_.push_back({group_.prepare(call, send, recv, &options), flight, bytes_of(call)});
  GroupOperation& operation = *running_.back().operation;
  operation.observe(*this);
  quiet_.reset();
  group_.context().lane().begin_here(operation);
}

void Launches::operation_ended(GroupOperation& operation) noexcept {
  for (Running& one : running_) {
    if (one.operation.get() != &operation) continue;
    one.ended = true;
    note(one.flight, &Times::ended);
  }
  if (!reap_.linked()) group_.team().loop.post(reap_);
}

void Launches::note(Flight* flight, Instant Times::*what) const noexcept {
  if (flight != nullptr && flight->times.launched != Instant{}) flight->times.*what = group_.team().loop.now();
}

void Launches::reap() noexcept {
  std::exception_ptr error;
  bool reduces = false;
  for (auto one = running_.begin(); one != running_.end();) {
    const auto next = std::next(one);
    if (one->ended) {
      reduces = reduces || (one->flight != nullptr && !one->flight->vote);
      if (!error) error = one->operation->error();
      Flight* const flight = one->flight;
      running_.erase(one);
      if (flight != nullptr) --flight->calls;
      try {
        if (flight == nullptr && !error) go_on_exchanging();
        if (flight != nullptr && flight->vote) {
          --votes_running_;
          const std::vector<std::byte> most = flight->other;  // what the owner does may end the flight
          if (!error) owner_.vote_ended(most);
        }
      } catch (...) {
        error = std::current_exception();
      }
    }
    one = next;
  }
  if (error) {
    failed_ = true;
    owner_.launches_failed(error);
  }
  start_more();
  settle();
  owner_.call_ended(reduces);
  if (!running_.empty()) return;
  quiet_.set();
  owner_.nothing_runs();
}

void Launches::go_on_exchanging() {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 30;
  if (exchange_step_++ == 0) {
    blocks_.clear();
    std::size_t total = 0;
    for (std::size_t rank = 0; rank < sizes_.size(); ++rank) {
      if (sizes_[rank] > kMost) {
        throw Error(Code::kProtocol, "a rank describes its tensors in more than a gigabyte", static_cast<int>(rank));
      }
      blocks_.push_back({total, static_cast<std::size_t>(sizes_[rank])});
      total += blocks_.back().count;
    }
    payloads_.resize(total);
    Call call;
    call.kind = Collective::kAllgather;
    call.uneven = true;
    call.reduction.type = DType::kUInt8;
    call.count = total;
    call.blocks = blocks_;
    run(nullptr, call, Buffer{payload_.data(), payload_.size()}, Buffer{payloads_.data(), total}, kExchangeName);
    return;
  }
  exchanging_ = false;
  payload_.clear();
  std::vector<std::vector<std::byte>> payloads;
  for (const Extent& block : blocks_) {
    const auto begin = payloads_.begin() + static_cast<std::ptrdiff_t>(block.begin);
    payloads.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(block.count));
  }
  owner_.exchange_ended(payloads);
}

// In the order of the launches. What the owner does may launch more.
void Launches::settle() {
  if (std::exchange(settling_, true)) return;
  while (!failed_ && !flights_.empty() && flights_.front()->prepared && flights_.front()->calls == 0) {
    if (!flights_.front()->vote && owner_.is_held(*flights_.front())) break;
    const std::unique_ptr<Flight> flight = std::move(flights_.front());
    flights_.pop_front();
    if (flight->vote) continue;
    note(flight.get(), &Times::landing);
    try {
      land(*flight);
      owner_.launch_ended(*flight);
    } catch (...) {
      failed_ = true;
      owner_.launches_failed(std::current_exception());
      break;
    }
    start_more();  // what waited for these results
  }
  settling_ = false;
}

Task<void> Launches::finish() {
  Stop none;
  while (!running_.empty()) co_await quiet_.wait(none);
}

}  // namespace aiacc::gradient
