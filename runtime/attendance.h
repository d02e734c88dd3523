// Attendance: who has come to a meeting, as rank 0 keeps it: whom it lets in, the sentence for those who wait, the roster. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/wire/rendezvous_messages.h"

namespace aiacc {

class Attendance {
 public:
  // `me` is what rank 0 would say of itself, `place` names where they meet.
  Attendance(wire::Arrive me, std::string place);

  // Why a newcomer cannot take part. Where it shows that the job is not what its user meant, it ends for all.
  struct Refusal {
    Error why;
    bool for_all = false;
  };
  // `from` is its address as seen from here. Throws kProtocol for what no rank says. Whoever is known may come again, also
  // while its broken connection still looks like one.
  std::optional<Refusal> judge_version(const wire::Arrive& head, int rank, const std::string& from) const;
  std::optional<Refusal> judge(const wire::Arrive& said, const std::string& from) const;

  // It is the process that came as that rank before, perhaps on a new connection.
  bool knows(const wire::Arrive& said) const;

  // Of a rank that has come.
  const wire::Arrive& said(int rank) const { return guests_[static_cast<std::size_t>(rank)]->said; }

  // Where its host is found: at the address from which it came, if it names that as its own (otherwise somebody may stand
  // between), or at the first that it names.
  std::string host_address(int rank) const;

  void came(const wire::Arrive& said, const std::string& from);
  // It may come again.
  void went(int rank) { guests_[static_cast<std::size_t>(rank)]->here = false; }
  std::size_t missing() const;

  // "3 of 5 ranks came to PLACE: rank 0 (a), ...; rank 4 (b, ...) came and left; rank 2 did not".
  std::string text() const;
  std::vector<wire::RosterEntry> roster() const;

  // "rank 3 (node-7, tcp:192.0.2.7:40112)"
  static std::string who(const wire::Arrive& said, const std::string& from);

 private:
  struct Guest {
    wire::Arrive said;
    std::string from;
    bool here = true;
  };
  wire::Arrive me_;
  std::string place_;
  std::vector<std::optional<Guest>> guests_;  // by rank; mine is never there
};

}  // namespace aiacc
