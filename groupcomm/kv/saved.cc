#include "groupcomm/kv/saved.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/hash.h"

namespace aiacc::kv {
namespace {

constexpr std::string_view kMagic = "aiacckv1";

// Numbers are 64 bits each; bytes have their length before them. A hash of all ends the whole.
class Writer {
 public:
  void number(std::uint64_t number) { text_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void bytes(const void* from, std::size_t count) {
    number(count);
    text_.append(static_cast<const char*>(from), count);
  }
  std::string take() {
    number(Hash64().add(text_).value());
    return std::move(text_);
  }

 private:
  std::string text_{kMagic};
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {
    if (!text.starts_with(kMagic) || text.size() < kMagic.size() + sizeof(std::uint64_t))
      throw Error(Code::kInvalidArgument, "it is no saved state of a key-value store");
    std::uint64_t hash;
    text_.remove_suffix(sizeof hash);
    std::memcpy(&hash, text.data() + text_.size(), sizeof hash);
    if (hash != Hash64().add(text_).value()) throw Error(Code::kInvalidArgument, "it is damaged or incomplete");
    text_.remove_prefix(kMagic.size());
  }
  std::uint64_t number() {
    std::uint64_t number;
    std::memcpy(&number, next(sizeof number).data(), sizeof number);
    return number;
  }
  std::string_view bytes() { return next(number()); }

 private:
  std::string_view next(std::uint64_t count) {
    if (count > text_.size()) throw Error(Code::kInvalidArgument, "it is damaged or incomplete");
    const std::string_view part = text_.substr(0, static_cast<std::size_t>(count));
    text_.remove_prefix(part.size());
    return part;
  }
  std::string_view text_;
};

std::vector<std::byte> copy_of(std::string_view text) {
  const auto* const first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

}  // namespace

std::string saved_state(Server& server, int index, int servers) {
  server.check_whole(index);
  Writer writer;
  writer.number(static_cast<std::uint64_t>(index));
  writer.number(static_cast<std::uint64_t>(servers));
  writer.number(static_cast<std::uint64_t>(server.updater().kind));
  const std::vector<Server::Saved> parts = server.parts(index);
  writer.number(parts.size());
  for (const Server::Saved& part : parts) {
    const UpdaterState& state = part.state->state();
    writer.bytes(part.key.data(), part.key.size());
    writer.number(part.part);
    writer.bytes(part.state->value()->data(), part.state->value()->size());
    writer.bytes(state.first.data(), state.first.size());
    writer.bytes(state.second.data(), state.second.size());
    writer.number(state.steps);
  }
  return writer.take();
}

void restore_state(Server& server, int index, int servers, std::string_view bytes) {
  server.check_whole(index);
  Reader reader(bytes);
  const std::uint64_t its_index = reader.number(), its_servers = reader.number(), kind = reader.number();
  if (its_index != static_cast<std::uint64_t>(index) || its_servers != static_cast<std::uint64_t>(servers)) {
    throw Error(Code::kInvalidArgument, fmt::format("it is of server {} of {}, and this is server {} of {}", its_index,
                                                    its_servers, index, servers));
  }
  const bool same_updater = kind == static_cast<std::uint64_t>(server.updater().kind);
  struct Restored {
    Part* part;
    Snapshot value;
    UpdaterState state;
  };
  std::vector<Restored> restored;
  std::vector<Server::Saved> parts = server.parts(index);
  const std::uint64_t count = reader.number();
  if (count != parts.size()) {
    throw Error(Code::kInvalidArgument,
                fmt::format("it has {} parts of values, and this server {}: initialise the same keys first", count,
                            parts.size()));
  }
  for (const Server::Saved& part : parts) {
    const std::string_view key = reader.bytes();
    const std::uint64_t number = reader.number();
    const std::string_view value = reader.bytes(), first = reader.bytes(), second = reader.bytes();
    const std::uint64_t steps = reader.number();
    const std::size_t wanted = part.state->shape().bytes();
    if (key != part.key || number != part.part || value.size() != wanted) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("it has part {} of {} with {} bytes, and this server part {} of {} with {}", number,
                              describe_key(key), value.size(), part.part, describe_key(part.key), wanted));
    }
    if ((!first.empty() && first.size() != wanted) || (!second.empty() && second.size() != wanted))
      throw Error(Code::kInvalidArgument, "it is damaged or incomplete");
    UpdaterState state;
    if (same_updater) state = {copy_of(first), copy_of(second), steps};
    restored.push_back({part.state, std::make_shared<Version>(std::as_bytes(std::span(value)), part.state->memory()),
                        std::move(state)});
  }
  for (Restored& each : restored) each.part->restore(std::move(each.value), std::move(each.state));
  server.replaced(index);
}

}  // namespace aiacc::kv
