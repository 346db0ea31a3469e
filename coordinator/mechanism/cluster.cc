#include "coordinator/mechanism/cluster.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "core/status.h"
#include "core/text.h"

namespace gavel {

absl::Status Cluster::CheckUuids(
    std::string_view server, const std::vector<AcceleratorInfo>& accelerators) {
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

absl::Status Cluster::Join(std::string_view server,
                           const std::vector<AcceleratorInfo>& accelerators,
                           std::string_view rack) {
  GAVEL_RETURN_IF_ERROR(CheckUuids(server, accelerators));
  std::vector<AcceleratorId>& ids = servers_[std::string(server)];
  const bool drained =
      !ids.empty() && std::ranges::all_of(ids, [&](AcceleratorId id) {
        return accelerator(id).drained;
      });
  // Accelerators that the server no longer declares must not be scheduled. A
  // later Join may declare them again.
  MarkUnreachable(server);
  places_.clear();
  for (size_t i = 0; i < accelerators.size(); ++i) {
    const AcceleratorInfo& info = accelerators[i];
    const AcceleratorId id = FindOrAdd(server, ids, info.uuid);
    Accelerator& entry = accelerators_[id.value() - 1];
    const AcceleratorState state = entry.state == AcceleratorState::kLost
                                       ? AcceleratorState::kLost
                                       : AcceleratorState::kUsable;
    const bool stays_drained = entry.id.valid() ? entry.drained : drained;
    Uncount(entry);
    entry.id = id;
    entry.server = server;
    entry.index = static_cast<int>(i);
    entry.info = info;
    entry.rack = rack;
    entry.state = state;
    entry.drained = stays_drained;
    entry.leaving = entry.forgotten = false;
    type_of_[id.value() - 1] = AddType(info.type);
    Count(entry);
  }
  return absl::OkStatus();
}

AcceleratorId Cluster::Find(std::string_view server,
                            std::string_view uuid) const {
  const auto found = servers_.find(server);
  if (found == servers_.end()) return {};
  for (const AcceleratorId id : found->second) {
    if (accelerator(id).info.uuid == uuid) return id;
  }
  return {};
}

AcceleratorId Cluster::FindOrAdd(std::string_view server,
                                 std::vector<AcceleratorId>& ids,
                                 std::string_view uuid) {
  if (const AcceleratorId known = Find(server, uuid); known.valid()) {
    return known;
  }
  accelerators_.emplace_back();
  type_of_.push_back(-1);
  usable_types_.push_back(kUnusable);
  return ids.emplace_back(accelerators_.size());
}

const std::vector<Cluster::Place>& Cluster::places() const {
  if (!places_.empty()) return places_;
  uint32_t server = 0;
  std::map<std::string_view, uint32_t> racks;
  std::map<std::pair<uint32_t, std::string_view>, uint32_t> groups;
  const auto number = [](auto& numbers, const auto& key) {
    const auto next = static_cast<uint32_t>(numbers.size());
    return numbers.try_emplace(key, next).first->second;
  };
  for (const auto& [name, ids] : servers_) {
    for (const AcceleratorId id : ids) {
      const Accelerator& there = accelerator(id);
      Place& place = places_.emplace_back(id, server);
      if (!there.info.group.empty()) {
        place.group = number(groups, std::pair<uint32_t, std::string_view>(
                                         server, there.info.group));
      }
      if (!there.rack.empty()) {
        place.rack = number(racks, std::string_view(there.rack));
      }
    }
    ++server;
  }
  return places_;
}

Locality Cluster::LevelOf(std::span<const AcceleratorId> ids) const {
  if (ids.size() < 2) return Locality::kServer;
  const Accelerator& first = accelerator(ids.front());
  const auto all = [&](auto same) {
    return std::ranges::all_of(
        ids, [&](AcceleratorId id) { return same(accelerator(id)); });
  };
  if (all([&](const Accelerator& a) { return a.server == first.server; })) {
    const std::string& group = first.info.group;
    const bool joined = !group.empty() && all([&](const Accelerator& a) {
      return a.info.group == group;
    });
    return joined ? Locality::kGroup : Locality::kServer;
  }
  const bool near = !first.rack.empty() && all([&](const Accelerator& a) {
    return a.rack == first.rack;
  });
  return near ? Locality::kRack : Locality::kCluster;
}

void Cluster::MarkUnreachable(std::string_view server) {
  const auto found = servers_.find(server);
  if (found == servers_.end()) return;
  for (const AcceleratorId id : found->second) {
    Accelerator& accelerator = accelerators_[id.value() - 1];
    if (accelerator.state == AcceleratorState::kUsable) {
      SetState(accelerator, AcceleratorState::kUnreachable);
    }
  }
}

void Cluster::MarkLost(AcceleratorId accelerator) {
  SetState(accelerators_.at(accelerator.value() - 1), AcceleratorState::kLost);
}

void Cluster::MarkFound(AcceleratorId accelerator, bool reachable) {
  SetState(
      accelerators_.at(accelerator.value() - 1),
      reachable ? AcceleratorState::kUsable : AcceleratorState::kUnreachable);
}

void Cluster::ForgetLost(std::string_view server) {
  const auto found = servers_.find(server);
  if (found == servers_.end()) return;
  for (const AcceleratorId id : found->second) {
    Accelerator& accelerator = accelerators_[id.value() - 1];
    if (accelerator.state == AcceleratorState::kLost) {
      SetState(accelerator, AcceleratorState::kUnreachable);
    }
  }
}

template <class Change>
void Cluster::Alter(AcceleratorId id, const Change& change) {
  Accelerator& accelerator = accelerators_.at(id.value() - 1);
  Uncount(accelerator);
  change(accelerator);
  Count(accelerator);
}

void Cluster::SetState(Accelerator& accelerator, AcceleratorState state) {
  Alter(accelerator.id, [&](Accelerator& a) { a.state = state; });
}

void Cluster::SetDrained(AcceleratorId accelerator, bool drained,
                         std::string_view why, bool alone) {
  Alter(accelerator, [&](Accelerator& a) {
    a.drained = drained;
    a.drained_alone = drained && (alone || a.drained_alone);
    if (!drained || !why.empty()) a.drained_for = why;
  });
}

void Cluster::SetReserved(AcceleratorId accelerator, bool reserved) {
  Alter(accelerator, [&](Accelerator& a) { a.reserved = reserved; });
}

void Cluster::NoteErrors(AcceleratorId accelerator, uint64_t errors) {
  accelerators_.at(accelerator.value() - 1).errors_known = errors;
}

void Cluster::SetLeaving(std::string_view server) {
  const auto found = servers_.find(server);
  if (found == servers_.end()) return;
  for (const AcceleratorId id : found->second) {
    Alter(id, [](Accelerator& a) { a.leaving = true; });
  }
}

void Cluster::Forget(std::string_view server) {
  const auto found = servers_.find(server);
  if (found == servers_.end()) return;
  for (const AcceleratorId id : found->second) {
    Alter(id, [](Accelerator& a) {
      a.state = AcceleratorState::kLost;
      a.forgotten = true;
    });
  }
  forgotten_ += found->second.size();
  servers_.erase(found);
  places_.clear();
}

void Cluster::AddToType(const Accelerator& accelerator, int count) {
  if (accelerator.forgotten) return;
  const auto type = static_cast<size_t>(TypeOf(accelerator.id));
  declared_[type] += count;
  if (accelerator.info.exclusive) exclusive_[type] += count;
}

void Cluster::Count(const Accelerator& accelerator) {
  AddToType(accelerator, 1);
  if (!accelerator.usable()) return;
  const auto type = static_cast<size_t>(TypeOf(accelerator.id));
  usable_types_[accelerator.id.value() - 1] = static_cast<uint32_t>(type);
  ++capacity_[type];
}

// An accelerator that has just been added has no id yet and is not counted.
void Cluster::Uncount(const Accelerator& accelerator) {
  if (!accelerator.id.valid()) return;
  AddToType(accelerator, -1);
  uint32_t& type = usable_types_[accelerator.id.value() - 1];
  if (type != kUnusable) --capacity_[type];
  type = kUnusable;
}

// The state was read from a snapshot that may be damaged, so ids and types are
// checked before they are used.
void Cluster::CountUsable() {
  places_.clear();
  capacity_.assign(types_.size(), 0);
  declared_ = exclusive_ = capacity_;
  forgotten_ = static_cast<size_t>(
      std::ranges::count(accelerators_, true, &Accelerator::forgotten));
  usable_types_.assign(accelerators_.size(), kUnusable);
  for (size_t i = 0; i < std::min(accelerators_.size(), type_of_.size()); ++i) {
    const auto type = static_cast<size_t>(type_of_[i]);  // -1: none
    const bool known = accelerators_[i].id == AcceleratorId(i + 1);
    if (known && type < types_.size()) Count(accelerators_[i]);
  }
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
  for (std::vector<int>* count : {&capacity_, &declared_, &exclusive_}) {
    count->push_back(0);
  }
  return static_cast<int>(types_.size()) - 1;
}

}  // namespace gavel
