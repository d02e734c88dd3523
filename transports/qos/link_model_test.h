// LinkModel: senders that share one line, as a fluid. Deterministic, in steps of 20 us; rates are bytes a second.
//
//   sender --> (policer) --> queue: FIFO, drops beyond `buffer`, marks as RED does by its length --> line --> receiver
//      ^                       |  pauses all senders while it is long (PFC)                                    |
//      +----------------- delivered, marked, lost; a base round trip after they left the queue -----------------+
//
// A sender is a RateController and what obeys it: a token bucket (RDMA), or the kernel with a cap kHeadroom above the rate (TCP). Neither has
// a control of its own, so what the model shows is what the controller does alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "transports/qos/rate_controller.h"

namespace aiacc::line_model {

struct LineSettings {
  double capacity = 125e6;
  Duration rtt = std::chrono::milliseconds(1);
  double buffer = 1e6;
  // RED with ECN: nothing is marked below `mark_from`, a part `most_marked` at `mark_all`, and everything above; 0: no ECN.
  double mark_from = 0;
  double mark_all = 0;
  double most_marked = 1;
  // PFC: the senders are paused when the queue is longer than `pause_from`, until it is shorter than `pause_until`; 0: never.
  double pause_from = 0;
  double pause_until = 0;
};

class LinkModel {
 public:
  static constexpr Duration kStep = std::chrono::microseconds(20);

  struct Sender {
    bool rdma = false;
    RateController::Path path;
    double wants = RateController::kUnlimited;  // what it has to send
    double device = 125e6;                      // what leaves its host at most
    double policed = 0;                         // what a policer lets through; 0: there is none
    bool exact_marks = true;
    bool feedback = true;  // its counters are looked at

    RateController controller;
    double delivered = 0, sent = 0, lost = 0, epochs = 0;  // bytes, ever

   private:
    friend class LinkModel;
    struct Counts {
      double sent = 0, lost = 0, acknowledged = 0, marked = 0;
      Duration busy{}, paused{};
      std::uint64_t notifications = 0;
    };
    Counts counts, at_epoch;
    double arriving = 0;    // in this step
    double unnotified = 0;  // marked bytes for which no notification was sent
    Instant notified{};
    Duration rtt{}, least_rtt{};
    Instant epoch_began{}, epoch_ends{};
  };

  explicit LinkModel(const LineSettings& settings) : line(settings) {}

  Sender& add(Sender sender) {
    senders_.push_back(std::make_unique<Sender>(std::move(sender)));
    Sender& added = *senders_.back();
    added.epoch_began = now_;
    added.epoch_ends = now_ + epoch_length(added);
    return added;
  }

  // `look` is called after each step.
  void run(Duration time, const std::function<void()>& look = {}) {
    for (const Instant end = now_ + time; now_ < end;) {
      step();
      if (look) look();
    }
  }

  double queue() const { return queued_; }
  double dropped() const { return dropped_; }
  // What a message that came now would wait.
  Duration wait() const { return Duration(std::llround(queued_ / line.capacity * 1e9)); }

  LineSettings line;

 private:
  struct Batch {  // of one step of one sender
    Sender* sender;
    double bytes;
    double marked;
    Instant sent;
  };
  struct Answer {
    Instant at;
    Sender* sender;
    double bytes, marked, lost;
    Instant sent;
  };

  Duration epoch_length(const Sender& sender) const {
    const Duration rtt = std::max(sender.rtt, line.rtt);
    return sender.rdma ? RateController::length_for_rdma(rtt) : RateController::length_for_tcp(rtt);
  }

  void step() {
    now_ += kStep;
    if (line.pause_from > 0) paused_ = queued_ > (paused_ ? line.pause_until : line.pause_from);
    double arrives = 0;
    for (const auto& each : senders_) arrives += each->arriving = offer(*each);
    const double fits = std::min(1.0, std::max(0.0, line.buffer - queued_) / std::max(arrives, 1e-9));
    for (const auto& each : senders_) enqueue(*each, fits);
    serve();
    for (std::deque<Answer>* answers : {&answers_, &losses_}) {
      for (; !answers->empty() && answers->front().at <= now_; answers->pop_front()) answer(answers->front());
    }
    for (const auto& each : senders_) {
      if (now_ >= each->epoch_ends) end_epoch(*each);
    }
  }

  double marked_part() const {
    if (line.mark_all <= 0 || queued_ <= line.mark_from) return 0;
    if (queued_ >= line.mark_all) return 1;
    return line.most_marked * (queued_ - line.mark_from) / (line.mark_all - line.mark_from);
  }

  // What passes its policer in this step.
  double offer(Sender& sender) {
    const double allowed = sender.controller.rate() * (sender.rdma ? 1 : RateController::kHeadroom);
    if (sender.wants > std::min(allowed, sender.device)) sender.counts.busy += kStep;
    if (paused_) {
      sender.counts.paused += kStep;
      return 0;
    }
    const double bytes = std::min({allowed, sender.wants, sender.device}) * seconds(kStep);
    sender.counts.sent += bytes;
    sender.sent += bytes;
    const double through = sender.policed > 0 ? std::min(bytes, sender.policed * seconds(kStep)) : bytes;
    drop(sender, bytes - through);
    return through;
  }

  void drop(Sender& sender, double bytes) {
    if (bytes <= 0) return;
    dropped_ += bytes;
    sender.lost += bytes;
    losses_.push_back({now_ + line.rtt + wait(), &sender, 0, 0, bytes, now_});
  }

  // Of each sender the same part finds room.
  void enqueue(Sender& sender, double part) {
    const double bytes = sender.arriving * part;
    drop(sender, sender.arriving - bytes);
    if (bytes <= 0) return;
    queue_.push_back({&sender, bytes, bytes * marked_part(), now_});
    queued_ += bytes;
  }

  void serve() {
    for (double left = line.capacity * seconds(kStep); left > 0 && !queue_.empty();) {
      Batch& batch = queue_.front();
      const double part = std::min(left, batch.bytes), marked = batch.marked * part / batch.bytes;
      answers_.push_back({now_ + line.rtt, batch.sender, part, marked, 0, batch.sent});
      batch.bytes -= part;
      batch.marked -= marked;
      queued_ -= part;
      left -= part;
      if (batch.bytes < 1e-6) queue_.pop_front();
    }
    if (queue_.empty()) queued_ = 0;
  }

  void answer(const Answer& answer) {
    Sender& sender = *answer.sender;
    sender.counts.acknowledged += answer.bytes;
    sender.delivered += answer.bytes;
    sender.counts.lost += answer.lost;
    sender.counts.marked += answer.marked;
    if ((sender.unnotified += answer.marked) >= kSegment && now_ - sender.notified >= std::chrono::microseconds(50)) {
      ++sender.counts.notifications;
      sender.notified = now_;
      sender.unnotified = 0;
    }
    if (answer.bytes <= 0) return;
    const Duration rtt = now_ - answer.sent;
    sender.rtt = sender.rtt == Duration{} ? rtt : (7 * sender.rtt + rtt) / 8;
    sender.least_rtt = sender.least_rtt == Duration{} ? rtt : std::min(sender.least_rtt, rtt);
  }

  void end_epoch(Sender& sender) {
    const Duration length = now_ - sender.epoch_began;
    if (sender.feedback) sender.controller.epoch(said(sender, length), sender.path);
    sender.at_epoch = sender.counts;
    sender.epoch_began = now_;
    sender.epoch_ends = now_ + epoch_length(sender);
    ++sender.epochs;
  }

  // Through the same conversions as real counters.
  static RateController::Epoch said(const Sender& sender, Duration length) {
    const Sender::Counts& before = sender.at_epoch;
    const Sender::Counts& now = sender.counts;
    if (!sender.rdma) return tcp_signals(sender).over(length);
    RdmaSignals signals;
    signals.sent_bytes = static_cast<std::uint64_t>(now.sent - before.sent);
    signals.completed_bytes = static_cast<std::uint64_t>(now.acknowledged - before.acknowledged);
    signals.notifications = now.notifications - before.notifications;
    signals.lost_packets =
        static_cast<std::uint64_t>((now.lost - before.lost) / static_cast<double>(signals.packet_bytes));
    signals.paused = now.paused - before.paused;
    signals.sender_limited = 10 * (now.busy - before.busy) < 8 * length;
    signals.rtt = sender.rtt;
    signals.least_rtt = sender.least_rtt;
    return signals.over(length);
  }

  static TcpSignals tcp_signals(const Sender& sender) {
    TcpSignals signals;
    signals.add(counters(sender, sender.at_epoch), counters(sender, sender.counts));
    return signals;
  }

  static TcpCounters counters(const Sender& sender, const Sender::Counts& counts) {
    TcpCounters all;
    all.sent_bytes = static_cast<std::uint64_t>(counts.sent);
    all.sent_again_bytes = static_cast<std::uint64_t>(counts.lost);
    all.acknowledged_bytes = static_cast<std::uint64_t>(counts.acknowledged);
    all.delivered = static_cast<std::uint32_t>(static_cast<std::uint64_t>(counts.acknowledged / kSegment));
    const double repeated = sender.exact_marks ? 1 : 2.4;  // as measured
    all.marked = static_cast<std::uint32_t>(static_cast<std::uint64_t>(counts.marked * repeated / kSegment));
    all.exact_marks = sender.exact_marks;
    all.rtt = sender.rtt;
    all.least_rtt = sender.least_rtt;
    all.busy = counts.busy;
    return all;
  }

  static constexpr double kSegment = 1448;

  Instant now_{};
  bool paused_ = false;
  double queued_ = 0, dropped_ = 0;
  std::deque<Batch> queue_;
  std::deque<Answer> answers_, losses_;
  std::vector<std::unique_ptr<Sender>> senders_;
};

}  // namespace aiacc::line_model
