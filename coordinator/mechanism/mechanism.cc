#include "coordinator/mechanism/mechanism.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <span>
#include <utility>

#include "coordinator/mechanism/choice.h"
#include "coordinator/mechanism/placement.h"
#include "coordinator/mechanism/round_view.h"

namespace gavel {
namespace {

// By the value of the enum.
constexpr std::array<std::string_view, 2> kMechanismNames = {"gavel",
                                                             "move_aware"};
constexpr std::array<std::string_view, 2> kQueueNames = {"global", "per_type"};

// A round is chosen anew so often for the sake of units that avoid what is
// left.
constexpr int kPassesMax = 8;

template <class Kind>
std::optional<Kind> Find(const std::array<std::string_view, 2>& names,
                         std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Kind>(found - names.begin());
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

std::vector<RoundAssignment::Entry>::const_iterator RoundAssignment::find(
    const ShareUnit& unit) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), unit,
                       [](const Entry& entry, const ShareUnit& key) {
                         return entry.first < key;
                       });
  return found != end() && found->first == unit ? found : end();
}

const std::vector<AcceleratorId>& RoundAssignment::at(
    const ShareUnit& unit) const {
  const auto found = find(unit);
  assert(found != end());
  return found->second;
}

std::vector<std::vector<double>> Priorities(const RoundTable& units,
                                            double head_start_s) {
  std::vector<double> total_s(units.types(), 0.0);
  for (size_t u = 0; u < units.size(); ++u) {
    const std::span<const double> received_s = units.received_s(u);
    for (size_t j = 0; j < total_s.size(); ++j) {
      total_s[j] += received_s[j] + head_start_s;
    }
  }
  std::vector<std::vector<double>> priorities;
  priorities.reserve(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    std::vector<double>& row = priorities.emplace_back(units.types(), 0.0);
    const std::span<const double> share = units.share(u);
    const std::span<const double> received_s = units.received_s(u);
    for (size_t j = 0; j < row.size(); ++j) {
      if (!(share[j] > 0)) continue;
      const double counted_s = received_s[j] + head_start_s;
      row[j] = counted_s > 0 ? share[j] / (counted_s / total_s[j])
                             : std::numeric_limits<double>::infinity();
    }
  }
  return priorities;
}

RoundAssignment PlanRound(const Cluster& cluster, const RoundTable& units,
                          const RoundOptions& options) {
  const double moves_within_s =
      options.keep_running ? 0 : options.round_duration_s;
  std::optional<RoundTable> barred;
  for (int pass = 1;; ++pass) {
    const RoundView view(cluster, barred.has_value() ? *barred : units);
    Choice choice(view, options);
    if (options.keep_running) choice.KeepRunning();
    choice.TakeAll();
    Placement placement(view, choice, /*free=*/nullptr);
    RoundAssignment plan(placement.PlaceAll(moves_within_s).Release(),
                         choice.Claims());
    // What was chosen for units that may not use it is there for others.
    if (placement.unplaced().empty() || pass == kPassesMax) return plan;
    if (!barred.has_value()) barred = units;
    for (const auto& [u, type] : placement.unplaced()) barred->Bar(u, type);
  }
}

RoundAssignment PlaceAssignment(const Cluster& cluster, const RoundTable& units,
                                std::span<const uint32_t> types,
                                FreePlaces* free) {
  assert(types.size() == units.size());
  const RoundView view(cluster, units,
                       free == nullptr ? cluster.Capacity() : free->Counts());
  Choice choice(view, RoundOptions());
  for (size_t u = 0; u < units.size(); ++u) choice.Take(u, types[u]);
  return Placement(view, choice, free).PlaceAll(/*moves_within_s=*/0);
}

}  // namespace gavel
