// The installed aiacc.hpp, as a user's program: started as N ranks it tries what the header offers, and ends with 0.
#include <aiacc/aiacc.hpp>

#include <array>
#include <atomic>
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

// How a call ended, and what was said if it threw.
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

// Blocks with a length of their own: rank r's has r + 1 elements.
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
  const std::vector<std::size_t> sent(size, own + 1);  // to everybody as many as this rank's number and one
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

  aiacc::Request barrier = world.async().barrier();
  while (!barrier.done()) std::this_thread::yield();
  EXPECT(!barrier && barrier.done());
  barrier = world.async().barrier();
  while (!barrier.wait_for(std::chrono::milliseconds(50))) EXPECT(barrier);

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

void try_errors(const aiacc::Group& world) {
  std::array<float, 2> two{};
  std::array<float, 3> three{};
  EXPECT(end_of([&] { world.allreduce(two, three, aiacc::sum); }).status == AIACC_ERR_INVALID_ARGUMENT);
  const End blocking = end_of([&] { world.broadcast(two, 77); });
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

int main() {
  try {
    aiacc::Context context;
    const aiacc::Group world = context.world();
    try_blocking(world);
    try_blocks(world);
    try_requests(world);
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
