// Groups: create, split, translate, abort, free.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "bindings/c/arguments.h"
#include "bindings/c/callbacks.h"
#include "bindings/c/guard.h"
#include "bindings/c/sized.h"
#include "bindings/c/submit.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/group/groups.h"
#include "runtime/real_context.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace {

constexpr std::size_t kLongestName = 200;

// Name, key and time-out of `attr`, which may be null.
GroupOrder read_group_attr(const aiacc_group_attr_t* attr) {
  GroupOrder order;
  if (attr == nullptr) return order;
  const aiacc_group_attr_t given = read_sized(*attr, offsetof(aiacc_group_attr_t, traffic_class), "aiacc_group_attr_t");
  if (given.name != nullptr) order.name.assign(given.name, strnlen(given.name, kLongestName));
  order.key = given.key;
  order.timeout = checked_timeout(given.timeout_ms, "aiacc_group_attr_t");
  order.traffic_class = checked_traffic_class(given.traffic_class, "aiacc_group_attr_t");
  return order;
}

void check_ranks(const Group& parent, std::span<const int> ranks) {
  std::vector<int> seen(static_cast<std::size_t>(parent.size()), -1);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    check_rank(fmt::format("ranks[{}]", i).c_str(), ranks[i], parent.size());
    int& before = seen[static_cast<std::size_t>(ranks[i])];
    if (before >= 0) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("ranks[{}] and ranks[{}] are both {}: a rank is in a group once", before, i, ranks[i]));
    }
    before = static_cast<int>(i);
  }
  if (seen[static_cast<std::size_t>(parent.rank())] < 0) {
    throw Error(Code::kInvalidArgument,
                fmt::format("this rank ({}) is not among the {} ranks given: a group is made by its members only",
                            parent.rank(), ranks.size()));
  }
}

// The contribution of each rank to a split.
struct Choice {
  std::int32_t color = 0;
  std::int32_t key = 0;
};

std::vector<Choice> exchange_choices(Group& parent, Choice mine) {
  std::vector<Choice> choices(static_cast<std::size_t>(parent.size()));
  Call call;
  call.kind = Collective::kAllgather;
  call.reduction.type = DType::kInt32;
  call.count = sizeof mine / sizeof(std::int32_t);
  CallOptions options;
  options.name = "aiacc_group_split";
  parent.run(call, buffer_of(&mine, sizeof mine), buffer_of(choices.data(), choices.size() * sizeof(Choice)), &options);
  return choices;
}

}  // namespace

extern "C" {

aiacc_status_t aiacc_group_create(aiacc_group_t parent, size_t n, const int* ranks, const aiacc_group_attr_t* attr,
                                  aiacc_group_t* group) {
  return guarded([&] {
    GroupPin pin = pinned(parent);
    check_place(group, "group");
    if (n == 0) throw Error(Code::kInvalidArgument, "n is 0: a group has at least the rank that makes it");
    if (ranks == nullptr)
      throw Error(Code::kInvalidArgument, fmt::format("ranks is NULL: pass {} ranks of the parent", n));
    if (n > static_cast<std::size_t>(pin->group.size())) {
      throw Error(Code::kInvalidArgument, fmt::format("n is {}, but the parent has {} ranks", n, pin->group.size()));
    }
    const std::span<const int> given(ranks, n);
    check_ranks(pin->group, given);
    GroupOrder order = read_group_attr(attr);
    order.ranks.assign(given.begin(), given.end());
    *group = name_group(pin->context, pin->context->make_group(pin->group, std::move(order)));
  });
}

aiacc_status_t aiacc_group_split(aiacc_group_t parent, int color, int key, const aiacc_group_attr_t* attr,
                                 aiacc_group_t* group) {
  return guarded([&] {
    refuse_to_block("aiacc_group_split");
    GroupPin pin = pinned(parent);
    check_place(group, "group");
    if (color < 0 && color != AIACC_NO_COLOR) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("color is {}: give 0 or more, or AIACC_NO_COLOR to be in no group", color));
    }
    GroupOrder order = read_group_attr(attr);
    order.sort = GroupOrder::Sort::kSplit;
    const std::vector<Choice> choices = exchange_choices(pin->group, {color, key});
    if (color == AIACC_NO_COLOR) {
      *group = AIACC_NULL;
      return;
    }
    for (int rank = 0; rank < pin->group.size(); ++rank) {
      if (choices[static_cast<std::size_t>(rank)].color == color) order.ranks.push_back(rank);
    }
    std::stable_sort(order.ranks.begin(), order.ranks.end(), [&](int one, int other) {
      return choices[static_cast<std::size_t>(one)].key < choices[static_cast<std::size_t>(other)].key;
    });
    *group = name_group(pin->context, pin->context->make_group(pin->group, std::move(order)));
  });
}

aiacc_status_t aiacc_group_free(aiacc_group_t group) {
  return guarded([&] {
    std::shared_ptr<RealContext> context;
    {
      GroupPin pin = pinned(group);
      context = pin->context;
      if (&pin->group == &context->world()) {
        throw Error(Code::kInvalidArgument,
                    "the world cannot be freed: it ends with aiacc_finalize or aiacc_context_destroy");
      }
      if (!free_group(std::move(pin), group)) throw unknown_group(group);
    }
    context->collect_groups();
  });
}

aiacc_status_t aiacc_group_abort(aiacc_group_t group, const char* reason) {
  return guarded([&] {
    GroupPin pin = pinned(group);
    pin->context->abort_group(pin->group, checked_reason(reason));
  });
}

aiacc_status_t aiacc_group_translate(aiacc_group_t from, size_t n, const int* ranks, aiacc_group_t to,
                                     int* translated) {
  return guarded([&] {
    const GroupPin here = pinned(from);
    const GroupPin there = pinned(to);
    if (here->context != there->context) {
      throw Error(Code::kInvalidArgument, "from and to are groups of two contexts: their ranks have nothing in common");
    }
    if (n > 0 && ranks == nullptr) throw Error(Code::kInvalidArgument, fmt::format("ranks is NULL, but n is {}", n));
    if (n > 0) check_place(translated, "translated");
    for (std::size_t i = 0; i < n; ++i) check_rank(fmt::format("ranks[{}]", i).c_str(), ranks[i], here->group.size());
    for (std::size_t i = 0; i < n; ++i) {
      translated[i] = there->group.view().rank_of(here->group.view().member(ranks[i]));
    }
  });
}

aiacc_status_t aiacc_group_sequence(aiacc_group_t group, uint64_t* sequence) {
  return guarded([&] {
    const GroupPin pin = pinned(group);
    check_place(sequence, "sequence");
    *sequence = pin->group.collectives();
  });
}

}  // extern "C"
