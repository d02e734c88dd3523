// What a server tells the replica of its parts (store.h): the result of each request that has changed a part, whole or the rows that
// it touched, and whose pushes these were. The replica confirms copies in their order, and answers that depend on one wait for that.
//
//   copy   CopyHead, the key padded to 8 bytes, CopyProgress of workers, numbers of rows, elements of the value and of the updater's
//          memory, the sentence of an error
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "groupcomm/kv/part.h"
#include "transports/service/service.h"

namespace aiacc::kv {

enum class CopyOf : std::uint32_t {
  kPart,
  kShape,     // of the key, and no part
  kComplete,  // of the server's parts and shapes all have been copied; there is no key
};

struct CopyHead {
  std::int32_t server = 0;  // whose part it is, by index
  std::int32_t type = 0;    // DType
  std::uint32_t key_bytes = 0;
  std::uint32_t part = 0;
  std::uint32_t defines = 0;  // CopyOf
  std::uint32_t some = 0;     // Change::some
  std::int32_t code = 0;      // of Change::error
  std::uint32_t text_bytes = 0;
  std::uint64_t rows = 0, row_elements = 0;  // of the part, or of the key
  std::uint64_t first = 0;                   // element of the value
  std::uint64_t version = 0, steps = 0;
  std::uint64_t workers = 0, some_rows = 0;  // how many follow
  std::uint64_t value_bytes = 0, first_bytes = 0, second_bytes = 0;

  Shape shape() const noexcept { return {static_cast<DType>(type), rows, row_elements}; }
};
static_assert(sizeof(CopyHead) == 112);

struct CopyProgress {
  std::uint64_t worker, pushed, number;
};
static_assert(sizeof(CopyProgress) == 24);

ServiceBytes copy_of_part(int server, std::string_view key, std::uint32_t number, Part& part, Change change,
                          ServiceMemory& memory);
// All of a part that its replica knows nothing of.
ServiceBytes copy_of_whole_part(int server, std::string_view key, std::uint32_t number, Part& part,
                                ServiceMemory& memory);
ServiceBytes copy_of_shape(int server, std::string_view key, const Shape& shape);
ServiceBytes copy_that_completes(int server);

// Refers to the payload. Throws kProtocol if it is no copy.
struct CopyView {
  CopyView(std::span<const std::byte> payload, int workers);
  CopyHead head;
  std::string_view key;
  Part::Copy copy;
};

// The copies of one server and the answers that wait for them.
class Copies {
 public:
  struct Numbered {
    std::uint64_t number;
    ServiceBytes bytes;
  };

  explicit Copies(bool on) noexcept : on_(on) {}
  bool on() const noexcept { return on_; }
  std::uint64_t add(ServiceBytes copy);
  // Those that were added since the last call, to be sent in this order.
  std::vector<Numbered> take() noexcept { return std::exchange(fresh_, {}); }
  // `fresh` gets into `answers`, at once if the replica has copy `number`; 0: they depend on none.
  void answer(std::uint64_t number, std::vector<Answer> fresh, std::vector<Answer>& answers);
  void confirmed(std::uint64_t number, std::vector<Answer>& answers);
  // The replica is lost: nothing waits for it. Whether there is another one from now on.
  void restart(bool on, std::vector<Answer>& answers);

 private:
  bool on_;
  std::uint64_t last_ = 0, confirmed_ = 0;
  std::vector<Numbered> fresh_;
  std::map<std::uint64_t, std::vector<Answer>> waiting_;  // by copy
};

}  // namespace aiacc::kv
