// Allreduce and reduce if some buffer is private: chunks go through slots that stay in the cache.
//
//   fill    copy the parts of my chunk that others reduce into my slot (not needed if my input is shared)
//   reduce  my part of the chunk, from all slots and my own input, into my result slot and my output
//   copy    the other parts, from the result slots into my output
//
// With n members of S bytes a core moves (5n - 2)/n S, 4S for two members: 2S(n-1)/n to fill, (n + 2)S/n to reduce,
// 2S(n-1)/n to copy; only the reads of inputs and the writes of outputs, 2S, miss the cache. To read the others' buffers through the
// kernel instead (process_vm_readv) moves as many bytes, and took 1.6 to 2.1 times as long (bench/host, 64 KiB to 4 MiB, 2 ranks).
#pragma once

#include "collectives/intra/arrive.h"

namespace aiacc::intra {

Task<void> staged_reduce(IntraCall call);

}  // namespace aiacc::intra
