// Collectives between processes on simulated devices: queued on a stream of
// their own, as NCCL's are. Ending the group without a wait leaves tensors as
// they are in the middle; a rank that is lost lets the others' streams hang
// until they abort.
#ifndef GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_COLLECTIVES_H_
#define GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_COLLECTIVES_H_

#include <c10/util/intrusive_ptr.h>

#include "runtime/device/device_backend.h"

namespace gavel::simulated {

// Returns when all ranks are there.
c10::intrusive_ptr<c10d::Backend> MakeCollectives(
    const c10::intrusive_ptr<c10d::Store>& store,
    const ProcessGroupOptions& options);

}  // namespace gavel::simulated

#endif  // GAVEL_TESTS_SUPPORT_SIMULATED_DEVICE_COLLECTIVES_H_
