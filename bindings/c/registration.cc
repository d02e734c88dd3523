// Registration of the caller's own memory.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "bindings/c/guard.h"
#include "bindings/c/state.h"
#include "runtime/context.h"
#include "runtime/real_context.h"
#include "transports/host/memory_room.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace {

// Whole pages, which the kernel requires.
struct PageRange {
  std::uintptr_t first;
  std::size_t bytes;
};

void* pointer_to(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// `bytes` must not be 0.
PageRange pages_of(const void* memory, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::size_t page = page_bytes();
  if (bytes > UINTPTR_MAX - begin || begin + bytes > UINTPTR_MAX - (page - 1)) {
    throw Error(Code::kInvalidArgument,
                fmt::format("bytes is {}: from {} on that is beyond the end of the address space", bytes, memory));
  }
  const std::uintptr_t first = begin / page * page;
  return {first, (begin + bytes - first + page - 1) / page * page};
}

Error not_mapped(std::uintptr_t page, const void* memory, std::size_t bytes) {
  return Error(
      Code::kInvalidArgument,
      fmt::format("of the {} bytes from {} on, the page at {} is not mapped: register memory that is allocated", bytes,
                  memory, pointer_to(page)));
}

// Throws if a part of the range is not mapped, or if its untouched pages exceed the available memory: beyond a control
// group's limit the kernel would kill the process.
void require_pages(const PageRange& range, const void* memory, std::size_t bytes) {
  const std::size_t page = page_bytes();
  std::array<unsigned char, 16384> present;
  std::optional<MemoryRoom> room;
  std::size_t absent = 0;
  for (std::size_t done = 0; done < range.bytes;) {
    const std::uintptr_t from = range.first + done;
    const std::size_t length = std::min(range.bytes - done, present.size() * page);
    if (mincore(pointer_to(from), length, present.data()) != 0) {
      const int reason = errno;
      if (reason != ENOMEM) throw system_error(fmt::format("cannot look for the pages from {} on", memory), reason);
      std::uintptr_t missing = from;  // the first address that is not mapped
      while (missing < from + length - page && mincore(pointer_to(missing), page, present.data()) == 0) missing += page;
      throw not_mapped(missing, memory, bytes);
    }
    const auto here = std::count_if(present.begin(), present.begin() + static_cast<std::ptrdiff_t>(length / page),
                                    [](unsigned char one) { return (one & 1) != 0; });
    absent += length - static_cast<std::size_t>(here) * page;
    done += length;
    if (absent == 0) continue;
    if (!room) room = memory_room(read_host_file);
    if (absent > room->bytes) {
      throw Error(Code::kOutOfMemory,
                  fmt::format("at least {} of the {} from {} on have no page yet, but only {} of memory are left ({}): "
                              "register less or raise the limit",
                              bytes_text(absent), bytes_text(bytes), memory, bytes_text(room->bytes), room->limit));
    }
  }
}

// Populates the pages for writing without changing them; other threads may use them meanwhile. Linux before 5.14 cannot
// do this. A store in its place would crash on read-only memory, so there the first use populates them.
void populate(const PageRange& range, const void* memory, std::size_t bytes) {
  if (madvise(pointer_to(range.first), range.bytes, MADV_POPULATE_WRITE) == 0) return;
  const int reason = errno;
  if (reason == EINVAL && madvise(nullptr, 0, MADV_POPULATE_WRITE) != 0) return;
  const auto what = [&] { return fmt::format("the {} bytes from {} on", bytes, memory); };
  if (reason == EINVAL) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{} are not all writable host memory: register what operations may write to", what()));
  }
  if (reason == EFAULT) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{} are not all backed: the file that is mapped there is shorter", what()));
  }
  const Code code = reason == ENOMEM ? Code::kOutOfMemory : Code::kSystem;
  throw Error(code, system_error(fmt::format("cannot get the pages of {}", what()), reason).message());
}

}  // namespace

extern "C" {

aiacc_status_t aiacc_mem_register(aiacc_context_t context, void* memory, size_t bytes,
                                  aiacc_registration_t* registration) {
  return guarded([&] {
    if (registration == nullptr)
      throw Error(Code::kInvalidArgument, "registration is NULL: pass where the handle shall go");
    if (memory == nullptr) throw Error(Code::kInvalidArgument, "memory is NULL: pass what shall be registered");
    if (bytes == 0) throw Error(Code::kInvalidArgument, "bytes is 0: there is nothing to register");
    const PageRange range = pages_of(memory, bytes);
    if (context == AIACC_NULL) context = decltype(State::contexts)::kFixed;
    const auto pin = state().contexts.find(context);
    if (!pin) throw unknown_context(context);
    require_pages(range, memory, bytes);
    populate(range, memory, bytes);
    const std::uint64_t handle = state().registrations.insert(std::make_unique<RegistrationEntry>(pin->context));
    try {
      pin->context->context().registrations().add(handle, memory, bytes);
      state().made.add(*pin->context, handle);
    } catch (...) {
      pin->context->context().registrations().remove(handle);
      state().registrations.find(handle).remove();
      throw;
    }
    *registration = handle;
  });
}

aiacc_status_t aiacc_mem_deregister(aiacc_registration_t registration) {
  return guarded([&] {
    refuse_forked();
    auto pin = state().registrations.find(registration);
    if (!pin || !pin.remove()) {
      throw Error(Code::kInvalidHandle, is_kind(registration, HandleKind::kRegistration)
                                            ? fmt::format("registration {:#x} does not exist any more", registration)
                                            : fmt::format("{:#x} is not the handle of a registration", registration));
    }
    pin->context->context().registrations().remove(registration);
    state().made.drop(*pin->context, registration);
  });
}

}  // extern "C"
