// aiacc for C++20: aiacc.h with RAII, spans, futures and awaitable requests. Header only; depends on aiacc.h alone.
// Each part can also be included by itself.
//
// - A failing call throws aiacc::Error, with the library's status and error message.
// - Buffers are contiguous ranges (vector, array, span, Memory) of an element type; their length is the count.
// - A Group blocks; group.async() has the same functions and returns a Request: wait(), done(), then(), future(), or
//   co_await it. Buffers of a Request belong to the library until it has completed.
// - After a wait, a coroutine or continuation runs on the library's completion thread, where blocking calls are refused and
//   asynchronous ones work; or at once if the operation had ended.
#ifndef AIACC_AIACC_HPP
#define AIACC_AIACC_HPP

#include <aiacc/aiacc.h>
#include <aiacc/blocks.hpp>     // uneven blocks
#include <aiacc/calls.hpp>      // collectives and messages
#include <aiacc/context.hpp>    // one rank
#include <aiacc/elements.hpp>   // element types and buffers
#include <aiacc/error.hpp>      // exceptions
#include <aiacc/group.hpp>      // groups of ranks
#include <aiacc/memory.hpp>     // shared and registered memory
#include <aiacc/mesh.hpp>       // meshes of ranks
#include <aiacc/operators.hpp>  // operators, also user-defined ones
#include <aiacc/options.hpp>    // options of an operation
#include <aiacc/request.hpp>    // asynchronous operations

#endif
