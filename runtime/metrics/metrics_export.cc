#include "runtime/metrics/metrics_export.h"

#include <fmt/format.h>

#include <array>
#include <exception>
#include <span>
#include <utility>

#include "base/io/resolve.h"
#include "base/whole_file.h"

namespace aiacc {
namespace {

constexpr Duration kLimit = std::chrono::seconds(5);
constexpr Duration kInterval = std::chrono::seconds(5);
constexpr std::string_view kProm = ".prom";

}  // namespace

MetricsPlace MetricsPlace::of(const std::string& setting, int rank, int local_rank) {
  MetricsPlace place;
  if (setting.find('/') != std::string::npos) {
    place.file = setting.ends_with(kProm)
                     ? fmt::format("{}.{}{}", setting.substr(0, setting.size() - kProm.size()), rank, kProm)
                     : fmt::format("{}.{}", setting, rank);
    return place;
  }
  const bool has_host = setting.find(':') != std::string::npos && !setting.starts_with(':');
  const std::string whole =
      has_host ? setting : fmt::format("{}:{}", place.host, setting.substr(setting.starts_with(':')));
  const io::HostPort parsed = io::HostPort::parse("AIACC_METRICS", whole);
  if (parsed.port + local_rank > UINT16_MAX) {
    throw Error(Code::kInvalidArgument, fmt::format("AIACC_METRICS is '{}': port {} and local rank {} are more than {}",
                                                    setting, parsed.port, local_rank, UINT16_MAX));
  }
  place.host = parsed.host;
  place.port = static_cast<std::uint16_t>(parsed.port + local_rank);
  return place;
}

MetricsExport::MetricsExport(Loop& loop, MetricsPlace place, std::unique_ptr<io::Listener> listener, MakeText text,
                             Complain complain)
    : loop_(loop),
      place_(std::move(place)),
      listener_(std::move(listener)),
      text_(std::move(text)),
      complain_(std::move(complain)),
      ended_(loop) {}

void MetricsExport::begin() noexcept {
  root_.emplace(loop_, listener_ ? listen(this) : keep_file(this), static_cast<Root::Owner&>(*this));
  root_->start();
}

void MetricsExport::root_ended(Root&, std::exception_ptr error) noexcept {
  try {
    if (error && !stop_.requested()) std::rethrow_exception(error);
  } catch (const std::exception& why) {
    complain_(fmt::format("there are no metrics any more (AIACC_METRICS): {}", why.what()));
  }
  listener_.reset();
  ended_.set();
}

Task<void> MetricsExport::close(Stop& stop) {
  stop_.request(std::make_exception_ptr(Error(Code::kAborted, "the rank leaves")));
  co_await ended_.wait(stop);
  root_.reset();
  finish();
}

Task<void> MetricsExport::keep_file(MetricsExport* self) {
  while (true) {
    const int error = write_whole_file(self->place_.file, self->text_());
    if (error != 0) throw system_error(fmt::format("cannot write to {}", self->place_.file), error);
    if (self->stop_.requested()) co_return;  // the last numbers are in it
    Stop limited(self->stop_);
    const Deadline deadline(self->loop_, after(self->loop_.now(), kInterval), limited, "it is time");
    Event never(self->loop_);
    try {
      co_await never.wait(limited);
    } catch (const Error&) {
    }
  }
}

Task<void> MetricsExport::listen(MetricsExport* self) {
  Scope answering(self->loop_, self->stop_);
  std::exception_ptr error;
  try {
    while (true) {
      std::unique_ptr<io::Stream> stream = co_await self->listener_->accept(self->stop_);
      if (self->connections_ < kMostConnections) answering.spawn(self->answer(std::move(stream)));
    }
  } catch (...) {
    error = std::current_exception();
  }
  answering.stop().request(error);
  try {
    co_await answering.join();
  } catch (...) {
  }
  std::rethrow_exception(error);
}

Task<void> MetricsExport::answer(std::unique_ptr<io::Stream> stream) {
  ++connections_;
  Stop limited(stop_);
  const Deadline deadline(loop_, after(loop_.now(), kLimit), limited, "a request for metrics took too long");
  try {
    co_await exchange(*stream, limited);
  } catch (const std::exception&) {  // that connection's end
  }
  --connections_;
}

Task<void> MetricsExport::exchange(io::Stream& stream, Stop& stop) {
  std::string request;
  std::array<std::byte, 1024> piece;
  while (request.find("\r\n\r\n") == std::string::npos && request.size() <= kMostRequest) {
    const std::size_t length = co_await stream.read_some(piece, stop);
    if (length == 0) co_return;
    request.append(reinterpret_cast<const char*>(piece.data()), length);
  }
  const std::string answer = response(request);
  co_await io::write_all(stream, std::as_bytes(std::span(answer.data(), answer.size())), stop);
  stream.shutdown_write();
  while (co_await stream.read_some(piece, stop) != 0) {  // closing with bytes unread would take the answer back
  }
}

std::string MetricsExport::response(std::string_view request) const {
  const std::string_view line = request.substr(0, request.find("\r\n"));
  const std::size_t first = line.find(' '), second = line.find(' ', first == line.npos ? first : first + 1);
  std::string_view status = "200 OK";
  std::string body;
  if (request.size() > kMostRequest || second == line.npos || !line.substr(second + 1).starts_with("HTTP/1.")) {
    status = "400 Bad Request";
  } else if (line.substr(0, first) != "GET") {
    status = "405 Method Not Allowed";
  } else if (const auto target = line.substr(first + 1, second - first - 1); target != "/metrics" && target != "/") {
    status = "404 Not Found";
  } else {
    body = text_();
  }
  if (body.empty()) body = fmt::format("{}: GET /metrics is all there is here\n", status);
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: "
      "close\r\n\r\n{}",
      status, body.size(), body);
}

}  // namespace aiacc
