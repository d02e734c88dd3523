// What ranks tell each other in an exchange of the negotiation: new tensors and, when a rank asks for a stall report, what
// each has submitted. Little-endian, by base/wire/codec.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/time.h"
#include "groupcomm/gradient/tensor_table.h"

namespace aiacc::gradient {

struct ExchangePayload {
  std::vector<TensorRecord> records;   // without an index
  std::vector<std::string> submitted;  // names that are not launched; for a stall report
  std::uint64_t waited_us = 0;         // this rank's caller, for a stall report
  bool joined = false;                 // out of data: lacks nothing

  auto fields() { return std::tie(records, submitted, waited_us, joined); }
};

std::vector<std::byte> encode_payload(const ExchangePayload& payload);
// Throws kProtocol.
ExchangePayload decode_payload(std::span<const std::byte> bytes);

// One sentence for each tensor that some ranks have submitted and others have not; empty if there is none. The same on all
// ranks.
std::string stall_report(std::span<const ExchangePayload> of_ranks);

}  // namespace aiacc::gradient
