// A part and its updaters against sequential models, over random interleavings.
#include "groupcomm/kv/part.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>

#include "groupcomm/kv/messages.h"
#include "groupcomm/kv/twobit.h"

namespace aiacc::kv {
namespace {

using Values = std::vector<float>;

ServiceBytes bytes_of(const Values& values) { return ServiceBytes::copy_of(std::as_bytes(std::span(values))); }

Values values_of(const Snapshot& snapshot) {
  Values values(snapshot->size() / sizeof(float));
  std::memcpy(values.data(), snapshot->data(), snapshot->size());
  return values;
}

Gradient dense(const Values& values) {
  Gradient gradient;
  gradient.storage = bytes_of(values);
  return gradient;
}

Gradient rows(std::vector<std::uint64_t> which, const Values& values) {
  Gradient gradient = dense(values);
  gradient.some = true;
  gradient.rows = std::move(which);
  return gradient;
}

const Reading kAll{Reading::What::kAll, {}};

struct TriedPart {
  explicit TriedPart(Mode mode, int workers, Values initial, std::uint64_t staleness = 0,
                     std::uint64_t row_elements = 1)
      : part("skey", {mode, workers, staleness}, {DType::kFloat32, initial.size() / row_elements, row_elements}, 0,
             std::make_shared<Version>(std::as_bytes(std::span(initial)), memory), memory) {}
  void push(int worker, Gradient gradient) { part.push(worker, ++id, std::move(gradient), kAll, updater, answers); }
  void pull(int worker) { part.pull(worker, ++id, kAll, answers); }
  std::vector<Answer> take() { return std::exchange(answers, {}); }

  UpdaterOptions updater;
  ServiceMemory memory;
  Part part;
  std::uint64_t id = 0;
  std::vector<Answer> answers;
};

// The payloads of answers are the version's own memory, which a change leaves alone while they are on their way.
TEST(KvPart, AnswersThatReadAllShareTheMemoryOfTheirVersion) {
  TriedPart store(Mode::kAsync, 2, {1, 2});
  store.updater.kind = UpdaterOptions::Kind::kSum;
  const auto payload = [&] {
    store.pull(0);
    return answer_bytes(store.take().at(0), store.memory);
  };
  const std::byte* own = nullptr;
  {
    const ServiceBytes one = payload(), two = payload();
    own = one.data();
    EXPECT_EQ(two.data(), own);
    store.push(1, dense({10, 20}));
    store.take();
    const AnswerView before(one.span());
    EXPECT_FALSE(before.error);
    EXPECT_EQ(0, std::memcmp(before.elements.data(), Values{1, 2}.data(), before.elements.size()));
    const ServiceBytes three = payload();
    own = three.data();
    EXPECT_NE(own, one.data());
    EXPECT_EQ(values_of(store.part.value()), (Values{11, 22}));
  }
  store.push(1, dense({1, 1}));
  store.take();
  const ServiceBytes last = payload();
  EXPECT_EQ(last.data(), own) << "nobody reads it any more, so it was changed in place";
  Values sent(2);
  std::memcpy(sent.data(), AnswerView(last.span()).elements.data(), 2 * sizeof(float));
  EXPECT_EQ(sent, (Values{12, 23}));
}

// Each worker pushes and pulls in an order of its own; what a pull sees is the value after as many rounds as the worker has pushed.
TEST(KvPart, SyncEqualsTheSequentialModelInAnyInterleaving) {
  for (std::uint32_t seed = 1; seed <= 2000; ++seed) {
    std::mt19937 random(seed);
    const int workers = 1 + static_cast<int>(random() % 5), rounds = 1 + static_cast<int>(random() % 6);
    const std::size_t elements = 1 + random() % 9;
    TriedPart store(Mode::kSync, workers, Values(elements, 1.0f));
    store.updater.kind = static_cast<UpdaterOptions::Kind>(random() % 3);
    store.updater.rate = 0.5;
    store.updater.momentum = random() % 2 == 0 ? 0 : 0.5;

    std::vector<std::vector<Values>> gradients(static_cast<std::size_t>(workers));
    for (auto& its : gradients) {
      for (int round = 0; round < rounds; ++round) {
        its.emplace_back(elements);
        for (float& value : its.back()) value = static_cast<float>(static_cast<int>(random() % 17) - 8) / 8;
      }
    }
    // The model: rounds one after the other, in double.
    std::vector<std::vector<double>> after{std::vector<double>(elements, 1.0)};
    std::vector<double> moved(elements, 0.0);
    for (int round = 0; round < rounds; ++round) {
      std::vector<double> value = after.back();
      for (std::size_t i = 0; i < elements; ++i) {
        double sum = 0;
        for (const auto& its : gradients) sum += its[static_cast<std::size_t>(round)][i];
        switch (store.updater.kind) {
          case UpdaterOptions::Kind::kAssign: value[i] = sum; break;
          case UpdaterOptions::Kind::kSum: value[i] += sum; break;
          default: value[i] += moved[i] = store.updater.momentum * moved[i] - 0.5 * sum;
        }
      }
      after.push_back(value);
    }

    struct Progress {
      int pushed = 0;
      bool waits = false;
    };
    std::vector<Progress> progress(static_cast<std::size_t>(workers));
    std::map<std::uint64_t, std::pair<int, int>> expected;  // by id: worker, and how many rounds it sees
    int open = workers * rounds;
    while (open > 0) {
      const int worker = static_cast<int>(random() % static_cast<std::uint32_t>(workers));
      Progress& its = progress[static_cast<std::size_t>(worker)];
      if (random() % 2 == 0) {
        store.pull(worker);
        expected[store.id] = {-1, its.pushed};
      } else if (!its.waits && its.pushed < rounds) {
        its.waits = true;
        store.push(worker, dense(gradients[static_cast<std::size_t>(worker)][static_cast<std::size_t>(its.pushed)]));
        expected[store.id] = {worker, ++its.pushed};
        --open;
      }
      for (const Answer& answer : store.take()) {
        ASSERT_FALSE(answer.error) << answer.error->message();
        const auto found = expected.find(answer.id);
        ASSERT_NE(found, expected.end()) << "answered twice";
        const Values have = values_of(answer.value);
        const std::vector<double>& want = after[static_cast<std::size_t>(found->second.second)];
        for (std::size_t i = 0; i < elements; ++i) ASSERT_EQ(have[i], want[i]) << "seed " << seed << " element " << i;
        if (found->second.first >= 0) progress[static_cast<std::size_t>(found->second.first)].waits = false;
        expected.erase(found);
      }
    }
    EXPECT_TRUE(expected.empty()) << "seed " << seed << ": " << expected.size() << " without an answer";
  }
}

// Answers that are sent later are what was read, also if the value has changed meanwhile.
TEST(KvPart, AsyncAppliesEachPushAtOnceAndAnswersKeepWhatTheyRead) {
  for (std::uint32_t seed = 1; seed <= 500; ++seed) {
    std::mt19937 random(seed);
    TriedPart store(Mode::kAsync, 3, Values(4, 0.0f));
    store.updater.kind = UpdaterOptions::Kind::kSum;
    Values model(4, 0.0f);
    std::deque<Values> wanted;
    for (int step = 0; step < 40; ++step) {
      const int worker = static_cast<int>(random() % 3);
      if (random() % 2 == 0) {
        Values gradient(4);
        for (std::size_t i = 0; i < 4; ++i) model[i] += gradient[i] = static_cast<float>(random() % 10);
        store.push(worker, dense(gradient));
      } else {
        store.pull(worker);
      }
      wanted.push_back(model);
    }
    const std::vector<Answer> answers = store.take();
    ASSERT_EQ(answers.size(), wanted.size());
    for (std::size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(values_of(answers[i].value), wanted[i]) << i;
  }
}

TEST(KvPart, BoundedLetsNobodyBeMoreThanTheStalenessAhead) {
  for (const std::uint64_t staleness : {0u, 1u, 3u}) {
    TriedPart store(Mode::kBounded, 2, Values(1, 0.0f), staleness);
    store.updater.kind = UpdaterOptions::Kind::kSum;
    for (std::uint64_t push = 0; push < staleness; ++push) {
      store.push(0, dense({1}));
      ASSERT_EQ(store.take().size(), 1u) << push;
    }
    store.push(0, dense({1}));
    store.pull(0);
    EXPECT_TRUE(store.take().empty()) << "it is " << staleness + 1 << " ahead";
    store.pull(1);  // the slow one reads what is there
    auto answers = store.take();
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(values_of(answers[0].value)[0], static_cast<float>(staleness + 1));
    store.push(1, dense({1}));
    EXPECT_EQ(store.take().size(), 3u);
    store.push(0, dense({1}));
    EXPECT_TRUE(store.take().empty());
    store.part.lost(1, Error(Code::kPeerFailed, "gone", 1), store.answers);
    EXPECT_EQ(store.take().size(), 1u) << "the dead hold nobody up";
  }
}

TEST(KvPart, ALostWorkerEndsTheRoundsThatItIsMissingFrom) {
  TriedPart store(Mode::kSync, 3, Values(2, 5.0f));
  store.push(0, dense({1, 1}));
  store.push(2, dense({2, 2}));
  const Error why(Code::kPeerFailed, "rank 2 is lost", 2);
  store.part.lost(2, why, store.answers);
  EXPECT_TRUE(store.take().empty()) << "it has given to this round";
  store.push(1, dense({4, 4}));
  auto answers = store.take();
  ASSERT_EQ(answers.size(), 2u);
  for (const Answer& answer : answers) EXPECT_EQ(values_of(answer.value), (Values{7, 7}));
  store.push(0, dense({1, 1}));
  answers = store.take();
  ASSERT_EQ(answers.size(), 1u);
  ASSERT_TRUE(answers[0].error);
  EXPECT_EQ(answers[0].error->peer(), 2);
  store.pull(1);
  answers = store.take();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(values_of(answers[0].value), (Values{7, 7})) << "what was summed can be read";
}

TEST(KvPart, OnlyTouchedRowsAreUpdated) {
  for (const Mode mode : {Mode::kSync, Mode::kAsync}) {
    TriedPart store(mode, 2, {1, 1, 2, 2, 3, 3, 4, 4}, 0, 2);
    store.updater.kind = UpdaterOptions::Kind::kSgd;
    store.updater.rate = 1;
    store.updater.decay = 0.5;  // would change rows that were not pushed
    store.push(0, rows({3, 1, 3}, {1, 1, 2, 2, 4, 4}));
    store.push(1, rows({}, {}));
    EXPECT_EQ(values_of(store.part.value()), (Values{1, 1, -1, -1, 3, 3, -3, -3}))
        << "a row that comes twice is summed";
  }
}

TEST(KvPart, AnUpdaterThatFailsIsToldToAllOfItsRound) {
  TriedPart store(Mode::kSync, 2, Values(2, 0.0f));
  store.updater.kind = UpdaterOptions::Kind::kCallback;
  int result = 3;
  store.updater.arg = &result;
  store.updater.function = [](void* arg, std::string_view, std::uint64_t, std::size_t count, DType,
                              const void* gradient, void* value) {
    std::memcpy(value, gradient, count * sizeof(float));
    return *static_cast<int*>(arg);
  };
  store.push(0, dense({1, 2}));
  store.push(1, dense({1, 2}));
  auto answers = store.take();
  ASSERT_EQ(answers.size(), 2u);
  for (const Answer& answer : answers) {
    ASSERT_TRUE(answer.error);
    EXPECT_NE(answer.error->message().find("updater returned 3 for key 'key'"), std::string::npos);
  }
  result = 0;
  store.push(0, dense({1, 2}));
  store.push(1, dense({1, 2}));
  answers = store.take();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(values_of(answers[0].value), (Values{2, 4})) << "the next round is whole";
}

TEST(KvPart, AnUpdaterThatThrowsIsToldToAllOfItsRound) {
  TriedPart store(Mode::kSync, 2, Values(2, 0.0f));
  store.updater.kind = UpdaterOptions::Kind::kCallback;
  for (const bool known : {true, false}) {
    bool throws = known;
    store.updater.arg = &throws;
    store.updater.function = [](void* arg, std::string_view, std::uint64_t, std::size_t, DType, const void*,
                                void*) -> int {
      if (*static_cast<bool*>(arg)) throw std::out_of_range("no such row");
      throw 7;
    };
    store.push(0, dense({1, 2}));
    store.push(1, dense({1, 2}));
    const auto answers = store.take();
    ASSERT_EQ(answers.size(), 2u);
    for (const Answer& answer : answers) {
      ASSERT_TRUE(answer.error);
      EXPECT_EQ(answer.error->code(), Code::kAborted);
      EXPECT_NE(answer.error->message().find(known ? "the updater threw 'no such row' for key 'key'"
                                                   : "the updater threw an exception that is no std::exception"),
                std::string::npos)
          << answer.error->message();
    }
  }
}

// Adam's first step has the size of the rate; two steps against the formula in double.
TEST(KvPart, AdamFollowsItsFormula) {
  TriedPart store(Mode::kAsync, 1, {1.0f});
  store.updater.kind = UpdaterOptions::Kind::kAdam;
  store.updater.rate = 0.1;
  double value = 1, mean = 0, square = 0;
  for (int step = 1; step <= 5; ++step) {
    const double gradient = 0.5 * step;
    store.push(0, dense({static_cast<float>(gradient)}));
    mean = 0.9 * mean + 0.1 * gradient;
    square = 0.999 * square + 0.001 * gradient * gradient;
    value -= 0.1 * std::sqrt(1 - std::pow(0.999, step)) / (1 - std::pow(0.9, step)) * mean / (std::sqrt(square) + 1e-8);
    EXPECT_NEAR(values_of(store.part.value())[0], value, 1e-5);
  }
}

// The example of MXNet's gradient_compression-inl.h: 16 values a word, the first in the highest bits of the first byte.
TEST(KvTwoBit, HasMxnetsBitLayoutAndResidual) {
  const Values gradient{0.6f, -0.7f, 0.1f, 0.5f, -0.5f};
  Values residual(5, 0.0f), decoded(5);
  std::byte word[4];
  ASSERT_EQ(twobit_bytes(5), sizeof word);
  twobit_encode(0.5f, gradient.data(), residual.data(), 5, word);
  EXPECT_EQ(word[0], std::byte{0b11100011});
  EXPECT_EQ(word[1], std::byte{0b10000000});
  EXPECT_EQ(word[2], std::byte{0});
  EXPECT_NEAR(residual[0], 0.1f, 1e-6);
  EXPECT_NEAR(residual[1], -0.2f, 1e-6);
  twobit_decode(0.5f, word, 5, decoded.data());
  EXPECT_EQ(decoded, (Values{0.5f, -0.5f, 0, 0.5f, -0.5f}));
  // What was not sent is sent later: nothing is lost but what is in the residual.
  std::mt19937 random(1);
  std::vector<double> given(5), sent(5);
  for (std::size_t i = 0; i < 5; ++i) given[i] = residual[i];
  for (int step = 0; step < 1000; ++step) {
    Values next(5);
    for (std::size_t i = 0; i < 5; ++i) given[i] += next[i] = static_cast<float>(random() % 100) / 250 - 0.2f;
    twobit_encode(0.5f, next.data(), residual.data(), 5, word);
    twobit_decode(0.5f, word, 5, decoded.data());
    for (std::size_t i = 0; i < 5; ++i) sent[i] += decoded[i];
  }
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(given[i], sent[i] + residual[i], 1e-3);
}

TEST(KvLayout, PartsCoverTheValueAndSmallOnesHaveOneOwner) {
  const LayoutRules rules{3, 1000, 4096};
  for (const std::uint64_t count : {0u, 1u, 999u, 1000u, 1001u, 5000u, 100'000u}) {
    const std::vector<PartPlace> parts = lay_out(key_of("w"), {DType::kFloat32, count, 1}, rules);
    std::uint64_t next = 0;
    std::map<int, std::uint64_t> of;
    for (const PartPlace& part : parts) {
      EXPECT_EQ(part.first_row, next);
      EXPECT_LE(part.rows * sizeof(float), rules.part_bytes);
      next += part.rows;
      of[part.server] += part.rows;
    }
    EXPECT_EQ(next, count);
    EXPECT_EQ(of.size(), count > rules.split_elements ? 3u : 1u) << count;
  }
  EXPECT_NE(key_of(std::int64_t{7}), key_of("7"));
  EXPECT_THROW(lay_out(key_of("w"), {DType::kFloat64, 2, 513}, rules), Error);
}

}  // namespace
}  // namespace aiacc::kv
