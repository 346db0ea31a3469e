// Collectives over NCCL, for cuda_backend.cc.
#ifndef GAVEL_RUNTIME_CUDA_NCCL_COLLECTIVES_H_
#define GAVEL_RUNTIME_CUDA_NCCL_COLLECTIVES_H_

#include <c10/util/intrusive_ptr.h>

#include "runtime/device/device_backend.h"

namespace gavel {

// As DeviceBackend::MakeCollectives.
c10::intrusive_ptr<c10d::Backend> MakeNccl(
    const c10::intrusive_ptr<c10d::Store>& store,
    const ProcessGroupOptions& options);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CUDA_NCCL_COLLECTIVES_H_
