// OperationTraffic: the traffic classes of one operation's messages.
#pragma once

#include "transports/message.h"

namespace aiacc {

// Eager messages and RTS are in one class, because an early RTS must not arrive after the eager message that it announced. None
// announces an eager message of more than Mailbox::kSwappedEagerBytes.
struct OperationTraffic {
  TrafficClass headers = TrafficClass::kLatency;  // eager messages, RTS and CTS
  TrafficClass data = TrafficClass::kBulk;        // payloads after a CTS, and such long eager messages

  static constexpr OperationTraffic all_in(TrafficClass one) noexcept { return {one, one}; }
  constexpr bool operator==(const OperationTraffic&) const = default;
};

}  // namespace aiacc
