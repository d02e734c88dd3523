#include "launcher/hosts.h"

#include <fmt/format.h>

#include <algorithm>

namespace aiacc::launcher {

namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

std::string counted(std::size_t n, std::string_view noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); }

// The slots of this host; 0 when no list was given, which means any number.
int slots_of_list(const Options& options, const Surroundings& here) {
  int slots = 0;
  for (const HostSpec& host : options.hosts.value) {
    if (!is_this_host(host.name, here.host_name)) {
      throw UsageError(
          MessageId::kRemote,
          fmt::format("host {} is not this one ({}): this version starts ranks on this host only, other hosts "
                      "come in a later version; use -H localhost:N or leave -H out",
                      host.name, here.host_name));
    }
    slots += host.slots;
  }
  return slots;
}

int number_of_ranks(const Options& options, const Surroundings& here, int slots) {
  const int each = options.ranks_per_host.value;
  if (options.ranks.given()) {
    if (each != 0 && options.ranks.value > each) {
      throw UsageError(MessageId::kRanks,
                       fmt::format("{} ranks with -N {} need {} hosts, and there is one; raise -N or lower -np",
                                   options.ranks.value, each, (options.ranks.value + each - 1) / each));
    }
    return options.ranks.value;
  }
  if (each != 0) return each;
  if (slots != 0) return slots;
  throw UsageError(MessageId::kRanks, fmt::format("how many ranks? give -np N (this host has {})",
                                                  counted(here.topology.usable_cores(), "usable core")));
}

}  // namespace

bool is_this_host(const std::string& name, const std::string& host_name) {
  if (name == "127.0.0.1" || name == "::1") return true;
  if (same_name(name, "localhost") || same_name(name, host_name)) return true;
  // "c01" for "c01.cluster", and not the other way round: another domain may have a c01 too.
  return same_name(name, std::string_view(host_name).substr(0, host_name.find('.')));
}

std::vector<HostPlan> plan_hosts(const Options& options, const Surroundings& here) {
  const int slots = slots_of_list(options, here);
  const int ranks = number_of_ranks(options, here, slots);
  if (slots != 0 && ranks > slots && !options.oversubscribe.value) {
    throw UsageError(MessageId::kSlots,
                     fmt::format("{} for {} on {}; use -np {} or less, -H localhost:{}, or --oversubscribe",
                                 counted(static_cast<std::size_t>(ranks), "rank"),
                                 counted(static_cast<std::size_t>(slots), "slot"), here.host_name, slots, ranks));
  }
  return {HostPlan{here.host_name, slots, 0, ranks}};
}

}  // namespace aiacc::launcher
