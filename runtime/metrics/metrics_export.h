// MetricsExport: gives a rank's numbers to Prometheus, by HTTP or in a file that is replaced every 5 s.
//
// The HTTP server answers GET of /metrics and /, and refuses everything else: one request a connection, of at most 8 KiB, in at
// most 5 s, and at most 16 connections at a time. It is a work of the lane, so a rank that computes answers too.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/io/net.h"
#include "base/task/lane.h"
#include "base/task/scope.h"

namespace aiacc {

// What AIACC_METRICS says: host:port, :port or a port, or a path, which has a slash.
struct MetricsPlace {
  std::string file;  // empty: a port
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;

  // With this rank's number in it. Throws kInvalidArgument.
  static MetricsPlace of(const std::string& setting, int rank, int local_rank);
};

class MetricsExport final : public Work, private Root::Owner {
 public:
  using MakeText = std::function<std::string()>;
  using Complain = std::function<void(const std::string& sentence)>;
  static constexpr std::size_t kMostConnections = 16, kMostRequest = 8 << 10;

  // `listener` is null for a file.
  MetricsExport(Loop& loop, MetricsPlace place, std::unique_ptr<io::Listener> listener, MakeText text,
                Complain complain);

  // On the lane's thread. Once it has begun.
  Task<void> close(Stop& stop);

 private:
  void begin() noexcept override;
  void root_ended(Root& root, std::exception_ptr error) noexcept override;
  static Task<void> listen(MetricsExport* self);
  static Task<void> keep_file(MetricsExport* self);
  Task<void> answer(std::unique_ptr<io::Stream> stream);
  Task<void> exchange(io::Stream& stream, Stop& stop);
  std::string response(std::string_view request) const;

  Loop& loop_;
  const MetricsPlace place_;
  std::unique_ptr<io::Listener> listener_;
  const MakeText text_;
  const Complain complain_;
  std::size_t connections_ = 0;
  Stop stop_;
  Event ended_;
  std::optional<Root> root_;
};

}  // namespace aiacc
