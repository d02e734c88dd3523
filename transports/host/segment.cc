#include "transports/host/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <span>

#include "base/error.h"
#include "base/io/limits.h"
#include "base/io/real_clock.h"
#include "transports/host/memory_room.h"

namespace aiacc {
namespace {

void require_limit(__rlimit_resource resource, const char* option, std::uint64_t used, std::uint64_t bytes, int ranks) {
  rlimit limit{};
  getrlimit(resource, &limit);
  if (limit.rlim_cur == RLIM_INFINITY || (used <= limit.rlim_cur && bytes <= limit.rlim_cur - used)) return;
  throw Error(
      Code::kOutOfMemory,
      fmt::format("the shared segment of {} ranks is {} of address space, but ulimit {} allows only {}: raise it "
                  "(the segment is sparse, what is not used costs nothing), or set AIACC_SLICE_BYTES",
                  ranks, bytes_text(bytes), option, bytes_text(limit.rlim_cur)));
}

// Another process made the segment. If that process could truncate it, the first load beyond its new end would kill this
// process (SIGBUS).
void require_sealed(int descriptor) {
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals >= 0 && (seals & F_SEAL_SHRINK) != 0) return;
  throw Error(Code::kProtocol, seals < 0
                                   ? "the descriptor that this rank was given is not an aiacc segment"
                                   : "the segment that this rank was given may be cut short by whoever holds it (it "
                                     "lacks F_SEAL_SHRINK): it is not what aiacc makes, and is not mapped");
}

void require_size(int descriptor, int ranks, std::uint64_t slice_bytes) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 62;  // bound for all slices together, so that no sum overflows
  struct stat about {};
  fstat(descriptor, &about);
  const bool possible = slice_bytes > 0 && slice_bytes % SegmentMapping::kHugePage == 0 &&
                        slice_bytes <= kMost / static_cast<std::uint64_t>(ranks);
  if (possible && static_cast<std::uint64_t>(about.st_size) == SegmentMapping::total_bytes(ranks, slice_bytes)) return;
  throw Error(Code::kProtocol,
              fmt::format("the host's segment has {} bytes, but one for {} ranks with {} bytes each has another size",
                          about.st_size, ranks, slice_bytes));
}

std::uint64_t mapped_bytes() {
  const std::string statm = read_host_file("/proc/self/statm").value_or("0");
  return std::strtoull(statm.c_str(), nullptr, 10) * SegmentMapping::kPage;
}

}  // namespace

// A slice has as much address space as the host has memory, rounded to a power of two, so that a rank can allocate all that
// the host can give. All slices together take at most a sixteenth of a process's address space.
std::uint64_t HostSegment::default_slice_bytes(int ranks, const ReadFile& read_file) {
  constexpr std::uint64_t kAddressSpace = std::uint64_t{1} << 43;
  const std::string info = read_file("/proc/meminfo").value_or("");
  const std::size_t total = info.find("MemTotal:");
  std::uint64_t kib = 0;
  if (total != std::string::npos) kib = std::strtoull(info.c_str() + total + 9, nullptr, 10);
  const std::uint64_t memory = std::bit_ceil(std::max<std::uint64_t>(kib << 10, std::uint64_t{1} << 30));
  return std::min(memory, std::bit_floor(kAddressSpace / static_cast<std::uint64_t>(ranks)));
}

HostSegment HostSegment::create(int ranks, std::uint64_t slice_bytes, std::uint64_t nonce) {
  return create(ranks, slice_bytes, nonce, read_host_file);
}

HostSegment HostSegment::create(int ranks, std::uint64_t slice_bytes, std::uint64_t nonce, const ReadFile& read_file) {
  if (ranks < 1 || ranks > SegmentHeader::kMaxRanks) {
    throw Error(Code::kInvalidArgument,
                fmt::format("a host's segment holds 1 to {} ranks, not {}", SegmentHeader::kMaxRanks, ranks));
  }
  if (slice_bytes == 0) slice_bytes = default_slice_bytes(ranks, read_file);
  slice_bytes = (slice_bytes + SegmentMapping::kHugePage - 1) / SegmentMapping::kHugePage * SegmentMapping::kHugePage;
  const std::uint64_t total = SegmentMapping::total_bytes(ranks, slice_bytes);
  require_limit(RLIMIT_FSIZE, "-f", 0, total, ranks);
  require_memory(kNeedPerRank * static_cast<std::uint64_t>(ranks), fmt::format("{} ranks on this host need", ranks),
                 read_file);

  Fd memfd(io::checked_descriptor(memfd_create("aiacc-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING),
                                  "cannot make the shared segment of this host"));
  if (ftruncate(memfd.get(), static_cast<off_t>(total)) != 0) {
    throw system_error(fmt::format("cannot give the shared segment its size, {}", bytes_text(total)), errno);
  }
  if (fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw system_error("cannot seal the size of the shared segment", errno);
  }

  SegmentHeader header;
  header.ranks = static_cast<std::uint32_t>(ranks);
  header.nonce = nonce;
  header.slice_bytes = slice_bytes;
  if (pwrite(memfd.get(), static_cast<const void*>(&header), sizeof header, 0) != sizeof header) {
    throw system_error("cannot write the header of the shared segment", errno);
  }
  return HostSegment(std::move(memfd), ranks, nonce);
}

std::shared_ptr<SegmentMapping> SegmentMapping::map(int descriptor, std::uint64_t nonce, int ranks) {
  require_sealed(descriptor);
  // The beginning of SegmentHeader, without its atomics, which are valid only in the mapped segment.
  struct Identity {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t ranks;
    std::uint64_t nonce;
    std::uint64_t slice_bytes;
  } header{};
  if (pread(descriptor, &header, sizeof header, 0) != sizeof header || header.magic != SegmentHeader::kMagic) {
    throw Error(Code::kProtocol, "the descriptor that this rank was given is not an aiacc segment");
  }
  if (header.version != SegmentHeader::kVersion || header.nonce != nonce ||
      header.ranks != static_cast<std::uint32_t>(ranks)) {
    throw Error(
        Code::kProtocol,
        fmt::format(
            "the host's segment is not the one that this rank was told to map: version {} for {} ranks, expected "
            "version {} for {} ranks{}",
            header.version, header.ranks, SegmentHeader::kVersion, ranks,
            header.nonce == nonce ? "" : ", and its nonce differs"));
  }
  require_size(descriptor, ranks, header.slice_bytes);
  const std::uint64_t total = total_bytes(ranks, header.slice_bytes);
  require_limit(RLIMIT_AS, "-v", mapped_bytes(), total, ranks);
  Mapping pages = Mapping::make(total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor);
  if (!pages) {
    const int reason = errno;
    throw Error(Code::kOutOfMemory,
                system_error(fmt::format("cannot map the host's segment, {} of address space, where a debugger such as "
                                         "valgrind, which has less of it, needs AIACC_SLICE_BYTES=64M",
                                         bytes_text(total)),
                             reason)
                    .message());
  }
  return std::shared_ptr<SegmentMapping>(new SegmentMapping(std::move(pages), ranks, header.slice_bytes));
}

SegmentMapping::SegmentMapping(Mapping pages, int ranks, std::uint64_t slice_bytes)
    : pages_(std::move(pages)), slices_(pages_.data() + slices_at(ranks)), slice_bytes_(slice_bytes), ranks_(ranks) {
  io::RealEntropy().fill(std::as_writable_bytes(std::span(&id_, 1)));
  id_ |= 1;
  // Huge pages where the administrator allows them for shared memory; otherwise this changes nothing.
  madvise(slices_, slice_bytes * static_cast<std::uint64_t>(ranks), MADV_HUGEPAGE);
}

std::uint64_t SegmentMapping::slices_at(int ranks) noexcept {
  const std::uint64_t control = kHeaderBytes + static_cast<std::uint64_t>(ranks) * kControlBytes;
  return (control + kHugePage - 1) / kHugePage * kHugePage;
}

std::uint64_t SegmentMapping::total_bytes(int ranks, std::uint64_t slice_bytes) noexcept {
  return slices_at(ranks) + static_cast<std::uint64_t>(ranks) * slice_bytes;
}

void populate(std::byte* begin, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = address / SegmentMapping::kPage * SegmentMapping::kPage;
  const std::size_t length =
      (address + bytes - first + SegmentMapping::kPage - 1) / SegmentMapping::kPage * SegmentMapping::kPage;
  if (madvise(reinterpret_cast<void*>(first), length, MADV_POPULATE_WRITE) == 0) return;
  const int reason = errno;
  if (reason != EINVAL) {
    throw Error(Code::kOutOfMemory,
                system_error(fmt::format("cannot get {} of shared memory", bytes_text(length)), reason).message());
  }
  // Before Linux 5.14: touches each page without changing its contents.
  for (std::size_t at = 0; at < length; at += SegmentMapping::kPage) {
    reinterpret_cast<std::atomic<char>*>(first + at)->fetch_or(0, std::memory_order_relaxed);
  }
}

}  // namespace aiacc
