#include "runtime/watch/record_file.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/whole_file.h"

namespace aiacc {

void write_record_file(const std::string& path, int rank, const std::string& host, const std::string& reason,
                       Json operations) {
  const std::string whole = fmt::format("{}.{}", path, rank);
  const Json record =
      Json::Object{{"rank", rank}, {"host", host}, {"reason", reason}, {"operations", std::move(operations)}};
  const int error = write_whole_file(whole, record.text() + '\n');
  if (error == 0) return;
  throw system_error(fmt::format("cannot write the last operations of this rank to {} (AIACC_RECORDS)", whole), error);
}

}  // namespace aiacc
