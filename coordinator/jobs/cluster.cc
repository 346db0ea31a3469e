#include "coordinator/jobs/cluster.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

absl::Status CheckUuids(std::string_view server,
                        const std::vector<AcceleratorInfo>& accelerators) {
  std::set<std::string_view> seen;
  for (const AcceleratorInfo& info : accelerators) {
    if (!seen.insert(info.uuid).second) {
      return absl::InvalidArgumentError(
          StrCat("server ", server, ": two accelerators have the uuid \"",
                 info.uuid, "\"; give each its own"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Cluster::Join(std::string_view server,
                           const std::vector<AcceleratorInfo>& accelerators) {
  GAVEL_RETURN_IF_ERROR(CheckUuids(server, accelerators));
  std::vector<AcceleratorId>& ids = servers_[std::string(server)];
  // What the server no longer declares must not be scheduled; it may come back
  // with a later Join.
  MarkUnreachable(server);
  for (size_t i = 0; i < accelerators.size(); ++i) {
    const AcceleratorInfo& info = accelerators[i];
    const AcceleratorId id = FindOrAdd(ids, info.uuid);
    Accelerator& entry = accelerators_[id.value() - 1];
    const AcceleratorState state = entry.state == AcceleratorState::kLost
                                       ? AcceleratorState::kLost
                                       : AcceleratorState::kUsable;
    entry = {id, std::string(server), static_cast<int>(i), info, state};
    type_of_[id.value() - 1] = AddType(info.type);
  }
  return absl::OkStatus();
}

AcceleratorId Cluster::FindOrAdd(std::vector<AcceleratorId>& ids,
                                 std::string_view uuid) {
  for (const AcceleratorId id : ids) {
    if (accelerator(id).info.uuid == uuid) return id;
  }
  accelerators_.emplace_back();
  type_of_.push_back(-1);
  return ids.emplace_back(accelerators_.size());
}

void Cluster::MarkUnreachable(std::string_view server) {
  const auto found = servers_.find(server);
  if (found == servers_.end()) return;
  for (const AcceleratorId id : found->second) {
    AcceleratorState& state = accelerators_[id.value() - 1].state;
    if (state == AcceleratorState::kUsable) {
      state = AcceleratorState::kUnreachable;
    }
  }
}

void Cluster::MarkLost(AcceleratorId accelerator) {
  accelerators_.at(accelerator.value() - 1).state = AcceleratorState::kLost;
}

std::vector<int> Cluster::Capacity() const {
  std::vector<int> capacity(types_.size(), 0);
  for (const Accelerator& accelerator : accelerators_) {
    if (accelerator.state != AcceleratorState::kUsable) continue;
    ++capacity[static_cast<size_t>(TypeOf(accelerator.id))];
  }
  return capacity;
}

int Cluster::TypeIndex(std::string_view type) const {
  const auto found = std::find(types_.begin(), types_.end(), type);
  if (found == types_.end()) return -1;
  return static_cast<int>(found - types_.begin());
}

const Accelerator& Cluster::accelerator(AcceleratorId id) const {
  return accelerators_.at(id.value() - 1);
}

int Cluster::TypeOf(AcceleratorId id) const {
  return type_of_.at(id.value() - 1);
}

int Cluster::AddType(std::string_view type) {
  if (const int known = TypeIndex(type); known >= 0) return known;
  types_.emplace_back(type);
  return static_cast<int>(types_.size()) - 1;
}

}  // namespace gavel
