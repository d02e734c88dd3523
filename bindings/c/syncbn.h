// What the handle of a batch normalisation over ranks names.
#pragma once

#include <memory>

#include "bindings/c/state.h"
#include "groupcomm/syncbn/sync_batch_norm.h"
#include "include/aiacc/syncbn.h"

namespace aiacc::abi {

struct SyncbnEntry {
  SyncbnEntry(std::shared_ptr<RealContext> of, Group& its, std::string name)
      : group(std::move(of), its), norm(*group.context, its, std::move(name)) {}

  GroupEntry group;  // the handle's own; let go after `norm`
  syncbn::SyncBatchNorm norm;
};

// Frees the handles of a context that the user has not.
void free_syncbns(RealContext& context) noexcept;

}  // namespace aiacc::abi
