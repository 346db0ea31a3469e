#include "tests/mechanism/round_fixture.h"

#include <numeric>

#include "coordinator/mechanism/round_table.h"
#include "core/text.h"
#include "tests/support/test.h"

namespace gavel::testing {

Cluster MakeCluster(const Servers& servers) {
  Cluster cluster;
  for (const auto& [server, types] : servers) {
    std::vector<AcceleratorInfo> accelerators;
    for (const std::string& type : types) {
      AcceleratorInfo& info = accelerators.emplace_back();
      info.type = type;
      info.uuid = StrCat(accelerators.size());
    }
    EXPECT_TRUE(cluster.Join(server, accelerators).ok());
  }
  return cluster;
}

ShareUnit Alone(uint64_t job) { return {JobId(job), JobId()}; }

ShareUnit Pair(uint64_t job, uint64_t partner) {
  return {JobId(job), JobId(partner)};
}

RoundUnit MakeUnit(uint64_t id, int scale_factor, std::vector<double> share) {
  RoundUnit unit;
  unit.unit = Alone(id);
  unit.scale_factor = scale_factor;
  unit.time_received_s.assign(share.size(), 0.0);
  for (const double value : share) unit.usable.push_back(value > 0);
  unit.share = std::move(share);
  return unit;
}

RoundUnit MakePair(uint64_t job, uint64_t partner, int scale_factor,
                   std::vector<double> share) {
  RoundUnit unit = MakeUnit(job, scale_factor, std::move(share));
  unit.unit = Pair(job, partner);
  return unit;
}

void Hold(const RoundAssignment& assignment, std::vector<RoundUnit>& units) {
  for (RoundUnit& unit : units) {
    const auto found = assignment.find(unit.unit);
    unit.holds = found == assignment.end() ? std::vector<AcceleratorId>()
                                           : found->second;
    unit.claimed = kNoIndex;
    for (const auto& [job, type] : assignment.claims()) {
      if (unit.unit == ShareUnit{job, JobId()}) {
        unit.claimed = static_cast<uint32_t>(type);
      }
    }
  }
}

RoundAssignment PlaceAssignment(
    const Cluster& cluster, const std::vector<RoundUnit>& units,
    const std::map<ShareUnit, size_t>& type_of_unit) {
  std::vector<uint32_t> types;
  for (const RoundUnit& unit : units) {
    const auto found = type_of_unit.find(unit.unit);
    types.push_back(found == type_of_unit.end()
                        ? kNoIndex
                        : static_cast<uint32_t>(found->second));
  }
  return gavel::PlaceAssignment(cluster, RoundTable(units), types);
}

uint32_t TypeHeld(const Cluster& cluster, const RoundUnit& unit) {
  const std::vector<RoundUnit> one = {unit};
  const RoundTable table(one);
  return RoundView(cluster, table).Held(0);
}

std::vector<AcceleratorId> Ids(const std::vector<uint64_t>& ids) {
  std::vector<AcceleratorId> result;
  for (const uint64_t id : ids) result.emplace_back(id);
  return result;
}

namespace {

std::string Name(const ShareUnit& unit) {
  if (!unit.packed()) return StrCat("job ", unit.job.value());
  return StrCat("pair ", unit.job.value(), ",", unit.partner.value());
}

std::string UnitErrors(const Cluster& cluster, const RoundUnit& unit,
                       const std::vector<AcceleratorId>& accelerators) {
  std::string errors;
  if (accelerators.size() != static_cast<size_t>(unit.scale_factor)) {
    StrAppend(&errors, Name(unit.unit), ": gang incomplete; ");
  }
  std::set<int> types;
  for (const AcceleratorId accelerator : accelerators) {
    types.insert(cluster.TypeOf(accelerator));
    if (cluster.accelerator(accelerator).state != AcceleratorState::kUsable) {
      StrAppend(&errors, accelerator.value(), " is not usable; ");
    }
  }
  if (types.size() != 1) StrAppend(&errors, Name(unit.unit), ": types mixed; ");
  if (!types.empty() && !unit.usable[static_cast<size_t>(*types.begin())]) {
    StrAppend(&errors, Name(unit.unit), " can't use its type; ");
  }
  return errors;
}

bool JobInTwoUnits(const RoundAssignment& assignment) {
  std::set<JobId> jobs;
  size_t count = 0;
  for (const auto& [unit, accelerators] : assignment) {
    jobs.insert(unit.job);
    if (unit.packed()) jobs.insert(unit.partner);
    count += unit.packed() ? 2 : 1;
  }
  return jobs.size() != count;
}

}  // namespace

std::string RoundErrors(const Cluster& cluster,
                        const std::vector<RoundUnit>& units,
                        const RoundAssignment& assignment) {
  std::string errors;
  std::set<AcceleratorId> given;
  for (const auto& [id, accelerators] : assignment) {
    const auto unit =
        std::find_if(units.begin(), units.end(),
                     [&](const RoundUnit& entry) { return entry.unit == id; });
    if (unit == units.end()) return StrCat(Name(id), " is unknown");
    errors += UnitErrors(cluster, *unit, accelerators);
    for (const AcceleratorId accelerator : accelerators) {
      if (given.insert(accelerator).second) continue;
      StrAppend(&errors, "accelerator ", accelerator.value(), " twice; ");
    }
  }
  if (JobInTwoUnits(assignment)) errors += "a job runs twice; ";
  return errors;
}

std::string IdleErrors(const Cluster& cluster,
                       const std::vector<RoundUnit>& units,
                       const RoundAssignment& assignment) {
  std::vector<int> idle = cluster.Capacity();
  std::set<JobId> running;
  for (const auto& [unit, accelerators] : assignment) {
    idle[static_cast<size_t>(cluster.TypeOf(accelerators.front()))] -=
        static_cast<int>(accelerators.size());
    running.insert(unit.job);
    running.insert(unit.partner);
  }
  std::string errors;
  for (const RoundUnit& unit : units) {
    if (running.contains(unit.unit.job)) continue;
    if (unit.unit.packed() && running.contains(unit.unit.partner)) continue;
    for (size_t j = 0; j < std::min(idle.size(), unit.usable.size()); ++j) {
      if (!unit.usable[j] || idle[j] < unit.scale_factor) continue;
      StrAppend(&errors, Name(unit.unit), " could run on type ", j, "; ");
    }
  }
  return errors;
}

Cluster RandomCluster(std::mt19937_64& random) {
  const std::vector<std::string> types = {"v100", "p100", "k80"};
  const size_t types_count = 1 + random() % types.size();
  Servers servers;
  for (size_t s = 0; s < 1 + random() % 6; ++s) {
    std::vector<std::string> accelerators;
    const size_t first = random() % types_count;
    for (size_t a = 0; a < 1 + random() % 4; ++a) {
      // Mostly servers of one type, some mixed.
      const bool mixed = random() % 5 == 0;
      accelerators.push_back(types[mixed ? random() % types_count : first]);
    }
    servers.emplace_back(StrCat("server", s), accelerators);
  }
  return MakeCluster(servers);
}

Cluster MixedServers(size_t count, std::mt19937_64& random) {
  Servers servers;
  for (size_t s = 0; s < count; ++s) {
    std::vector<std::string> types(1 + random() % 4);
    for (std::string& type : types) type = random() % 2 == 0 ? "a" : "b";
    servers.emplace_back(StrCat("server-", s), std::move(types));
  }
  return MakeCluster(servers);
}

namespace {

// A random row of shares on the types that have room for the gang.
std::vector<double> RandomRow(const std::vector<int>& capacity,
                              int scale_factor, std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<double> share;
  for (const int available : capacity) {
    const bool none = available < scale_factor || random() % 4 == 0;
    share.push_back(none ? 0 : uniform(random));
  }
  return share;
}

void ScaleShares(std::vector<RoundUnit>& units, JobId job, double factor) {
  for (RoundUnit& unit : units) {
    if (!unit.unit.Holds(job)) continue;
    for (double& share : unit.share) share *= factor;
  }
}

// As large as the limits let them be.
void MakeFeasible(const std::vector<int>& capacity, size_t jobs,
                  std::vector<RoundUnit>& units) {
  for (uint64_t job = 1; job <= jobs; ++job) {
    double sum = 0;
    for (const RoundUnit& unit : units) {
      if (!unit.unit.Holds(JobId(job))) continue;
      sum = std::accumulate(unit.share.begin(), unit.share.end(), sum);
    }
    // With pairs a job only shrinks, so that no other one's sum rises again.
    const double factor = 1 / std::max(sum, 1e-9);
    const bool packed = units.size() > jobs;
    ScaleShares(units, JobId(job), packed ? std::min(1.0, factor) : factor);
  }
  for (size_t j = 0; j < capacity.size(); ++j) {
    double used = 0;
    for (const RoundUnit& unit : units) {
      used += unit.scale_factor * unit.share[j];
    }
    if (used <= capacity[j]) continue;
    for (RoundUnit& unit : units) unit.share[j] *= capacity[j] / used;
  }
}

}  // namespace

std::vector<RoundUnit> SaturatedUnits(const Cluster& cluster, size_t jobs,
                                      std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(0.3, 1);
  const std::vector<int> capacity = cluster.Capacity();
  std::vector<double> left(capacity.begin(), capacity.end());
  std::vector<double> weights(jobs);
  for (double& weight : weights) weight = uniform(random);
  const double each = std::accumulate(left.begin(), left.end(), 0.0) /
                      std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<RoundUnit> units;
  size_t type = 0;
  for (size_t m = 0; m < jobs; ++m) {
    std::vector<double> share(left.size(), 0.0);
    double wanted = std::min(1.0, weights[m] * each);
    while (wanted > 1e-6 && type < left.size()) {
      const double part = std::min(wanted, left[type]);
      share[type] = part;
      left[type] -= part;
      wanted -= part;
      if (wanted > 1e-6) ++type;
    }
    units.push_back(MakeUnit(m + 1, 1, share));
    units.back().usable.assign(left.size(), true);
  }
  return units;
}

std::vector<RoundUnit> RandomUnits(const Cluster& cluster, size_t jobs,
                                   int scale_factor_max,
                                   std::mt19937_64& random, size_t pairs) {
  const std::vector<int> capacity = cluster.Capacity();
  std::vector<RoundUnit> units;
  for (size_t m = 0; m < jobs; ++m) {
    const int scale_factor =
        1 + static_cast<int>(random() % static_cast<size_t>(scale_factor_max));
    units.push_back(MakeUnit(m + 1, scale_factor,
                             RandomRow(capacity, scale_factor, random)));
  }
  std::set<std::pair<size_t, size_t>> drawn;
  for (size_t p = 0; p < pairs; ++p) {
    const size_t a = random() % jobs;
    const size_t b = random() % jobs;
    const int scale_factor = units[a].scale_factor;
    if (a >= b || units[b].scale_factor != scale_factor) continue;
    if (!drawn.insert({a, b}).second) continue;
    units.push_back(MakePair(a + 1, b + 1, scale_factor,
                             RandomRow(capacity, scale_factor, random)));
  }
  MakeFeasible(capacity, jobs, units);
  return units;
}

}  // namespace gavel::testing
