// runtime/timeline: a trace of what happens on each rank and when, in one file for all ranks, in the format that Chrome's
// about:tracing and Perfetto read. Not here: what happens (groupcomm/gradient/trace.h).
//
// Timeline: one rank's part of it. Components make rows and say from when to when something went on; nothing of it is formatted
// or sent by who says it. Every 100 ms a timer of the lane turns what was said into JSON: rank 0 writes it to the file, the
// others send it to rank 0 as service messages (transports/service).
//
// Sessions. A start begins one, and each rank counts its own; the n-th of a rank belongs to the n-th of rank 0. A rank asks rank 0
// (kPing) until it answers (kPong), and keeps what is said meanwhile: starts need not meet. The answers have rank 0's time too, so
// the same messages measure how far the clocks are apart (clock_offset.h). Ranks of rank 0's host have its clock. A stop at rank 0
// ends the session on all ranks (kStop); each then sends what is left and kEnd, and waits until rank 0 says that it has all of it
// (kEnded): a rank that left before would take with it what was not yet sent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_array_file.h"
#include "base/task/scope.h"
#include "runtime/timeline/clock_offset.h"
#include "runtime/timeline/names.h"
#include "runtime/timeline/traffic_rows.h"
#include "transports/service/service.h"
#include "transports/service/services.h"

namespace aiacc {

class Timeline final : private ServiceHandler, private Timer {
 public:
  static constexpr ServiceId kService = 0x71e1;
  static constexpr std::size_t kMostEvents = 200'000;  // not formatted yet; later ones are dropped and counted
  using Row = std::uint32_t;
  using Complain = std::function<void(const std::string& sentence)>;

  // `complain` is told once in a session why the file is not written any more. `services` outlives it.
  // `port` may be null, and outlives it: what its connections carry is in the timeline too.
  Timeline(Services& services, ViewPtr world, int rank, std::string host_name, const MessagePort* port,
           Complain complain);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  void use_names(const TimelineNames& names) noexcept { names_ = names; }  // before the first start
  const TimelineNames& names() const noexcept { return names_; }
  // Whether spans are wanted. Any thread.
  bool on() const noexcept { return on_.load(std::memory_order_relaxed); }

  // --- the lane's thread -----------------------------------------------------------------------------------------------
  // The file is rank 0's. Throws kInvalidState if one is being written, and at rank 0 what JsonArrayFile throws.
  void start(const std::string& file);
  // Returns when all was written, or sent. Does not wait long for ranks that do not answer, and throws nothing. Without a session it does
  // nothing.
  Task<void> stop(Stop& stop);

  // A row of this rank. Valid as long as the timeline.
  Row row(std::string name);
  // `name` is a literal. A number of at least 0 is shown with it.
  void span(Row row, const char* name, Instant begin, Instant end, std::int64_t number = -1) noexcept;
  // A line through all rows of this rank.
  void mark(Row row, const char* name, Instant at, std::int64_t number) noexcept;

 private:
  enum class Kind : std::uint8_t { kPing, kPong, kEvents, kEnd, kStop, kEnded };
  struct Said {
    Row row;
    bool is_mark;
    const char* name;
    std::int64_t number;
    Instant begin, end;
  };
  struct RowState {
    std::string name;
    bool told = false;  // in this session
  };

  struct Look final : Timer {  // at the connections
    explicit Look(Timeline& of) : timeline(of) {}
    void expired() noexcept override { timeline.look(); }
    Timeline& timeline;
  };

  void on_message(ServiceMessage message) noexcept override;
  void on_refused(int, std::uint64_t, const Error&) noexcept override {}  // it has not begun: the next ping asks again
  void on_peer_lost(int rank, const Error& why) noexcept override;
  void expired() noexcept override;

  void note(const Said& said) noexcept;
  void ping();
  void answer(int to, std::uint64_t session, Instant asked);
  void answered(std::span<const std::byte> bytes);
  void peer_ended(int rank) noexcept;
  void look() noexcept;
  void pump();  // formats what was said, and writes or sends it
  void format();
  void format_title();
  void format_traffic();
  void line(std::string_view text);
  double microseconds(Instant at) const noexcept;
  void write();
  void send();
  void finish_session() noexcept;
  bool leads() const noexcept { return rank_ == 0; }
  std::uint64_t word(Kind kind) const noexcept { return session_ << 8 | static_cast<std::uint64_t>(kind); }
  void say(int to, Kind kind, std::span<const std::byte> bytes = {});

  Services& services_;
  Loop& loop_;
  const ViewPtr world_;
  const int rank_;
  const std::string host_name_;
  const Complain complain_;
  const bool shares_clock_;  // with rank 0
  TimelineNames names_;
  std::atomic<bool> on_{false};
  std::optional<Service> service_;  // from the first session on
  std::uint64_t session_ = 0;       // the number of the present one, or of the last
  bool in_session_ = false;         // until the last of it is written or sent
  std::vector<RowState> rows_;
  std::vector<Said> said_;
  std::optional<TrafficRows> traffic_;  // if there is a port
  Look look_{*this};
  std::uint64_t dropped_ = 0;
  std::string text_;  // elements with commas between them, not written or sent yet
  Instant began_{};   // rank 0's time of the session's begin
  Event changed_;     // for stop()

  // Rank 0.
  std::optional<JsonArrayFile> file_;
  std::vector<bool> sending_;  // ranks that have not said kEnd

  // Others.
  bool accepted_ = false;  // rank 0 has answered
  bool said_end_ = false;
  ClockOffset clock_;
};

}  // namespace aiacc
