#include "coordinator/mechanism/mechanism.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <utility>

#include "coordinator/mechanism/choice.h"
#include "coordinator/mechanism/placement.h"
#include "coordinator/mechanism/round_table.h"

namespace gavel {
namespace {

// By the value of the enum.
constexpr std::array<std::string_view, 2> kMechanismNames = {"gavel",
                                                             "move_aware"};
constexpr std::array<std::string_view, 2> kQueueNames = {"global", "per_type"};

template <class Kind>
std::optional<Kind> Find(const std::array<std::string_view, 2>& names,
                         std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Kind>(found - names.begin());
}

// From a type for each unit to its accelerators.
class Places {
 public:
  Places(const RoundTable& table, const std::vector<uint32_t>& type_of)
      : table_(table),
        type_of_(type_of),
        placement_(table.cluster),
        placed_(table.units.size()) {}

  void KeepOwn() {
    for (const uint32_t u : table_.order) {
      if (type_of_[u] == kNone) continue;
      const std::vector<AcceleratorId>& holds = table_.units[u].holds;
      if (Stays(u) && placement_.Keep(holds)) {
        placed_[u] = holds;
      } else {
        moving_.push_back(u);
      }
    }
  }

  // A pair goes where one of its jobs is, and a job alone stays where it was
  // in a pair: one of them need not move.
  void InheritFromPairs() {
    std::vector<uint32_t> holder(table_.jobs, kNone);  // by job
    for (const uint32_t u : table_.order) {
      const RoundRow& row = table_.rows[u];
      if (row.held == kNone || !placed_[u].empty()) continue;
      holder[row.job] = holder[row.partner] = u;
    }
    std::erase_if(moving_, [&](uint32_t u) {
      const RoundRow& row = table_.rows[u];
      return Inherit(u, holder[row.job]) || Inherit(u, holder[row.partner]);
    });
  }

  // Large gangs first, while there are large holes; then those who have a home
  // that another one could take.
  void PlaceOthers() {
    std::sort(moving_.begin(), moving_.end(), [&](uint32_t a, uint32_t b) {
      const auto key = [&](uint32_t u) {
        const RoundUnit& unit = table_.units[u];
        return std::tuple(-unit.scale_factor, unit.home_server.empty(),
                          table_.rows[u].position);
      };
      return key(a) < key(b);
    });
    for (const uint32_t u : moving_) {
      placed_[u] = placement_.Place(table_.units[u], type_of_[u]);
    }
  }

  RoundAssignment Assignment() {
    RoundAssignment assignment;
    for (const uint32_t u : table_.order) {
      if (placed_[u].empty()) continue;
      assignment.emplace_hint(assignment.end(), table_.units[u].unit,
                              std::move(placed_[u]));
    }
    return assignment;
  }

 private:
  bool Stays(uint32_t u) const { return table_.rows[u].held == type_of_[u]; }

  bool Inherit(uint32_t u, uint32_t from) {
    if (from == kNone || from == u || table_.rows[from].held != type_of_[u]) {
      return false;
    }
    const std::vector<AcceleratorId>& holds = table_.units[from].holds;
    if (table_.units[u].scale_factor != table_.units[from].scale_factor ||
        !placement_.Keep(holds)) {
      return false;
    }
    placed_[u] = holds;
    return true;
  }

  const RoundTable& table_;
  const std::vector<uint32_t>& type_of_;
  Placement placement_;
  std::vector<std::vector<AcceleratorId>> placed_;  // by unit
  std::vector<uint32_t> moving_;
};

RoundAssignment PlaceAll(const RoundTable& table,
                         const std::vector<uint32_t>& type_of) {
  Places places(table, type_of);
  places.KeepOwn();
  if (table.packed) places.InheritFromPairs();
  places.PlaceOthers();
  return places.Assignment();
}

}  // namespace

std::optional<MechanismKind> FindMechanism(std::string_view name) {
  return Find<MechanismKind>(kMechanismNames, name);
}

std::optional<QueueKind> FindQueue(std::string_view name) {
  return Find<QueueKind>(kQueueNames, name);
}

std::string_view MechanismName(MechanismKind kind) {
  return kMechanismNames[static_cast<size_t>(kind)];
}

std::string_view QueueName(QueueKind kind) {
  return kQueueNames[static_cast<size_t>(kind)];
}

std::vector<std::vector<double>> Priorities(
    const std::vector<RoundUnit>& units) {
  std::vector<double> total_s;  // by type
  for (const RoundUnit& unit : units) {
    total_s.resize(std::max(total_s.size(), unit.time_received_s.size()), 0.0);
    for (size_t j = 0; j < unit.time_received_s.size(); ++j) {
      total_s[j] += unit.time_received_s[j];
    }
  }
  std::vector<std::vector<double>> priorities;
  for (const RoundUnit& unit : units) {
    std::vector<double>& row = priorities.emplace_back(unit.share.size(), 0.0);
    for (size_t j = 0; j < row.size(); ++j) {
      if (!(unit.share[j] > 0)) continue;
      const bool received =
          j < unit.time_received_s.size() && unit.time_received_s[j] > 0;
      row[j] = received ? unit.share[j] / (unit.time_received_s[j] / total_s[j])
                        : std::numeric_limits<double>::infinity();
    }
  }
  return priorities;
}

RoundAssignment PlanRound(const Cluster& cluster,
                          const std::vector<RoundUnit>& units,
                          const RoundOptions& options) {
  const RoundTable table(cluster, units);
  Choice choice(table, options);
  if (options.keep_running) choice.KeepRunning();
  choice.TakeAll();
  return PlaceAll(table, choice.type_of());
}

RoundAssignment PlaceAssignment(
    const Cluster& cluster, const std::vector<RoundUnit>& units,
    const std::map<ShareUnit, size_t>& type_of_unit) {
  const RoundTable table(cluster, units);
  Choice choice(table, RoundOptions());
  for (size_t u = 0; u < units.size(); ++u) {
    const auto found = type_of_unit.find(units[u].unit);
    if (found != type_of_unit.end()) choice.Take(u, found->second);
  }
  return PlaceAll(table, choice.type_of());
}

}  // namespace gavel
