// For tests of messages between ranks of a host: calls, operations that run at once, and ranks that have messages.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/intra/intra_messages_now.h"
#include "tests/host_world.h"

namespace aiacc::intra {

inline Call message(Collective kind, int peer, std::uint32_t tag, std::size_t count, DType type = DType::kInt32) {
  Call call;
  call.kind = kind;
  call.root = peer;
  call.tag = tag;
  call.count = count;
  call.reduction.type = type;
  return call;
}

// Operations that run concurrently, with their memory.
class Batch {
 public:
  Batch(Rank& rank, IntraMessages& post)
      : rank_(rank),
        post_(post),
        deadline_(rank.loop, after(rank.loop.now(), std::chrono::seconds(60)), stop_, "the messages do not arrive") {}

  void send(int to, std::uint32_t tag, std::size_t count, int value, bool shared = false) {
    std::int32_t* data = memory(count, shared);
    for (std::size_t i = 0; i < count; ++i) data[i] = value + static_cast<std::int32_t>(i);
    start(message(Collective::kSend, to, tag, count), {reinterpret_cast<std::byte*>(data), count * 4}, {});
  }
  std::int32_t* recv(int from, std::uint32_t tag, std::size_t count) {
    std::int32_t* data = memory(count, false);
    start(message(Collective::kRecv, from, tag, count), {}, {reinterpret_cast<std::byte*>(data), count * 4});
    return data;
  }
  void finish() {
    for (Task<void>& task : tasks_) rank_.loop.run_until([&task] { return task.done(); });
    for (Task<void>& task : tasks_) task.take();
    tasks_.clear();
  }

 private:
  std::int32_t* memory(std::size_t count, bool shared) {
    if (shared) {
      const HostRange range = rank_.domain.allocate(count * 4);
      return reinterpret_cast<std::int32_t*>(rank_.domain.view(rank_.rank(), range));
    }
    return memory_.emplace_back(count + 1).data();
  }
  void start(const Call& call, Buffer send, Buffer recv) {
    operations_.push_back(std::make_unique<Operation>(Operation{rank_.team, call, 0, stop_, send, recv}));
    Operation& operation = *operations_.back();
    tasks_.push_back(call.kind == Collective::kSend ? post_.send(operation) : post_.recv(operation));
    tasks_.back().start();
  }

  Rank& rank_;
  IntraMessages& post_;
  Stop stop_;
  Deadline deadline_;
  std::vector<std::vector<std::int32_t>> memory_;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<Task<void>> tasks_;
};

// As run_ranks(), each rank with an IntraMessages, which exists from before the first message until all ranks have received theirs.
inline void run_posts(int ranks, const std::function<void(Rank&, IntraMessages&)>& body) {
  std::barrier done(ranks);
  run_ranks(ranks, [&](Rank& rank) {
    const std::vector<int> all = Rank::every_rank(ranks);
    IntraMessages post(rank.domain, rank.team.view->id(), all, all, rank.rank());
    Stop stop;
    rank.loop.run(post.open(stop));
    done.arrive_and_wait();  // each has said what others may read
    body(rank, post);
    done.arrive_and_wait();
  });
}

inline void expect_message(const std::int32_t* data, std::size_t count, int value) {
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], value + static_cast<std::int32_t>(i)) << "element " << i;
}

}  // namespace aiacc::intra
