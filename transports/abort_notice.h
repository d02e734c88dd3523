// AbortNotice: the payload of a kAbort message, which ends a group on another member, asks for its half of a mismatch, asks
// what holds it up, or says goodbye.
//
// Little-endian: u16 stage, u16 code, i32 rank, i32 other, u64 fingerprint, u32 number of ranks in `about`, each as an i32,
// then the sentence in UTF-8, at most kMaxSentence bytes. The header names group and sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace aiacc {

struct AbortNotice {
  enum class Stage : std::uint16_t {
    kFinal = 1,  // the group is aborted: `code`, `rank` and `text` are the error
    // Members disagree about an operation: `text` describes the sender's call, `fingerprint` is that of the receiver's, as
    // the sender saw it. The receiver knows both halves now, makes the sentence, and aborts the group with it.
    kQuestion = 2,
    // An operation is stalled: where are you in it? `fingerprint` and `text` are the sender's call: who called something
    // else ends the group. Answered by kHere with a Whereabouts in `other`; if that is kWaiting, `rank` is whom the sender
    // waits for, or whom it suspects to hold that one up; if it is kWorking, whom it works with on its host, if anybody.
    kWhere = 3,
    kHere = 4,
    // The sender leaves the job in order and says no more. kHeard: the receiver of kLeaving stays a while longer.
    kLeaving = 5,
    kHeard = 6,
    // Do you only receive in this group? Answered by kReceiving: `rank` is from whom, kNoPeer if it does something else too,
    // kAnyRank if from any; `text` is the call.
    kWhom = 7,
    kReceiving = 8,
  };
  // kNoGroup: it has not made the group. kFreed: it had begun fewer operations when it freed it, so this one never begins.
  enum class Whereabouts : std::int32_t {
    kWaiting = 0,
    kNotBegun = 1,
    kFinished = 2,
    kWorking = 3,
    kNoGroup = 4,
    kFreed = 5
  };
  static constexpr std::int32_t kAnyRank = -2;
  static constexpr std::size_t kFixedBytes = 24;
  static constexpr std::size_t kMostAbout = 896;
  static constexpr std::size_t kMaxSentence = 4000;
  static constexpr std::size_t kMaxBytes = kFixedBytes + 4 * kMostAbout + kMaxSentence;

  Stage stage = Stage::kFinal;
  Code code = Code::kAborted;
  std::int32_t rank = kNoPeer;   // in the group: who the error is about
  std::int32_t other = kNoPeer;  // of a mismatch: the other one
  std::uint64_t fingerprint = 0;
  std::vector<std::int32_t> about;  // of an error about several ranks: all of them, ascending
  std::string text;

  std::vector<std::byte> encode() const;                                       // cuts a longer sentence or list
  static std::optional<AbortNotice> decode(std::span<const std::byte> bytes);  // nullopt: not a notice
};

}  // namespace aiacc
