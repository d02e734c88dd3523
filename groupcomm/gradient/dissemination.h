// Dissemination: how a word reaches all of n members in ceil(log_r n) steps without a root (Hensgen, Finkel, Manber 1988,
// with radix r as in Hoefler et al., "Fast barrier synchronization for InfiniBand", 2006).
//
// In step k, with distance d = r^k, each member sends the merge of all it has to the members at distances d, 2d ... (r-1)d
// above it, and gets those of the members at the same distances below. After step k it has the words of the r^(k+1) - 1
// members below it. For n that is no power of r some words are merged twice, which an idempotent merge does not mind.
//
// Cost for each member: at most (r-1) ceil(log_r n) messages, one after the other in ceil(log_r n) steps: 6 in 2 steps among
// 16 leaders with r = 4, whatever the number of ranks on their hosts.
#pragma once

#include <vector>

namespace aiacc::gradient {

struct DisseminationStep {
  std::vector<int> to;    // members that this one sends to
  std::vector<int> from;  // members whose messages it merges before the next step; as many
};

inline constexpr int kDisseminationRadix = 4;

// The steps of `member` among `members`; none for one member.
std::vector<DisseminationStep> dissemination_plan(int member, int members, int radix = kDisseminationRadix);

}  // namespace aiacc::gradient
