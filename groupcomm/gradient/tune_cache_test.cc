#include "groupcomm/gradient/tune_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace aiacc::gradient {
namespace {

class TuneCacheTest : public testing::Test {
 protected:
  TuneCacheTest() : folder_(testing::TempDir() + "/tune_cache_test") { std::filesystem::remove_all(folder_); }
  ~TuneCacheTest() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& text) const {
    std::filesystem::create_directories(folder_);
    std::ofstream(path()) << text;
  }
  std::string path() const { return folder_ + "/tune"; }

  std::string complaint_;

 private:
  std::string folder_;
};

const TuneCache::Entry kOne{{4 << 20, 2}, 25'000}, kTwo{{1 << 20, 8, 2}, 26'000};

TEST_F(TuneCacheTest, RemembersTheLastOfEachKey) {
  const TuneCache cache(path());
  EXPECT_EQ(cache.find(7, complaint_), std::nullopt);
  EXPECT_EQ(complaint_, "") << "no file is an empty one";
  EXPECT_EQ(cache.put(7, kOne), "");
  EXPECT_EQ(cache.put(~std::uint64_t{0}, kTwo), "");
  EXPECT_EQ(cache.find(7, complaint_), kOne);
  EXPECT_EQ(cache.find(~std::uint64_t{0}, complaint_), kTwo);
  EXPECT_EQ(cache.put(7, kTwo), "");
  EXPECT_EQ(cache.find(7, complaint_), kTwo);
  EXPECT_EQ(cache.find(8, complaint_), std::nullopt);
}

TEST_F(TuneCacheTest, ForgetsTheOldest) {
  const TuneCache cache(path());
  for (std::uint64_t key = 0; key <= TuneCache::kMostLines; ++key) ASSERT_EQ(cache.put(key, kOne), "");
  EXPECT_EQ(cache.find(0, complaint_), std::nullopt);
  EXPECT_EQ(cache.find(1, complaint_), kOne);
}

TEST_F(TuneCacheTest, IgnoresWhatIsNotWholeWithASentence) {
  const std::string good = "aiacc-tune 1\n0000000000000007 4194304 2 25000\n";
  write(good);
  const TuneCache cache(path());
  EXPECT_EQ(cache.find(7, complaint_), kOne);
  for (const std::string& bad :
       {std::string("\n"), std::string("aiacc-tune 2\n"), good + "7\n", good + "7 4194304 2 25000 1 1\n",
        good + "7 4194304 2 25000 ring\n", good + "7 4194304 2 25000 1x\n", good + "7 4194304 2 25000 -1\n",
        good + "7 4194304 2 25000 32\n", good + "7 4194304 65 25000\n", good + "7 0 2 25000\n",
        good + "7 4194304 2 -1\n", good + "z 4194304 2 25000\n", good + std::string(100'000, ' ')}) {
    write(bad);
    EXPECT_EQ(cache.find(7, complaint_), std::nullopt) << bad.substr(0, 100);
    EXPECT_EQ(complaint_, "'" + path() + "' is not a file of the tuner, or not whole: it is ignored");
    EXPECT_EQ(cache.put(7, kTwo), "");
    EXPECT_EQ(cache.find(7, complaint_), kTwo);
  }
}

TEST_F(TuneCacheTest, SaysWhyItCannotBeWritten) {
  write("");
  EXPECT_NE(TuneCache(path() + "/tune").put(7, kOne), "");
  EXPECT_EQ(TuneCache("").put(7, kOne), "") << "nothing is to be remembered";
}

}  // namespace
}  // namespace aiacc::gradient
