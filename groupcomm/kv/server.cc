#include "groupcomm/kv/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "groupcomm/gradient/wire.h"
#include "groupcomm/kv/twobit.h"

namespace aiacc::kv {
namespace {

Answer yes(int worker, std::uint64_t id) {
  Answer answer;
  answer.worker = worker;
  answer.id = id;
  return answer;
}

Answer no(int worker, std::uint64_t id, const Error& why) {
  Answer answer = yes(worker, id);
  answer.error = why;
  return answer;
}

std::size_t encoded_bytes(const RequestHead& head, std::size_t elements) noexcept {
  switch (head.encoding) {
    case Encoding::kFloat16:
    case Encoding::kBFloat16: return elements * 2;
    case Encoding::kTwoBit: return twobit_bytes(elements);
    case Encoding::kPlain: break;
  }
  return elements * size_of(static_cast<DType>(head.type));
}

}  // namespace

Server::Server(const Rules& rules, std::vector<int> ranks, int rank, Place place, ServiceMemory& memory)
    : rules_(rules),
      ranks_(std::move(ranks)),
      rank_(rank),
      place_(std::move(place)),
      memory_(memory),
      copies_(place_.replicas && place_.index >= 0),
      first_(place_.index),
      replica_(copies_.on() ? (place_.index + 1) % place_.servers : -1),
      complete_(static_cast<std::size_t>(place_.servers)) {
  if (!copies_.on()) return;
  for (const int server : {place_.index, before(place_.index)}) complete_[static_cast<std::size_t>(server)] = true;
}

void Server::request(int worker, std::uint64_t id, ServiceBytes payload, std::vector<Answer>& answers) {
  try {
    serve(worker, id, payload, answers);
  } catch (...) {
    answers.push_back(no(worker, id, as_error(std::current_exception())));
  }
}

void Server::serve(int worker, std::uint64_t id, ServiceBytes& payload, std::vector<Answer>& answers) {
  RequestView request(payload.span());
  if (is_early(request.head.server)) return early_.push_back({worker, id, request.head.server, std::move(payload)});
  switch (request.head.kind) {
    case Kind::kDeclare: return declare(worker, id, request, answers);
    case Kind::kCreate: return create(worker, id, request, answers);
    case Kind::kDefine: return define(worker, id, request, answers);
    case Kind::kReady: return choice_of(request.key).ready(worker, id, answers);
    case Kind::kSends: choice_of(request.key).sends(worker, answers); return answers.push_back(yes(worker, id));
    case Kind::kWithdraw: choice_of(request.key).withdraw(worker, answers); return answers.push_back(yes(worker, id));
    case Kind::kSupply:
      supply(request.key, request.head.part, request.elements, answers);
      return answers.push_back(yes(worker, id));
    case Kind::kPush:
    case Kind::kPull: break;
    default: throw Error(Code::kProtocol, "a message of a key-value store of a kind that does not exist");
  }
  const std::string key(request.key);  // the payload moves on
  Kept& kept = kept_of(key, request.head.part);
  if (request.head.reads == Reading::What::kRows) check_rows(request, request.reading_rows, *kept.part);
  Reading reading{request.head.reads, std::move(request.reading_rows), request.head.after};
  std::vector<Answer> fresh;
  if (request.head.kind == Kind::kPull) {
    kept.part->pull(worker, id, std::move(reading), fresh);
  } else {
    Gradient gradient = gradient_of(request, *kept.part, payload);
    kept.part->push(worker, id, std::move(gradient), std::move(reading), updater_, fresh);
  }
  settle(key, request.head.part, kept, std::move(fresh), answers);
}

// After a request to a part.
void Server::settle(std::string_view key, std::uint32_t number, Kept& kept, std::vector<Answer> fresh,
                    std::vector<Answer>& answers) {
  if (std::optional<Change> change = kept.part->take_change(); change && kept.copied && copies_.on())
    kept.copy = copies_.add(copy_of_part(kept.server, key, number, *kept.part, std::move(*change), memory_));
  copies_.answer(kept.copy, std::move(fresh), answers);
}

void Server::declare(int worker, std::uint64_t id, const RequestView& request, std::vector<Answer>& answers) {
  Key& key = keys_[std::string(request.key)];
  Declared declared{worker, id, request.head.shape()};
  if (!key.shape) {
    check_updater(updater_, declared.shape.type, request.key);  // as of the first worker, who creates no part then
    if (place_.replicas && !complete_[static_cast<std::size_t>(request.head.server)]) throw lost_with(request.key);
    if (const Error* const why = no_first_worker()) return answers.push_back(no(worker, id, *why));
    key.waiting.push_back(declared);
    return;
  }
  const std::optional<Error> why = differs(request.key, *key.shape, declared);
  answers.push_back(why ? no(worker, id, *why) : yes(worker, id));
}

std::optional<Error> Server::differs(std::string_view key, const Shape& defined, const Declared& declared) const {
  if (defined == declared.shape) return std::nullopt;
  const int first = ranks_.front(), other = ranks_[static_cast<std::size_t>(declared.worker)];
  return Error(Code::kMismatch,
               fmt::format("{} is {} on rank {}, and {} on rank {}", describe_key(key), defined.describe(), first,
                           declared.shape.describe(), other),
               other);
}

void Server::create(int worker, std::uint64_t id, const RequestView& request, std::vector<Answer>& answers) {
  Key& key = keys_[std::string(request.key)];
  const RequestHead& head = request.head;
  Shape shape = head.shape();
  if (head.part_first_row > shape.rows || head.part_rows > shape.rows - head.part_first_row)
    throw Error(Code::kProtocol, "a part of a value has rows that the value does not");
  shape.rows = head.part_rows;
  if (request.elements.size() != shape.bytes())
    throw Error(Code::kProtocol, fmt::format("a part of {} came with {} bytes and not {}", describe_key(request.key),
                                             request.elements.size(), shape.bytes()));
  check_updater(updater_, shape.type, request.key);
  auto made = std::make_unique<Part>(std::string(request.key), rules_, shape, head.part_first_row * head.row_elements,
                                     std::make_shared<Version>(request.elements, memory_), memory_);
  std::vector<Answer> none;
  for (const auto& [lost, why] : lost_) made->lost(lost, why, none);
  for (const auto& [done, why] : done_) made->done(done, why, none);
  Kept& kept = key.parts[head.part];
  kept.part = std::move(made);
  kept.server = head.server;
  if (copies(kept.server)) {
    kept.part->track();
    kept.copied = true;
    kept.copy = copies_.add(copy_of_part(kept.server, request.key, head.part, *kept.part, {}, memory_));
  }
  copies_.answer(kept.copy, {yes(worker, id)}, answers);
}

void Server::define(int worker, std::uint64_t id, const RequestView& request, std::vector<Answer>& answers) {
  Key& key = keys_[std::string(request.key)];
  key.shape = request.head.shape();
  std::vector<Answer> fresh{yes(worker, id)};
  for (const Declared& declared : std::exchange(key.waiting, {})) {
    const std::optional<Error> why = differs(request.key, *key.shape, declared);
    fresh.push_back(why ? no(declared.worker, declared.id, *why) : yes(declared.worker, declared.id));
  }
  const bool copied = copies(request.head.server);
  const std::uint64_t copy = copied ? copies_.add(copy_of_shape(request.head.server, request.key, *key.shape)) : 0;
  copies_.answer(copy, std::move(fresh), answers);
}

void Server::supply(std::string_view key, std::uint32_t number, std::span<const std::byte> sum,
                    std::vector<Answer>& answers) {
  Part& part = *kept_of(key, number).part;
  if (sum.size() != part.shape().bytes())
    throw Error(Code::kProtocol, fmt::format("a round of a part of {} came with {} bytes and not {}", describe_key(key),
                                             sum.size(), part.shape().bytes()));
  part.supply(sum, updater_, answers);
}

RoundChoice& Server::choice_of(std::string_view name) {
  std::optional<RoundChoice>& choice = keys_[std::string(name)].choice;
  if (choice) return *choice;
  choice.emplace(rules_.workers);
  std::vector<Answer> none;
  if (!lost_.empty() || !done_.empty() || all_send_) choice->lost(none);
  return *choice;
}

Server::Kept& Server::kept_of(std::string_view name, std::uint32_t number) {
  const auto key = keys_.find(std::string(name));
  if (key != keys_.end()) {
    const auto part = key->second.parts.find(number);
    if (part != key->second.parts.end()) return part->second;
  }
  if (!lost_servers_.empty()) throw lost_with(name);
  throw Error(Code::kInvalidState,
              fmt::format("rank {} has no {}: nobody has initialised it", rank_, describe_key(name)), rank_);
}

void Server::check_rows(const RequestView& request, const std::vector<std::uint64_t>& rows, const Part& part) const {
  for (const std::uint64_t row : rows) {
    if (row < part.shape().rows) continue;
    throw Error(Code::kProtocol,
                fmt::format("row {} of a part of {} with {} rows", row, describe_key(request.key), part.shape().rows));
  }
}

Gradient Server::gradient_of(const RequestView& request, const Part& part, ServiceBytes& payload) const {
  const RequestHead& head = request.head;
  const Shape& shape = part.shape();
  if (static_cast<DType>(head.type) != shape.type)
    throw Error(Code::kMismatch, fmt::format("{} is {} on rank {}, and {} was pushed", describe_key(request.key),
                                             name_of(shape.type), rank_, name_of(static_cast<DType>(head.type))));
  Gradient gradient;
  gradient.some = head.some_rows;
  gradient.number = head.number;
  const std::uint64_t rows = head.some_rows ? request.gradient_rows.size() : shape.rows;
  const auto elements = static_cast<std::size_t>(rows * shape.row_elements);
  if (request.elements.size() != encoded_bytes(head, elements) ||
      (head.encoding != Encoding::kPlain && shape.type != DType::kFloat32)) {
    throw Error(Code::kProtocol, fmt::format("a push of {} elements of {} came with {} bytes", elements,
                                             describe_key(request.key), request.elements.size()));
  }
  check_rows(request, request.gradient_rows, part);
  gradient.rows = request.gradient_rows;
  if (head.encoding == Encoding::kPlain) {
    gradient.offset = request.offset;
    gradient.storage = std::move(payload);  // the view's elements stay where they are
    return gradient;
  }
  gradient.storage = ServiceBytes(elements * sizeof(float), memory_);
  if (head.encoding == Encoding::kTwoBit) {
    twobit_decode(head.threshold, request.elements.data(), elements, reinterpret_cast<float*>(gradient.storage.data()));
  } else {
    const DType wire = head.encoding == Encoding::kFloat16 ? DType::kFloat16 : DType::kBFloat16;
    gradient::WireCodec().decode(wire, gradient.storage.data(), request.elements.data(), elements, 1.0);
  }
  return gradient;
}

void Server::lost(int worker, const Error& why, std::vector<Answer>& answers) {
  if (!lost_.emplace(worker, why).second) return;
  std::erase_if(early_, [worker](const Early& early) { return early.worker == worker; });
  for (auto& [name, key] : keys_)
    std::erase_if(key.waiting, [worker](const Declared& declared) { return declared.worker == worker; });
  pushes_no_more(worker, why, &Part::lost, answers);
}

// Why a key that the first worker has not begun never begins; null if it may.
const Error* Server::no_first_worker() const noexcept {
  for (const auto* workers : {&lost_, &done_}) {
    if (const auto first = workers->find(0); first != workers->end()) return &first->second;
  }
  return nullptr;
}

void Server::done(int worker, const Error& why, std::vector<Answer>& answers) {
  if (!lost_.contains(worker) && done_.emplace(worker, why).second) pushes_no_more(worker, why, &Part::done, answers);
}

void Server::pushes_no_more(int worker, const Error& why, PartIsTold told, std::vector<Answer>& answers) {
  for (auto& [name, key] : keys_) {
    if (key.choice) key.choice->lost(answers);
    for (auto& [number, kept] : key.parts) {
      std::vector<Answer> fresh;
      (*kept.part.*told)(worker, why, fresh);
      settle(name, number, kept, std::move(fresh), answers);
    }
    if (worker != 0 || key.shape) continue;
    for (const Declared& declared : std::exchange(key.waiting, {}))
      answers.push_back(no(declared.worker, declared.id, why));
  }
}

void Server::let_all_send(std::vector<Answer>& answers) {
  all_send_ = true;
  for (auto& [name, key] : keys_) {
    if (key.choice) key.choice->lost(answers);
  }
}

void Server::set_updater(const UpdaterOptions& updater) {
  for (const auto& [name, key] : keys_) {
    if (!key.parts.empty()) check_updater(updater, key.parts.begin()->second.part->shape().type, name);
  }
  if (updater.kind != std::exchange(updater_, updater).kind) forget_states();
}

std::vector<Server::Saved> Server::parts(std::optional<int> of) {
  std::vector<Saved> saved;
  for (auto& [name, key] : keys_) {
    for (auto& [number, kept] : key.parts) {
      if (!of || kept.server == *of) saved.push_back({name, number, kept.part.get()});
    }
  }
  std::sort(saved.begin(), saved.end(), [](const Saved& one, const Saved& other) {
    return one.key != other.key ? one.key < other.key : one.part < other.part;
  });
  return saved;
}

}  // namespace aiacc::kv
