// Part: the state machine of one part of a value on its server. Pure: requests in, answers out; no messages, no time.
//
// Each worker's pushes to a part are counted; a worker sends the next push when the last one is answered, and its requests arrive
// in order. Worker w that has pushed k times sees:
//   kSync     the value after k rounds; round k adds the k-th gradients of all workers, in their order, in one pass, so that bits do
//             not depend on arrival, and then runs the updater once. Gradients wait for their round: a part keeps at most one of
//             each worker.
//   kAsync    the value as it is. Each push is applied at once: the order of arrival is the history, linearizable for each part.
//   kBounded  as kAsync, but an answer waits until each living worker has pushed at least k - staleness times (stale synchronous
//             parallel; Ho et al., NIPS 2013).
// A round of a kSync part may also be summed by the workers themselves (round_choice.h): it comes as supply(), whose order among the
// rounds of pushes each request tells (Reading::after).
//
// A worker's pushes have ascending numbers (Gradient::number). One that comes again, because the server that it went to was lost, is
// not applied again, but answered. A part that is tracked tells what each request changed, for its replica (replica.h), whose part
// takes over the result: it runs no updater, so that one whose results differ from call to call leaves both with the same value.
//
// Requests that cannot be answered yet are held. A lost worker ends a kSync part's rounds: who waits hears of it, and what was
// summed before can still be pulled. So does one that has pushed for the last time, but what it has given counts, and rounds that
// workers have summed still come.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "groupcomm/kv/layout.h"
#include "groupcomm/kv/updater.h"
#include "groupcomm/kv/version.h"
#include "transports/service/service.h"

namespace aiacc::kv {

enum class Mode : std::uint8_t { kSync, kAsync, kBounded };

struct Rules {
  Mode mode = Mode::kSync;
  int workers = 1;
  std::uint64_t staleness = 0;
};

// What a push brings, in the value's own type: all rows of the part, or some of them, which may repeat.
struct Gradient {
  ServiceBytes storage;
  std::size_t offset = 0;  // of the elements in it
  bool some = false;
  std::vector<std::uint64_t> rows;  // of the part
  std::uint64_t number = 0;         // of its worker's pushes to the part; 0: it has none
  const std::byte* data() const noexcept { return storage.data() + offset; }
};

// What an answer brings.
struct Reading {
  enum class What : std::uint8_t { kNothing, kAll, kRows };
  What what = What::kNothing;
  std::vector<std::uint64_t> rows;
  std::uint64_t after = 0;  // rounds that the workers have summed themselves: the part has them first
};

struct Answer {
  int worker = 0;
  std::uint64_t id = 0;
  std::optional<Error> error;
  Snapshot value;  // null if nothing is read
  std::size_t row_bytes = 0;
  Reading reading;
  bool together = false;  // of a RoundChoice: all workers take part in an allreduce
};

// What a request has changed of a part.
struct Change {
  bool some = false;                // only these rows
  std::vector<std::uint64_t> rows;  // ascending
  std::vector<int> workers;         // whose pushes it has applied
  std::optional<Error> error;       // that the updater ended with
};

class Part {
 public:
  // Of one worker's pushes: how many were applied, and the number of the last one.
  struct Progress {
    std::uint64_t pushed = 0, number = 0;
  };
  // What the replica takes over.
  struct Copy {
    Change change;
    std::vector<Progress> progress;  // of change.workers
    std::uint64_t version = 0;
    std::uint64_t steps = 0;
    std::span<const std::byte> value, first, second;  // of the rows of the change; updaters' memory may be empty
  };

  // `initial` has shape.bytes() bytes; `first` is the number of its first element in the whole value. Sums and later values are in
  // `memory`, which outlives the part.
  Part(std::string key, const Rules& rules, const Shape& shape, std::uint64_t first, Snapshot initial,
       ServiceMemory& memory);

  // Answers are appended, of any worker.
  void push(int worker, std::uint64_t id, Gradient gradient, Reading reading, const UpdaterOptions& updater,
            std::vector<Answer>& answers);
  void pull(int worker, std::uint64_t id, Reading reading, std::vector<Answer>& answers);
  // The sum of a round, of which no worker has pushed.
  void supply(std::span<const std::byte> sum, const UpdaterOptions& updater, std::vector<Answer>& answers);
  void lost(int worker, const Error& why, std::vector<Answer>& answers);
  // The worker lives and will not push any more. All of its pushes have come.
  void done(int worker, const Error& why, std::vector<Answer>& answers);

  const Shape& shape() const noexcept { return shape_; }
  std::uint64_t first() const noexcept { return first_; }
  std::uint64_t version() const noexcept { return version_; }
  const Snapshot& value() const noexcept { return value_; }
  UpdaterState& state() noexcept { return state_; }
  ServiceMemory& memory() const noexcept { return memory_; }
  void track() noexcept { tracked_ = true; }
  // Since the last call; none if nothing has changed.
  std::optional<Change> take_change() noexcept { return std::exchange(change_, std::nullopt); }
  // Of what is in the value: a push that waits for its round is not.
  Progress progress(int worker) const noexcept;
  // What its last push ended with.
  const std::optional<Error>& failed(int worker) const noexcept {
    return workers_[static_cast<std::size_t>(worker)].failed;
  }
  int workers() const noexcept { return rules_.workers; }
  void take_over(const Copy& copy);
  // As it was saved.
  void restore(Snapshot value, UpdaterState state) noexcept;

 private:
  struct Held {
    int worker;
    std::uint64_t id;
    std::uint64_t count;  // pushes of the worker
    Reading reading;
  };
  struct Worker {
    std::uint64_t pushed = 0, number = 0;
    std::optional<Error> failed;    // what its last push ended with
    std::optional<Gradient> given;  // to the present round
    std::optional<Error> lost;
    std::optional<Error> done;
  };

  Worker& at(int worker) noexcept { return workers_[static_cast<std::size_t>(worker)]; }
  bool ready(const Held& held) const noexcept;
  void push_at_once(Held held, const Gradient& gradient, const UpdaterOptions& updater, std::vector<Answer>& answers);
  void push_again(Held held, std::uint64_t number, std::vector<Answer>& answers);
  void refuse(const Held& held, const Error& why, std::vector<Answer>& answers) const;
  void changed(Change change);
  void release(std::vector<Answer>& answers);
  void fail_waiting(const Error& why, std::vector<Answer>& answers);
  void answer(const Held& held, std::vector<Answer>& answers) const;
  // Of a kSync part: why the first such worker that has given nothing to the present round gives nothing; null: there is none.
  const Error* missing(std::optional<Error> Worker::*why) const noexcept;
  const Error* blocked() const noexcept { return missing(&Worker::lost); }
  const Error* incomplete() const noexcept { return missing(&Worker::done); }
  // Whether it needs a round of pushes that is not applied.
  bool needs_pushes(const Held& held) const noexcept;
  void refuse_without_pushes(std::vector<Answer>& answers);
  void finish_if_complete(const UpdaterOptions& updater, std::vector<Answer>& answers);
  void finish_round(const UpdaterOptions& updater, Change& change);
  void sum_dense(const UpdaterOptions& updater, const std::vector<Gradient>& gradients);
  void apply(const UpdaterOptions& updater, const std::byte* gradient);
  void apply_rows(const UpdaterOptions& updater, const std::vector<bool>& touched, const std::byte* gradient);
  void scatter(const Gradient& gradient, std::byte* sum, std::vector<bool>& touched) const;
  void own_value();
  Run run(std::uint64_t first_row, std::uint64_t rows) const noexcept;

  std::string key_;
  Rules rules_;
  ServiceMemory& memory_;
  Shape shape_;
  std::uint64_t first_;
  Snapshot value_;
  UpdaterState state_;
  std::vector<Worker> workers_;
  int given_ = 0;            // to the present round
  std::uint64_t after_ = 0;  // rounds that are to be supplied before it
  std::uint64_t supplied_ = 0;
  std::uint64_t version_ = 0;
  std::list<Held> held_;
  bool tracked_ = false;
  std::optional<Change> change_;
};

}  // namespace aiacc::kv
