#include "base/sim/sim_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "base/error.h"

namespace aiacc::sim {
namespace {

std::vector<std::byte> first_bytes(const io::IoAwait& write, std::size_t count) {
  if (write.pieces().empty()) return {write.data(), write.data() + count};
  std::vector<std::byte> bytes;
  bytes.reserve(count);
  for (const io::Piece& piece : write.pieces()) {
    const std::size_t part = std::min(piece.size(), count - bytes.size());
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(part));
  }
  return bytes;
}

Duration transfer_time(std::size_t bytes, std::uint64_t bytes_per_second) noexcept {
  return Duration(static_cast<std::int64_t>(static_cast<std::uint64_t>(bytes) * 1'000'000'000 / bytes_per_second));
}

std::uint64_t take_first(std::deque<std::uint64_t>& from, std::uint64_t otherwise) noexcept {
  if (from.empty()) return otherwise;
  const std::uint64_t first = from.front();
  from.pop_front();
  return first;
}

}  // namespace

SimConnection::SimConnection(SimNetwork& network, const SimNetwork::End& one, const SimNetwork::End& other)
    : network_(network),
      number_(network.next_connection_++),
      bytes_per_second_(take_first(network.caps_, network.model_.bytes_per_second)),
      break_after_(std::exchange(network.break_next_, std::nullopt)),
      alter_after_(std::exchange(network.alter_next_, std::nullopt)),
      sides_{Side{&one.loop, one.loop.node(), one.host, one.identity, true, {}},
             Side{&other.loop, other.loop.node(), other.host, other.identity, true, {}}} {
  for (int from = 0; from < 2; ++from) {
    out_of(from).connection = this;
    out_of(from).from = from;
  }
  network_.connections_.emplace(number_, this);
}

SimConnection::~SimConnection() { network_.connections_.erase(number_); }

bool SimConnection::try_read(int index, io::IoAwait& io) {
  Direction& direction = into(index);
  if (direction.ready.empty()) {
    if (knows_broken_[static_cast<std::size_t>(index)])
      throw Error(Code::kPeerFailed, fmt::format("{} was reset", side(index).name));
    io.set_moved(0);
    return direction.end_came;
  }
  const std::size_t moved = std::min(io.bytes(), direction.ready.size());
  const auto last = direction.ready.begin() + static_cast<std::ptrdiff_t>(moved);
  std::copy(direction.ready.begin(), last, io.data());
  direction.ready.erase(direction.ready.begin(), last);
  direction.used -= moved;
  io.set_moved(moved);
  tell_writer(direction);
  return true;
}

bool SimConnection::try_write(int index, io::IoAwait& io) {
  Direction& direction = out_of(index);
  if (direction.reset) throw Error(Code::kPeerFailed, fmt::format("{} is closed at the other end", side(index).name));
  const std::size_t window = network_.model_.window_bytes;
  if (direction.used >= window) return false;
  const std::size_t moved = std::min(io.bytes(), window - direction.used);
  direction.used += moved;
  direction.written += moved;
  io.set_moved(moved);
  if (moved > 0) send(direction, Piece{first_bytes(io, moved)});
  return true;
}

io::FlowState SimConnection::flow(int index) const noexcept {
  const Direction& direction = directions_[static_cast<std::size_t>(index)];
  return {direction.arrived, direction.written - direction.arrived, network_.latency(sides_[0].host, sides_[1].host),
          network_.sent_again_};
}

void SimConnection::wait(int index, io::IoAwait& io) noexcept {
  const bool reads = io.direction() == io::IoAwait::Direction::kRead;
  (reads ? into(index).reader : out_of(index).writer) = &io;
}

void SimConnection::cancel(int index, io::IoAwait& io) noexcept {
  if (into(index).reader == &io) into(index).reader = nullptr;
  if (out_of(index).writer == &io) out_of(index).writer = nullptr;
}

void SimConnection::end_writes(int index) noexcept {
  Direction& direction = out_of(index);
  if (direction.ended) return;
  direction.ended = true;
  send(direction, Piece{{}, true});
}

void SimConnection::close(int index) noexcept {
  Side& side = sides_[static_cast<std::size_t>(index)];
  if (!side.open) return;
  side.open = false;
  end_writes(index);
  Direction& incoming = into(index);
  incoming.abandoned = true;
  incoming.ready.clear();
  tell_writer(incoming);
}

bool SimConnection::between(int host, int other) const noexcept {
  return std::minmax(sides_[0].host, sides_[1].host) == std::minmax(host, other);
}

void SimConnection::resume() noexcept {
  for (Direction& direction : directions_) {
    if (!direction.arrival.scheduled()) schedule_arrival(direction);
  }
}

void SimConnection::send(Direction& direction, Piece piece) noexcept {
  if (broken_) return;
  World& world = network_.world_;
  if (network_.model_.host_bytes_per_second > 0 && sides_[0].host != sides_[1].host) return leave(direction, piece);
  const Duration transfer = transfer_time(piece.bytes.size(), bytes_per_second_);
  direction.link_free = after(std::max(world.now(), direction.link_free), transfer);
  piece.arrives = direction.link_free;
  piece.arrives = after(piece.arrives, network_.latency(sides_[0].host, sides_[1].host));
  direction.flying.push_back(std::move(piece));
  if (!direction.arrival.scheduled()) schedule_arrival(direction);
}

// In packets, so that the host's line carries the first ones while the stream's own limit holds the next ones back.
void SimConnection::leave(Direction& direction, const Piece& piece) noexcept {
  constexpr std::size_t kPacketBytes = 16 << 10;
  World& world = network_.world_;
  std::span<const std::byte> left = piece.bytes;
  do {
    const std::span<const std::byte> bytes = left.first(std::min(left.size(), kPacketBytes));
    left = left.subspan(bytes.size());
    direction.link_free =
        after(std::max(world.now(), direction.link_free), transfer_time(bytes.size(), bytes_per_second_));
    const bool end = piece.end && left.empty();
    direction.leaving.push_back(Piece{{bytes.begin(), bytes.end()}, end, direction.link_free});
  } while (!left.empty());
  if (!direction.departure.scheduled()) {
    world.schedule(direction.departure, direction.leaving.front().arrives, kNobody);
  }
}

// From the stream's own limit to the host's line.
void SimConnection::depart(Direction& direction) noexcept {
  Piece piece = std::move(direction.leaving.front());
  direction.leaving.pop_front();
  World& world = network_.world_;
  if (!direction.leaving.empty()) world.schedule(direction.departure, direction.leaving.front().arrives, kNobody);
  if (broken_) return;
  Instant& line_free = network_.line_free_[side(direction.from).host];
  const Duration transfer = transfer_time(piece.bytes.size(), network_.model_.host_bytes_per_second);
  line_free = after(std::max(world.now(), line_free), transfer);
  piece.arrives = after(line_free, network_.latency(sides_[0].host, sides_[1].host));
  direction.flying.push_back(std::move(piece));
  if (!direction.arrival.scheduled()) schedule_arrival(direction);
}

void SimConnection::schedule_arrival(Direction& direction) noexcept {
  if (direction.flying.empty() || network_.is_cut(sides_[0].host, sides_[1].host)) return;
  // The receiving kernel accepts bytes even if its process is frozen: the window fills up, and nothing is lost.
  network_.world_.schedule(direction.arrival, direction.flying.front().arrives, kNobody);
}

void SimConnection::arrive(Direction& direction) noexcept {
  if (network_.is_cut(sides_[0].host, sides_[1].host)) return;
  Piece piece = std::move(direction.flying.front());
  direction.flying.pop_front();
  schedule_arrival(direction);
  if (!side(1 - direction.from).open) return;
  const bool breaks = break_after_ && piece.bytes.size() >= *break_after_;
  if (breaks) piece.bytes.resize(*break_after_);
  if (break_after_) *break_after_ -= piece.bytes.size();
  alter(piece);
  direction.arrived += piece.bytes.size();
  direction.ready.insert(direction.ready.end(), piece.bytes.begin(), piece.bytes.end());
  direction.end_came = direction.end_came || piece.end;
  if (breaks) {
    break_now();
  } else {
    serve_reader(direction);
  }
}

void SimConnection::alter(Piece& piece) noexcept {
  if (!alter_after_) return;
  if (*alter_after_ >= piece.bytes.size()) {
    *alter_after_ -= piece.bytes.size();
    return;
  }
  piece.bytes[*alter_after_] ^= std::byte{1} << static_cast<int>(network_.world_.random().below(8));
  alter_after_.reset();
  ++network_.altered_;
}

void SimConnection::serve_reader(Direction& direction) noexcept {
  io::IoAwait* reader = std::exchange(direction.reader, nullptr);
  if (reader == nullptr) return;
  try {
    if (try_read(1 - direction.from, *reader)) {
      reader->complete();
    } else {
      direction.reader = reader;
    }
  } catch (...) {
    reader->fail(std::current_exception());
  }
}

void SimConnection::break_now() noexcept {
  broken_ = true;
  ++network_.broken_;
  break_after_.reset();
  for (Direction& direction : directions_) {
    direction.leaving.clear();
    direction.flying.clear();
    direction.departure.cancel();
    direction.arrival.cancel();
    serve_reader(direction);
  }
  Random& random = network_.world_.random();
  const int first = static_cast<int>(random.below(2));
  break_side(first);
  late_break_.side = 1 - first;
  const Duration later(static_cast<std::int64_t>(random.below(1'000'000)));
  network_.world_.schedule(late_break_, after(network_.world_.now(), later), kNobody);
}

void SimConnection::break_side(int index) noexcept {
  knows_broken_[static_cast<std::size_t>(index)] = true;
  serve_reader(into(index));
  out_of(index).abandoned = true;
  serve_writer(out_of(index));
}

void SimConnection::tell_writer(Direction& direction) noexcept {
  if (direction.room.scheduled() || !side(direction.from).open) return;
  const Duration latency = network_.latency(sides_[0].host, sides_[1].host);
  network_.world_.schedule(direction.room, after(network_.world_.now(), latency), side(direction.from).node);
}

void SimConnection::serve_writer(Direction& direction) noexcept {
  direction.reset = direction.abandoned;
  io::IoAwait* writer = std::exchange(direction.writer, nullptr);
  if (writer == nullptr) return;
  try {
    if (try_write(direction.from, *writer)) {
      writer->complete();
    } else {
      direction.writer = writer;
    }
  } catch (...) {
    writer->fail(std::current_exception());
  }
}

}  // namespace aiacc::sim
