#include "tests/mechanism/reference_round.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "coordinator/mechanism/choice.h"
#include "coordinator/mechanism/round_table.h"
#include "tests/mechanism/round_fixture.h"

namespace gavel::testing {
namespace {

// Which types the units get.
class Chooser {
 public:
  Chooser(const Cluster& cluster, const std::vector<RoundUnit>& rows,
          const RoundOptions& chosen_options)
      : units(rows),
        options(chosen_options),
        table(rows),
        view(cluster, table),
        debts(view, options.round_duration_s),
        room(cluster.Capacity()) {
    for (const RoundUnit& unit : units) held.push_back(TypeHeld(cluster, unit));
  }

  std::map<size_t, size_t> Run() {
    if (options.keep_running) {
      for (size_t u = 0; u < units.size(); ++u) {
        if (held[u] != kNoIndex) Take(u, held[u]);
      }
    }
    if (options.queue == QueueKind::kGlobal) {
      TakeTypes(0, room.size());
    } else {
      for (size_t j = 0; j < room.size(); ++j) TakeTypes(j, j + 1);
    }
    return type_of;
  }

  // By job: the type that it was chosen for, where it runs on a better one.
  std::map<JobId, int> Claims() const {
    std::map<JobId, int> claims;
    for (const auto& [u, type] : claimed) {
      if (static_cast<size_t>(type) != type_of.at(u))
        claims[units[u].unit.job] = type;
    }
    return claims;
  }

 private:
  bool Free(size_t u) const {
    return !taken.contains(units[u].unit.job) &&
           !(units[u].unit.packed() && taken.contains(units[u].unit.partner));
  }

  void Take(size_t u, size_t type) {
    if (!Free(u) || room[type] < units[u].scale_factor) return;
    room[type] -= units[u].scale_factor;
    type_of[u] = type;
    taken.insert(units[u].unit.job);
    if (units[u].unit.packed()) taken.insert(units[u].unit.partner);
  }

  void TakeTypes(size_t begin, size_t end) {
    // (standing, -deficit, -share, does not hold it, unit, type, index)
    std::vector<
        std::tuple<double, double, double, bool, ShareUnit, size_t, size_t>>
        claims;
    for (size_t u = 0; u < units.size(); ++u) {
      const RoundUnit& unit = units[u];
      const bool move_aware = options.mechanism == MechanismKind::kMoveAware;
      for (size_t j = begin; j < end; ++j) {
        if (unit.share[j] <= kShareMin || !unit.usable[j]) continue;
        if (move_aware && options.work_conserving && debts.StaysForNow(u)) {
          continue;
        }
        const double standing =
            move_aware
                ? debts.Standing(u, j)
                : (unit.time_received_s[j] + options.round_duration_s / 2) /
                      unit.share[j];
        const double deficit_s = unit.deficit_s.empty() ? 0 : unit.deficit_s[j];
        claims.emplace_back(standing, -deficit_s, -unit.share[j],
                            Claimed(u) != j, unit.unit, j, u);
      }
    }
    std::sort(claims.begin(), claims.end());
    for (const auto& claim : claims) {
      Take(std::get<6>(claim), std::get<5>(claim));
    }
    if (!options.work_conserving) return;
    const bool upgrades = options.queue == QueueKind::kGlobal;
    if (upgrades) Upgrade();
    TakeLeftovers(begin, end);
    if (upgrades) Upgrade();
  }

  uint32_t Claimed(size_t u) const {
    if (held[u] == kNoIndex || units[u].claimed == kNoIndex) return held[u];
    return units[u].claimed;
  }

  double Worth(size_t u, size_t j) const {
    const RoundUnit& unit = units[u];
    if (unit.worth.empty()) return 0;
    const bool moves = held[u] != kNoIndex && held[u] != j;
    if (options.mechanism == MechanismKind::kGavel || !moves) {
      return unit.worth[j];
    }
    return unit.worth[j] *
           std::max(0.0, 1 - unit.move_cost_s / options.round_duration_s);
  }

  // In passes: those that gain most first, each once.
  void Upgrade() {
    for (bool moved = true; moved;) {
      // (-gain, unit, type, index)
      std::vector<std::tuple<double, ShareUnit, size_t, size_t>> better;
      for (const auto& [u, from] : type_of) {
        const bool stays = options.keep_running && held[u] != kNoIndex;
        if (units[u].unit.packed() || stays) continue;
        for (size_t j = 0; j < room.size(); ++j) {
          const double gain = Worth(u, j) - Worth(u, from);
          if (units[u].usable[j] && room[j] >= units[u].scale_factor &&
              gain > 1e-9 * std::abs(Worth(u, from))) {
            better.emplace_back(-units[u].scale_factor * gain, units[u].unit, j,
                                u);
          }
        }
      }
      std::sort(better.begin(), better.end());
      moved = false;
      std::set<size_t> done;
      for (const auto& [gain, unit, j, u] : better) {
        if (done.contains(u) || room[j] < units[u].scale_factor) continue;
        if (units[u].share[type_of[u]] > kShareMin) {
          claimed.emplace(u, static_cast<int>(type_of[u]));
        }
        room[type_of[u]] += units[u].scale_factor;
        room[j] -= units[u].scale_factor;
        type_of[u] = j;
        done.insert(u);
        moved = true;
      }
    }
  }

  void TakeLeftovers(size_t begin, size_t end) {
    // (packed, standing, unit, does not hold it, type, index)
    std::vector<std::tuple<bool, double, ShareUnit, bool, size_t, size_t>> rest;
    for (size_t u = 0; u < units.size(); ++u) {
      const RoundUnit& unit = units[u];
      for (size_t j = begin; j < end; ++j) {
        if (!unit.usable[j]) continue;
        double standing = 0;
        for (const double s : unit.time_received_s) standing += s;
        if (options.mechanism == MechanismKind::kMoveAware) {
          standing = debts.LeftoverStanding(u, j);
        }
        if (options.leftovers_by_worth) standing = -Worth(u, j);
        rest.emplace_back(unit.unit.packed(), standing, unit.unit, held[u] != j,
                          j, u);
      }
    }
    std::sort(rest.begin(), rest.end());
    for (const auto& one : rest) Take(std::get<5>(one), std::get<4>(one));
  }

  const std::vector<RoundUnit>& units;
  RoundOptions options;
  RoundTable table;
  RoundView view;
  Debts debts;
  std::vector<int> room;
  std::vector<uint32_t> held;
  std::map<size_t, size_t> type_of;
  std::map<size_t, int> claimed;
  std::set<JobId> taken;
};

// Which accelerators they get.
class Placer {
 public:
  explicit Placer(const Cluster& cluster) : cluster_(cluster) {
    for (const auto& [name, ids] : cluster.servers()) {
      for (const AcceleratorId id : ids) {
        if (cluster.accelerator(id).state != AcceleratorState::kUsable) {
          continue;
        }
        auto& [free, size] = servers_[{cluster.TypeOf(id), name}];
        free.push_back(id);
        std::sort(free.begin(), free.end());
        ++size;
      }
    }
  }

  bool Keep(const std::vector<AcceleratorId>& ids) {
    for (const AcceleratorId id : ids) {
      const auto& free = Of(id).first;
      if (std::find(free.begin(), free.end(), id) == free.end()) return false;
    }
    for (const AcceleratorId id : ids) std::erase(Of(id).first, id);
    return true;
  }

  std::vector<AcceleratorId> Place(const RoundUnit& unit, size_t type) {
    std::vector<AcceleratorId> taken;
    const auto wanted = static_cast<size_t>(unit.scale_factor);
    while (taken.size() < wanted) {
      Server* server =
          Best(wanted - taken.size(), static_cast<int>(type), unit.home_server);
      auto& free = server->first;
      std::stable_partition(free.begin(), free.end(), [&](AcceleratorId id) {
        return std::find(unit.holds.begin(), unit.holds.end(), id) !=
               unit.holds.end();
      });
      while (!free.empty() && taken.size() < wanted) {
        taken.push_back(free.front());
        free.erase(free.begin());
      }
    }
    std::sort(taken.begin(), taken.end());
    return taken;
  }

 private:
  // Free accelerators of one type, and how many it has.
  using Server = std::pair<std::vector<AcceleratorId>, size_t>;

  Server& Of(AcceleratorId id) {
    return servers_.at({cluster_.TypeOf(id), cluster_.accelerator(id).server});
  }

  // The home where all fit, else the tightest fit, a server in use before a
  // whole one, then by name; where all fit nowhere, the largest hole in the
  // same order.
  Server* Best(size_t needed, int type, const std::string& home) {
    Server* best = nullptr;
    std::tuple<bool, size_t, bool, bool> best_rank;
    for (auto& [key, server] : servers_) {
      const size_t free = server.first.size();
      if (key.first != type || free == 0) continue;
      const bool fits = free >= needed;
      const bool is_home = key.second == home;
      const std::tuple rank(!fits, fits ? (is_home ? 0 : free) : 1000 - free,
                            !is_home, free == server.second);
      if (best != nullptr && best_rank <= rank) continue;
      best = &server;
      best_rank = rank;
    }
    return best;
  }

  const Cluster& cluster_;
  std::map<std::pair<int, std::string>, Server> servers_;
};

}  // namespace

RoundAssignment ReferenceRound(const Cluster& cluster,
                               const std::vector<RoundUnit>& given,
                               const RoundOptions& options) {
  std::vector<RoundUnit> units = given;
  std::sort(units.begin(), units.end(),
            [](const auto& a, const auto& b) { return a.unit < b.unit; });
  Chooser chooser(cluster, units, options);
  const auto type_of = chooser.Run();
  const std::map<JobId, int> claims = chooser.Claims();
  Placer placer(cluster);
  std::map<ShareUnit, std::vector<AcceleratorId>> placed;
  std::vector<size_t> moving;
  for (const auto& [u, type] : type_of) {
    const RoundUnit& unit = units[u];
    if (TypeHeld(cluster, unit) == type && placer.Keep(unit.holds)) {
      placed[unit.unit] = unit.holds;
    } else {
      moving.push_back(u);
    }
  }
  // A job that ran in another unit takes that one's accelerators over.
  std::map<JobId, size_t> holder;
  for (size_t u = 0; u < units.size(); ++u) {
    if (TypeHeld(cluster, units[u]) == kNoIndex) continue;
    if (placed.contains(units[u].unit)) continue;
    holder[units[u].unit.job] = u;
    if (units[u].unit.packed()) holder[units[u].unit.partner] = u;
  }
  const bool packed = std::any_of(units.begin(), units.end(), [](auto& unit) {
    return unit.unit.packed();
  });
  std::erase_if(moving, [&](size_t u) {
    const RoundUnit& unit = units[u];
    for (const JobId job : {unit.unit.job, unit.unit.partner}) {
      const auto from = holder.find(job);
      if (!packed || from == holder.end() || from->second == u) continue;
      const RoundUnit& other = units[from->second];
      if (TypeHeld(cluster, other) != type_of.at(u) ||
          other.scale_factor != unit.scale_factor ||
          !placer.Keep(other.holds)) {
        continue;
      }
      placed[unit.unit] = other.holds;
      return true;
    }
    return false;
  });
  std::stable_sort(moving.begin(), moving.end(), [&](size_t a, size_t b) {
    return std::pair(-units[a].scale_factor, units[a].home_server.empty()) <
           std::pair(-units[b].scale_factor, units[b].home_server.empty());
  });
  for (const size_t u : moving) {
    placed[units[u].unit] = placer.Place(units[u], type_of.at(u));
  }
  return RoundAssignment(
      std::vector<RoundAssignment::Entry>(placed.begin(), placed.end()),
      {claims.begin(), claims.end()});
}

}  // namespace gavel::testing
