#include "iterator/accumulation_watch.h"

#include <ATen/core/Tensor.h>

#include "runtime/torch_errors.h"

namespace gavel::internal {

AccumulationWatch::Versions AccumulationWatch::Read(
    const TrackedState& tracked) {
  Versions now;
  // An inference tensor has no version: nothing is trained then.
  CatchAsStatus("looking at gradients", [&] {
    for (const auto& item : tracked.items()) {
      for (const auto& [name, parameter] : item->Parameters()) {
        if (!parameter.defined() || !parameter.is_leaf()) continue;
        now.parameters += static_cast<uint64_t>(parameter._version());
        const at::Tensor& gradient = parameter.grad();
        if (!gradient.defined()) continue;
        now.has_gradients = true;
        now.gradients +=
            static_cast<uint64_t>(gradient._version()) + 1 +
            reinterpret_cast<uintptr_t>(gradient.unsafeGetTensorImpl());
      }
    }
    return absl::OkStatus();
  }).IgnoreError();
  return now;
}

void AccumulationWatch::Begin(const TrackedState& tracked,
                              const Snapshot* restored) {
  accumulates_ = restored != nullptr && TrackedState::HasGradients(*restored);
  last_ = Read(tracked);
}

void AccumulationWatch::Look(const TrackedState& tracked) {
  if (done()) return;
  const Versions now = Read(tracked);
  accumulates_ = now.has_gradients && now.gradients != last_.gradients &&
                 now.parameters == last_.parameters;
  last_ = now;
  ++looks_;
}

}  // namespace gavel::internal
