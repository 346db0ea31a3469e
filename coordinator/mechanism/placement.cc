#include "coordinator/mechanism/placement.h"

namespace gavel {

Placement::Placement(const RoundView& view, FreePlaces* free)
    : view_(view), free_(free) {
  if (free_ != nullptr) return;
  given_.assign(view.cluster().accelerators().size(), 0);
}

bool Placement::Keep(std::span<const AcceleratorId> accelerators) {
  for (size_t i = 0; i < accelerators.size(); ++i) {
    if (!IsFree(accelerators[i])) {
      while (i-- > 0) Give(accelerators[i], false);
      return false;
    }
    Give(accelerators[i], true);
  }
  return true;
}

bool Placement::IsFree(AcceleratorId id) const {
  return free_ != nullptr ? free_->IsFree(id) : given_[id.value() - 1] == 0;
}

void Placement::Give(AcceleratorId id, bool given) {
  if (free_ == nullptr) {
    given_[id.value() - 1] = given ? 1 : 0;
  } else {
    given ? free_->Claim(id) : free_->Release(id);
  }
}

std::vector<AcceleratorId> Placement::Place(size_t unit, size_t type) {
  const int scale_factor = view_.table().scale_factor(unit);
  if (type >= view_.capacity().size() || scale_factor < 1) return {};
  if (free_ == nullptr) free_ = &own_.emplace(view_.cluster(), given_);
  return free_->Take(view_.cluster(), type, static_cast<size_t>(scale_factor),
                     view_.table().home_server(unit),
                     view_.table().holds(unit));
}

}  // namespace gavel
