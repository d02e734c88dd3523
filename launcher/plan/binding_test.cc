#include "launcher/plan/binding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace aiacc::launcher {
namespace {

using CpuList = io::CpuList;

std::vector<std::string> texts(const Binding& binding) {
  std::vector<std::string> out;
  for (const CpuList& cpus : binding.cpus) out.push_back(format_cpus(cpus));
  return out;
}
using Texts = std::vector<std::string>;

const char* const kShapes[] = {
    "pu:1",
    "pu:5",
    "core:2 pu:1",
    "core:3 pu:2",
    "package:1 core:7 pu:1",
    "package:2 numa:1 core:4 pu:2",
    "package:2 numa:2 core:3 pu:1",
    "package:3 numa:1 core:5 pu:1",
    "package:2 core:4 pu:2(indexes=package:core)",
    "numa:4 core:1 pu:4",
    "package:2 numa:4 core:8 pu:2",
};

std::size_t core_of(const Topology& topology, unsigned pu) {
  for (std::size_t i = 0; i < topology.cores().size(); ++i) {
    const CpuList& pus = topology.cores()[i].pus;
    if (std::find(pus.begin(), pus.end(), pu) != pus.end()) return i;
  }
  ADD_FAILURE() << "unit " << pu << " is not usable";
  return 0;
}

std::set<std::size_t> cores_of(const Topology& topology, const CpuList& cpus) {
  std::set<std::size_t> cores;
  for (const unsigned pu : cpus) cores.insert(core_of(topology, pu));
  return cores;
}

TEST(AutoBinding, SharesAreEqualContiguousAndComplete) {
  for (const char* shape : kShapes) {
    const Topology topology = Topology::synthetic(shape);
    const std::size_t cores = topology.cores().size();
    for (std::size_t ranks = 1; ranks <= cores; ++ranks) {
      SCOPED_TRACE(std::string(shape) + ", ranks " + std::to_string(ranks));
      const Binding b = bind_ranks(static_cast<int>(ranks), MapBy::kSlot, BindTo::kAuto, topology);
      ASSERT_EQ(b.cpus.size(), ranks);
      EXPECT_EQ(b.unbound_because, "");
      std::size_t next = 0;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const std::set<std::size_t> mine = cores_of(topology, b.cpus[rank]);
        EXPECT_EQ(mine.size(), cores / ranks + (rank < cores % ranks ? 1 : 0));
        EXPECT_EQ(*mine.begin(), next);
        EXPECT_EQ(*mine.rbegin() - *mine.begin() + 1, mine.size());
        EXPECT_EQ(b.threads[rank], static_cast<int>(mine.size()));
        next += mine.size();
      }
      EXPECT_EQ(next, cores);
    }
  }
}

TEST(AutoBinding, DomainsInTurnNeverShareACore) {
  for (const char* shape : kShapes) {
    const Topology topology = Topology::synthetic(shape);
    for (const MapBy by : {MapBy::kNuma, MapBy::kPackage}) {
      for (std::size_t ranks = 1; ranks <= topology.cores().size(); ++ranks) {
        SCOPED_TRACE(std::string(shape) + " by " + std::string(name_of(by)) + ", ranks " + std::to_string(ranks));
        const Binding b = bind_ranks(static_cast<int>(ranks), by, BindTo::kAuto, topology);
        std::set<std::size_t> taken;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          ASSERT_FALSE(b.cpus[rank].empty());
          std::set<unsigned> domains;
          for (const std::size_t core : cores_of(topology, b.cpus[rank])) {
            EXPECT_TRUE(taken.insert(core).second) << "core " << core << " twice";
            domains.insert(by == MapBy::kNuma ? topology.cores()[core].numa : topology.cores()[core].package);
          }
          EXPECT_EQ(domains.size(), 1u);
        }
      }
    }
  }
}

TEST(AutoBinding, Examples) {
  const Topology two = Topology::synthetic("package:2 numa:1 core:4 pu:2");
  EXPECT_EQ(texts(bind_ranks(1, MapBy::kSlot, BindTo::kAuto, two)), Texts{"0-15"});
  EXPECT_EQ(texts(bind_ranks(2, MapBy::kSlot, BindTo::kAuto, two)), (Texts{"0-7", "8-15"}));
  EXPECT_EQ(texts(bind_ranks(3, MapBy::kSlot, BindTo::kAuto, two)), (Texts{"0-5", "6-11", "12-15"}));
  EXPECT_EQ(texts(bind_ranks(3, MapBy::kNuma, BindTo::kAuto, two)), (Texts{"0-3", "8-15", "4-7"}));
  EXPECT_EQ(bind_ranks(3, MapBy::kNuma, BindTo::kAuto, two).threads, (std::vector<int>{2, 4, 2}));
}

TEST(AutoBinding, OnlyAllowedUnitsAreUsed) {
  const Topology t = Topology::synthetic("package:2 numa:1 core:4 pu:2", {1, 2, 3, 14});
  EXPECT_EQ(texts(bind_ranks(2, MapBy::kSlot, BindTo::kAuto, t)), (Texts{"1-3", "14"}));
  EXPECT_EQ(texts(bind_ranks(3, MapBy::kSlot, BindTo::kAuto, t)), (Texts{"1", "2-3", "14"}));
}

TEST(AutoBinding, UnevenDomainsFillUp) {
  // Four cores in the first domain, one in the second: the second takes one rank only.
  const Topology t = Topology::synthetic("package:2 numa:1 core:4 pu:1", {0, 1, 2, 3, 4});
  EXPECT_EQ(texts(bind_ranks(5, MapBy::kNuma, BindTo::kAuto, t)), (Texts{"0", "4", "1", "2", "3"}));
}

TEST(AutoBinding, NothingWhenRanksOutnumberCores) {
  const Topology t = Topology::synthetic("core:4 pu:2");
  const Binding b = bind_ranks(5, MapBy::kSlot, BindTo::kAuto, t);
  EXPECT_EQ(b.cpus, std::vector<CpuList>(5));
  EXPECT_EQ(b.threads, std::vector<int>(5, 1));
  EXPECT_NE(b.unbound_because.find("5 ranks"), std::string::npos);
  EXPECT_NE(b.unbound_because.find("4 usable cores"), std::string::npos);
}

TEST(AutoBinding, NothingWhenAQuotaIsBelowTheMask) {
  Topology t = Topology::synthetic("core:64 pu:1");
  for (const auto& [quota, ranks, threads] :
       {std::tuple{4.0, 1, 4}, {4.0, 2, 2}, {4.0, 3, 1}, {4.0, 8, 1}, {0.5, 1, 1}, {7.9, 2, 3}, {63.0, 1, 63}}) {
    t.set_quota(Topology::Quota{quota, "/groups/cpu.max"});
    const Binding b = bind_ranks(ranks, MapBy::kSlot, BindTo::kAuto, t);
    EXPECT_EQ(b.cpus, std::vector<CpuList>(static_cast<std::size_t>(ranks)));
    EXPECT_EQ(b.threads, std::vector<int>(static_cast<std::size_t>(ranks), threads)) << quota << " / " << ranks;
    EXPECT_NE(b.unbound_because.find("/groups/cpu.max"), std::string::npos);
  }
  t.set_quota(Topology::Quota{64, "/groups/cpu.max"});
  EXPECT_EQ(texts(bind_ranks(2, MapBy::kSlot, BindTo::kAuto, t)), (Texts{"0-31", "32-63"}));
}

TEST(ExplicitBinding, ACoreEach) {
  const Topology t = Topology::synthetic("package:2 numa:1 core:4 pu:2");
  EXPECT_EQ(texts(bind_ranks(2, MapBy::kSlot, BindTo::kCore, t)), (Texts{"0-1", "8-9"}));
  EXPECT_EQ(texts(bind_ranks(3, MapBy::kCore, BindTo::kCore, t)), (Texts{"0-1", "2-3", "4-5"}));
  EXPECT_EQ(texts(bind_ranks(3, MapBy::kPackage, BindTo::kCore, t)), (Texts{"0-1", "8-9", "2-3"}));
  EXPECT_EQ(bind_ranks(3, MapBy::kCore, BindTo::kCore, t).threads, std::vector<int>(3, 1));
  const Binding crowded = bind_ranks(9, MapBy::kCore, BindTo::kCore, t);
  EXPECT_EQ(crowded.cpus, std::vector<CpuList>(9));
  EXPECT_NE(crowded.unbound_because, "");
}

TEST(ExplicitBinding, DomainsMayBeShared) {
  const Topology t = Topology::synthetic("package:2 numa:2 core:3 pu:1");  // 12 cores; domains 0-2, 3-5, 6-8, 9-11
  EXPECT_EQ(texts(bind_ranks(4, MapBy::kSlot, BindTo::kNuma, t)), (Texts{"0-2", "3-5", "6-8", "9-11"}));
  EXPECT_EQ(texts(bind_ranks(4, MapBy::kCore, BindTo::kNuma, t)), (Texts{"0-2", "0-2", "0-2", "3-5"}));
  EXPECT_EQ(bind_ranks(4, MapBy::kCore, BindTo::kNuma, t).threads, (std::vector<int>{1, 1, 1, 3}));
  EXPECT_EQ(texts(bind_ranks(3, MapBy::kPackage, BindTo::kPackage, t)), (Texts{"0-5", "6-11", "0-5"}));
  EXPECT_EQ(texts(bind_ranks(3, MapBy::kPackage, BindTo::kNuma, t)), (Texts{"0-2", "6-8", "0-2"}));
  EXPECT_EQ(bind_ranks(3, MapBy::kPackage, BindTo::kPackage, t).threads, (std::vector<int>{3, 6, 3}));
  const Binding many = bind_ranks(100, MapBy::kNuma, BindTo::kNuma, t);
  EXPECT_EQ(many.unbound_because, "");
  EXPECT_EQ(texts(many)[99], "9-11");
  EXPECT_EQ(many.threads, std::vector<int>(100, 1));
}

TEST(ExplicitBinding, IsHonouredUnderAQuotaWithFewerThreads) {
  Topology t = Topology::synthetic("package:2 numa:1 core:8 pu:1");
  t.set_quota(Topology::Quota{4, "cpu.max"});
  const Binding b = bind_ranks(2, MapBy::kNuma, BindTo::kNuma, t);
  EXPECT_EQ(texts(b), (Texts{"0-7", "8-15"}));
  EXPECT_EQ(b.threads, (std::vector<int>{2, 2}));
}

TEST(NoBinding, ThreadsAreAnEqualShare) {
  const Topology t = Topology::synthetic("core:8 pu:2");
  EXPECT_EQ(bind_ranks(3, MapBy::kSlot, BindTo::kNone, t).threads, std::vector<int>(3, 2));
  EXPECT_EQ(bind_ranks(3, MapBy::kSlot, BindTo::kNone, t).cpus, std::vector<CpuList>(3));
}

TEST(EveryBinding, StaysWithinTheUsableUnits) {
  for (const char* shape : kShapes) {
    const Topology topology = Topology::synthetic(shape);
    for (const MapBy by : {MapBy::kSlot, MapBy::kCore, MapBy::kNuma, MapBy::kPackage}) {
      for (const BindTo to : {BindTo::kAuto, BindTo::kCore, BindTo::kNuma, BindTo::kPackage, BindTo::kNone}) {
        for (const int ranks : {1, 2, 3, 5, 7, 8, 17, 64, 200}) {
          SCOPED_TRACE(std::string(shape) + " " + std::string(name_of(by)) + " " + std::string(name_of(to)));
          const Binding b = bind_ranks(ranks, by, to, topology);
          ASSERT_EQ(b.cpus.size(), static_cast<std::size_t>(ranks));
          ASSERT_EQ(b.threads.size(), static_cast<std::size_t>(ranks));
          for (const CpuList& cpus : b.cpus) {
            EXPECT_EQ(cpus.empty(), !b.unbound_because.empty());
            EXPECT_TRUE(std::is_sorted(cpus.begin(), cpus.end()));
            EXPECT_NO_FATAL_FAILURE(cores_of(topology, cpus));
          }
          for (const int threads : b.threads) EXPECT_GE(threads, 1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace aiacc::launcher
