#include "runtime/attendance.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/io/net.h"
#include "base/io/resolve.h"

namespace aiacc {
namespace {

constexpr std::size_t kMostNamed = 16;      // ranks in one sentence
constexpr std::size_t kMostAddresses = 16;  // of a rank

// "tcp:[::ffff:10.0.0.5]:4242" → "10.0.0.5".
std::string numeric_of(const std::string& description) {
  constexpr std::string_view kMapped = "::ffff:";
  try {
    const std::string name = io::Address::parse(description).name;
    const std::string plain = name.starts_with(kMapped) ? name.substr(kMapped.size()) : name;
    return plain.find('.') != std::string::npos ? plain : name;
  } catch (const Error&) {
    return "";
  }
}

// Names up to kMostNamed.
class Names {
 public:
  void add(const std::string& name) {
    if (count_++ < kMostNamed) list_ += (list_.empty() ? "" : ", ") + name;
  }
  std::size_t count() const noexcept { return count_; }
  std::string text() const {
    return count_ > kMostNamed ? fmt::format("{} and {} more", list_, count_ - kMostNamed) : list_;
  }

 private:
  std::string list_;
  std::size_t count_ = 0;
};

// `from` is empty for rank 0 itself.
wire::RosterEntry entry_of(const wire::Arrive& said, const std::string& from) {
  wire::RosterEntry entry;
  entry.host_name = said.host_name;
  entry.addresses = said.addresses;
  if (entry.addresses.size() > kMostAddresses) entry.addresses.resize(kMostAddresses);
  entry.data_port = said.data_port;
  entry.local_name = said.local_name;
  entry.process = said.process;
  const std::string seen = from.empty() ? "" : numeric_of(from);
  entry.near = from.empty() || io::is_loopback(seen);
  if (seen.empty() || entry.near) return entry;
  std::erase(entry.addresses, seen);
  entry.addresses.insert(entry.addresses.begin(), seen);
  return entry;
}

}  // namespace

Attendance::Attendance(wire::Arrive me, std::string place)
    : me_(std::move(me)), place_(std::move(place)), guests_(static_cast<std::size_t>(me_.size)) {}

std::string Attendance::who(const wire::Arrive& said, const std::string& from) {
  return fmt::format("rank {} ({}{}{})", said.rank, said.host_name, from.empty() ? "" : ", ", from);
}

std::optional<Attendance::Refusal> Attendance::judge_version(const wire::Arrive& head, int rank,
                                                             const std::string& from) const {
  if (head.version == me_.version && head.protocol == me_.protocol) return std::nullopt;
  return Refusal{
      Error(Code::kMismatch,
            fmt::format("rank {} ({}) uses aiacc {} and rank 0 ({}) aiacc {}: all ranks of a job need the same "
                        "version",
                        rank, from, head.version, me_.host_name, me_.version)),
      true};
}

std::optional<Attendance::Refusal> Attendance::judge(const wire::Arrive& said, const std::string& from) const {
  const std::string name = who(said, from);
  if (said.job != me_.job) {
    return Refusal{
        Error(Code::kMismatch, fmt::format("{} is of the job '{}', and at {} the job '{}' meets: give each job "
                                           "a place of its own",
                                           name, said.job, place_, me_.job))};
  }
  if (said.size != me_.size) {
    return Refusal{
        Error(Code::kMismatch, fmt::format("{} says that the job has {} ranks, and rank 0 ({}) says {}: start "
                                           "all ranks with the same size, and each job at a place of its own",
                                           name, said.size, me_.host_name, me_.size)),
        true};
  }
  if (said.rank < 1 || said.rank >= me_.size) throw Error(Code::kProtocol, "it is no rank of this job");
  const std::optional<Guest>& holder = guests_[static_cast<std::size_t>(said.rank)];
  if (holder && holder->here && !knows(said)) {
    return Refusal{Error(Code::kInvalidState,
                         fmt::format("{} comes to {}, where rank {} is taken ({}): start one process a rank, and "
                                     "each job at a place of its own",
                                     name, place_, said.rank, who(holder->said, holder->from)))};
  }
  return std::nullopt;
}

bool Attendance::knows(const wire::Arrive& said) const {
  const std::optional<Guest>& before = guests_[static_cast<std::size_t>(said.rank)];
  return before && before->said.host_name == said.host_name && before->said.data_port == said.data_port &&
         before->said.local_name == said.local_name;
}

void Attendance::came(const wire::Arrive& said, const std::string& from) {
  guests_[static_cast<std::size_t>(said.rank)] = Guest{said, from, true};
}

std::string Attendance::host_address(int rank) const {
  const Guest& guest = *guests_[static_cast<std::size_t>(rank)];
  const std::string seen = numeric_of(guest.from);
  const std::vector<std::string>& named = guest.said.addresses;
  const bool own = named.empty() || std::find(named.begin(), named.end(), seen) != named.end();
  return own ? seen : named.front();
}

std::size_t Attendance::missing() const {
  return static_cast<std::size_t>(std::count_if(
      guests_.begin() + 1, guests_.end(), [](const std::optional<Guest>& guest) { return !guest || !guest->here; }));
}

std::string Attendance::text() const {
  Names here, left, away;
  here.add(who(me_, ""));
  for (std::size_t rank = 1; rank < guests_.size(); ++rank) {
    const std::optional<Guest>& guest = guests_[rank];
    if (guest) {
      (guest->here ? here : left).add(who(guest->said, guest->from));
    } else {
      away.add(fmt::format("{}", rank));
    }
  }
  std::string text = fmt::format("{} of {} ranks came to {}: {}", here.count(), me_.size, place_, here.text());
  if (left.count() > 0) text += fmt::format("; {} came and left", left.text());
  if (away.count() > 0) text += fmt::format("; rank{} {} did not", away.count() == 1 ? "" : "s", away.text());
  return text;
}

std::vector<wire::RosterEntry> Attendance::roster() const {
  std::vector<wire::RosterEntry> entries{entry_of(me_, "")};
  for (std::size_t rank = 1; rank < guests_.size(); ++rank) {
    entries.push_back(entry_of(guests_[rank]->said, guests_[rank]->from));
  }
  return entries;
}

}  // namespace aiacc
