// A user's program with the installed aiacc.hpp: as N ranks it uses everything that the header offers, and exits with
// 0.
#include <aiacc/aiacc.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace {

#define EXPECT(condition)                                                                                       \
  do {                                                                                                          \
    if (!(condition)) throw std::runtime_error(std::string(#condition) + ", line " + std::to_string(__LINE__)); \
  } while (0)

// The status of a call, and its error message if it threw.
struct End {
  aiacc_status_t status = AIACC_OK;
  std::string sentence;
  bool says(const char* words) const { return sentence.find(words) != std::string::npos; }
};
template <class Call>
End end_of(Call&& call) {
  try {
    call();
    return {};
  } catch (const aiacc::Error& error) {
    return {error.status(), error.what()};
  }
}

// A coroutine that starts at once, and whose end can be awaited by a thread.
struct Task {
  struct promise_type {
    std::promise<void> promise;
    Task get_return_object() { return {promise.get_future()}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() { promise.set_value(); }
    void unhandled_exception() { promise.set_exception(std::current_exception()); }
  };
  std::future<void> end;
};

std::vector<float> own_numbers(int rank, std::size_t count) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), static_cast<float>(rank));
  return numbers;
}

void try_blocking(const aiacc::Group& world) {
  const int rank = world.rank();
  const int size = world.size();
  const float ranks = static_cast<float>(size);
  const float all = ranks * (ranks - 1) / 2;
  const std::vector<float> send = own_numbers(rank, 1000);
  std::vector<float> recv(send.size());
  world.allreduce(send, recv, aiacc::sum);
  EXPECT(recv[0] == all && recv[999] == all + 999 * ranks);
  recv = send;
  world.allreduce(recv, aiacc::avg, {.name = "mean", .postscale = 2});
  EXPECT(recv[0] == all / ranks * 2);
  EXPECT(world.combined(rank, aiacc::max) == size - 1);
  EXPECT(world.combined(std::int64_t{1}, aiacc::sum) == size);

  std::array<double, 3> buffer{};
  if (rank == size - 1) buffer = {1, 2, 3};
  world.broadcast(buffer, size - 1);
  EXPECT(buffer[2] == 3);

  aiacc::Memory<std::int32_t> gathered(static_cast<std::size_t>(size) * 2);
  aiacc::Registration registered{std::span(buffer)};
  aiacc::Registration moved(std::move(registered));
  registered = aiacc::Registration(std::span(buffer));  // registers the same range again
  world.allgather(std::array<std::int32_t, 2>{rank, -rank}, gathered);
  for (int other = 0; other < size; ++other) EXPECT(gathered[static_cast<std::size_t>(other) * 2 + 1] == -other);
  std::array<std::int32_t, 2> block{};
  world.reduce_scatter(gathered, block, aiacc::sum);
  EXPECT(block[0] == rank * size && block[1] == -rank * size);
  std::vector<std::int32_t> at_root(rank == 0 ? 2 : 0);
  world.reduce(block, at_root, aiacc::sum, 0);
  if (rank == 0) EXPECT(at_root[0] == size * size * (size - 1) / 2);
  world.barrier();
}

// Blocks of different lengths: rank r's has r + 1 elements.
void try_blocks(const aiacc::Group& world) {
  const int rank = world.rank();
  const std::size_t size = static_cast<std::size_t>(world.size());
  const std::size_t own = static_cast<std::size_t>(rank);
  std::vector<std::size_t> counts(size);
  std::iota(counts.begin(), counts.end(), 1);
  std::vector<std::int64_t> all(size * (size + 1) / 2);
  world.allgatherv(std::vector<std::int64_t>(own + 1, rank), all, counts);
  EXPECT(all.front() == 0 && all.back() == static_cast<std::int64_t>(size) - 1);
  std::vector<std::int64_t> block(own + 1);
  world.reduce_scatterv(all, block, counts, aiacc::sum);
  EXPECT(block.back() == rank * static_cast<std::int64_t>(size));

  std::vector<std::uint8_t> to(size * 2, static_cast<std::uint8_t>(rank));
  std::vector<std::uint8_t> from(size * 2);
  world.alltoall(to, from);
  for (std::size_t i = 0; i < from.size(); ++i) EXPECT(from[i] == i / 2);
  const std::vector<std::size_t> sent(size, own + 1);  // this rank's number + 1 elements to each rank
  std::vector<float> out(size * (own + 1), static_cast<float>(rank));
  std::vector<float> in(size * (size + 1) / 2);
  world.async().alltoallv(out, sent, in, counts).wait();
  EXPECT(in.back() == static_cast<float>(size - 1));

  std::vector<double> at_root(rank == 0 ? size : 0);
  world.gather(std::array{rank * 1.5}, at_root, 0);
  if (rank == 0) EXPECT(at_root.back() == static_cast<double>(size - 1) * 1.5);
  std::array<double, 1> back{};
  world.scatter(at_root, back, 0);
  EXPECT(back[0] == rank * 1.5);

  const int root = world.size() - 1;
  if (rank != root) counts.clear();
  std::vector<float> blocks(rank == root ? size * (size + 1) / 2 : 0);
  world.gatherv(std::vector<float>(own + 1, static_cast<float>(rank)), blocks, counts, root);
  if (rank == root) EXPECT(blocks.front() == 0 && blocks.back() == static_cast<float>(root));
  std::vector<float> mine(own + 1, -1);
  world.async().scatterv(blocks, counts, mine, root).wait();
  EXPECT(mine == std::vector<float>(own + 1, static_cast<float>(rank)));
}

// The same with the blocks in reverse order and a gap between any two.
void try_displacements(const aiacc::Group& world) {
  const int rank = world.rank();
  const std::size_t size = static_cast<std::size_t>(world.size());
  const std::size_t own = static_cast<std::size_t>(rank);
  std::vector<std::size_t> counts(size);
  std::iota(counts.begin(), counts.end(), 1);
  std::vector<std::size_t> displacements(size);
  for (std::size_t other = size - 1; other-- > 0;)
    displacements[other] = displacements[other + 1] + counts[other + 1] + 1;
  const std::size_t elements = displacements[0] + counts[0];
  const auto holds = [&](const std::vector<std::int32_t>& all) {
    std::vector<std::int32_t> expected(elements, -1);
    for (std::size_t other = 0; other < size; ++other) {
      for (std::size_t i = 0; i < counts[other]; ++i) {
        expected[displacements[other] + i] = static_cast<std::int32_t>(other);
      }
    }
    return all == expected;
  };
  const std::vector<std::int32_t> mine(own + 1, rank);
  std::vector<std::int32_t> all(elements, -1);
  world.allgatherv(mine, all, {counts, displacements});
  EXPECT(holds(all));

  const int root = world.size() - 1;
  std::vector<std::int32_t> at_root(rank == root ? elements : 0, -1);
  world.async().gatherv(mine, at_root, {counts, displacements}, root).wait();
  if (rank == root) EXPECT(holds(at_root));
  std::vector<std::int32_t> back(own + 1, -1);
  world.scatterv(at_root, {counts, displacements}, back, root);
  EXPECT(back == mine);

  const std::vector<std::size_t> sent(size, own + 1);
  std::vector<std::size_t> to(size);
  for (std::size_t other = 0; other < size; ++other) to[other] = (size - 1 - other) * (own + 1);
  std::vector<std::int32_t> in(elements, -1);
  world.alltoallv(std::vector<std::int32_t>(size * (own + 1), rank), {sent, to}, in, {counts, displacements});
  EXPECT(holds(in));

  const auto status = [](const auto& call) {
    try {
      call();
    } catch (const aiacc::Error& error) {
      return error.status();
    }
    return AIACC_OK;
  };
  const std::vector<std::size_t> too_few(size + 1);
  std::vector<std::size_t> far = displacements;
  far[0] = static_cast<std::size_t>(-1);
  EXPECT(status([&] { world.allgatherv(mine, all, {counts, too_few}); }) == AIACC_ERR_INVALID_ARGUMENT);
  EXPECT(status([&] { world.allgatherv(mine, all, {counts, far}); }) == AIACC_ERR_INVALID_ARGUMENT);
}

// The count of numbers, the first and the last: combined by an operator that is not commutative.
struct Run {
  std::int64_t count;
  std::int32_t first;
  std::int32_t last;
};

void try_operators(const aiacc::Group& world) {
  const int rank = world.rank();
  const int size = world.size();
  aiacc::Operator<Run> made(
      [](Run& all, const Run& more) {
        all = {all.count + more.count, all.first, more.last};
      },
      {.name = "run"});
  const aiacc::Operator<Run> join = std::move(made);
  const Run run = world.combined(Run{1, rank, rank}, join);
  EXPECT(run.count == size && run.first == 0 && run.last == size - 1);
  const std::vector<Run> send(static_cast<std::size_t>(size) * 3, Run{2, rank, rank});
  std::vector<Run> block(3);
  world.reduce_scatter(send, block, join);
  EXPECT(block[2].count == 2 * size && block[2].last == size - 1);
  std::vector<Run> at_root(rank == 0 ? 3 : 0);
  aiacc::Request request = world.async().reduce(std::span<const Run>(block), at_root, join, 0);
  request.wait();
  if (rank == 0) EXPECT(at_root[2].count == 2 * size * size);
  std::vector<std::size_t> counts(static_cast<std::size_t>(size), 3);
  world.reduce_scatterv(send, block, counts, join);
  EXPECT(block[0].count == 2 * size && block[0].first == 0);
  const std::array<std::span<Run>, 1> one = {block};
  world.allreduce_grouped(std::span<const std::span<Run>>(one), join);
  EXPECT(block[1].count == 2 * size * size);

  std::vector<float> numbers(10'000, static_cast<float>(rank + 1));
  const aiacc::Operator<float> larger([](float& a, const float& b) { a = b > a ? b : a; }, {.commutative = true});
  world.allreduce(numbers, larger);  // in place, on an element type
  EXPECT(numbers[9'999] == static_cast<float>(size));
}

void try_requests(const aiacc::Group& world) {
  const int size = world.size();
  std::vector<std::vector<float>> buffers(8, std::vector<float>(100, 1));
  std::vector<aiacc::Request> requests;
  for (std::vector<float>& buffer : buffers) requests.push_back(world.async().allreduce(buffer, aiacc::sum));
  EXPECT(requests[3]);
  aiacc::wait_all(requests);
  EXPECT(!requests[3]);
  for (const std::vector<float>& buffer : buffers) EXPECT(buffer[99] == static_cast<float>(size));

  std::array<aiacc::Request, 2> two = {world.async().barrier(), world.async().barrier()};
  const std::optional<std::size_t> first = aiacc::wait_any(two);
  EXPECT(first && *first < 2 && !two[*first] && two[1 - *first]);
  while (!two[1 - *first].done()) std::this_thread::yield();
  EXPECT(aiacc::wait_any(two) == std::size_t{2});
  EXPECT(aiacc::wait_all(two));

  aiacc::Request barrier = world.async().barrier();
  while (!barrier.wait_for(std::chrono::milliseconds(50))) EXPECT(barrier);
  EXPECT(!barrier && barrier.done());
  barrier = world.async().barrier();
  while (barrier.look().status == AIACC_PENDING) std::this_thread::yield();
  EXPECT(barrier.look().status == AIACC_OK && barrier.look().sentence.empty());
  EXPECT(barrier.sequence() && *barrier.sequence() == world.sequence());
  barrier.wait();
  world.async().barrier().forget();

  std::future<void> future = world.async().barrier().future();
  future.get();
  aiacc::Request().future().get();  // an empty request: succeeds at once
  std::promise<bool> told;
  world.async().barrier().then([&told](const std::exception_ptr& error) { told.set_value(error == nullptr); });
  EXPECT(told.get_future().get());

  const int next = (world.rank() + 1) % size;
  const int before = (world.rank() + size - 1) % size;
  const std::uint16_t sent = static_cast<std::uint16_t>(world.rank());
  std::uint16_t got = 999;
  aiacc::Request sending = world.async().send(std::span(&sent, 1), next, 7);
  world.recv(std::span(&got, 1), before, 7);
  sending.wait();
  EXPECT(got == before);
  got = 999;
  world.sendrecv(std::span(&sent, 1), next, std::span(&got, 1), before);
  EXPECT(got == before);
  std::array<aiacc::Request, 1> receiving = {world.async().recv(std::span(&got, 1), before, 9)};
  EXPECT(!aiacc::wait_any(receiving, std::chrono::milliseconds(0)));  // nobody sends before the barrier
  EXPECT(!aiacc::wait_all(receiving, std::chrono::milliseconds(0)) && receiving[0]);
  world.barrier();
  world.send(std::span(&sent, 1), next, 9);
  EXPECT(aiacc::wait_any(receiving) == std::size_t{0});
  int from = -1;
  aiacc::Request to_next = world.async().send(std::span(&sent, 1), next, 8);
  world.recv_any(std::span(&got, 1), from, 8);
  to_next.wait();
  EXPECT(got == before && from == before);

  std::vector<float> one(3, 1), other(500, 2);
  const std::array<std::span<float>, 2> both = {one, other};
  world.allreduce_grouped(std::span<const std::span<float>>(both), aiacc::sum);
  EXPECT(one[2] == static_cast<float>(size) && other[499] == static_cast<float>(2 * size));
}

// Two consecutive steps: the coroutine that the end of the first resumes starts the second.
Task reduce_twice(const aiacc::Group& world, std::vector<double>& buffer, std::atomic<int>& steps) {
  co_await world.async().allreduce(buffer, aiacc::sum);
  ++steps;
  co_await world.async().allreduce(buffer, aiacc::sum);
  ++steps;
}

Task await_barrier(const aiacc::Group& group) { co_await group.async().barrier(); }

// A blocking call is refused in the callback thread, on which the coroutine continues after a wait.
Task block_after_wait(const aiacc::Group& world, std::vector<double>& buffer, aiacc_status_t& status) {
  const std::thread::id caller = std::this_thread::get_id();
  co_await world.async().allreduce(buffer, aiacc::sum);
  aiacc::Request request = world.async().barrier();
  // Otherwise the request had ended before the wait.
  if (std::this_thread::get_id() != caller) status = end_of([&] { request.wait(); }).status;
  co_await std::move(request);
}

void try_coroutines(const aiacc::Group& world) {
  std::vector<double> buffer(50'000, 1);
  std::atomic<int> steps = 0;
  Task task = reduce_twice(world, buffer, steps);
  task.end.get();
  const double size = world.size();
  aiacc_status_t status = AIACC_ERR_INVALID_STATE;
  std::vector<double> more(10, 1);
  block_after_wait(world, more, status).end.get();
  EXPECT(status == AIACC_ERR_INVALID_STATE);
  EXPECT(steps == 2 && buffer[0] == size * size && buffer[49'999] == size * size);
}

void try_groups(const aiacc::Group& world) {
  const int rank = world.rank();
  const int size = world.size();
  const std::optional<aiacc::Group> parity = world.split(rank % 2, -rank, {.name = "parity"});
  EXPECT(parity && parity->size() == (size + 1 - rank % 2) / 2);
  EXPECT(parity->combined(1, aiacc::sum) == parity->size());
  EXPECT(!world.split(std::nullopt));
  EXPECT(parity->translate(std::array{0}, world)[0] % 2 == rank % 2);

  const aiacc::Mesh mesh(world, {{"data", 1}, {"tensor", size}});
  EXPECT(mesh.coordinate("tensor") == rank && mesh.coordinate("data") == 0);
  EXPECT(mesh.group({"tensor"}).combined(rank, aiacc::sum) == size * (size - 1) / 2);
  const aiacc::Mesh stages = aiacc::Mesh::ordered(world, "tp-pp-dp", {1, 0, 1});
  EXPECT(stages.shift("pp", 1) == (rank + 1 < size ? rank + 1 : -1));
  EXPECT(stages.ends("pp").has_value() == (rank == 0 || rank == size - 1));
  EXPECT(stages.gradient_group({"pp"}).combined(rank, aiacc::sum) == rank);

  if (rank == 0) {
    const aiacc::Group alone = world.create(std::array{0});
    EXPECT(alone.size() == 1);
  }
  const std::array<int, 2> ends = {size - 1, 0};
  if (size > 1 && (rank == 0 || rank == size - 1)) {
    const aiacc::Group backwards = world.create(ends, {.name = "ends", .key = 7});
    EXPECT(backwards.rank() == (rank == 0 ? 1 : 0) && backwards.combined(rank, aiacc::sum) == size - 1);
    EXPECT(world.translate(ends, backwards) == (std::vector<int>{0, 1}));
    EXPECT(backwards.sequence() == 1);
  }
  aiacc::Group doomed = *world.split(0);
  doomed.abort("enough");
  const End blocking = end_of([&] { doomed.barrier(); });
  EXPECT(blocking.status == AIACC_ERR_ABORTED && blocking.says("enough"));
  EXPECT(end_of([&] { doomed.async().barrier().wait(); }).status == AIACC_ERR_ABORTED);
  EXPECT(end_of([&] { doomed.async().barrier().future().get(); }).status == AIACC_ERR_ABORTED);
  EXPECT(end_of([&] { await_barrier(doomed).end.get(); }).status == AIACC_ERR_ABORTED);
}

void try_errors(const aiacc::Group& world) {
  std::array<float, 2> two{};
  std::array<float, 3> three{};
  EXPECT(end_of([&] { world.allreduce(two, three, aiacc::sum); }).status == AIACC_ERR_INVALID_ARGUMENT);
  const End blocking = end_of([&] { world.broadcast(two, 77); });
  EXPECT(end_of([&] { world.gatherv(two, three, std::vector<std::size_t>(99), world.rank()); }).says("each rank"));
  EXPECT(blocking.status == AIACC_ERR_INVALID_ARGUMENT && blocking.says("77"));
  EXPECT(end_of([&] { world.async().broadcast(two, 77).wait(); }).status == AIACC_ERR_INVALID_ARGUMENT);
  world.barrier();  // errors in arguments leave the group usable
}

void try_threads() {
  std::vector<aiacc::Context> contexts = aiacc::Context::local(3);
  std::vector<std::thread> ranks;
  std::atomic<int> right = 0;
  for (aiacc::Context& context : contexts) {
    ranks.emplace_back([&context, &right] {
      right += context.world().combined(1, aiacc::sum) == 3 ? 1 : 0;
      context.finalize();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT(right == 3);
}

}  // namespace

static_assert(aiacc::dtype_of<char> == AIACC_INT8 || aiacc::dtype_of<char> == AIACC_UINT8);
static_assert(aiacc::dtype_of<unsigned long> == AIACC_UINT64 && aiacc::dtype_of<const short> == AIACC_INT16);
static_assert(aiacc::dtype_of<aiacc::bfloat16> == AIACC_BFLOAT16 && aiacc::dtype_of<bool> == AIACC_BOOL);
static_assert(!aiacc::Element<std::string> && !aiacc::Buffer<const std::vector<float>&>);
static_assert(aiacc::Reducing<aiacc_op_t, float> && !aiacc::Reducing<aiacc_op_t, Run>);
static_assert(aiacc::Reducing<aiacc::Operator<Run>, Run> && !aiacc::Reducing<aiacc::Operator<Run>, float>);

int main() {
  try {
    EXPECT(!aiacc::initialized() && !aiacc::version().empty());
    EXPECT(aiacc::info().front() == '{' && aiacc::info().find_last_of('}') != std::string::npos);
    aiacc::Context context;
    EXPECT(aiacc::initialized());
    const aiacc::Group world = context.world();
    try_blocking(world);
    try_blocks(world);
    try_displacements(world);
    try_operators(world);
    try_requests(world);
    try_coroutines(world);
    try_groups(world);
    try_errors(world);
    try_threads();
    context.finalize();
    std::puts("all is well");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
