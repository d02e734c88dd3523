// Sink: one of aiaccrun's own two outputs. It writes ranks' pieces and the launcher's lines in order of arrival, and
// returns credit to a rank's agent when the rank's bytes are written. Nothing else waits for a sink.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "base/io/net.h"
#include "launcher/stdio/lines.h"

namespace aiacc::launcher {

class Sink {
 public:
  class Owner {
   public:
    // This many bytes of that rank's output left the sink: written or discarded.
    virtual void sink_took(Sink& sink, int rank, std::size_t bytes) = 0;
    // It cannot be written any more; later pieces are discarded. kPeerFailed: the reader left.
    virtual void sink_broke(Sink& sink, const Error& error) = 0;

   protected:
    ~Owner() = default;
  };

  Sink(Loop& loop, io::Stream& to, bool tagged, Owner& owner);
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  void put(int rank, Piece piece);
  void put_own_line(const std::string& line);

  // Counts queued and later pieces of ranks as dropped and returns their credit. Later lines of the launcher are still
  // written if the sink can be written.
  void discard();
  std::uint64_t dropped_bytes() const noexcept { return dropped_bytes_; }
  bool broken() const noexcept { return broken_; }

  // Writes until stopped.
  Task<void> run(Stop& stop);
  // Until nothing is queued.
  Event::Await drained(Stop& stop) noexcept { return drained_.wait(stop); }

 private:
  struct Item {
    std::string bytes;
    std::size_t credit = 0;
    int rank = -1;
  };
  void enqueue(Item item);
  void forget_queue();

  io::Stream& to_;
  bool tagged_;
  Owner& owner_;
  PieceJoiner joiner_;
  std::deque<Item> queue_;
  std::size_t in_flight_ = 0;  // credit of the piece that is being written
  std::uint64_t dropped_bytes_ = 0;
  bool discarding_ = false;
  bool broken_ = false;
  Event changed_;
  Event drained_;
};

}  // namespace aiacc::launcher
