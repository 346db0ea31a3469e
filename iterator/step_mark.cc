#include "iterator/step_mark.h"

#include "core/status.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {

absl::Status StepMark::Set(uint64_t steps_done, const Snapshot& snapshot,
                           const TrackedState& tracked) {
  is_set_ = false;
  GAVEL_RETURN_IF_ERROR(ReadVersions(tracked, &versions_));
  steps_done_ = steps_done;
  bytes_ = snapshot.bytes;
  is_set_ = true;
  return absl::OkStatus();
}

bool StepMark::Holds(uint64_t steps_done, const TrackedState& tracked) const {
  if (!is_set_ || steps_done != steps_done_) return false;
  std::vector<Version> versions;
  return ReadVersions(tracked, &versions).ok() && versions == versions_;
}

void StepMark::Restore(Snapshot* snapshot) const { snapshot->bytes = bytes_; }

absl::Status StepMark::ReadVersions(const TrackedState& tracked,
                                    std::vector<Version>* versions) {
  return CatchAsStatus("reading the versions of tensors", [&] {
    versions->clear();
    for (const auto& item : tracked.items()) {
      GAVEL_ASSIGN_OR_RETURN(const std::vector<at::Tensor> tensors,
                             item->Tensors());
      for (const at::Tensor& tensor : tensors) {
        if (!tensor.defined()) continue;
        versions->push_back(
            {tensor.unsafeGetTensorImpl(),
             tensor.has_storage() ? tensor.storage().data() : nullptr,
             tensor._version()});
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace gavel::internal
