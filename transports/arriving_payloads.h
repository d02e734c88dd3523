// ArrivingPayloads: the headers of one message's payloads that the port is placing. There is usually one at a time, which needs no
// allocation.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "transports/message.h"

namespace aiacc {

class ArrivingPayloads {
 public:
  bool empty() const noexcept { return !first_; }
  // A payload with the same offset as one of them is the same one, which comes again.
  void add(const MessageHeader& header) {
    if (!first_) {
      first_ = header;
    } else if (first_->offset != header.offset && find(header) == others_.end()) {
      others_.push_back(header);
    }
  }
  // False if it is none of them.
  bool remove(const MessageHeader& header) noexcept {
    if (!first_) return false;
    auto found = others_.end();
    if (first_->offset != header.offset) {
      found = find(header);
      if (found == others_.end()) return false;
    } else if (others_.empty()) {
      first_.reset();
      return true;
    } else {
      found = std::prev(others_.end());
      first_ = *found;
    }
    others_.erase(found);
    return true;
  }
  void clear() noexcept {
    first_.reset();
    others_.clear();
  }
  template <class Fn>
  void for_each(Fn&& fn) const {
    if (first_) fn(*first_);
    for (const MessageHeader& header : others_) fn(header);
  }

 private:
  std::vector<MessageHeader>::iterator find(const MessageHeader& header) noexcept {
    return std::find_if(others_.begin(), others_.end(),
                        [&](const MessageHeader& other) { return other.offset == header.offset; });
  }

  std::optional<MessageHeader> first_;
  std::vector<MessageHeader> others_;
};

}  // namespace aiacc
