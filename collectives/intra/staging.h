// Pipeline: chunks through slots, for algorithms on private buffers. Each member copies what others need into its
// slots, which stay in the cache, and others read it there.
//
// Chunk k of a pipeline uses slot k mod kSlots of every member. In step i of its loop a member fills chunk i, reduces
// its part of chunk i - 1, and copies out chunk i - 2: each wait is for an earlier step of the others, so there is no
// deadlock, and the condition usually holds already. With three slots, filling chunk i requires that all members are
// done with chunk i - 3.
#pragma once

#include "collectives/intra/arrive.h"

namespace aiacc::intra {

// The steps of a member for one chunk of a pipeline.
enum class Stage : std::uint8_t { kFill, kReduce, kCopy };

class Pipeline {
 public:
  // `chunks` of this operation, the same number on every member.
  Pipeline(IntraCall& call, std::uint64_t chunks) noexcept
      : call_(call), base_(call.team.chunks_before()), chunks_(chunks) {
    call.team.add_chunks(chunks);
  }

  std::uint64_t chunks() const noexcept { return chunks_; }
  std::byte* slot(int member, std::uint64_t chunk) const { return call_.team.slot(member, base_ + chunk); }
  std::byte* result_slot(int member, std::uint64_t chunk) const {
    return call_.team.result_slot(member, base_ + chunk);
  }

  // Waits until every other member has finished `word` for `chunk`.
  Task<void> await_all(IntraTeam::Word word, std::uint64_t chunk) const {
    return intra::await_all(call_.op, word, base_ + chunk + 1);
  }
  HostDomain::FlagAwait await(int member, IntraTeam::Word word, std::uint64_t chunk) const noexcept {
    return call_.domain.at_least(call_.team.progress_flag(member, word), base_ + chunk + 1, call_.op.stop);
  }
  void finished(IntraTeam::Word word, std::uint64_t chunk) const noexcept {
    call_.team.publish(word, base_ + chunk + 1);
  }
  // Waits until the slot of `chunk` may be filled: all members have finished `word` for the slot's previous chunk.
  Task<void> await_free(IntraTeam::Word word, std::uint64_t chunk) const {
    if (chunk >= IntraTeam::kSlots) co_await await_all(word, chunk - IntraTeam::kSlots);
  }

 private:
  IntraCall& call_;
  std::uint64_t base_;
  std::uint64_t chunks_;
};

}  // namespace aiacc::intra
