#include "coordinator/policy/demands.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace gavel::policy {
namespace {

// A job this close to its cap has all it can have.
constexpr double kCapSlack = 1e-12;

}  // namespace

Demands::Demands(std::vector<double> rates, std::vector<double> caps,
                 std::vector<DemandGroup> groups)
    : rates_(std::move(rates)),
      caps_(std::move(caps)),
      groups_(std::move(groups)),
      base_(caps_.size(), 0.0),
      floors_(caps_.size(), 0.0),
      frozen_(caps_.size(), false),
      unfrozen_(caps_.size()) {
  assert(rates_.size() == caps_.size());
  Sort();
}

Demands Demands::Flat(std::vector<double> rates, std::vector<double> caps,
                      std::vector<double> floors) {
  std::vector<DemandGroup> groups(caps.size());
  for (size_t m = 0; m < groups.size(); ++m) {
    groups[m].weight = rates[m];
    groups[m].tiers = {{m}};
  }
  Demands demands(std::move(rates), std::move(caps), std::move(groups));
  assert(floors.empty() || floors.size() == demands.caps_.size());
  if (!floors.empty()) demands.floors_ = std::move(floors);
  return demands;
}

// Within tiers by when they reach their caps, so that At is one pass.
void Demands::Sort() {
  for (DemandGroup& group : groups_) {
    for (std::vector<size_t>& tier : group.tiers) {
      std::sort(tier.begin(), tier.end(), [&](size_t a, size_t b) {
        return std::pair(Room(a) / rates_[a], a) <
               std::pair(Room(b) / rates_[b], b);
      });
    }
  }
}

double Demands::TopLevel() const {
  double top = 0;
  for (const DemandGroup& group : groups_) {
    double room = 0;
    for (const std::vector<size_t>& tier : group.tiers) {
      for (const size_t m : tier) room += Room(m);
    }
    top = std::max(top, room / group.weight);
  }
  // Rounding must not leave anybody below the cap.
  return top * (1 + kCapSlack);
}

void Demands::At(double level, std::span<double> amounts) const {
  RisenTo(level, amounts);
  for (size_t m = 0; m < floors_.size(); ++m) {
    amounts[m] = std::max(amounts[m], floors_[m]);
  }
}

void Demands::RisenTo(double level, std::span<double> amounts) const {
  std::copy(base_.begin(), base_.end(), amounts.begin());
  for (const DemandGroup& group : groups_) {
    double left = group.weight * level;
    for (const std::vector<size_t>& tier : group.tiers) {
      if (left <= 0) break;
      double rate = 0;  // of those in the tier that are not at their caps
      for (const size_t m : tier) rate += rates_[m];
      for (const size_t m : tier) {
        const double part = std::min(Room(m), left * (rates_[m] / rate));
        amounts[m] = part < Room(m) ? base_[m] + part : caps_[m];
        left -= part;
        rate -= rates_[m];
      }
    }
  }
}

void Demands::Advance(double level, std::span<const double> amounts,
                      const std::vector<bool>& to_freeze) {
  std::vector<double> risen(amounts.size());
  RisenTo(level, risen);
  for (size_t m = 0; m < base_.size(); ++m) {
    const bool at_floor = !to_freeze[m] && risen[m] < floors_[m];
    base_[m] = at_floor ? risen[m] : amounts[m];
    if (!at_floor) floors_[m] = 0;
  }
  const auto settle = [&](size_t m) {
    if (!to_freeze[m] && Room(m) > kCapSlack * caps_[m]) return false;
    frozen_[m] = true;
    --unfrozen_;
    return true;
  };
  for (DemandGroup& group : groups_) {
    for (std::vector<size_t>& tier : group.tiers) {
      tier.erase(std::remove_if(tier.begin(), tier.end(), settle), tier.end());
    }
  }
  Sort();
}

}  // namespace gavel::policy
