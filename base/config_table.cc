// The table of all variables. A new one is a row here and a member of ConfigValues, and nothing else but its use.
#include <array>

#include "base/config.h"

namespace aiacc {
namespace {

using V = ConfigValues;
constexpr auto kUser = ConfigRow::SetBy::kUser;
constexpr auto kLauncher = ConfigRow::SetBy::kLauncher;

constexpr std::array kTable{
    // name, value, default, lowest, highest, set by, help, since
    ConfigRow{"AIACC_AGENT", &V::agent, "", "", "", kLauncher,
              "Address of this host's agent, where a rank says hello. Unset: the program was not started by aiaccrun.",
              "0.1"},
    ConfigRow{"AIACC_RENDEZVOUS", &V::rendezvous, "", "", "", kUser,
              "Where ranks meet that were not started by aiaccrun: host:port, where rank 0 listens. Needs "
              "AIACC_SECRET_FILE.",
              "0.1"},
    ConfigRow{
        "AIACC_SECRET_FILE", &V::secret_file, "", "", "", kUser,
        "File with the 32 random bytes that ranks which meet at AIACC_RENDEZVOUS prove to know. Nobody but its owner "
        "may read or write it.",
        "0.1"},
    ConfigRow{"AIACC_JOB", &V::job, "", "", "", kUser,
              "A name that tells apart jobs which meet at one AIACC_RENDEZVOUS or in one store.", "0.1"},
    ConfigRow{"AIACC_RANK", &V::rank, "", "0", "2147483646", kLauncher, "Number of this process in the job.", "0.1"},
    ConfigRow{"AIACC_SIZE", &V::size, "", "1", "2147483647", kLauncher, "How many ranks the job has.", "0.1"},
    ConfigRow{"AIACC_LOCAL_RANK", &V::local_rank, "", "0", "2147483646", kLauncher,
              "Number of this process among the ranks of its host.", "0.1"},
    ConfigRow{"AIACC_LOCAL_SIZE", &V::local_size, "", "1", "2147483647", kLauncher, "How many ranks this host has.",
              "0.1"},
    ConfigRow{"AIACC_HOST_INDEX", &V::host_index, "", "0", "2147483646", kLauncher,
              "Number of this host among the hosts of the job.", "0.1"},
    ConfigRow{"AIACC_TERMINAL", &V::terminal, "no", "", "", kLauncher,
              "Standard output passes through aiaccrun to a terminal, as it is.", "0.1"},
    ConfigRow{"AIACC_SINGLETON", &V::singleton, "no", "", "", kUser,
              "Run as a world of one rank although the environment shows another launcher.", "0.1"},
    ConfigRow{"AIACC_INIT_TIMEOUT", &V::init_timeout, "300s", "1ms", "30d", kUser,
              "How long initialising may take until all ranks have come.", "0.1"},
    ConfigRow{"AIACC_TIMEOUT", &V::timeout, "1800s", "1ms", "30d", kUser,
              "How long an operation that names no time of its own may take.", "0.1"},
    ConfigRow{"AIACC_LATE_AFTER", &V::late_after, "60s", "1ms", "30d", kUser,
              "After how long without progress an operation reports, once, for whom it waits.", "0.1"},
    ConfigRow{
        "AIACC_LEASE", &V::lease, "30s", "1s", "1h", kUser,
        "How long a host may be silent before its ranks count as lost, and connections between ranks are made anew.",
        "0.1"},
    ConfigRow{"AIACC_LOG", &V::log, "warn", "", "", kUser,
              "What is logged to standard error: a level (trace, debug, info, warn, error, off) for everything, and "
              "PART=LEVEL for parts (core, net, memory, launch, bootstrap, collective), separated by commas.",
              "0.1"},
    ConfigRow{
        "AIACC_RECORDS", &V::records, "", "", "", kUser,
        "Where a rank writes its last 64 operations, as JSON, when a group of it ends with an error or an operation "
        "is late: this path with a dot and the rank's number after it.",
        "0.1"},
    ConfigRow{
        "AIACC_ENCRYPT", &V::encrypt, "none", "", "", kUser,
        "What is encrypted between ranks of different hosts: none, or data for all messages, which costs a core about "
        "a "
        "second for each gigabyte. Give it the same value on all ranks. Between aiaccrun and its agents, ssh encrypts.",
        "0.1"},
    ConfigRow{
        "AIACC_SPIN", &V::spin, "2us", "0ns", "1s", kUser,
        "How long a rank that waits for its peers keeps its core before it yields it, and later blocks; eight times as "
        "long where it waits for other hosts alone.",
        "0.1"},
    ConfigRow{
        "AIACC_TCP_CONGESTION", &V::tcp_congestion, "auto", "", "", kUser,
        "Congestion control of TCP between hosts: an algorithm of the kernel by its name, system for what each host "
        "is set to, or auto, which is the same unless that is BBR: hosts less than 1 ms apart then use cubic, or "
        "reno where the user may not choose cubic.",
        "0.1"},
    ConfigRow{"AIACC_SLICE_BYTES", &V::slice_bytes, "16G", "1M", "1T", kUser,
              "Address space for the memory of one rank in its host's segment. Pages are taken only when used.", "0.1"},
    ConfigRow{"AIACC_SLOT_BYTES", &V::slot_bytes, "256K", "4K", "1G", kUser,
              "Size of the pieces through which data in memory that peers cannot see is passed on a host.", "0.1"},
};

}  // namespace

std::span<const ConfigRow> config_table() { return kTable; }

}  // namespace aiacc
