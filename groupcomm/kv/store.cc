#include "groupcomm/kv/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace aiacc::kv {

namespace {

Rules rules_of(const StoreOptions& options) {
  return {options.mode, static_cast<int>(options.workers.size()), options.staleness};
}

int index_of(const std::vector<int>& ranks, int rank) noexcept {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

Server::Place place_of(const StoreOptions& options, int rank) {
  const bool replicas = options.replicas > 1;
  if (replicas && options.servers.size() < 2)
    throw Error(Code::kInvalidArgument, "a key-value store of one server has no place for a second replica");
  return {index_of(options.servers, rank), static_cast<int>(options.servers.size()), replicas, options.servers};
}

}  // namespace

void Operation::begin() noexcept { store_->begin(*this); }
void Operation::Alarm::expired() noexcept { operation.store_->late(operation); }

Store::Store(Lane& lane, Services& services, ViewPtr view, int rank, StoreOptions options)
    : lane_(lane),
      loop_(services.loop()),
      memory_(services.memory()),
      options_(std::move(options)),
      rank_(rank),
      server_(rules_of(options_), options_.workers, rank, place_of(options_, rank), services.memory()),
      ended_(loop_),
      news_(loop_),
      all_assign_(options_.updater.kind == UpdaterOptions::Kind::kAssign) {
  worker_ = worker_of(rank);
  layout_.servers = static_cast<int>(options_.servers.size());
  layout_.split_elements = options_.split_elements;
  layout_.part_bytes = kPartBytes;
  server_.set_updater(options_.updater);
  for (int i = 0; i < view->size(); ++i) peers_.emplace_back(loop_);
  const ServiceOptions how{kCredit, options_.traffic};
  requests_.emplace(services, view, rank, kRequests, static_cast<ServiceHandler&>(*this), how);
  answers_.emplace(services, view, rank, kAnswers, static_cast<ServiceHandler&>(*this), how);
}

Store::~Store() = default;

std::string Store::describe() const {
  return options_.name.empty() ? std::string("the key-value store")
                               : fmt::format("the key-value store '{}'", options_.name);
}

int Store::worker_of(int rank) const noexcept { return index_of(options_.workers, rank); }
int Store::server_of(int rank) const noexcept { return index_of(options_.servers, rank); }

void Store::on_message(ServiceMessage message) noexcept {
  const std::uint64_t number = message.word() >> kWordBits;
  const int from = message.from(), worker = worker_of(from);
  std::vector<Answer> answers;
  switch (static_cast<Word>(message.word() & ((1 << kWordBits) - 1))) {
    case Word::kAnswer: return answered(number, message.bytes());
    case Word::kRequest:
      if (worker < 0) return;  // all ranks have the same options: its store is not of this protocol
      server_.request(worker, number, message.take_bytes(), answers);
      return dispatch(answers);
    case Word::kCopy: return take_copy(from, number, message.bytes());
    case Word::kConfirmation:
      server_.confirmed(number, answers);
      news_.set();
      return dispatch(answers);
    case Word::kLeaving:
      peer(from).left = true;
      news_.set();
      if (!replicated() && !closed_) left_early(from, number);
      return;
    case Word::kBarrier:
      peer(from).at_barrier = number / 2;
      if (number % 2 == 1) peer(from).wrong = number / 2;
      news_.set();
      return;
    case Word::kDone: return worker_done(from);
  }
}

// Its answers to what it had been asked came before this message, which may overtake its own requests, as they are another service's: in
// async and bounded mode a push that comes later is applied, and in sync mode it is refused. Calls that need nothing of it any more
// go on. Whoever has lost a rank says which, as the others may hear of that later.
void Store::left_early(int rank, std::uint64_t reason) noexcept {
  const auto why_of = [&] {
    const int lost = reason > peers_.size() ? kNoPeer : static_cast<int>(reason) - 1;
    if (lost == kNoPeer || lost == rank || lost == rank_)  // who takes this rank or the leaver for lost
      return Error(Code::kAborted,
                   fmt::format("rank {} has freed {} and did not wait for the others, as after an error of the group "
                               "or its time-out",
                               rank, describe()),
                   rank);
    return peer(lost).lost.value_or(
        Error(Code::kPeerFailed,
              fmt::format("rank {} is lost: rank {} has freed {} for that reason", lost, rank, describe()), lost));
  };
  const Error why = why_of();
  serve_without(rank, why);
  fail_requests_to(rank, why);
}

// The message may overtake no request of that rank, since all were answered, but those of calls that had ended by their time-out.
void Store::worker_done(int rank) noexcept {
  const int worker = worker_of(rank);
  if (worker < 0 || closed_) return;
  const Error why(
      Code::kAborted,
      fmt::format("rank {} frees {} and makes no more calls{}", rank, describe(),
                  options_.mode == Mode::kSync ? ": in a sync store each worker pushes a key equally often" : ""),
      rank);
  std::vector<Answer> answers;
  server_.done(worker, why, answers);
  dispatch(answers);
}

void Store::say_done() {
  done_ = true;
  if (running_.empty()) tell_done();
}

void Store::tell_done() {
  for (const int server : options_.servers)
    server == rank_ ? worker_done(rank_) : post_to(server, {Word::kDone, 0, {}});
}

void Store::serve_without(int rank, const Error& why) noexcept {
  Peer& its = peer(rank);
  if (!its.gone) its.gone = why;
  std::vector<Answer> answers;
  if (const int worker = worker_of(rank); worker >= 0) server_.lost(worker, why, answers);
  if (const int server = server_of(rank); server >= 0)
    replicated() ? server_lost(server, answers) : server_.let_all_send(answers);
  dispatch(answers);
}

// All ranks subscribe alike before the first message, so this one's came after the end of the other's store. The refusal
// may overtake the other's message that it leaves because of a loss.
void Store::on_refused(int to, std::uint64_t word, const Error&) noexcept {
  const auto found = in_flight_.find(word >> kWordBits);
  if (word_of(Word::kRequest, word >> kWordBits) != word || found == in_flight_.end()) return;
  const Request request = found->second;
  in_flight_.erase(found);
  const auto lost = std::find_if(peers_.begin(), peers_.end(), [](const Peer& its) { return its.lost.has_value(); });
  if (!replicated() && lost != peers_.end()) return ended(request, std::make_exception_ptr(*lost->lost));
  ended(request,
        std::make_exception_ptr(Error(Code::kAborted,
                                      fmt::format("rank {} has freed {} already: this call was outstanding when this "
                                                  "rank freed it, or rank {} did not wait for it, as after a loss, "
                                                  "another error of the group or its time-out",
                                                  to, describe(), to),
                                      to)));
}

void Store::on_peer_lost(int rank, const Error& why) noexcept {
  Peer& its = peer(rank);
  if (its.lost) return;  // told by the other service
  its.lost = why;
  unsent_answers_ -= its.answers.size();
  its.answers.clear();
  news_.set();
  serve_without(rank, why);
  // Some workers may have heard that a round is theirs, and others never will.
  if (rank == chooser() && reductions_)
    reductions_->abort(std::make_exception_ptr(Error(why.code(), why.message(), worker_of(rank))));
  replicated() ? give_to_replicas(rank, why) : fail_requests_to(rank, why);
  end_hopeless();
}

void Store::dispatch(std::vector<Answer>& answers) {
  for (const Server::News& news : server_.take_news()) report_replica(news);
  for (Copies::Numbered& copy : server_.take_copies()) {
    const int to = options_.servers.at(static_cast<std::size_t>(server_.replica()));
    post_to(to, {Word::kCopy, copy.number, std::move(copy.bytes)});
  }
  for (Answer& answer : answers) {
    const int to = options_.workers[static_cast<std::size_t>(answer.worker)];
    Peer& its = peer(to);
    if (its.lost || closed_) continue;
    its.answers.push_back(std::move(answer));
    ++unsent_answers_;
    its.answers_news.set();
    if (its.answers_pump) continue;
    ++pumps_;
    its.answers_pump.emplace(loop_, send_answers(this, to), static_cast<Root::Owner&>(*this));
    its.answers_pump->start();
  }
}

Task<void> Store::send_answers(Store* self, int to) {
  Peer& its = self->peer(to);
  while (true) {
    while (its.answers.empty()) {
      its.answers_news.reset();
      co_await its.answers_news.wait(self->stop_);
    }
    const Answer answer = std::move(its.answers.front());
    its.answers.pop_front();
    try {
      co_await self->answers_->send(to, word_of(Word::kAnswer, answer.id), answer_bytes(answer, self->memory_),
                                    self->stop_);
    } catch (const Error&) {  // the worker is lost: nobody waits for the answer
      self->stop_.throw_if_requested();
    }
    if (--self->unsent_answers_ == 0) self->news_.set();
  }
}

Task<void> Store::send_requests(Store* self, int to) {
  Peer& its = self->peer(to);
  while (true) {
    while (its.requests.empty()) {
      its.requests_news.reset();
      co_await its.requests_news.wait(self->stop_);
    }
    const Request request = its.requests.begin()->second;
    its.requests.erase(its.requests.begin());
    const std::uint64_t id = ++self->next_;
    self->in_flight_[id] = request;
    // The next one of the part may get into the queue: it is sent after this one.
    if (in_queue_of_part(request.kind)) {
      request.key->parts[request.part].ready = false;
      self->make_ready(*request.key, request.part);
    }
    try {
      if (its.gone && !self->replicated()) throw *its.gone;  // it may not drive its end, and so refuse nothing
      ServiceBytes bytes = self->build(request);
      co_await self->requests_->send(to, word_of(Word::kRequest, id), std::move(bytes), self->stop_);
    } catch (...) {
      self->stop_.throw_if_requested();
      if (const auto found = self->in_flight_.find(id); found != self->in_flight_.end()) {
        const Request failed = found->second;
        self->in_flight_.erase(found);
        self->ended(failed, std::current_exception());
      }
    }
  }
}

void Store::root_ended(Root&, std::exception_ptr) noexcept {
  if (--pumps_ == 0) ended_.set();
}

Task<void> Store::close() {
  if (closed_) co_return;
  closed_ = true;
  if (reductions_) co_await reductions_->close(fmt::format("{} was freed", describe()));
  const auto why = std::make_exception_ptr(Error(Code::kAborted, fmt::format("{} was freed", describe())));
  while (!running_.empty()) {
    Operation& operation = *running_.front();
    if (!operation.error_) operation.error_ = why;
    detach(operation);
    end(operation);
  }
  stop_.request(why);
  while (pumps_ > 0) {
    ended_.reset();
    Stop none;
    co_await ended_.wait(none);
  }
  for (Peer& one : peers_) {
    one.requests_pump.reset();
    one.answers_pump.reset();
    one.posts_pump.reset();
    one.answers.clear();
  }
  answers_.reset();
  requests_.reset();
}

}  // namespace aiacc::kv
