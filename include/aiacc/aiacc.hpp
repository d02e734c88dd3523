// aiacc for C++20: aiacc.h with owners, spans, futures and awaitable requests. Header only; depends on aiacc.h alone.
// Whoever needs a part of it only may include that part: each stands alone.
//
// - What fails throws aiacc::Error, with the status and the sentence of the library.
// - Buffers are contiguous ranges (vector, array, span, Memory) of an element type; their length is the count.
// - A Group blocks; group.async() has the same functions and returns a Request: wait(), done(), then(), future(), or
//   co_await it. Buffers of a Request belong to the library until it has completed.
// - A coroutine or continuation that waited goes on on the library's completion thread, where blocking calls are refused and
//   asynchronous ones work, or at once if the operation had ended.
#ifndef AIACC_AIACC_HPP
#define AIACC_AIACC_HPP

#include <aiacc/aiacc.h>
#include <aiacc/blocks.hpp>     // where uneven blocks stand
#include <aiacc/calls.hpp>      // the functions that move data
#include <aiacc/context.hpp>    // one rank, from beginning to end
#include <aiacc/elements.hpp>   // element types and buffers
#include <aiacc/error.hpp>      // what fails
#include <aiacc/group.hpp>      // ranks that work together
#include <aiacc/memory.hpp>     // shared and registered memory
#include <aiacc/mesh.hpp>       // ranks by coordinates
#include <aiacc/operators.hpp>  // the library's, and one's own
#include <aiacc/options.hpp>    // of one operation
#include <aiacc/request.hpp>    // what was started and runs

#endif
