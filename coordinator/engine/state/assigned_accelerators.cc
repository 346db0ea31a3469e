#include "coordinator/engine/state/assigned_accelerators.h"

#include <algorithm>
#include <cassert>
#include <cstddef>

namespace gavel::engine {

void AssignedAccelerators::Add(AcceleratorId accelerator, JobId job) {
  Count(accelerator, 1);
  jobs_.Add(accelerator, job);
}

void AssignedAccelerators::Remove(AcceleratorId accelerator, JobId job) {
  if (jobs_.Remove(accelerator, [&](JobId id) { return id == job; })) {
    Count(accelerator, -1);
  }
}

void AssignedAccelerators::Count(AcceleratorId accelerator, int by) {
  assert(accelerator.valid() && accelerator.value() <= assigned_.size());
  uint8_t& jobs = assigned_[accelerator.value() - 1];
  const bool was_free = jobs == 0;
  jobs = static_cast<uint8_t>(jobs + by);
  const uint32_t type = cluster_.usable_types()[accelerator.value() - 1];
  changes_.ForgetType(type);
  if (was_free == (jobs == 0) || type == Cluster::kUnusable) return;
  free_[type] += was_free ? -1 : 1;
  if (!places_) return;
  was_free ? places_->Claim(accelerator) : places_->Release(accelerator);
}

void AssignedAccelerators::Recount() {
  changes_.TouchAll();
  free_ = cluster_.Capacity();
  assigned_.assign(cluster_.accelerators().size(), 0);
  places_.reset();
  // A snapshot may be damaged.
  const size_t end = std::min(jobs_.size(), assigned_.size());
  for (size_t i = 0; i < end; ++i) {
    const AcceleratorId id(i + 1);
    const size_t jobs = jobs_.At(id).size();
    if (jobs > 0) Count(id, static_cast<int>(jobs));
  }
}

bool AssignedAccelerators::IsFree(AcceleratorId accelerator) const {
  return assigned_[accelerator.value() - 1] == 0;
}

FreePlaces& AssignedAccelerators::Places() {
  if (!places_) places_.emplace(cluster_, assigned_);
  return *places_;
}

}  // namespace gavel::engine
