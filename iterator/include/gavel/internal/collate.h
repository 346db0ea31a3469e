// Samples into a batch. Part of gavel/data_loader.h.
#ifndef GAVEL_INTERNAL_COLLATE_H_
#define GAVEL_INTERNAL_COLLATE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "gavel/internal/placement.h"
#include "gavel/status.h"

namespace gavel::internal {

// `pinned`: in memory that a device reads by itself, where there is such.
GAVEL_EXPORT at::Tensor StackTensors(const std::vector<at::Tensor>& parts,
                                     bool pinned);

inline int64_t SampleCountOf(size_t size) { return static_cast<int64_t>(size); }
// std::optional, c10::optional: as torch::data datasets have.
template <class Optional>
int64_t SampleCountOf(const Optional& size) {
  return size.has_value() ? static_cast<int64_t>(*size) : 0;
}

template <class Sample>
auto Collate(std::vector<Sample> samples, bool pinned = false) {
  if constexpr (std::is_base_of_v<at::Tensor, Sample>) {
    return StackTensors(samples, pinned);
  } else if constexpr (HoldsTensors<Sample>() && HasData<Sample>::value) {
    Sample batch;
    std::vector<at::Tensor> parts;
    for (Sample& sample : samples) parts.push_back(std::move(sample.data));
    batch.data = StackTensors(parts, pinned);
    if constexpr (HasTarget<Sample>::value) {
      parts.clear();
      for (Sample& sample : samples) parts.push_back(std::move(sample.target));
      batch.target = StackTensors(parts, pinned);
    }
    return batch;
  } else {
    if (pinned) VisitTensors(samples, PinTensor);
    return samples;
  }
}
}  // namespace gavel::internal

#endif  // GAVEL_INTERNAL_COLLATE_H_
