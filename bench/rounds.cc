// Measures the cost of a scheduling round: CPU microseconds of one PlanRound,
// compared with a std::stable_sort of the same candidates by priority in the
// same run, which is the floor of any mechanism that looks at all of them in
// order. Rounds follow one another as in the engine: assigned accelerators are
// held, and their time counts as received. The table of units exists before a
// round begins and is not timed; changes to it between rounds are made in
// place.
//
//   bench_rounds [--out FILE.json]
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "bench/table.h"
#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/mechanism.h"
#include "core/text.h"

namespace {

using gavel::bench::Goal;
using gavel::bench::Median;
using gavel::bench::OutFile;
using gavel::bench::Report;
using gavel::bench::Row;
using gavel::bench::ValueAtMost;

using gavel::AcceleratorId;
using gavel::Cluster;
using gavel::JobId;
using gavel::MechanismKind;
using gavel::QueueKind;
using gavel::RoundAssignment;
using gavel::RoundOptions;
using gavel::RoundTable;
using gavel::RoundUnit;

constexpr char kPeer[] = "std::stable_sort of the candidates";
constexpr size_t kTypes = 3;

struct Scenario {
  std::string name;
  size_t units = 0;
  size_t accelerators_per_type = 36;
  size_t server_size = 4;
  int scale_factor_max = 1;  // of every fifth unit; the others have one worker
  bool pairs = false;        // every fourth unit is a pair
  RoundOptions options = {};
  double cost_s = 0;
  double goal_us = 0;  // 0: none
};

Cluster MakeCluster(const Scenario& scenario) {
  Cluster cluster;
  for (const char* type : {"v100", "p100", "k80"}) {
    for (size_t first = 0; first < scenario.accelerators_per_type;
         first += scenario.server_size) {
      std::vector<gavel::AcceleratorInfo> accelerators(scenario.server_size);
      for (size_t a = 0; a < accelerators.size(); ++a) {
        accelerators[a].type = type;
        accelerators[a].uuid = gavel::StrCat(a);
      }
      if (!cluster.Join(gavel::StrCat(type, "-", first), accelerators).ok()) {
        std::abort();
      }
    }
  }
  return cluster;
}

// Shares as a linear program gives them: most units have one type, some two.
std::vector<RoundUnit> MakeUnits(const Scenario& scenario) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(0.2, 1);
  std::vector<RoundUnit> units(scenario.units);
  for (size_t u = 0; u < units.size(); ++u) {
    RoundUnit& unit = units[u];
    unit.unit.job = JobId(u + 1);
    if (scenario.pairs && u % 4 == 0 && u + 1 < units.size()) {
      unit.unit.partner = JobId(u + 2);
    }
    if (u % 5 == 0) {
      unit.scale_factor =
          1 << (random() % static_cast<size_t>(scenario.scale_factor_max));
    }
    unit.share.assign(kTypes, 0);
    unit.time_received_s.assign(kTypes, 180);
    unit.deficit_s.assign(kTypes, 0);
    unit.usable.assign(kTypes, true);
    unit.share[random() % kTypes] = uniform(random) / 2;
    if (u % 5 == 1) unit.share[random() % kTypes] = uniform(random) / 2;
    unit.preempt_cost_s = unit.move_cost_s = scenario.cost_s;
  }
  return units;
}

// Applies the changes from one round to the next, in place.
void PlayRound(const Cluster& cluster, const RoundAssignment& assignment,
               double round_duration_s, RoundTable& units) {
  auto next = assignment.begin();
  for (size_t u = 0; u < units.size(); ++u) {
    const std::span<double> deficit_s = units.deficit_s(u);
    for (size_t j = 0; j < kTypes; ++j) {
      deficit_s[j] += units.share(u)[j] * round_duration_s;
    }
    if (next == assignment.end() || next->first != units.unit(u)) {
      units.Hold(u, {});
      continue;
    }
    units.Hold(u, next->second);
    const auto type = static_cast<size_t>(cluster.TypeOf(next->second.front()));
    units.received_s(u)[type] += round_duration_s;
    deficit_s[type] -= round_duration_s;
    ++next;
  }
}

struct SortCandidate {
  double priority = 0;
  uint32_t unit = 0;
  uint32_t type = 0;
};

// The baseline gathers the candidates and sorts them by priority, nothing else.
size_t SortCandidates(const RoundTable& units) {
  std::vector<SortCandidate> candidates;
  candidates.reserve(units.size());
  for (uint32_t u = 0; u < units.size(); ++u) {
    for (uint32_t j = 0; j < kTypes; ++j) {
      const double share = units.share(u)[j];
      if (share <= 0) continue;
      candidates.push_back({share / units.received_s(u)[j], u, j});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const SortCandidate& a, const SortCandidate& b) {
                     return a.priority > b.priority;
                   });
  return candidates.empty() ? 0 : candidates.front().unit;
}

void KeepInMind(size_t value) { asm volatile("" : : "r"(value) : "memory"); }

// CPU time of this thread; other programs on the machine do not count.
double NowUs() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 +
         static_cast<double>(time.tv_nsec) / 1e3;
}

Row Measure(const Scenario& scenario) {
  const Cluster cluster = MakeCluster(scenario);
  RoundTable units(MakeUnits(scenario));
  const size_t rounds = std::clamp<size_t>(2'000'000 / scenario.units, 5, 2000);
  std::vector<double> plan_us;
  std::vector<double> sort_us;
  for (size_t round = 0; round < rounds; ++round) {
    double begin_us = NowUs();
    const RoundAssignment assignment =
        PlanRound(cluster, units, scenario.options);
    plan_us.push_back(NowUs() - begin_us);
    begin_us = NowUs();
    KeepInMind(SortCandidates(units));
    sort_us.push_back(NowUs() - begin_us);
    PlayRound(cluster, assignment, scenario.options.round_duration_s, units);
  }
  return {scenario.name,
          Median(plan_us),
          "us",
          kPeer,
          Median(sort_us),
          scenario.goal_us > 0 ? ValueAtMost(scenario.goal_us) : Goal()};
}

std::vector<Scenario> Scenarios() {
  const RoundOptions per_type{.queue = QueueKind::kPerType};
  const RoundOptions move_aware{.mechanism = MechanismKind::kMoveAware};
  const RoundOptions filling{.keep_running = true};
  return {
      {.name = "40 units, 108 accelerators", .units = 40, .goal_us = 50},
      {.name = "100 units, 108 accelerators", .units = 100, .goal_us = 50},
      {.name = "200 units, 108 accelerators", .units = 200, .goal_us = 50},
      {.name = "200 units, servers of one", .units = 200, .server_size = 1},
      {.name = "200 units, a queue per type",
       .units = 200,
       .options = per_type},
      {.name = "200 units, middle of a round",
       .units = 200,
       .options = filling},
      {.name = "200 units, gangs of up to 8",
       .units = 200,
       .scale_factor_max = 4},
      {.name = "200 units, a quarter pairs", .units = 200, .pairs = true},
      {.name = "200 units, move-aware, 30 s",
       .units = 200,
       .options = move_aware,
       .cost_s = 30,
       .goal_us = 50},
      {.name = "1e3 units, 600 accelerators",
       .units = 1000,
       .accelerators_per_type = 200},
      {.name = "1e4 units, 6e3 accelerators",
       .units = 10'000,
       .accelerators_per_type = 2000},
      {.name = "1e5 units, 6e4 accelerators",
       .units = 100'000,
       .accelerators_per_type = 20'000},
      {.name = "1e5 units, move-aware, 30 s",
       .units = 100'000,
       .accelerators_per_type = 20'000,
       .options = move_aware,
       .cost_s = 30},
      {.name = "1e5 units, 108 accelerators", .units = 100'000},
      {.name = "1e6 units, 1e4 accelerators",
       .units = 1'000'000,
       .accelerators_per_type = 3334,
       .server_size = 2,
       .goal_us = 30'000},
      {.name = "1e6 units, 1e5 accelerators",
       .units = 1'000'000,
       .accelerators_per_type = 33'336,
       .goal_us = 30'000},
      {.name = "1e6 units, 6e5 accelerators",
       .units = 1'000'000,
       .accelerators_per_type = 200'000},
      {.name = "1e6 units, move-aware, 30 s",
       .units = 1'000'000,
       .accelerators_per_type = 33'336,
       .options = move_aware,
       .cost_s = 30},
  };
}

}  // namespace

int main(int argc, char** argv) {
  const std::string out = OutFile(argc, argv);
  std::vector<Row> rows;
  for (const Scenario& scenario : Scenarios()) {
    gavel::bench::Add(&rows, Measure(scenario));
  }
  return Report(rows, out);
}
