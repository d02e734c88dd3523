#include "runtime/bootstrap/algorithm_table_file.h"

#include <fmt/format.h>
#include <system_error>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/printable.h"
#include "collectives/inter/algorithm_table.h"
#include "runtime/bootstrap/bootstrap.h"
#include "transports/port_factory.h"

namespace aiacc {
namespace {

using inter::AlgorithmTable;

constexpr std::string_view kUsualAlgorithms = "algorithms are chosen as without it";

std::string_view text_of(Encryption encryption) noexcept {
  switch (encryption) {
    case Encryption::kNone: return "none";
    case Encryption::kIntegrity: return "integrity";
    case Encryption::kData: return "data";
  }
  return {};
}

// At most one byte more than a table may have.
std::string read_start(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    const std::string why = error ? error.message() : "it is no regular file";
    throw Error(Code::kInvalidArgument, why);
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(Code::kInvalidArgument, std::generic_category().message(errno));
  std::string text(AlgorithmTable::kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) throw Error(Code::kInvalidArgument, "it cannot be read");
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

std::string measured_with(std::string_view what, std::string_view then, std::string_view now) {
  return fmt::format("it was measured with {} {}, and this job has {}", what, then, now);
}

// A sentence; "": it fits.
std::string misfit(const AlgorithmTable::Conditions& measured, const RuntimeConfig& config) {
  if (measured.streams != config.tcp_streams_text && measured.transport == "tcp") {
    return measured_with("AIACC_TCP_STREAMS", measured.streams, config.tcp_streams_text);
  }
  const std::string_view encryption = text_of(config.encryption);
  return measured.encryption == encryption ? "" : measured_with("AIACC_ENCRYPT", measured.encryption, encryption);
}

}  // namespace

AlgorithmTableFile read_algorithm_table(const RuntimeConfig& config) {
  if (config.algorithm_table.empty()) return {};
  const std::string name = fmt::format("AIACC_ALGORITHM_TABLE='{}'", printable(config.algorithm_table));
  try {
    const AlgorithmTable table = AlgorithmTable::parse(name, read_start(config.algorithm_table));
    const std::string reason = misfit(table.conditions(), config);
    if (reason.empty()) return {.text = table.text(AlgorithmTable::Extent::kWithoutHosts), .complaint = {}};
    return {.text = {}, .complaint = fmt::format("{}: {}; {}", name, reason, kUsualAlgorithms)};
  } catch (const Error& error) {
    const bool named = error.message().starts_with(name);
    return {.text = {},
            .complaint =
                fmt::format("{}{}{}; {}", named ? "" : name, named ? "" : ": ", error.message(), kUsualAlgorithms)};
  }
}

void take_algorithm_table(const NetworkPorts& networks, BootstrapResult& bootstrapped) {
  if (networks.from_rank_0().empty()) return;
  try {
    bootstrapped.algorithm_table = AlgorithmTable::parse("rank 0's AIACC_ALGORITHM_TABLE", networks.from_rank_0());
  } catch (const Error& error) {
    throw Error(Code::kProtocol, error.message());
  }
  const std::string& measured = bootstrapped.algorithm_table->conditions().transport;
  if (measured == networks.opened_transport()) return;
  const std::string reason = measured_with("transport", measured, networks.opened_transport());
  bootstrapped.algorithm_table.reset();
  if (bootstrapped.rank != 0) return;
  bootstrapped.remarks.push_back(fmt::format("AIACC_ALGORITHM_TABLE: {}; {}", reason, kUsualAlgorithms));
}

}  // namespace aiacc
