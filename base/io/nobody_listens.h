// The error of Net::connect() if the host refuses the connection: a process that listened there has ended. Other
// connection failures say nothing about that process.
#pragma once

#include <string>

#include "base/error.h"

namespace aiacc::io {

class NobodyListens final : public Error {
 public:
  explicit NobodyListens(std::string message) : Error(Code::kPeerFailed, std::move(message)) {}
};

}  // namespace aiacc::io
