// Collectives and messages with checked lengths and types. Part of aiacc.hpp.
#ifndef AIACC_CALLS_HPP
#define AIACC_CALLS_HPP

#include <aiacc/aiacc.h>
#include <aiacc/blocks.hpp>
#include <aiacc/elements.hpp>
#include <aiacc/error.hpp>
#include <aiacc/operators.hpp>
#include <aiacc/options.hpp>

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <type_traits>
#include <vector>

namespace aiacc {
inline namespace v0 {

// All collectives and messages of aiacc.h. They block if `Self` is Group, and start the operation if it is Async.
template <class Self>
class Calls {
 public:
  template <class Op, Operands<Op> S, Results<Op> R>
  auto allreduce(const S &send, R &&recv, const Op &op, const Options &options = {}) const {
    same_length(send, recv);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_allreduce(data(send), data(recv), count(send), type(send, op), detail::handle_of(op), group, attr,
                             request);
    });
  }
  template <class Op, Results<Op> R>
  auto allreduce(R &&in_place, const Op &op, const Options &options = {}) const {
    return allreduce(in_place, in_place, op, options);
  }

  // `recv` may be empty on other ranks than the root.
  template <class Op, Operands<Op> S, Results<Op> R>
  auto reduce(const S &send, R &&recv, const Op &op, int root, const Options &options = {}) const {
    if (self().rank() == root) same_length(send, recv);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_reduce(data(send), data(recv), count(send), type(send, op), detail::handle_of(op), root, group, attr,
                          request);
    });
  }

  template <Buffer R>
  auto broadcast(R &&buffer, int root, const Options &options = {}) const {
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_broadcast(data(buffer), count(buffer), type(buffer), root, group, attr, request);
    });
  }

  // `recv` holds send's length for each rank.
  template <Elements S, Buffer R>
  auto allgather(const S &send, R &&recv, const Options &options = {}) const {
    holds_blocks(recv, send);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_allgather(data(send), data(recv), count(send), type(send), group, attr, request);
    });
  }

  // `send` holds recv's length for each rank.
  template <class Op, Operands<Op> S, Results<Op> R>
  auto reduce_scatter(const S &send, R &&recv, const Op &op, const Options &options = {}) const {
    holds_blocks(send, recv);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_reduce_scatter(data(send), data(recv), count(recv), type(recv, op), detail::handle_of(op), group,
                                  attr, request);
    });
  }

  // As allgather, with blocks.counts()[r] elements of rank r.
  template <Elements S, Buffer R>
  auto allgatherv(const S &send, R &&recv, const Blocks &blocks, const Options &options = {}) const {
    same_type<S, R>();
    holds(recv, blocks);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_allgatherv(data(send), count(send), data(recv), blocks.counts().data(), blocks.displacements(),
                              type(send), group, attr, request);
    });
  }

  // As reduce_scatter, with counts[r] elements for rank r, in consecutive blocks.
  template <class Op, Operands<Op> S, Results<Op> R>
  auto reduce_scatterv(const S &send, R &&recv, std::span<const std::size_t> counts, const Op &op,
                       const Options &options = {}) const {
    same_type<S, R>();
    holds(send, counts);
    detail::require(count(recv) >= counts[static_cast<std::size_t>(self().rank())],
                    "recv is shorter than this rank's block");
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_reduce_scatterv(data(send), data(recv), counts.data(), type(send, op), detail::handle_of(op), group,
                                   attr, request);
    });
  }

  // A block of equal length for each rank, in both buffers; in place: the same buffer.
  template <Elements S, Buffer R>
  auto alltoall(const S &send, R &&recv, const Options &options = {}) const {
    same_length(send, recv);
    const std::size_t block = block_of(send);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_alltoall(data(send), data(recv), block, type(send), group, attr, request);
    });
  }

  // Block r of `out` goes to rank r, and block r of `in` comes from rank r.
  template <Elements S, Buffer R>
  auto alltoallv(const S &send, const Blocks &out, R &&recv, const Blocks &in, const Options &options = {}) const {
    same_type<S, R>();
    holds(send, out);
    holds(recv, in);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_alltoallv(data(send), out.counts().data(), out.displacements(), data(recv), in.counts().data(),
                             in.displacements(), type(send), group, attr, request);
    });
  }

  // `recv` holds send's length for each rank at the root, and may be empty elsewhere.
  template <Elements S, Buffer R>
  auto gather(const S &send, R &&recv, int root, const Options &options = {}) const {
    if (self().rank() == root) holds_blocks(recv, send);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_gather(data(send), data(recv), count(send), type(send), root, group, attr, request);
    });
  }

  // `send` holds recv's length for each rank at the root, and may be empty elsewhere.
  template <Elements S, Buffer R>
  auto scatter(const S &send, R &&recv, int root, const Options &options = {}) const {
    if (self().rank() == root) holds_blocks(send, recv);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_scatter(data(send), data(recv), count(recv), type(recv), root, group, attr, request);
    });
  }

  // As gather, with blocks.counts()[r] elements of rank r; `recv` and `blocks` may be empty on other ranks than the root.
  template <Elements S, Buffer R>
  auto gatherv(const S &send, R &&recv, const Blocks &blocks, int root, const Options &options = {}) const {
    same_type<S, R>();
    if (self().rank() == root) holds(recv, blocks);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_gatherv(data(send), count(send), data(recv), blocks.counts().data(), blocks.displacements(),
                           type(send), root, group, attr, request);
    });
  }

  // As scatter, with blocks.counts()[r] elements for rank r; `send` and `blocks` may be empty on other ranks than the root.
  template <Elements S, Buffer R>
  auto scatterv(const S &send, const Blocks &blocks, R &&recv, int root, const Options &options = {}) const {
    same_type<S, R>();
    if (self().rank() == root) holds(send, blocks);
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_scatterv(data(send), blocks.counts().data(), blocks.displacements(), data(recv), count(recv),
                            type(recv), root, group, attr, request);
    });
  }

  auto barrier(const Options &options = {}) const {
    return call(options, [&](auto group, auto attr, auto request) { return aiacc_barrier(group, attr, request); });
  }

  template <Elements S>
  auto send(const S &buffer, int to, std::uint32_t tag = 0, const Options &options = {}) const {
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_send(data(buffer), count(buffer), type(buffer), to, tag, group, attr, request);
    });
  }
  template <Buffer R>
  auto recv(R &&buffer, int from, std::uint32_t tag = 0, const Options &options = {}) const {
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_recv(data(buffer), count(buffer), type(buffer), from, tag, group, attr, request);
    });
  }

  // Sends and receives concurrently, so that a ring of ranks does not deadlock.
  template <Elements S, Buffer R>
  auto sendrecv(const S &send, int to, R &&recv, int from, std::uint32_t tag = 0, const Options &options = {}) const {
    same_type<S, R>();
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_sendrecv(data(send), count(send), to, tag, data(recv), count(recv), from, tag, type(send), group,
                            attr, request);
    });
  }
  // Receives the next message with this tag from any rank and sets `from`, which must stay valid until the operation
  // has completed.
  template <Buffer R>
  auto recv_any(R &&buffer, int &from, std::uint32_t tag = 0, const Options &options = {}) const {
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_recv_any(data(buffer), count(buffer), type(buffer), &from, tag, group, attr, request);
    });
  }

  // Many buffers of one type as one operation, each in place.
  template <class T, Reducing<T> Op>
  auto allreduce_grouped(std::span<const std::span<T>> buffers, const Op &op, const Options &options = {}) const {
    std::vector<void *> places;
    std::vector<std::size_t> counts;
    for (const std::span<T> &buffer : buffers) {
      places.push_back(buffer.data());
      counts.push_back(buffer.size());
    }
    return call(options, [&](auto group, auto attr, auto request) {
      return aiacc_allreduce_grouped(places.size(), const_cast<const void *const *>(places.data()), places.data(),
                                     counts.data(), detail::type_for<T>(op), detail::handle_of(op), group, attr,
                                     request);
    });
  }

 private:
  std::size_t block_of(const auto &blocks) const {
    const auto ranks = static_cast<std::size_t>(self().size());
    detail::require(count(blocks) % ranks == 0, "the buffer is no block of equal length for each rank of the group");
    return count(blocks) / ranks;
  }
  void holds(const auto &buffer, const Blocks &blocks) const {
    detail::require(blocks.counts().size() == static_cast<std::size_t>(self().size()),
                    "counts has not one number for each rank");
    detail::require(blocks.fit(count(buffer)),
                    blocks.displacements() == nullptr
                        ? "the buffer is shorter than its counts together"
                        : "a block ends after the buffer: look at its displacement and count");
  }
  const Self &self() const { return static_cast<const Self &>(*this); }
  template <class Submit>
  auto call(const Options &options, Submit &&submit) const {
    const aiacc_group_t group = self().handle();
    return self().submit(
        options, [&](const aiacc_attr_t *attr, aiacc_request_t *request) { return submit(group, attr, request); });
  }
  template <class R>
  static auto data(R &&range) {
    return std::ranges::data(range);
  }
  template <class R>
  static std::size_t count(const R &range) {
    return std::ranges::size(range);
  }
  template <class R>
  static aiacc_dtype_t type(const R &) {
    return dtype_of<std::ranges::range_value_t<R>>;
  }
  template <class R, class Op>
  static aiacc_dtype_t type(const R &, const Op &op) {
    return detail::type_for<std::ranges::range_value_t<R>>(op);
  }
  template <class A, class B>
  static constexpr bool one_type() {
    if constexpr (Element<A> && Element<B>) {
      return dtype_of<A> == dtype_of<B>;
    } else {
      return std::is_same_v<A, B>;
    }
  }
  template <class A, class B>
  static void same_type() {
    static_assert(one_type<std::ranges::range_value_t<A>, std::ranges::range_value_t<B>>(),
                  "send and recv hold elements of one type");
  }
  template <class A, class B>
  static void same_length(const A &send, const B &recv) {
    same_type<A, B>();
    detail::require(count(send) == count(recv), "send and recv differ in length: give buffers of equal length");
  }
  template <class A, class B>
  void holds_blocks(const A &blocks, const B &block) const {
    same_type<A, B>();
    detail::require(count(blocks) == count(block) * static_cast<std::size_t>(self().size()),
                    "the longer buffer does not hold the shorter one's length for each rank of the group");
  }
};

}  // namespace v0
}  // namespace aiacc

#endif
