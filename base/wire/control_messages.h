// What the libraries of two ranks of different hosts say to each other beside the data, about a group or one of its
// operations. The header of the data connection names both; its payload is the message's type, a u16, and its fields.
//
//   GroupAborted                   the group is over; relayed by every member once
//   CallsDiffer → GroupAborted     the other end's call is not this rank's; the receiver knows both and ends the group
//   WhereIs → OperationState       straggler diagnosis; a receiver whose call differs ends the group
//   WhomFrom → ReceivesFrom        the search for ranks that only receive
//   Leaving → LeavingHeard         the sender leaves the job in order
//   ServiceRefused                 of a service message, as the payload of one (transports/service)
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace aiacc::wire {

inline constexpr std::size_t kMaxControlBytes = 8192;
inline constexpr std::size_t kMaxControlText = 4000;  // bytes of a sentence, or of the description of a call
inline constexpr std::size_t kMaxControlRanks = 896;  // of a list

// To every member. `rank` is the one that the error is about, in the group, or -1.
struct GroupAborted {
  static constexpr std::uint16_t kType = 411;
  std::int32_t code = 10;  // aiacc::Code
  std::int32_t rank = -1;
  std::int32_t other = -1;          // of a mismatch: the other rank
  std::vector<std::int32_t> about;  // if the error is about several ranks: all of them, ascending
  std::string sentence;
  auto fields() { return std::tie(code, rank, other, about, sentence); }
};

// About an operation, to a member whose message belongs to another call.
struct CallsDiffer {
  static constexpr std::uint16_t kType = 412;
  std::uint64_t fingerprint = 0;  // the receiver's, as the sender saw it
  std::string call;               // the sender's
  auto fields() { return std::tie(fingerprint, call); }
};

// How far is the receiver with this operation?
struct WhereIs {
  static constexpr std::uint16_t kType = 413;
  // Of a message between the sender of the question and the receiver, what the sender waits for.
  enum Half : std::uint8_t { kOther = 0, kReceive = 1, kSend = 2 };
  std::uint64_t fingerprint = 0;  // the sender's call
  Half half = kOther;             // that the receiver must call; kOther: none, or it is not between these two
  std::string call;
  auto fields() { return std::tie(fingerprint, half, call); }
};

struct OperationState {
  static constexpr std::uint16_t kType = 414;
  enum State : std::uint8_t {
    kWaiting = 0,  // for `rank`, or for somebody that `rank` holds up
    kNotBegun = 1,
    kFinished = 2,
    kWorking = 3,  // with the local peer `rank`, if there is one
    kNoGroup = 4,  // it has not created the group
    kFreed = 5,    // it has freed the group, or finalized, before it reached this operation, and never begins it
  };
  State state = kNotBegun;
  std::int32_t rank = -1;
  auto fields() { return std::tie(state, rank); }
};

// Does the receiver do nothing but receive in this group?
struct WhomFrom {
  static constexpr std::uint16_t kType = 415;
  auto fields() { return std::tie(); }
};

struct ReceivesFrom {
  static constexpr std::uint16_t kType = 416;
  static constexpr std::int32_t kAnyRank = -2;
  std::int32_t rank = -1;  // -1: it also does something else
  std::string call;
  auto fields() { return std::tie(rank, call); }
};

// The sender sends nothing more.
struct Leaving {
  static constexpr std::uint16_t kType = 417;
  auto fields() { return std::tie(); }
};

// The sender has heard so, and stays for a while.
struct LeavingHeard {
  static constexpr std::uint16_t kType = 418;
  auto fields() { return std::tie(); }
};

// Receiver → sender of a service message that was not delivered, as the payload of a service message with flag 2.
struct ServiceRefused {
  static constexpr std::uint16_t kType = 401;
  enum Reason : std::uint8_t {
    kUnknown = 1,  // no such subscription
    kEnded = 2,    // there was one
    kCredit = 3,   // the message exceeds the credit that the receiver grants
  };
  std::uint64_t number = 0;  // of the message
  std::uint64_t word = 0;    // as in the message
  std::uint64_t bytes = 0;   // of its payload
  Reason reason = kUnknown;
  std::uint64_t credit = 0;  // of kCredit: what the receiver grants
  auto fields() { return std::tie(number, word, bytes, reason, credit); }
};

}  // namespace aiacc::wire
