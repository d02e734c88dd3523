// The file of AIACC_ALGORITHM_TABLE: what rank 0 reads of it, and what all ranks take.
#include "runtime/bootstrap/algorithm_table_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "runtime/bootstrap/bootstrap.h"
#include "transports/port_factory.h"

namespace aiacc {
namespace {

const std::string kTable =
    "aiacc-algorithm-table 1\nmeasured-on a b\ntransport none\nstreams 1\nencrypt none\n"
    "allreduce 2 plain 0 4096 ring\nend\n";

class AlgorithmTableFileTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& text) const {
    std::string path = std::string(folder_) + "/table";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  AlgorithmTableFile read(const std::string& path) const {
    config_.algorithm_table = path;
    return read_algorithm_table(config_);
  }
  std::string folder() const { return folder_; }
  mutable RuntimeConfig config_;

 private:
  char folder_[32] = "/tmp/aiacc-table-XXXXXX";
};

class NoNetwork final : public PortFactory {
 public:
  std::string_view transport() const noexcept override { return "none"; }
  std::vector<std::uint8_t> address() const override { return {}; }
  std::unique_ptr<MessagePort> open(PortWorld) override { return nullptr; }
};

// A rank of two hosts with `local_ranks` each, which rank 0 told `table`.
BootstrapResult rank_with(int rank, int local_ranks, const std::string& table) {
  const auto networks_with = [](const std::string& given) {
    NetworkPorts networks;
    networks.add(std::make_unique<NoNetwork>());
    networks.take_from_rank_0("AIACC_ALGORITHM_TABLE", given);
    return networks;
  };
  std::vector<Member> members;
  std::vector<wire::RankPorts> ranks;
  PortWorld world;
  for (int each = 0; each < 2 * local_ranks; ++each) {
    members.push_back({static_cast<std::uint32_t>(each), 0, static_cast<std::uint32_t>(each / local_ranks)});
    ranks.push_back(networks_with(each == 0 ? table : "").addresses());
    world.peers.push_back({"rank " + std::to_string(each), {}, {}});
  }
  NetworkPorts networks = networks_with("");
  networks.open(std::move(world), ranks);
  BootstrapResult bootstrapped;
  bootstrapped.rank = rank;
  bootstrapped.world = std::make_shared<const View>(1, 0, 0, 0, std::move(members));
  take_algorithm_table(networks, bootstrapped);
  return bootstrapped;
}

TEST_F(AlgorithmTableFileTest, Rank0ReadsItAndAllTakeIt) {
  EXPECT_EQ(read("").text, "");
  EXPECT_EQ(read("").complaint, "");
  const AlgorithmTableFile table = read(file(kTable));
  EXPECT_EQ(table.complaint, "");
  EXPECT_EQ(table.text.find("measured-on"), std::string::npos) << "the hosts' names need not travel";
  for (const int rank : {0, 3}) {
    const BootstrapResult bootstrapped = rank_with(rank, 2, table.text);
    ASSERT_TRUE(bootstrapped.algorithm_table.has_value());
    EXPECT_EQ(bootstrapped.algorithm_table->choices().size(), 1u);
    EXPECT_TRUE(bootstrapped.remarks.empty());
  }
  EXPECT_FALSE(rank_with(1, 2, "").algorithm_table.has_value());
}

TEST_F(AlgorithmTableFileTest, ABadOneIsOneSentenceAndNoError) {
  const auto complaint = [&](const std::string& path) {
    const AlgorithmTableFile table = read(path);
    EXPECT_EQ(table.text, "");
    return table.complaint;
  };
  const std::string none = folder() + "/none";
  EXPECT_EQ(complaint(none),
            "AIACC_ALGORITHM_TABLE='" + none + "': No such file or directory; algorithms are chosen as without it");
  EXPECT_EQ(complaint(folder()),
            "AIACC_ALGORITHM_TABLE='" + folder() + "': it is no regular file; algorithms are chosen as without it");
  const std::string half = file(kTable.substr(0, kTable.size() - 5));
  EXPECT_EQ(complaint(half), "AIACC_ALGORITHM_TABLE='" + half +
                                 "': it is not whole: its last line is not 'end'; algorithms are chosen as without it");
  EXPECT_NE(complaint(file(std::string(1 << 20, 'x'))).find("it has 65537 bytes"), std::string::npos);
  EXPECT_NE(complaint("/dev/zero").find("no regular file"), std::string::npos);
}

TEST_F(AlgorithmTableFileTest, OneOfOtherSettingsIsNotUsed) {
  const std::string path = file(kTable);
  config_.encryption = Encryption::kData;
  EXPECT_EQ(read(path).complaint, "AIACC_ALGORITHM_TABLE='" + path +
                                      "': it was measured with AIACC_ENCRYPT none, and this job has data; algorithms "
                                      "are chosen as without it");
  config_.encryption = Encryption::kNone;
  config_.tcp_streams_text = "auto";
  EXPECT_EQ(read(path).complaint, "") << "streams are those of TCP";
  std::string over_tcp = kTable;
  over_tcp.replace(over_tcp.find("none"), 4, "tcp");
  EXPECT_NE(read(file(over_tcp)).complaint.find("measured with AIACC_TCP_STREAMS 1, and this job has auto"),
            std::string::npos);
}

TEST_F(AlgorithmTableFileTest, OneOfAnotherNetworkIsNotUsedByAnyRank) {
  for (const int rank : {0, 1}) {
    std::string over_tcp = kTable;
    over_tcp.replace(over_tcp.find("none"), 4, "tcp");
    const BootstrapResult other = rank_with(rank, 2, over_tcp);
    EXPECT_FALSE(other.algorithm_table.has_value());
    ASSERT_EQ(other.remarks.size(), rank == 0 ? 1u : 0u);
    if (rank != 0) continue;
    EXPECT_EQ(other.remarks[0],
              "AIACC_ALGORITHM_TABLE: it was measured with transport tcp, and this job has none; algorithms are chosen "
              "as without it");
  }
}

// Rank 0 is of another build: with a table of its own each would wait for messages of different algorithms.
TEST_F(AlgorithmTableFileTest, ARankThatCannotReadItEndsTheJob) {
  try {
    rank_with(1, 2, "aiacc-algorithm-table 9\n");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kProtocol);
    EXPECT_EQ(error.message(),
              "rank 0's AIACC_ALGORITHM_TABLE: it has version 9, and this build reads version 1; make it again with "
              "aiacc-tune");
  }
}

}  // namespace
}  // namespace aiacc
