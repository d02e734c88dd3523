#include "base/wire/hidden.h"

#include <sodium.h>
#include <sys/mman.h>

#include "base/mapping.h"

namespace aiacc::wire {

void wipe(void* memory, std::size_t bytes) noexcept { sodium_memzero(memory, bytes); }

void* allocate_hidden(std::size_t bytes) {
  Mapping pages = Mapping::make(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  if (!pages) throw std::bad_alloc();
  (void)::madvise(pages.data(), bytes, MADV_DONTDUMP);
  (void)::mlock(pages.data(), bytes);  // exceeding the limit of locked memory is no error
  return pages.release();
}

void free_hidden(void* memory, std::size_t bytes) noexcept {
  wipe(memory, bytes);
  ::munmap(memory, bytes);
}

}  // namespace aiacc::wire
