#include "transports/ucx/ucx_library.h"

namespace aiacc::ucx {
namespace {

// By these UCX installs no signal handlers and patches nothing. Shared memory is transports/host's. Deaths are told by the job's
// watchers, and UCX's rounds of keepalive are slower. Its errors reach the user as sentences of ours. HOME: of $HOME/ucx.conf.
// UCX 1.13 takes packets of software RoCE (rdma_rxe) over IPv4 for those of RoCE v1, finds another GID in them than this host's, and drops
// them, so that no connection is ever made; frames of ours say themselves what they belong to.
// Over TCP a payload comes in segments of UCX_TCP_RX_SEG_SIZE, headers included: streams of 1 MiB took 1.5 times as long with UCX's
// 64 KiB (bench/networks).
constexpr std::string_view kDefaults[] = {"UCX_TLS=^sm,self",
                                          "UCX_KEEPALIVE_INTERVAL=inf",
                                          "UCX_UD_VERBS_ETH_DGID_CHECK=n",
                                          "UCX_HANDLE_ERRORS=none",
                                          "UCX_ERROR_SIGNALS=",
                                          "UCX_DEBUG_SIGNO=0",
                                          "UCX_VFS_ENABLE=n",
                                          "UCX_MEM_EVENTS=n",
                                          "UCX_LOG_LEVEL=fatal",
                                          "UCX_MEM_LOG_LEVEL=fatal",
                                          "UCX_WARN_UNUSED_ENV_VARS=n",
                                          "UCX_TCP_RX_SEG_SIZE=257k",
                                          "HOME"};

}  // namespace

const active::Library kLibrary = {"ucx",  "UCX",     "aiacc-ucx.so",         "aiacc_ucx_module",
                                  "UCX_", kDefaults, "UCX_TCP_RX_SEG_SIZE",  "257k",
                                  true,   "",        "UCX_IB_TRAFFIC_CLASS", "UCX_IB_SL"};

}  // namespace aiacc::ucx
