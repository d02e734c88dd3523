// The functions that a fuzz target defines for driver.cc: libFuzzer's LLVMFuzzerTestOneInput(), and valid inputs to
// begin with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/wire/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);
std::vector<aiacc::wire::Bytes> fuzz_seeds();
