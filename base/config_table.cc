// The table of all variables. A new variable needs a row here and a member of ConfigValues.
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
              "Address of the rendezvous of ranks that aiaccrun did not start: host:port, where rank 0 listens. Needs "
              "AIACC_SECRET_FILE.",
              "0.1"},
    ConfigRow{"AIACC_SECRET_FILE", &V::secret_file, "", "", "", kUser,
              "File with the 32 random bytes by which ranks authenticate each other at AIACC_RENDEZVOUS. Nobody but "
              "its owner may read or write it.",
              "0.1"},
    ConfigRow{"AIACC_JOB", &V::job, "", "", "", kUser,
              "A name that distinguishes jobs which use the same AIACC_RENDEZVOUS or the same store.", "0.1"},
    ConfigRow{"AIACC_RANK", &V::rank, "", "0", "2147483646", kLauncher, "Number of this process in the job.", "0.1"},
    ConfigRow{"AIACC_SIZE", &V::size, "", "1", "2147483647", kLauncher, "How many ranks the job has.", "0.1"},
    ConfigRow{"AIACC_LOCAL_RANK", &V::local_rank, "", "0", "2147483646", kLauncher,
              "Number of this process among the ranks of its host.", "0.1"},
    ConfigRow{"AIACC_LOCAL_SIZE", &V::local_size, "", "1", "2147483647", kLauncher, "How many ranks this host has.",
              "0.1"},
    ConfigRow{"AIACC_HOST_INDEX", &V::host_index, "", "0", "2147483646", kLauncher,
              "Number of this host among the hosts of the job.", "0.1"},
    ConfigRow{"AIACC_MIN_SIZE", &V::min_size, "", "1", "2147483647", kLauncher,
              "With how many ranks the job goes on after others have failed (aiaccrun --min-np).", "0.1"},
    ConfigRow{"AIACC_MAX_SIZE", &V::max_size, "", "1", "2147483647", kLauncher,
              "How many ranks an elastic job has at most, whose failed ranks are replaced (aiaccrun --max-np).", "0.1"},
    ConfigRow{"AIACC_NEW_HOSTS", &V::new_hosts, "no", "", "", kLauncher,
              "The job may get hosts that it did not begin with (aiaccrun --host-discovery-script).", "0.1"},
    ConfigRow{"AIACC_TERMINAL", &V::terminal, "no", "", "", kLauncher,
              "Standard output reaches a terminal through aiaccrun, unchanged.", "0.1"},
    ConfigRow{"AIACC_SINGLETON", &V::singleton, "no", "", "", kUser,
              "Run as a world of one rank although the environment shows another launcher.", "0.1"},
    ConfigRow{"AIACC_INIT_TIMEOUT", &V::init_timeout, "300s", "1ms", "30d", kUser,
              "How long initialising may wait for all ranks.", "0.1"},
    ConfigRow{"AIACC_TIMEOUT", &V::timeout, "1800s", "1ms", "30d", kUser,
              "How long an operation without a time-out of its own may take.", "0.1"},
    ConfigRow{"AIACC_LATE_AFTER", &V::late_after, "60s", "1ms", "30d", kUser,
              "Time without progress after which an operation reports, once, which ranks it waits for.", "0.1"},
    ConfigRow{"AIACC_LEASE", &V::lease, "30s", "1s", "1h", kUser,
              "How long a host may be silent before aiaccrun counts its ranks as lost, or before a connection between "
              "ranks is made again.",
              "0.1"},
    ConfigRow{"AIACC_PATH_TIMEOUT", &V::path_timeout, "120s", "5s", "30d", kUser,
              "How long the network between two ranks may be broken before the groups that need it end. Make it longer "
              "than AIACC_LEASE; otherwise a lost host is reported as a lost path. Without aiaccrun, a host that is "
              "down is always reported so.",
              "0.1"},
    ConfigRow{"AIACC_FAILBACK", &V::failback, "5s", "0s", "1h", kUser,
              "How long after a path over UCX or libfabric broke, whose messages go over TCP since, two ranks try it "
              "again. Twice as long after each further break and each trial that fails, up to 64 times; this time "
              "again after a path has worked for those 64 times. 0: never. That of the lower rank of the two counts.",
              "0.1"},
    ConfigRow{"AIACC_LOG", &V::log, "warn", "", "", kUser,
              "What is logged to standard error: a level (trace, debug, info, warn, error, off) for everything, and "
              "PART=LEVEL for parts (core, net, memory, launch, bootstrap, collective), separated by commas.",
              "0.1"},
    ConfigRow{"AIACC_RECORDS", &V::records, "", "", "", kUser,
              "Where a rank writes its last 64 operations, as JSON, when one of its groups ends with an error or an "
              "operation is late: this path with a dot and the rank's number after it.",
              "0.1"},
    ConfigRow{"AIACC_TIMELINE", &V::timeline, "", "", "", kUser,
              "File that rank 0 writes a trace of all ranks to, for Perfetto or Chrome's about:tracing: a process for "
              "each rank, and in it a row for each gradient. See aiacc_timeline_start(3).",
              "0.1"},
    ConfigRow{"AIACC_METRICS", &V::metrics, "", "", "", kUser,
              "Where Prometheus finds numbers about each rank: host:port, to which each rank adds its local rank, or "
              "a file, to whose name each adds its rank. See aiacc_metrics(3).",
              "0.1"},
    ConfigRow{
        "AIACC_LIBRARY", &V::library, "", "", "", kUser,
        "The libaiacc.so that the Python package aiacc loads. Unset: its own in a wheel, else that of pkg-config, "
        "else the loader's.",
        "0.1"},
    ConfigRow{
        "AIACC_TORCH_SHIM", &V::torch_shim, "1", "", "", kUser,
        "The compiled part of the back end aiacc of torch.distributed: 1, the one that python -m aiacc.torch.build "
        "has made for this user and this torch, if any; 0, none; or the file of one.",
        "0.1"},
    ConfigRow{"AIACC_ENCRYPT", &V::encrypt, "none", "", "", kUser,
              "Protection of messages between ranks of different hosts: none; integrity, which authenticates them "
              "without encryption and takes a core at either end about a quarter of a second for each gigabyte; or "
              "data, which encrypts them too and takes about a second. All ranks need the same value; an explicit none "
              "suppresses the warning of rank 0. Between aiaccrun and its agents, ssh encrypts.",
              "0.1"},
    ConfigRow{"AIACC_SPIN", &V::spin, "2us", "0ns", "1s", kUser,
              "How long a rank that waits for its peers spins before it yields its core, and later blocks; eight times "
              "as long if it waits for other hosts only.",
              "0.1"},
    ConfigRow{"AIACC_YIELD", &V::yield, "300us", "0ns", "1h", kUser,
              "How long such a rank then goes on looking, and gives its core to others between two looks, before it "
              "blocks. A late rank has to wake those that have blocked, which takes some 0.1 ms. A longer time avoids "
              "that, but what computes beside a rank that waits takes some percent more time, and up to 1.6 times as "
              "long where its threads need that core.",
              "0.1"},
    ConfigRow{
        "AIACC_TRANSPORT", &V::network, "auto", "", "", kUser,
        "The network between hosts: tcp; ucx or ofi (libfabric), which fail where that library is absent; or "
        "auto, which takes UCX if all ranks have it and an RDMA device that it uses, with an active port; libfabric "
        "if all have it and such an EFA device; and else, or if protection is asked for, TCP. Where a path of UCX "
        "or libfabric between two ranks breaks, their messages go over TCP until it works again (AIACC_FAILBACK), and "
        "a line says so. The same on all ranks.",
        "0.1"},
    ConfigRow{"AIACC_UCX_TLS", &V::ucx_tls, "", "", "", kUser,
              "Which transports UCX may use, as its own UCX_TLS says. Unset: all but shared memory. UCX finds every "
              "variable AIACC_UCX_* as its UCX_*, and none of the user's UCX_*.",
              "0.1"},
    ConfigRow{"AIACC_UCX_NET_DEVICES", &V::ucx_net_devices, "", "", "", kUser,
              "Which network devices UCX may use, as its own UCX_NET_DEVICES says. Unset: all.", "0.1"},
    ConfigRow{"AIACC_OFI_PROVIDER", &V::ofi_provider, "", "", "", kUser,
              "Which providers libfabric may use, separated by commas, the preferred first, as fi_info names them: "
              "tcp;ofi_rxm. Unset: efa, verbs;ofi_rxm and, with AIACC_TRANSPORT=ofi only, tcp;ofi_rxm. libfabric finds "
              "every variable AIACC_FI_* as its FI_*, and none of the user's FI_*. The same on all ranks.",
              "0.1"},
    ConfigRow{
        "AIACC_ALGORITHM", &V::algorithm, "", "", "", kUser,
        "Which algorithms may serve collectives between hosts: COLLECTIVE=ALGORITHM, separated by commas, as in "
        "allreduce=ring,reduce=binomial; with | between several algorithms, and with ^ before those not to use. "
        "allreduce "
        "has recursive-doubling, halving-doubling, one-round, double-tree, ring and ordered; reduce has binomial, "
        "one-round, "
        "double-tree and ordered; broadcast has binomial, chain and double-tree; allgather has "
        "recursive-doubling and ring; reduce-scatter has recursive-halving, ring and ordered; barrier has "
        "dissemination; alltoall has pairwise and bruck; gather and scatter have linear and binomial. A call that no "
        "permitted algorithm can "
        "serve takes another one; the first of each collective is reported. The same on all ranks of a job with "
        "several hosts, which is checked. Unset: all; level info of AIACC_LOG says which are used.",
        "0.1"},
    ConfigRow{
        "AIACC_ALGORITHM_TABLE", &V::algorithm_table, "", "", "", kUser,
        "A file of aiacc-tune(1): which algorithm between hosts was the fastest for which collective, number of hosts "
        "and "
        "length. Rank 0 reads it and tells the others. It is not used, and rank 0 warns, if it is not whole or was "
        "measured over another transport or with other AIACC_TCP_STREAMS or AIACC_ENCRYPT. What AIACC_ALGORITHM does "
        "not "
        "permit, it does not choose.",
        "0.1"},
    ConfigRow{"AIACC_TCP_CONGESTION", &V::tcp_congestion, "auto", "", "", kUser,
              "Congestion control of TCP between hosts: the name of an algorithm of the kernel; system, for the "
              "setting of each host; or auto, which is the same unless that is BBR: hosts less than 1 ms apart then "
              "use cubic, or reno if the user may not select cubic.",
              "0.1"},
    ConfigRow{
        "AIACC_TCP_STREAMS", &V::tcp_streams, "1", "", "", kUser,
        "How many TCP connections a rank has with each rank of another host: a number from 1 to 64; a range, as in "
        "2-8; or auto, which is 1-64. Of a range it uses as many as make long messages faster, and finds that out "
        "while it sends them. Messages of more than 64 KiB are divided among several connections as fast as each "
        "one takes them. Of two ranks with different values, both use the smaller one.",
        "0.1"},
    ConfigRow{
        "AIACC_TC_CTRL", &V::tc_ctrl, "", "", "", kUser,
        "Marks of the packets in which ranks of different hosts say how operations and groups fare: the DSCP and "
        "the priority of the socket, as in dscp=48,priority=6; and rate=, what a rank sends of them to another "
        "one at most, as in rate=500mbit (kbit, mbit or gbit a second). Unset: those of the system. Classes "
        "whose marks, rates, delays or losslessness differ have connections of their own. A priority above 6 needs "
        "CAP_NET_ADMIN. lossless=yes: the network is meant to lose none of them, by priority flow control (PFC) on "
        "their priority; aiacc-info --qos then says whether this host's devices have it, and a rank that sends some "
        "again says so once. Ranks switch nothing on, and the kernel takes a loss for congestion all the same. Over "
        "UCX and libfabric only shares, rates and delays hold, but over UCX the DSCP marks packets of RDMA, and the "
        "priority is their service level.",
        "0.1"},
    ConfigRow{
        "AIACC_TC_LAT", &V::tc_lat, "", "", "", kUser,
        "As AIACC_TC_CTRL, of short messages and of those that arrange for long ones; and share=1 to 1000: what the "
        "class has of what a rank sends to another one while both this class and others send. Latency goes before "
        "others until it is 4 MiB ahead of its share. By default it has 90, bulk 9 and background 1. With delay=, "
        "as in delay=2ms (10us to 1s), a connection of the class keeps only so much under way that it waits in the "
        "network's queues no longer than that, where others then do not have to wait longer either. Without it the "
        "kernel fills these queues; but while collectives and messages that ask for low latency (by their class or a "
        "priority) begin on this rank between hosts, and for a second after the last one, bulk and background have a "
        "delay of 1ms over TCP, and over UCX over TCP, which delay=none turns off. A class that shares the connection "
        "of bulk has the delay of AIACC_TC_BULK. It costs speed where a rank computes and looks at its connections "
        "less often.",
        "0.1"},
    ConfigRow{"AIACC_TC_BULK", &V::tc_bulk, "", "", "", kUser, "As AIACC_TC_LAT, of long messages.", "0.1"},
    ConfigRow{"AIACC_TC_BG", &V::tc_bg, "", "", "", kUser,
              "As AIACC_TC_LAT, of operations in the class AIACC_TRAFFIC_BACKGROUND.", "0.1"},
    ConfigRow{
        "AIACC_SLICE_BYTES", &V::slice_bytes, "16G", "1M", "1T", kUser,
        "Address space for the memory of one rank in its host's segment. Pages are taken only when used. Under "
        "aiaccrun the default is the memory of the host. Tools with little address space, such as valgrind, need a "
        "small one.",
        "0.1"},
    ConfigRow{
        "AIACC_FUSION_BYTES", &V::fusion_bytes, "8M", "64", "16G", kUser,
        "Up to how many bytes a gradient engine merges small tensors into one allreduce, and into pieces of which "
        "size it cuts large ones. On a recorded schedule the first and the last allreduces of a step are shorter. The "
        "same on all ranks.",
        "0.1"},
    ConfigRow{"AIACC_FUSION_STREAMS", &V::fusion_streams, "4", "1", "64", kUser,
              "How many allreduces a gradient engine runs at a time; between hosts up to four times as many that are "
              "together no longer than so many of AIACC_FUSION_BYTES. The same on all ranks.",
              "0.1"},
    ConfigRow{
        "AIACC_SCHEDULE_STEPS", &V::schedule_steps, "5", "0", "1000000", kUser,
        "After how many equal steps a gradient engine records their schedule and follows it without negotiation; 0 "
        "for never. The same on all ranks.",
        "0.1"},
    ConfigRow{
        "AIACC_ALLREDUCE_DTYPE", &V::allreduce_dtype, "fp32", "", "", kUser,
        "In what the elements of fp32 gradients travel that a gradient engine sums or averages: fp32, as they are; "
        "fp16 "
        "or bf16, in 16 bits, summed in fp32; or mixed, those of at least 64 KiB in fp16 between hosts and as they are "
        "within each host, and all others as they are. The same on all ranks.",
        "0.1"},
    ConfigRow{"AIACC_KV_SERVERS", &V::kv_servers, "0", "0", "2147483646", kUser,
              "How many ranks, the last ones, only serve key-value stores that are made without servers and workers of "
              "their own; 0: all ranks serve and train. The same on all ranks; aiaccrun sets it with --servers.",
              "0.1"},
    ConfigRow{"AIACC_KV_REPLICAS", &V::kv_replicas, "1", "1", "2", kUser,
              "On how many servers each value of the key-value stores of aiacc.mxnet is. With 2 a server that dies "
              "costs nothing that was acknowledged. The same on all ranks.",
              "0.1"},
    ConfigRow{"AIACC_NAN_CHECK", &V::nan_check, "no", "", "", kUser,
              "Whether a gradient engine looks for gradients that are not finite. A step with one fails on all ranks "
              "alike, with the name of rank and tensor. The same on all ranks.",
              "0.1"},
    ConfigRow{"AIACC_TUNE", &V::tune, "no", "", "", kUser,
              "Whether a gradient engine looks for the best fusion size, number of allreduces at a time and algorithm "
              "between hosts, beginning with AIACC_FUSION_BYTES, AIACC_FUSION_STREAMS and the usual algorithm: some 50 "
              "steps of a recorded schedule are its trials, and later ones only if the time of a step changes. Level "
              "info of AIACC_LOG has what it finds. The same on all ranks.",
              "0.1"},
    ConfigRow{"AIACC_TUNE_CACHE", &V::tune_cache, "", "", "", kUser,
              "The file in which rank 0 keeps what AIACC_TUNE found, for each model and number of ranks; none for no "
              "file. Unset: aiacc/tune in XDG_CACHE_HOME, else in .cache in HOME.",
              "0.1"},
};

}  // namespace

std::span<const ConfigRow> config_table() { return kTable; }

}  // namespace aiacc
