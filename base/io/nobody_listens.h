// What Net::connect() throws where the host answers that nobody listens: a process that listened there has ended. Other
// failures to connect say nothing about it.
#pragma once

#include <string>

#include "base/error.h"

namespace aiacc::io {

class NobodyListens final : public Error {
 public:
  explicit NobodyListens(std::string message) : Error(Code::kPeerFailed, std::move(message)) {}
};

}  // namespace aiacc::io
