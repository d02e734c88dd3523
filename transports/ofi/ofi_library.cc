#include "transports/ofi/ofi_library.h"

namespace aiacc::ofi {
namespace {

// FI_OFI_RXM_BUFFER_SIZE holds a message of ours (transports/ofi/wire.h), which rxm would cut into segments otherwise.
// rxm makes all buffers of its queues at once, so they are short. FI_OFI_RXM_CM_PROGRESS_INTERVAL, in microseconds, is how long a
// connection that a peer begins may wait. FI_AV_REMOVE_CLEANUP lets a connection be closed (Fabric::remove()). Registrations are not
// cached, so nothing need watch the process's memory. The last two keep signal handlers of the libraries for PSM away.
constexpr std::string_view kDefaults[] = {"FI_OFI_RXM_BUFFER_SIZE=66048", "FI_OFI_RXM_CM_PROGRESS_INTERVAL=1000",
                                          "FI_MR_CACHE_MONITOR=disabled", "FI_OFI_RXM_TX_SIZE=128",
                                          "FI_AV_REMOVE_CLEANUP=1",       "FI_OFI_RXM_RX_SIZE=128",
                                          "FI_OFI_RXM_MSG_TX_SIZE=64",    "FI_OFI_RXM_MSG_RX_SIZE=64",
                                          "HFI_NO_BACKTRACE=1",           "IPATH_NO_BACKTRACE=1"};

}  // namespace

const active::Library kLibrary = {"ofi", "libfabric", "aiacc-ofi.so", "aiacc_ofi_module",
                                  "FI_", kDefaults,   "OFI_PROVIDER", "efa,verbs;ofi_rxm,tcp;ofi_rxm",
                                  false, ";ofi_rxm"};

}  // namespace aiacc::ofi
