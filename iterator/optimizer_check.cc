#include "iterator/optimizer_check.h"

#include <ATen/ops/equal.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/text.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

// Parameters that are remembered, smallest first: an optimizer changes all of
// them, so that some are enough.
constexpr size_t kWatchedBytesMax = size_t{4} << 20;

std::set<c10::TensorImpl*> OptimizedParameters(const TrackedState& tracked,
                                               bool* has_optimizer) {
  std::set<c10::TensorImpl*> optimized;
  for (const auto& item : tracked.items()) {
    const torch::optim::Optimizer* optimizer = OptimizerOf(*item);
    if (optimizer == nullptr) continue;
    *has_optimizer = true;
    for (const auto& group : optimizer->param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        optimized.insert(parameter.unsafeGetTensorImpl());
      }
    }
  }
  return optimized;
}

}  // namespace

absl::Status OptimizerCheck::Begin(const TrackedState& tracked) {
  return CatchAsStatus("looking for an optimizer that is not tracked", [&] {
    const auto optimized = OptimizedParameters(tracked, &has_optimizer_);
    for (const auto& item : tracked.items()) {
      for (auto& [name, parameter] : item->Parameters()) {
        if (!parameter.defined() || !parameter.requires_grad()) continue;
        if (!parameter.is_leaf() || parameter.layout() != at::kStrided)
          continue;
        if (optimized.count(parameter.unsafeGetTensorImpl()) > 0) continue;
        watched_.push_back({std::move(name), parameter, {}});
      }
    }
    std::stable_sort(watched_.begin(), watched_.end(),
                     [](const Watched& a, const Watched& b) {
                       return a.parameter.nbytes() < b.parameter.nbytes();
                     });
    size_t bytes = 0;
    size_t count = 0;
    for (; count < watched_.size(); ++count) {
      bytes += watched_[count].parameter.nbytes();
      if (bytes > kWatchedBytesMax && count > 0) break;
      watched_[count].before = watched_[count].parameter.detach().cpu().clone();
    }
    watched_.resize(count);
    return absl::OkStatus();
  });
}

absl::Status OptimizerCheck::Check() {
  ++checks_;
  absl::Status status =
      CatchAsStatus("looking for an optimizer that is not tracked", [&] {
        for (const Watched& watched : watched_) {
          // A copy that follows another model has no gradient: state of that
          // kind is complete without an optimizer.
          if (has_optimizer_ && !watched.parameter.grad().defined()) continue;
          if (at::equal(watched.parameter.detach().cpu(), watched.before)) {
            continue;
          }
          return absl::FailedPreconditionError(
              StrCat("parameter '", watched.name,
                     "' is trained, but no tracked optimizer has it, so its "
                     "optimizer's state would be lost at a restart; call "
                     "session->Track(\"optimizer\", optimizer) before the "
                     "loop, or set SessionOptions::require_tracked_optimizer "
                     "to false if there is none"));
        }
        return absl::OkStatus();
      });
  if (done()) watched_.clear();
  return status;
}

}  // namespace gavel::internal
