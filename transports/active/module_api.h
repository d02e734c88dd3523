// What libaiacc and a module such as aiacc-ucx.so know of each other. The module alone includes the headers of its library and
// is linked with it, so libaiacc runs where that is absent. It has no knowledge of ranks and messages: it moves active
// messages between workers. Both sides are built together, and each checks the other's version.
//
// One thread at a time uses a worker. Nothing here throws.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aiacc::active {

inline constexpr std::uint32_t kModuleAbi = 5;  // increased with each change of this file

struct Worker;
struct Endpoint;

// Base of what the caller remembers of a send or fetch that is under way; it stays where it is until that has ended.
struct Operation {
  Worker* worker = nullptr;  // set by the module
};

struct Extent {
  void* data;
  std::size_t bytes;
};

enum class Began : std::uint8_t {
  kDone,     // it has ended already; no callback follows
  kPending,  // a callback follows
  kFailed,   // it has not begun; no callback follows
};

// The module's callbacks, from inside progress() and disconnect() only, and never after close(); draw() also from inside send().
struct Callbacks {
  void* owner = nullptr;
  // An active message. `payload` is its payload if `eager`, the library's again on return, and otherwise what fetch() gets it with.
  // True, never if it is eager: the payload is kept until fetch() or drop().
  bool (*arrived)(void* owner, const void* header, std::size_t header_bytes, void* payload, std::size_t bytes,
                  bool eager) noexcept = nullptr;
  // `problem` is null if it succeeded.
  void (*sent)(void* owner, Operation& operation, const char* problem) noexcept = nullptr;
  void (*fetched)(void* owner, Operation& operation, const char* problem) noexcept = nullptr;
  // The endpoint is broken; disconnect() it.
  void (*broken)(void* owner, void* peer, const char* problem) noexcept = nullptr;
  // What disconnect() began has ended: the endpoint is gone.
  void (*closed)(void* owner, void* peer) noexcept = nullptr;
  // A number that nobody can predict.
  std::uint64_t (*draw)(void* owner) noexcept = nullptr;
};

struct Module {
  std::uint32_t abi;
  const char* library_version;  // of the libaiacc that it was built with

  const char* (*version)() noexcept;  // of the library that it is linked with
  // With the settings that the environment has at present, and with the one that `choice` is (library.h). Null: `problem` says why.
  Worker* (*open)(const char* choice, char* problem, std::size_t room) noexcept;
  // Ends everything that is under way, without callbacks; the memory of operations is not touched any more. Payloads
  // that are kept must have been dropped.
  void (*close)(Worker* worker) noexcept;
  // Before the first progress().
  void (*call_back)(Worker* worker, const Callbacks& callbacks) noexcept;
  // By which peers connect; at most `room` bytes. Returns how many it has, 0 on failure.
  std::size_t (*address)(Worker* worker, std::uint8_t* bytes, std::size_t room) noexcept;
  // The transports and devices in use, separated by commas.
  void (*describe)(Worker* worker, char* text, std::size_t room) noexcept;
  // A payload of at most so many bytes comes sooner eagerly than by rendezvous; 0: that is not known of any.
  std::size_t (*eager_bytes)(Worker* worker) noexcept;
  // Readable when there may be progress, once arm() has returned true. -1: none.
  int (*descriptor)(Worker* worker) noexcept;
  bool (*arm)(Worker* worker) noexcept;  // false: there is progress to make first
  bool (*progress)(Worker* worker) noexcept;

  // `peer` is what broken() and closed() are told. Null: `problem` says why.
  Endpoint* (*connect)(Worker* worker, const std::uint8_t* address, std::size_t bytes, void* peer, char* problem,
                       std::size_t room) noexcept;
  // Ends what is under way on it, without the peer: each operation gets its callback, then closed() follows.
  void (*disconnect)(Endpoint* endpoint) noexcept;
  // Header, extents and what they name stay untouched until the send has ended. `rendezvous`: the receiver fetches the payload.
  Began (*send)(Endpoint* endpoint, const void* header, std::size_t header_bytes, const Extent* extents,
                std::size_t count, bool rendezvous, Operation& operation, const char** problem) noexcept;
  // Gets a kept payload, which is no longer kept then.
  Began (*fetch)(Worker* worker, void* payload, void* into, std::size_t bytes, Operation& operation,
                 const char** problem) noexcept;
  void (*drop)(Worker* worker, void* payload) noexcept;
};

// The module's only symbol.
using EntryPoint = const Module* (*)();

}  // namespace aiacc::active
