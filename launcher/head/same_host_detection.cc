#include "launcher/head/same_host_detection.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"

namespace aiacc::launcher {

SameHostDetection::SameHostDetection(std::vector<Agent> agents) {
  std::map<std::string, std::vector<int>> known;
  for (Agent& agent : agents) {
    const int index = static_cast<int>(hosts_.size());
    std::vector<int> like;
    if (!agent.machine.empty()) {
      std::vector<int>& alike = known[agent.machine];
      like = alike;
      alike.push_back(index);
    }
    const bool alone = like.empty();
    hosts_.push_back({std::move(agent), std::move(like), index, alone});
  }
}

std::vector<std::string> SameHostDetection::candidates(int host) const {
  std::vector<std::string> names;
  for (const int other : hosts_[static_cast<std::size_t>(host)].like) {
    names.push_back(hosts_[static_cast<std::size_t>(other)].agent.same_host_socket);
  }
  return names;
}

void SameHostDetection::found(int host, const std::vector<std::string>& tokens) {
  Host& mine = hosts_[static_cast<std::size_t>(host)];
  if (mine.answered || tokens.size() != mine.like.size()) {
    throw Error(Code::kProtocol, fmt::format("the agent reports {} other hosts and was asked about {}", tokens.size(),
                                             mine.answered ? 0 : mine.like.size()));
  }
  mine.answered = true;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Host& other = hosts_[static_cast<std::size_t>(mine.like[i])];
    if (tokens[i].empty() || tokens[i] != other.agent.token) continue;
    mine.first = mine.like[i];  // if several match, all are one machine; the first represents it
    break;
  }
}

bool SameHostDetection::complete() const {
  return std::all_of(hosts_.begin(), hosts_.end(), [](const Host& one) { return one.answered; });
}

std::vector<std::vector<int>> SameHostDetection::same() const {
  std::map<int, std::vector<int>> by_first;
  std::vector<int> first(hosts_.size());
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    const int host = static_cast<int>(i);
    first[i] = hosts_[i].first == host ? host : first[static_cast<std::size_t>(hosts_[i].first)];
    by_first[first[i]].push_back(host);
  }
  std::vector<std::vector<int>> all;
  for (auto& [index, members] : by_first) {
    if (members.size() > 1) all.push_back(std::move(members));
  }
  return all;
}

}  // namespace aiacc::launcher
