// The worker's end of a store: operations, and the requests that they consist of.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "groupcomm/gradient/wire.h"
#include "groupcomm/kv/store.h"
#include "groupcomm/kv/twobit.h"

namespace aiacc::kv {

void Store::begin(Operation& operation) noexcept {
  running_.push_back(&operation);
  const Order& order = operation.order_;
  try {
    if (closed_) throw Error(Code::kInvalidState, fmt::format("{} was freed", describe()));
    if (!is_worker()) {
      throw Error(
          Code::kInvalidState,
          fmt::format("rank {} is a server of {} and no worker: it has nothing to push or pull", rank_, describe()));
    }
    if (order.timeout != Duration::max()) operation.deadline_ = after(loop_.now(), order.timeout);
    if (operation.deadline_ != kNever) loop_.arm(operation.alarm_, operation.deadline_);
    if (order.what == Order::What::kInit) return begin_init(operation);
    const auto found = keys_.find(order.key);
    if (found == keys_.end()) {
      throw Error(Code::kInvalidState,
                  fmt::format("{} was not initialised on rank {}: each worker initialises a key before it "
                              "uses it",
                              describe_key(order.key), rank_));
    }
    found->second.waiting.push_back(&operation);
    start_waiting(found->second);
  } catch (...) {
    operation.error_ = std::current_exception();
    detach(operation);
    end(operation);
  }
}

// In their order. One whose round the workers may sum waits until those before it have ended.
void Store::start_waiting(Key& key) noexcept {
  if (std::exchange(key.starting, true)) return;
  while (!key.waiting.empty() && (key.begun || key.broken) && key.together == nullptr) {
    Operation& next = *key.waiting.front();
    const bool together = !key.broken && may_be_together(next.order_, key);
    if (together && key.requesting > 0) break;
    key.waiting.pop_front();
    try {
      check(next.order_, key);
      if (together) {
        key.together = &next;
        next.path_ = Operation::Path::kTogether;
        next.left_ = 1;
        send_to_chooser(&next, key, Kind::kReady, next.order_.priority);
      } else {
        const bool tells = next.order_.pushes() && asks_first(key);
        next.left_ = tells ? 2 : 1;
        if (tells) send_to_chooser(&next, key, Kind::kSends, next.order_.priority);
        begin_access(next, key);
      }
    } catch (...) {
      next.error_ = std::current_exception();
      detach(next);
      end(next);
    }
  }
  key.starting = false;
}

void Store::begin_init(Operation& operation) {
  const Order& order = operation.order_;
  if (keys_.contains(order.key)) {
    throw Error(Code::kInvalidState, fmt::format("{} was initialised already", describe_key(order.key)));
  }
  std::vector<PartPlace> places = lay_out(order.key, order.shape, layout_);
  Key& key = keys_[order.key];
  key.name = order.key;
  key.shape = order.shape;
  key.init = &operation;
  for (const PartPlace& place : places) key.parts.emplace_back().place = place;
  if (const Error* const lost = lost_part(key); lost != nullptr) throw *lost;
  if (worker_ != 0) return send_home(operation, key, Kind::kDeclare);
  operation.left_ = key.parts.size();
  for (std::uint32_t part = 0; part < key.parts.size(); ++part) enqueue(operation, key, part, Kind::kCreate);
}

// Why a part of the value is lost with its server; null if none is.
const Error* Store::lost_part(const Key& key) const noexcept {
  if (replicated()) return nullptr;
  for (const PartQueue& part : key.parts) {
    const auto& gone = peer(options_.servers[static_cast<std::size_t>(part.place.server)]).gone;
    if (gone) return &*gone;
  }
  return nullptr;
}

// Why no call on the key can end well any more; null if it can. Pushes that are applied at once wait for no other worker.
const Error* Store::over_without(const Key& key) const noexcept {
  if (const auto& gone = peer(chooser()).gone; gone && needs_chooser(key)) return &*gone;
  return options_.mode != Mode::kAsync ? lost_part(key) : nullptr;
}

// After a loss. A key without one of its parts does not begin either: its first worker cannot create it, and the others would wait.
void Store::end_hopeless() noexcept {
  std::vector<std::pair<Operation*, const Error*>> hopeless;
  for (Operation* const one : running_) {
    const auto found = keys_.find(one->order_.key);
    if (found == keys_.end()) continue;
    const Key& key = found->second;
    const Error* why = nullptr;
    if (key.init == one) why = lost_part(key);
    if (one->path_ == Operation::Path::kRequests) why = over_without(key);
    if (why != nullptr) hopeless.emplace_back(one, why);
  }
  for (const auto& [one, why] : hopeless) {
    one->error_ = std::make_exception_ptr(*why);
    detach(*one);
    end(*one);
  }
}

void Store::check(const Order& order, const Key& key) const {
  if (key.broken) throw *key.broken;
  if (const Error* const lost = over_without(key); lost != nullptr) throw *lost;
  const auto check_count = [&](const char* what, std::uint64_t count) {
    if (count == key.shape.elements()) return;
    throw Error(Code::kInvalidArgument, fmt::format("{} has {} elements, and {} is {}", what, count,
                                                    describe_key(key.name), key.shape.describe()));
  };
  if (order.pushes() && !order.some_in) check_count("the gradient", order.in_count);
  if (order.pulls() && !order.some_out) check_count("the place for the value", order.out_count);
  for (const auto* rows : {&order.in_rows, &order.out_rows}) {
    for (const std::uint64_t row : *rows) {
      if (row < key.shape.rows) continue;
      throw Error(Code::kInvalidArgument, fmt::format("row {} of {}: it has {} rows", static_cast<std::int64_t>(row),
                                                      describe_key(key.name), key.shape.rows));
    }
  }
}

void Store::sort_rows(const Key& key, const std::vector<std::uint64_t>& rows,
                      std::vector<Operation::PartRows>& parts) const {
  parts.resize(key.parts.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto after = std::upper_bound(key.parts.begin(), key.parts.end(), rows[i],
                                  [](std::uint64_t row, const PartQueue& part) { return row < part.place.first_row; });
    const auto part = static_cast<std::size_t>(--after - key.parts.begin());
    parts[part].rows.push_back(rows[i] - after->place.first_row);
    parts[part].places.push_back(i);
  }
}

// Begins with left_ of 1 more than what is under way, so that nothing that ends at once ends the operation.
void Store::begin_access(Operation& operation, Key& key) {
  const Order& order = operation.order_;
  operation.path_ = Operation::Path::kRequests;
  ++key.requesting;
  if (order.some_in) sort_rows(key, order.in_rows, operation.in_);
  if (order.some_out) sort_rows(key, order.out_rows, operation.out_);
  std::vector<std::uint32_t> parts;
  for (std::uint32_t part = 0; part < key.parts.size(); ++part) {
    // A push goes to all parts, because each counts it.
    if (order.pushes() || !order.some_out || !operation.out_[part].rows.empty()) parts.push_back(part);
  }
  operation.left_ += parts.size();
  for (const std::uint32_t part : parts) enqueue(operation, key, part, order.pushes() ? Kind::kPush : Kind::kPull);
  if (--operation.left_ == 0) end(operation);
}

void Store::enqueue(Operation& operation, Key& key, std::uint32_t part, Kind kind) {
  key.parts[part].waiting.push_back({&operation, kind});
  make_ready(key, part);
}

void Store::make_ready(Key& key, std::uint32_t part) {
  PartQueue& queue = key.parts[part];
  if (queue.ready || queue.waiting.empty()) return;
  const Waiting first = queue.waiting.front();
  if (first.kind == Kind::kPush && queue.pushing) return;
  queue.waiting.pop_front();
  queue.ready = true;
  queue.pushing = queue.pushing || first.kind == Kind::kPush;
  Request request;
  if (first.kind == Kind::kPush) request.number = first.number != 0 ? first.number : ++queue.pushes;
  request.again = first.again;
  request.operation = first.operation;
  request.priority = first.operation->order_.priority;
  request.key = &key;
  request.part = part;
  request.kind = first.kind;
  request.server = queue.place.server;
  request.to = serving_rank(request.server);
  post(request);
}

void Store::send_home(Operation& operation, Key& key, Kind kind) {
  operation.left_ = 1;
  Request request;
  request.operation = &operation;
  request.priority = operation.order_.priority;
  request.key = &key;
  request.kind = kind;
  request.server = home_of(key.name, layout_.servers);
  request.to = serving_rank(request.server);
  post(request);
}

// A request to a lost server may fail in here.
void Store::post(Request request) {
  request.sequence = ++next_;
  Peer& its = peer(request.to);
  its.requests[{-std::int64_t{request.priority}, request.sequence}] = request;
  its.requests_news.set();
  if (its.requests_pump) return;
  ++pumps_;
  its.requests_pump.emplace(loop_, send_requests(this, request.to), static_cast<Root::Owner&>(*this));
  its.requests_pump->start();
}

ServiceBytes Store::build(const Request& request) {
  const Key& key = *request.key;
  RequestHead head;
  head.kind = request.kind;
  head.type = static_cast<std::int32_t>(key.shape.type);
  head.rows = key.shape.rows;
  head.row_elements = key.shape.row_elements;
  head.part = request.part;
  head.server = request.server;
  head.number = request.number;
  if (!in_queue_of_part(request.kind) && request.kind != Kind::kSupply)
    return RequestWriter(memory_, head, key.name, {}, {}, 0).take();
  head.after = key.after;
  const Operation* const operation = request.operation;
  PartQueue& queue = request.key->parts[request.part];
  const std::size_t row_bytes = key.shape.row_bytes();
  const auto first = static_cast<std::size_t>(queue.place.first_row) * row_bytes;
  const auto bytes = static_cast<std::size_t>(queue.place.rows) * row_bytes;
  static const Order kNothing;
  const Order& order = operation != nullptr ? operation->order_ : kNothing;
  const auto* const in = static_cast<const std::byte*>(request.kind == Kind::kSupply ? order.out : order.in);
  if (request.kind == Kind::kCreate || request.kind == Kind::kSupply) {
    head.part_first_row = queue.place.first_row;
    head.part_rows = queue.place.rows;
    RequestWriter writer(memory_, head, key.name, {}, {}, bytes);
    if (bytes > 0) std::memcpy(writer.elements(), in + first, bytes);
    return writer.take();
  }
  std::span<const std::uint64_t> reading_rows;
  if (order.pulls()) {
    head.reads = order.some_out ? Reading::What::kRows : Reading::What::kAll;
    if (order.some_out) reading_rows = operation->out_[request.part].rows;
  }
  if (request.kind == Kind::kPull) return RequestWriter(memory_, head, key.name, {}, reading_rows, 0).take();
  if (order.some_in) {
    const Operation::PartRows& rows = operation->in_[request.part];
    head.some_rows = true;
    RequestWriter writer(memory_, head, key.name, rows.rows, reading_rows, rows.rows.size() * row_bytes);
    std::byte* to = writer.elements();
    for (const std::uint64_t place : rows.places) {
      std::memcpy(to, in + static_cast<std::size_t>(place) * row_bytes, row_bytes);
      to += row_bytes;
    }
    return writer.take();
  }
  const std::size_t count = bytes / size_of(key.shape.type);
  head.encoding = key.shape.type == DType::kFloat32 ? options_.encoding : Encoding::kPlain;
  head.threshold = options_.threshold;
  if (head.encoding == Encoding::kTwoBit) {
    if (request.again && queue.sent.size() > 0) return ServiceBytes::copy_of(queue.sent.span(), memory_);
    RequestWriter writer(memory_, head, key.name, {}, reading_rows, twobit_bytes(count));
    queue.residual.resize(count);
    twobit_encode(options_.threshold, reinterpret_cast<const float*>(in + first), queue.residual.data(), count,
                  writer.elements());
    ServiceBytes made = writer.take();
    if (replicated()) queue.sent = ServiceBytes::copy_of(made.span(), memory_);
    return made;
  }
  if (head.encoding != Encoding::kPlain) {
    const DType wire = head.encoding == Encoding::kFloat16 ? DType::kFloat16 : DType::kBFloat16;
    RequestWriter writer(memory_, head, key.name, {}, reading_rows, count * 2);
    if (count > 0) gradient::WireCodec().encode(wire, writer.elements(), in + first, count, 1.0);
    return writer.take();
  }
  RequestWriter writer(memory_, head, key.name, {}, reading_rows, bytes);
  if (bytes > 0) std::memcpy(writer.elements(), in + first, bytes);
  return writer.take();
}

void Store::answered(std::uint64_t id, std::span<const std::byte> payload) noexcept {
  const auto found = in_flight_.find(id);
  if (found == in_flight_.end()) return;  // of a server that was taken for lost
  const Request request = found->second;
  in_flight_.erase(found);
  std::exception_ptr error;
  try {
    const AnswerView answer(payload);
    if (answer.error) throw *answer.error;
    if (request.kind == Kind::kReady) return decided(request, answer.together);
    if (request.operation != nullptr) take_answer(request, answer.elements);
  } catch (...) {
    error = std::current_exception();
  }
  ended(request, error);
}

void Store::take_answer(const Request& request, std::span<const std::byte> elements) {
  const Operation& operation = *request.operation;
  const Order& order = operation.order_;
  if (!order.pulls() || !in_queue_of_part(request.kind)) return;
  const PartQueue& queue = request.key->parts[request.part];
  const std::size_t row_bytes = request.key->shape.row_bytes();
  const std::uint64_t rows = order.some_out ? operation.out_[request.part].rows.size() : queue.place.rows;
  if (elements.size() != rows * row_bytes) {
    throw Error(Code::kProtocol, fmt::format("rank {} answered a pull of {} rows of {} with {} bytes", request.to, rows,
                                             describe_key(request.key->name), elements.size()));
  }
  auto* const out = static_cast<std::byte*>(order.out);
  if (!order.some_out) {
    if (!elements.empty())
      std::memcpy(out + static_cast<std::size_t>(queue.place.first_row) * row_bytes, elements.data(), elements.size());
    return;
  }
  const std::byte* from = elements.data();
  for (const std::uint64_t place : operation.out_[request.part].places) {
    std::memcpy(out + static_cast<std::size_t>(place) * row_bytes, from, row_bytes);
    from += row_bytes;
  }
}

// A push of rows of other parts in async mode, which this part counts as a step of its updater, and no more.
bool Store::only_counts(const Request& request) const noexcept {
  const Operation* const operation = request.operation;
  if (options_.mode != Mode::kAsync || request.kind != Kind::kPush || operation == nullptr) return false;
  return operation->order_.some_in && !operation->order_.pulls() && operation->in_[request.part].rows.empty();
}

// A request has its answer, or will not have one.
void Store::ended(const Request& request, std::exception_ptr error) noexcept {
  if (error && peer(request.to).gone && only_counts(request)) error = nullptr;
  if (request.kind == Kind::kPush) {
    request.key->parts[request.part].pushing = false;
    make_ready(*request.key, request.part);
  }
  Operation* const operation = request.operation;
  if (operation == nullptr) return;
  if (error && request.kind != Kind::kSends && !operation->error_) operation->error_ = error;
  if (--operation->left_ > 0) return;
  if (request.kind == Kind::kCreate && !operation->error_) return send_home(*operation, *request.key, Kind::kDefine);
  end(*operation);
}

void Store::init_ended(Operation& operation, Key& key) noexcept {
  key.init = nullptr;
  key.begun = operation.error_ == nullptr;
  if (operation.error_) key.broken = as_error(operation.error_);
}

// Nothing refers to the operation afterwards.
void Store::end(Operation& operation) noexcept {
  running_.remove(&operation);
  operation.alarm_.disarm();
  if (const auto found = keys_.find(operation.order_.key); found != keys_.end()) {
    Key& key = found->second;
    if (key.init == &operation) init_ended(operation, key);
    if (operation.path_ == Operation::Path::kRequests) --key.requesting;
    if (key.together == &operation) key.together = nullptr;
    start_waiting(key);
  }
  if (done_ && !closed_ && running_.empty()) tell_done();
  operation.finish();
}

void Store::late(Operation& operation) noexcept {
  const Order& order = operation.order_;
  const char* const what = order.what == Order::What::kInit   ? "initialising"
                           : order.what == Order::What::kPull ? "a pull of"
                                                              : "a push to";
  const char* const why = order.what == Order::What::kInit
                              ? "each worker initialises a key, the first one with its value"
                          : options_.mode == Mode::kSync ? "in a sync store each worker pushes a key equally often"
                          : options_.mode == Mode::kAsync
                              ? "a server of it has not answered"
                              : "a server of it has not answered, or a worker is behind this one by the staleness";
  const Error error(Code::kTimeout,
                    fmt::format("{} {} of {} on rank {} has not ended after {:.6g} s: {}", what,
                                describe_key(order.key), describe(), rank_, seconds(order.timeout), why));
  operation.error_ = std::make_exception_ptr(error);
  // Some parts may have taken the push and others not: what the key has afterwards is nothing that anybody wants.
  if (const auto found = keys_.find(order.key); order.pushes() && found != keys_.end() && found->second.begun)
    found->second.broken = Error(Code::kAborted, error.message());
  detach(operation);
  end(operation);
}

// No request refers to the operation any more; answers to those that were sent are dropped when they come.
void Store::detach(Operation& operation) noexcept {
  bool asked = false;
  for (auto& [id, request] : in_flight_) {
    if (request.operation != &operation) continue;
    asked = asked || request.kind == Kind::kReady;
    request.operation = nullptr;
  }
  const auto found = keys_.find(operation.order_.key);
  if (found == keys_.end()) return;
  Key& key = found->second;
  std::erase(key.waiting, &operation);
  for (PartQueue& queue : key.parts) {
    std::erase_if(queue.waiting, [&](const Waiting& waiting) { return waiting.operation == &operation; });
  }
  for (Peer& one : peers_) {
    for (auto request = one.requests.begin(); request != one.requests.end();) {
      if (request->second.operation != &operation) {
        ++request;
        continue;
      }
      PartQueue& queue = key.parts[request->second.part];
      if (request->second.kind == Kind::kPush) queue.pushing = false;
      if (in_queue_of_part(request->second.kind)) queue.ready = false;
      request = one.requests.erase(request);
    }
  }
  for (std::uint32_t part = 0; part < key.parts.size(); ++part) make_ready(key, part);
  if (asked && !closed_) send_to_chooser(nullptr, key, Kind::kWithdraw, operation.order_.priority);
}

void Store::fail_requests_to(int rank, const Error& why) noexcept {
  std::vector<Request> failed;
  for (auto request = in_flight_.begin(); request != in_flight_.end();) {
    if (request->second.to != rank) {
      ++request;
      continue;
    }
    failed.push_back(request->second);
    request = in_flight_.erase(request);
  }
  const std::exception_ptr error = std::make_exception_ptr(why);
  for (const Request& request : failed) ended(request, error);
}

}  // namespace aiacc::kv
