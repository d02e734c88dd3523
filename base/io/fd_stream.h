// FdStream: a Stream over a descriptor: sockets, pipes, terminals, files. Reads and writes are tried at once, and wait
// for an edge of readiness (edge-triggered epoll) only if the kernel is not ready; the descriptor is registered with
// the loop at the first wait. No write raises SIGPIPE.
#pragma once

#include <deque>
#include <string>

#include "base/fd.h"
#include "base/io/net.h"
#include "base/io/real_loop.h"
#include "base/io/silence_watch.h"

namespace aiacc::io {

class FdStream final : public Stream, private Watch, private Job, private Answerer, private SilenceWatch::Owner {
 public:
  // The system calls that move bytes.
  enum class Method : std::uint8_t {
    kSocket,       // send and recv with MSG_DONTWAIT
    kOwnFlags,     // read and write; O_NONBLOCK is set
    kSharedFlags,  // read and write on a shared file description: poll(2) first, then at most a page
  };
  FdStream(RealLoop& loop, Fd descriptor, Method method, std::string description);
  ~FdStream() override;

  void expect_answers() noexcept override;
  void keep_unsent_below(int bytes) noexcept override;
  FlowState flow() const noexcept override;
  void shutdown_write() noexcept override;
  std::optional<PeerIdentity> peer_identity() const noexcept override { return identity_; }
  std::string describe() const override { return description_; }
  int descriptor() const noexcept override { return descriptor_.get(); }

  RealLoop& owner() noexcept { return loop_; }

  // For a TCP connection: it breaks (ETIMEDOUT) when the other host does not acknowledge bytes for this long.
  void break_when_silent(Duration limit) noexcept;

  // For descriptor_passing.h. Unless they are accepted, the kernel drops descriptors that arrive.
  void accept_descriptors() noexcept { accepts_descriptors_ = true; }
  Fd take_descriptor() noexcept;
  // Sends a first part of `bytes` with `descriptor` on its first byte; 0 if it has to wait.
  std::size_t try_send_descriptor(std::span<const std::byte> bytes, int descriptor);

 private:
  static constexpr std::size_t kMaxUnclaimed = 4;

  Loop& loop() noexcept override { return loop_; }
  bool try_io(IoAwait& io) override;
  void begin_io(IoAwait& io) noexcept override;
  void cancel_io(IoAwait& io) noexcept override;
  void ready(Ready what) noexcept override;
  void run() noexcept override;  // serves a wait that was put off, or whose descriptor cannot be watched
  bool look_for_answer() noexcept override { return advance(reader_); }
  void silence_detected() noexcept override;

  IoAwait*& waiting(IoAwait::Direction direction) noexcept {
    return direction == IoAwait::Direction::kRead ? reader_ : writer_;
  }
  void add_waiter(IoAwait& io) noexcept;
  void remove_waiter(IoAwait::Direction direction) noexcept;
  bool move(IoAwait& io);
  bool advance(IoAwait*& waiting) noexcept;
  void has_read(std::size_t moved, std::size_t wanted) noexcept;
  ssize_t read_now(IoAwait& io) noexcept;
  ssize_t write_now(Piece piece) noexcept;
  ssize_t write_pieces(std::span<const Piece> pieces) noexcept;
  ssize_t receive_with_descriptors(IoAwait& io);
  [[noreturn]] void fail(IoAwait::Direction direction, int errno_value) const;

  RealLoop& loop_;
  Fd descriptor_;
  Method method_;
  bool watchable_ = true;
  bool deferred_ = false;  // the last try_io() did nothing, so that other work of this turn runs
  bool expects_answers_ = false;
  // For a stream that expects answers: the last read emptied it, and no edge has been seen since.
  bool drained_ = false;
  bool ended_ = false;  // end of stream: there will be no edge either
  bool silent_ = false;
  bool accepts_descriptors_ = false;
  std::string description_;
  std::optional<PeerIdentity> identity_;
  std::deque<Fd> unclaimed_;
  std::optional<SilenceWatch> silence_;
  IoAwait* reader_ = nullptr;
  IoAwait* writer_ = nullptr;
};

}  // namespace aiacc::io
