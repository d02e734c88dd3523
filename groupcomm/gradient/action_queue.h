// ActionQueue: the actions of a negotiator that its caller has not taken out yet. Keeps its storage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "groupcomm/gradient/negotiator.h"

namespace aiacc::gradient {

class ActionQueue {
 public:
  // An input begins: what was taken out is no longer valid.
  void reuse();
  bool next(Action& action);

  // `action`'s pointers must stay valid; the lists of a launch are copied.
  void push(const Action& action);
  void say(Action::Kind kind, std::string text);
  void exchange(std::vector<std::byte> payload);
  void fail(Error error);

 private:
  struct Stored {
    Action action;
    std::size_t first = 0, count = 0;  // of the launch's lists
  };

  std::vector<Stored> actions_;
  std::size_t taken_ = 0;
  std::vector<std::uint32_t> tensors_;
  std::vector<std::uint8_t> mine_;
  std::string text_;
  std::vector<std::byte> payload_;
  std::optional<Error> error_;
};

}  // namespace aiacc::gradient
