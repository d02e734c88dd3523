// The pipeline of chunks through slots that algorithms use when buffers are private: each member copies what others need
// into its slots, which stay in cache, and others read it there.
//
// Chunk k of a pipeline uses slot k mod kSlots of every member. In step i of its loop a member fills chunk i, reduces its
// part of chunk i - 1, and copies out chunk i - 2: each wait is for what others did in an earlier step of theirs, so nobody
// waits in a circle, and a wait is usually over before it begins. With three slots, filling chunk i needs everybody to be
// done with chunk i - 3.
#pragma once

#include "collectives/host/meet.h"

namespace aiacc::host {

// A step that one member may take for one chunk of a pipeline.
enum class Stage : std::uint8_t { kFill, kReduce, kCopy };

class Pipeline {
 public:
  // `chunks` of this operation, the same number on every member.
  Pipeline(HostCall& call, std::uint64_t chunks) noexcept
      : call_(call), base_(call.team.chunks_before()), chunks_(chunks) {
    call.team.add_chunks(chunks);
  }

  std::uint64_t chunks() const noexcept { return chunks_; }
  std::byte* slot(int member, std::uint64_t chunk) const noexcept { return call_.team.slot(member, base_ + chunk); }
  std::byte* result_slot(int member, std::uint64_t chunk) const noexcept {
    return call_.team.result_slot(member, base_ + chunk);
  }

  // Every other member has finished `word` for `chunk`.
  Task<void> await_all(HostTeam::Word word, std::uint64_t chunk) const {
    return host::await_all(call_.op, word, base_ + chunk + 1);
  }
  HostDomain::FlagAwait await(int member, HostTeam::Word word, std::uint64_t chunk) const noexcept {
    return call_.domain.at_least(call_.team.progress_flag(member, word), base_ + chunk + 1, call_.op.stop);
  }
  void finished(HostTeam::Word word, std::uint64_t chunk) const noexcept {
    call_.team.publish(word, base_ + chunk + 1);
  }
  // The slot of `chunk` may be filled: everybody has finished `word` for the chunk that was there before.
  Task<void> await_free(HostTeam::Word word, std::uint64_t chunk) const {
    if (chunk >= HostTeam::kSlots) co_await await_all(word, chunk - HostTeam::kSlots);
  }

 private:
  HostCall& call_;
  std::uint64_t base_;
  std::uint64_t chunks_;
};

}  // namespace aiacc::host
