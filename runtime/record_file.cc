#include "runtime/record_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

#include "base/error.h"

namespace aiacc {

void write_record_file(const std::string& path, int rank, const std::string& host, const std::string& reason,
                       Json operations) {
  const std::string whole = fmt::format("{}.{}", path, rank);
  const std::string part = fmt::format("{}.{}", whole, getpid());
  const Json record =
      Json::Object{{"rank", rank}, {"host", host}, {"reason", reason}, {"operations", std::move(operations)}};
  errno = 0;
  std::ofstream out(part, std::ios::trunc);
  out << record.text() << '\n';
  out.close();
  if (out && std::rename(part.c_str(), whole.c_str()) == 0) return;
  const int error = errno;
  std::remove(part.c_str());
  throw system_error(fmt::format("cannot write the last operations of this rank to {} (AIACC_RECORDS)", whole), error);
}

}  // namespace aiacc
