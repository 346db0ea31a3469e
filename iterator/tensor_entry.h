// One tensor of the tracked state as entries of a Snapshot, and back. A dense
// one is one entry. A sparse one is its parts, and a line of text:
//
//   NAME/layout    bytes   "coo 4 6" or "coalesced coo 4 6" or "csr 4 6"
//   NAME/indices, NAME/values                               of a COO tensor
//   NAME/crow_indices, NAME/col_indices, NAME/values        of a CSR tensor
//
// Training thread only.
#ifndef GAVEL_ITERATOR_TENSOR_ENTRY_H_
#define GAVEL_ITERATOR_TENSOR_ENTRY_H_

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/checkpoint/snapshot.h"

namespace gavel::internal {

// Nothing for an undefined tensor. `part`: which the tensor is of a larger one.
// UNIMPLEMENTED: another layout.
absl::Status CollectTensor(const std::string& name, const at::Tensor& tensor,
                           const std::optional<OwnPart>& part,
                           Snapshot* snapshot);

// Whether one of this name is there, in whichever form.
bool HasTensor(const Snapshot& snapshot, const std::string& name);

// Into the tensor that is there, so that all who share it see it; an undefined
// one is made, if the snapshot has it. FAILED_PRECONDITION: none is saved under
// this name, or one of another layout, shape or type, or a whole of which this
// is not the part. May throw what LibTorch throws.
absl::Status RestoreTensor(const Snapshot& snapshot, const std::string& name,
                           const std::optional<OwnPart>& part,
                           at::Tensor& tensor);

// LibTorch can't put a CSR tensor elsewhere in place (set_data leaves its parts
// as they were), so its handle is replaced. Nothing for other layouts.
void ReplaceCsr(at::Tensor& tensor, at::Device device);
// UNIMPLEMENTED: one of `tensors` is CSR and not on `device`; of a module,
// whose handles are not ours to replace.
absl::Status CheckNoCsr(const std::string& name,
                        const std::vector<at::Tensor>& tensors,
                        at::Device device);

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_TENSOR_ENTRY_H_
