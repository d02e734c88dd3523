#include "groupcomm/kv/round_choice.h"

#include <utility>

namespace aiacc::kv {
namespace {

Answer decided(int worker, std::uint64_t id, bool together) {
  Answer answer;
  answer.worker = worker;
  answer.id = id;
  answer.together = together;
  return answer;
}

}  // namespace

void RoundChoice::ready(int worker, std::uint64_t id, std::vector<Answer>& answers) {
  if (lost_) return answers.push_back(decided(worker, id, false));
  words(worker).push_back({true, id, false});
  decide(answers);
}

void RoundChoice::sends(int worker, std::vector<Answer>& answers) {
  if (lost_) return;
  words(worker).push_back({false, 0, true});
  decide(answers);
}

void RoundChoice::decide(std::vector<Answer>& answers) {
  while (true) {
    bool all = true, sends = false;
    for (const std::deque<Word>& its : workers_) {
      all = all && !its.empty();
      sends = sends || (!its.empty() && !its.front().ready);
    }
    if (sends || all) answer_ready(!sends, answers);
    if (!all) return;
    for (std::deque<Word>& its : workers_) its.pop_front();
  }
}

// Of the present round, who was not answered.
void RoundChoice::answer_ready(bool together, std::vector<Answer>& answers) {
  for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
    if (workers_[worker].empty()) continue;
    Word& word = workers_[worker].front();
    if (!std::exchange(word.answered, true)) answers.push_back(decided(static_cast<int>(worker), word.id, together));
  }
}

void RoundChoice::withdraw(int worker, std::vector<Answer>& answers) {
  std::deque<Word>& its = words(worker);
  if (its.empty() || its.back().answered) return;
  answers.push_back(decided(worker, its.back().id, false));
  its.pop_back();
}

void RoundChoice::lost(std::vector<Answer>& answers) {
  lost_ = true;
  for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
    for (const Word& word : workers_[worker]) {
      if (!word.answered) answers.push_back(decided(static_cast<int>(worker), word.id, false));
    }
    workers_[worker].clear();
  }
}

}  // namespace aiacc::kv
