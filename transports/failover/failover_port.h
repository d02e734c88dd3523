// FailoverPort: two networks behind one port. Messages go over the first one; when it loses the path to a rank, that rank's messages go
// over the second one from then on, and none is lost or comes twice: each end keeps what the other has not received, and they tell each
// other what has come before they go on. After a hold-down, which doubles with each break, the two try the first network again, and go
// back to it if messages go both ways.
//
// Over the first network the receiver acknowledges messages: longer ones than kCopyBytes, which complete when that has come, at once, and
// shorter ones, which are copied, by the dozen. Over the second one nothing is added.
//
// The second network keeps messages itself when its connections break (TcpPort). It is not touched, and makes no connection, until
// the first one has broken.
#pragma once

#include <memory>

#include "transports/message.h"

namespace aiacc {

class FailoverPort final : public MessagePort {
 public:
  static constexpr std::size_t kCopyBytes = 32 << 10;  // a longer message completes when the peer has it

  struct Networks {
    std::unique_ptr<MessagePort> first;
    std::unique_ptr<MessagePort> second;
    std::string first_name, second_name;  // in sentences: "ucx"
    Duration failback{};                  // the first hold-down; zero: nothing goes back to the first network
  };

  // `names`: of the ranks, in sentences.
  FailoverPort(Loop& loop, Networks networks, int rank, std::vector<std::string> names);
  ~FailoverPort() override;

  void set_receiver(MessageReceiver& receiver) noexcept override;
  void post(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
            SendCompletion& completion) noexcept override;
  void post_now(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
                SendCompletion& completion) noexcept override;
  void release(int from_rank) noexcept override;
  void withdraw(SendCompletion& completion) noexcept override;
  void revoke(int from_rank, const MessageHeader& header) noexcept override;
  void lose(int rank, std::exception_ptr why) noexcept override;
  void encrypt() override;
  void authenticate() override;
  void count_traffic(std::vector<ConnectionTraffic>& counted) const override;
  std::uint64_t refused() const noexcept override;
  std::size_t chunk_bytes() const noexcept override;
  int chunks_in_flight(int to_rank) const noexcept override;
  void tell_remarks_to(std::function<void(const std::string&)> listener) override;
  void note_latency() noexcept override;
  std::string obstacle(int rank) const override;
  std::optional<BrokenPath> broken_path(int rank) const override;
  Task<void> leave(Duration limit, Stop& stop) override;
  void close() noexcept override;

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace aiacc
