#include "groupcomm/gradient/kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "collectives/grouped.h"

namespace aiacc::gradient {
namespace {

constexpr std::string_view kWire = ", wire ";
constexpr std::string_view kMixed = ", wire mixed";
constexpr std::string_view kRows = " rows of ";
constexpr std::string_view kPrescale = ", prescale ";
constexpr std::string_view kPostscale = ", postscale ";

// No rank knows how many rows the others bring. So many bound how many tables one launch has, and what it keeps of them at a time.
constexpr std::size_t kExpectedRows = 1024;

double scale_in(const std::string& description, std::string_view what) {
  const std::size_t at = description.find(what);
  return at == std::string::npos ? 1.0 : std::strtod(description.c_str() + at + what.size(), nullptr);
}

std::optional<DType> wire_in(const std::string& description) {
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    if (description.find(fmt::format("{}{}", kWire, name_of(type))) != std::string::npos) return type;
  }
  return std::nullopt;
}

}  // namespace

Reduction Kind::reduction() const noexcept {
  Reduction reduction;
  reduction.type = type;
  reduction.op = op;
  reduction.prescale = prescale;
  reduction.postscale = postscale;
  reduction.codec = codec;
  return reduction;
}

Codec Kind::codec_between_hosts() const noexcept {
  if (!wire) return codec;
  return *wire == DType::kBFloat16 ? Codec::kBFloat16 : Codec::kFloat16;
}

bool Kind::needs_no_pack(std::size_t bytes) const noexcept {
  return !wire && codec == Codec::kNone && !is_table() && bytes >= kAloneBytes;
}

std::uint64_t Kind::key() const noexcept {
  Hash64 hash;
  hash.add(std::bit_cast<std::uint64_t>(prescale)).add(std::bit_cast<std::uint64_t>(postscale));
  if (wire) hash.add(std::uint64_t{static_cast<std::uint8_t>(*wire)});
  if (codec != Codec::kNone) hash.add(kMixed);
  if (is_table()) hash.add(kRows).add(std::uint64_t{row_elements});
  return std::uint64_t{static_cast<std::uint8_t>(type)} << 56 | std::uint64_t{static_cast<std::uint8_t>(op)} << 48 |
         hash.value() >> 16;
}

std::string Kind::describe(std::size_t count) const {
  std::string text = is_table() ? fmt::format("{}{}{} ", count, kRows, row_elements) : fmt::format("{} ", count);
  text += fmt::format("{}, {}", name_of(type), name_of(op));
  if (wire) text += fmt::format("{}{}", kWire, name_of(*wire));
  if (codec != Codec::kNone) text += kMixed;
  if (prescale != 1.0) text += fmt::format("{}{}", kPrescale, prescale);
  if (postscale != 1.0) text += fmt::format("{}{}", kPostscale, postscale);
  return text;
}

TensorRecord Kind::record(std::string name, std::size_t count) const {
  TensorRecord record;
  record.name = std::move(name);
  record.bytes = is_table() ? std::min(count, kExpectedRows) * row_bytes() : count * size_of(type);
  if (is_table()) {
    record.rows = count;
    record.row_elements = row_elements;
  }
  record.fusion_key = key();
  record.sum = adds_up();
  record.description = describe(count);
  return record;
}

Kind Kind::of(const TensorRecord& record) {
  Kind kind;
  const std::uint64_t type = record.fusion_key >> 56;
  const std::uint64_t op = record.fusion_key >> 48 & 0xff;
  const bool known = type < static_cast<std::uint64_t>(kDTypes) && op < static_cast<std::uint64_t>(kReduceOps);
  if (known) {
    kind.type = static_cast<DType>(type);
    kind.op = static_cast<ReduceOp>(op);
    kind.row_elements = static_cast<std::size_t>(record.row_elements);
    kind.wire = wire_in(record.description);
    if (record.description.find(kMixed) != std::string::npos) kind.codec = Codec::kFloat16;
    kind.prescale = scale_in(record.description, kPrescale);
    kind.postscale = scale_in(record.description, kPostscale);
  }
  if (!known || kind.key() != record.fusion_key || record.bytes % size_of(kind.type) != 0) {
    throw Error(
        Code::kProtocol,
        fmt::format("another rank describes its tensor '{}' ({} bytes) as '{}', which this one does not understand",
                    record.name, record.bytes, record.description));
  }
  return kind;
}

}  // namespace aiacc::gradient
