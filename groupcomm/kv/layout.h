// groupcomm/kv: the key-value store: values that workers push gradients to and pull, on servers that are ranks too. The servers'
// state machine is pure (part.h, server.h), the workers' end is in client.h, and store.h joins both to service messages. Not here:
// the C ABI.
//
// How a value is cut into parts, and which server has which. It follows from the key, the shape and the store's options alone, so
// no rank asks another. A small value is with one server, chosen by the key's hash; one of more than `split_elements` elements is
// spread over all servers in equal ranges of rows, as MXNet does with its big arrays. No part is longer than one message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/data/dtype.h"

namespace aiacc::kv {

// A key as messages have it: 'i' and the decimal number, or 's' and the text, so that 7 and "7" are two keys.
std::string key_of(std::int64_t number);
std::string key_of(std::string_view name);
// "key 7", "key 'weight'".
std::string describe_key(std::string_view key);

// A dense value of n elements has n rows of one element. Rows are what sparse pushes and pulls name.
struct Shape {
  DType type = DType::kFloat32;
  std::uint64_t rows = 0;
  std::uint64_t row_elements = 1;

  std::uint64_t elements() const noexcept { return rows * row_elements; }
  std::size_t row_bytes() const noexcept { return static_cast<std::size_t>(row_elements) * size_of(type); }
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(rows) * row_bytes(); }
  bool operator==(const Shape&) const = default;
  std::string describe() const;  // "1024 fp32", "100 rows of 16 fp32"
};

struct LayoutRules {
  int servers = 1;
  std::uint64_t split_elements = 1'000'000;  // as MXNET_KVSTORE_BIGARRAY_BOUND
  std::size_t part_bytes = 512 << 10;
};

struct PartPlace {
  std::uint64_t first_row = 0;
  std::uint64_t rows = 0;
  int server = 0;  // its index among the servers
};

// The server that knows the key's shape.
int home_of(std::string_view key, int servers) noexcept;
// At least one part, which is empty for a value without elements. Throws kUnsupported for rows longer than a part.
std::vector<PartPlace> lay_out(std::string_view key, const Shape& shape, const LayoutRules& rules);

}  // namespace aiacc::kv
