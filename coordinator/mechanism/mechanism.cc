#include "coordinator/mechanism/mechanism.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <span>
#include <utility>

#include "coordinator/mechanism/choice.h"
#include "coordinator/mechanism/round_view.h"

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

// From a type for each unit to its accelerators (Gavel section 5,
// "Placement"): units that stay keep theirs; gangs go to as few servers as
// possible, single workers fill up servers that are partly used. Takes from
// `free`; null: all accelerators are free.
class Places {
 public:
  Places(const RoundView& view, const std::vector<uint32_t>& type_of,
         FreePlaces* free)
      : view_(view), table_(view.table()), free_(free) {
    if (free_ == nullptr) {
      given_.assign(view.cluster().accelerators().size(), 0);
    }
    chosen_.reserve(table_.size() -
                    static_cast<size_t>(std::ranges::count(type_of, kNoIndex)));
    for (size_t i = 0; i < table_.size(); ++i) {
      const uint32_t u = view.Ordered(i);
      if (type_of[u] != kNoIndex) chosen_.push_back({u, type_of[u]});
    }
    placed_.resize(chosen_.size());
  }

  void KeepOwn() {
    for (uint32_t c = 0; c < chosen_.size(); ++c) {
      const auto [u, type] = chosen_[c];
      if (view_.Held(u) == type && Keep(table_.holds(u))) {
        Give(c, table_.holds(u));
      } else {
        moving_.push_back(c);
      }
    }
  }

  // A pair goes where one of its jobs is, and a job alone stays where it was
  // in a pair: one of them need not move.
  void InheritFromPairs() {
    std::vector<bool> placed(table_.size(), false);  // by unit
    for (uint32_t c = 0; c < chosen_.size(); ++c) {
      placed[chosen_[c].unit] = !placed_[c].second.empty();
    }
    std::vector<uint32_t> holder(view_.jobs(), kNoIndex);  // by job
    for (size_t i = 0; i < table_.size(); ++i) {
      const uint32_t u = view_.Ordered(i);
      if (view_.Held(u) == kNoIndex || placed[u]) continue;
      holder[view_.Job(u)] = holder[view_.Partner(u)] = u;
    }
    std::erase_if(moving_, [&](uint32_t c) {
      const uint32_t u = chosen_[c].unit;
      return Inherit(c, holder[view_.Job(u)]) ||
             Inherit(c, holder[view_.Partner(u)]);
    });
  }

  // Large gangs first, while there are large holes; then those with a home
  // that another one could take.
  void PlaceOthers() {
    const auto before = [&](uint32_t a, uint32_t b) {
      const auto key = [&](uint32_t c) {
        const uint32_t u = chosen_[c].unit;
        return std::pair(-table_.scale_factor(u),
                         table_.home_server(u).empty());
      };
      return key(a) < key(b);
    };
    if (!std::is_sorted(moving_.begin(), moving_.end(), before)) {
      std::stable_sort(moving_.begin(), moving_.end(), before);
    }
    if (free_ == nullptr && !moving_.empty()) {
      free_ = &own_.emplace(view_.cluster(), given_);
    }
    for (const uint32_t c : moving_) {
      const auto [u, type] = chosen_[c];
      const auto wanted = static_cast<size_t>(table_.scale_factor(u));
      placed_[c] = {table_.unit(u),
                    free_->Take(view_.cluster(), type, wanted,
                                table_.home_server(u), table_.own(u))};
    }
  }

  RoundAssignment Assignment() {
    std::erase_if(placed_,
                  [](const auto& entry) { return entry.second.empty(); });
    return RoundAssignment(std::move(placed_));
  }

 private:
  struct Chosen {
    uint32_t unit = 0;
    uint32_t type = 0;
  };

  void Give(uint32_t c, std::span<const AcceleratorId> accelerators) {
    placed_[c] = {table_.unit(chosen_[c].unit),
                  {accelerators.begin(), accelerators.end()}};
  }

  // Takes exactly these. False, and nothing taken, when one of them is gone
  // already.
  bool Keep(std::span<const AcceleratorId> accelerators) {
    for (size_t i = 0; i < accelerators.size(); ++i) {
      if (!IsFree(accelerators[i])) {
        while (i-- > 0) SetGiven(accelerators[i], false);
        return false;
      }
      SetGiven(accelerators[i], true);
    }
    return true;
  }

  bool IsFree(AcceleratorId id) const {
    return free_ != nullptr ? free_->IsFree(id) : given_[id.value() - 1] == 0;
  }
  void SetGiven(AcceleratorId id, bool given) {
    if (free_ == nullptr) {
      given_[id.value() - 1] = given ? 1 : 0;
    } else {
      given ? free_->Claim(id) : free_->Release(id);
    }
  }

  bool Inherit(uint32_t c, uint32_t from) {
    const auto [u, type] = chosen_[c];
    if (from == kNoIndex || from == u || view_.Held(from) != type) return false;
    const std::span<const AcceleratorId> holds = table_.holds(from);
    if (table_.scale_factor(u) != table_.scale_factor(from) || !Keep(holds)) {
      return false;
    }
    Give(c, holds);
    return true;
  }

  const RoundView& view_;
  const RoundTable& table_;
  FreePlaces* free_;
  std::vector<uint8_t> given_;                  // by id - 1, before own_
  std::optional<FreePlaces> own_;               // made when needed
  std::vector<Chosen> chosen_;                  // ascending by unit
  std::vector<RoundAssignment::Entry> placed_;  // as chosen_
  std::vector<uint32_t> moving_;                // indices into chosen_
};

RoundAssignment PlaceAll(const RoundView& view,
                         const std::vector<uint32_t>& type_of,
                         FreePlaces* free = nullptr) {
  Places places(view, type_of, free);
  places.KeepOwn();
  if (view.table().packed()) places.InheritFromPairs();
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
  const RoundView view(cluster, units);
  Choice choice(view, options);
  if (options.keep_running) choice.KeepRunning();
  choice.TakeAll();
  return RoundAssignment(PlaceAll(view, choice.type_of()).Release(),
                         choice.Claims());
}

RoundAssignment PlaceAssignment(const Cluster& cluster, const RoundTable& units,
                                std::span<const uint32_t> types,
                                FreePlaces* free) {
  assert(types.size() == units.size());
  const RoundView view(cluster, units,
                       free == nullptr ? cluster.Capacity() : free->Counts());
  Choice choice(view, RoundOptions());
  for (size_t u = 0; u < units.size(); ++u) choice.Take(u, types[u]);
  return PlaceAll(view, choice.type_of(), free);
}

}  // namespace gavel
