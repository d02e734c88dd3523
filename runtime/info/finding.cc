#include "runtime/info/finding.h"

namespace aiacc::info {

Json to_json(const Findings& findings) {
  Json::Array list;
  for (const Finding& one : findings) {
    list.push_back(Json::Object{{"level", one.level == Finding::Level::kHurts ? "hurts" : "note"},
                                {"about", one.about},
                                {"finding", one.sentence},
                                {"cure", one.cure}});
  }
  return list;
}

}  // namespace aiacc::info
