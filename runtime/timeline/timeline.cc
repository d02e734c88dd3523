#include "runtime/timeline/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <tuple>
#include <utility>

#include "base/json.h"
#include "base/wire/codec.h"

namespace aiacc {
namespace {

constexpr Duration kInterval = std::chrono::milliseconds(100);
constexpr Duration kLooks = std::chrono::milliseconds(10);       // at the connections
constexpr Duration kSoon = std::chrono::milliseconds(5);         // while a rank waits for the end of its session
constexpr Duration kPatience = std::chrono::milliseconds(1500);  // of stop(), with ranks that do not answer
constexpr std::size_t kFirstPings = 16;                          // one after the other
constexpr std::size_t kMostText = 1 << 20;                       // formatted and not sent; more waits as it was said

struct Answer {
  std::int64_t asked = 0, now = 0, began = 0;  // the asker's clock, rank 0's, and rank 0's at the session's begin
  auto fields() { return std::tie(asked, now, began); }
};

std::int64_t count_of(Instant at) { return at.time_since_epoch().count(); }
Instant instant_of(std::int64_t count) { return Instant(Duration(count)); }

}  // namespace

Timeline::Timeline(Services& services, ViewPtr world, int rank, std::string host_name, const MessagePort* port,
                   Complain complain)
    : services_(services),
      loop_(services.loop()),
      world_(std::move(world)),
      rank_(rank),
      host_name_(std::move(host_name)),
      complain_(std::move(complain)),
      shares_clock_(world_->host_of(rank) == world_->host_of(0)),
      changed_(loop_) {
  if (port == nullptr) return;
  traffic_.emplace([port] {
    std::vector<ConnectionTraffic> counted;
    port->count_traffic(counted);
    return counted;
  });
}

Timeline::~Timeline() = default;

// --- the session -----------------------------------------------------------------------------------------------------

void Timeline::start(const std::string& file) {
  if (in_session_) {
    throw Error(Code::kInvalidState,
                fmt::format("a timeline is being written{} already", file_ ? " to " + file_->path() : ""));
  }
  if (!service_) service_.emplace(services_, world_, rank_, kService, static_cast<ServiceHandler&>(*this));
  ++session_;
  began_ = loop_.now();
  if (leads()) file_.emplace(file);
  in_session_ = true;
  said_.clear();
  text_.clear();
  dropped_ = 0;
  accepted_ = leads();
  said_end_ = false;
  clock_ = ClockOffset();
  sending_.assign(static_cast<std::size_t>(world_->size()), false);
  for (RowState& row : rows_) row.told = false;
  on_.store(true, std::memory_order_relaxed);
  if (leads()) {
    format_title();
    pump();
  } else {
    ping();
  }
  loop_.arm(*this, after(loop_.now(), kInterval));
  if (!traffic_) return;
  traffic_->begin(loop_.now());
  loop_.arm(look_, after(loop_.now(), kLooks));
}

Task<void> Timeline::stop(Stop& stop) {
  if (!in_session_) co_return;
  look();
  on_.store(false, std::memory_order_relaxed);
  if (leads()) {
    for (int rank = 0; rank < world_->size(); ++rank) {
      if (sending_[static_cast<std::size_t>(rank)]) say(rank, Kind::kStop);
    }
  }
  pump();
  Stop limited(stop);
  const Deadline deadline(loop_, after(loop_.now(), kPatience), limited, "not all ranks answer");
  try {
    while (in_session_) {
      if (!leads() && !accepted_) ping();
      loop_.arm(*this, after(loop_.now(), kSoon));
      changed_.reset();
      co_await changed_.wait(limited);
    }
  } catch (const Error&) {  // the file lacks what was not sent
  }
  if (in_session_) finish_session();
}

void Timeline::finish_session() noexcept {
  on_.store(false, std::memory_order_relaxed);
  in_session_ = false;
  said_.clear();
  text_.clear();
  file_.reset();
  disarm();
  look_.disarm();
  changed_.set();
}

// Rates are kept as spans are: until they are formatted.
void Timeline::look() noexcept {
  if (!traffic_ || !on()) return;
  try {
    if (traffic_->untaken() < kMostEvents) traffic_->look(loop_.now());
    loop_.arm(look_, after(loop_.now(), kLooks));
  } catch (const std::bad_alloc&) {
    ++dropped_;
  }
}

void Timeline::expired() noexcept {
  if (!leads()) ping();
  pump();
  if (in_session_) loop_.arm(*this, after(loop_.now(), on() ? kInterval : kSoon));
  changed_.set();
}

// Whatever fails here ends the session and nothing else.
void Timeline::pump() {
  if (!in_session_) return;
  try {
    format();
    leads() ? write() : send();
  } catch (const std::exception& error) {
    complain_(fmt::format("the timeline ends here: {}", error.what()));
    finish_session();
  }
}

// --- what was said ---------------------------------------------------------------------------------------------------

Timeline::Row Timeline::row(std::string name) {
  rows_.push_back({std::move(name)});
  return static_cast<Row>(rows_.size() - 1);
}

void Timeline::span(Row row, const char* name, Instant begin, Instant end, std::int64_t number) noexcept {
  note({row, false, name, number, begin, end});
}

void Timeline::mark(Row row, const char* name, Instant at, std::int64_t number) noexcept {
  note({row, true, name, number, at, at});
}

void Timeline::note(const Said& said) noexcept {
  if (!on()) return;
  try {
    if (said_.size() >= kMostEvents) throw std::bad_alloc();
    said_.push_back(said);
  } catch (const std::bad_alloc&) {
    ++dropped_;
  }
}

void Timeline::line(std::string_view text) {
  if (!text_.empty()) text_ += ",\n";
  text_ += text;
}

double Timeline::microseconds(Instant at) const noexcept {
  const Duration ahead = shares_clock_ ? Duration::zero() : clock_.ahead();
  return static_cast<double>((at + ahead - began_).count()) / 1e3;
}

void Timeline::format_title() {
  line(fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}}})", rank_,
                   Json(fmt::format("rank {} on {}", rank_, host_name_)).text()));
  line(fmt::format(R"({{"ph":"M","pid":{},"name":"process_sort_index","args":{{"sort_index":{}}}}})", rank_, rank_));
  if (leads() || shares_clock_) return;
  line(fmt::format(R"({{"ph":"M","pid":{},"name":"clock","args":{{"ahead_us":{:.3f},"error_us":{:.3f}}}}})", rank_,
                   static_cast<double>(clock_.ahead().count()) / 1e3,
                   static_cast<double>(clock_.error().count()) / 1e3));
}

void Timeline::format() {
  if (!accepted_ || text_.size() > kMostText) return;
  for (const Said& said : said_) {
    RowState& row = rows_[said.row];
    if (!std::exchange(row.told, true)) {
      line(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}}}})", rank_, said.row,
                       Json(row.name).text()));
      line(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})", rank_,
                       said.row, said.row));
    }
    const std::string number = said.number < 0 ? "" : fmt::format(R"(,"args":{{"number":{}}})", said.number);
    const std::string what = said.is_mark ? std::string(R"("ph":"i","s":"p")")
                                          : fmt::format(R"("ph":"X","dur":{:.3f})",
                                                        static_cast<double>((said.end - said.begin).count()) / 1e3);
    line(fmt::format(R"({{{},"pid":{},"tid":{},"ts":{:.3f},"name":"{}"{}}})", what, rank_, said.row,
                     microseconds(said.begin), said.name, number));
  }
  said_.clear();
  format_traffic();
  if (dropped_ == 0) return;
  line(fmt::format(R"({{"ph":"i","s":"p","pid":{},"tid":0,"ts":{:.3f},"name":"dropped","args":{{"number":{}}}}})",
                   rank_, microseconds(loop_.now()), std::exchange(dropped_, 0)));
}

void Timeline::format_traffic() {
  if (!traffic_) return;
  for (const TrafficRows::Rate& rate : traffic_->take()) {
    line(fmt::format(
        R"({{"ph":"C","pid":{},"ts":{:.3f},"name":"connection {} with rank {}","args":{{"sent MB/s":{:.3f},"received MB/s":{:.3f}}}}})",
        rank_, microseconds(rate.from), rate.number, rate.rank, rate.sent / 1e6, rate.received / 1e6));
  }
}

// --- rank 0 ----------------------------------------------------------------------------------------------------------

void Timeline::write() {
  file_->append(std::exchange(text_, {}));
  if (!on() && std::find(sending_.begin(), sending_.end(), true) == sending_.end()) finish_session();
}

void Timeline::answer(int to, std::uint64_t session, Instant asked) {
  if (session > session_) return;  // it has begun more sessions: it asks again
  if (session < session_ || !on()) {
    const std::uint64_t over = session << 8 | static_cast<std::uint64_t>(Kind::kStop);
    static_cast<void>(service_->post(to, over, std::span<const std::byte>{}));
    return;
  }
  sending_[static_cast<std::size_t>(to)] = true;
  Answer answer{count_of(asked), count_of(loop_.now()), count_of(began_)};
  say(to, Kind::kPong, wire::encode(answer));
}

void Timeline::peer_ended(int rank) noexcept {
  if (!leads() || sending_.empty()) return;
  sending_[static_cast<std::size_t>(rank)] = false;
  changed_.set();
}

// --- other ranks -----------------------------------------------------------------------------------------------------

void Timeline::ping() {
  if (!in_session_) return;
  const std::int64_t now = count_of(loop_.now());
  say(0, Kind::kPing, std::as_bytes(std::span(&now, 1)));
}

void Timeline::answered(std::span<const std::byte> bytes) {
  const Answer answer = wire::decode<Answer>(bytes, "an answer about the timeline");
  clock_.add(instant_of(answer.asked), instant_of(answer.now), loop_.now());
  began_ = instant_of(answer.began);
  if (clock_.samples() < kFirstPings && !shares_clock_) return ping();
  if (std::exchange(accepted_, true)) return;
  format_title();
  if (!on()) pump();  // stop() waits
}

void Timeline::send() {
  if (!accepted_) return;
  while (!text_.empty()) {
    // Whole elements: rank 0 may lose this rank after any message.
    std::size_t length = text_.size();
    if (length > service_->longest()) length = text_.rfind(",\n{", service_->longest());
    const auto posted = service_->post(0, word(Kind::kEvents), std::as_bytes(std::span(text_.data(), length)));
    if (posted == Service::Posted::kNoCredit) return;
    if (posted == Service::Posted::kLost) return finish_session();
    text_.erase(0, length == text_.size() ? length : length + 2);
  }
  if (on() || !said_.empty() || said_end_) return;
  const auto posted = service_->post(0, word(Kind::kEnd), std::span<const std::byte>{});
  if (posted == Service::Posted::kLost) return finish_session();
  said_end_ = posted == Service::Posted::kSent;
}

void Timeline::say(int to, Kind kind, std::span<const std::byte> bytes) {
  static_cast<void>(service_->post(to, word(kind), bytes));  // without credit: pings come again, and so does stop()
}

// --- messages --------------------------------------------------------------------------------------------------------

void Timeline::on_message(ServiceMessage message) noexcept {
  const std::uint64_t session = message.word() >> 8;
  try {
    switch (static_cast<Kind>(message.word() & 0xff)) {
      case Kind::kPing: {
        std::int64_t asked = 0;
        if (!leads() || message.bytes().size() != sizeof asked) return;
        std::memcpy(&asked, message.bytes().data(), sizeof asked);
        return answer(message.from(), session, instant_of(asked));
      }
      case Kind::kPong:
        if (session == session_ && in_session_ && !leads()) answered(message.bytes());
        return;
      case Kind::kEvents:
        if (session != session_ || !in_session_ || !leads()) return;
        line({reinterpret_cast<const char*>(message.bytes().data()), message.bytes().size()});
        if (text_.size() > kMostText) pump();
        return;
      case Kind::kEnd:
        if (session != session_) return;
        peer_ended(message.from());
        return say(message.from(), Kind::kEnded);
      case Kind::kEnded:
        if (session == session_ && said_end_ && in_session_) finish_session();
        return;
      case Kind::kStop:
        if (session != session_ || !in_session_ || leads()) return;
        look();
        on_.store(false, std::memory_order_relaxed);
        if (!accepted_) return finish_session();
        pump();
        if (in_session_) loop_.arm(*this, after(loop_.now(), kSoon));
        return;
    }
  } catch (const std::exception& error) {
    complain_(fmt::format("the timeline ends here: {}", error.what()));
    finish_session();
  }
}

void Timeline::on_peer_lost(int rank, const Error&) noexcept {
  if (!leads() && rank == 0 && in_session_) return finish_session();
  if (leads()) peer_ended(rank);
  pump();  // the job may end here, and what came before the loss is what its reader looks for
}

}  // namespace aiacc
