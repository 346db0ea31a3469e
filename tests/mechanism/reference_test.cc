// Rounds are those of the plain reference, down to the last accelerator.
#include <random>

#include "coordinator/mechanism/mechanism.h"
#include "core/text.h"
#include "tests/mechanism/reference_round.h"
#include "tests/mechanism/round_fixture.h"
#include "tests/mechanism/rounds.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

RoundOptions OptionsFor(uint64_t seed, std::mt19937_64& random) {
  RoundOptions options;
  if (seed % 2 == 1) options.mechanism = MechanismKind::kMoveAware;
  if (seed / 2 % 2 == 1) options.queue = QueueKind::kPerType;
  options.keep_running = random() % 4 == 0;
  options.work_conserving = random() % 4 != 0;
  options.leftovers_by_worth = random() % 4 == 0;
  return options;
}

TEST(ReferenceRound, IsMatchedRoundAfterRound) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Cluster cluster = RandomCluster(random);
    const size_t jobs = 1 + random() % 40;
    const size_t pairs = seed % 3 == 0 ? random() % 30 : 0;
    Rounds rounds(cluster,
                  RandomUnits(cluster, jobs, 1 + static_cast<int>(random() % 6),
                              random, pairs));
    for (RoundUnit& unit : rounds.units) {
      unit.preempt_cost_s = static_cast<double>(random() % 200);
      unit.move_cost_s = static_cast<double>(random() % 200);
      if (seed % 4 < 2) {
        for (size_t j = 0; j < unit.share.size(); ++j) {
          unit.worth.push_back(static_cast<double>(random() % 4));
        }
      }
      if (random() % 3 == 0) {
        const auto& all = cluster.accelerators();
        unit.home_server = all[random() % all.size()].server;
      }
    }
    for (int round = 0; round < 8; ++round) {
      if (random() % 5 == 0) {
        const auto& all = cluster.accelerators();
        cluster.MarkUnreachable(all[random() % all.size()].server);
      }
      if (random() % 4 == 0) {
        std::shuffle(rounds.units.begin(), rounds.units.end(), random);
      }
      const RoundOptions options = OptionsFor(seed, random);
      rounds.SetOut();
      const std::vector<RoundUnit> units = rounds.units;
      ASSERT_EQ(rounds.Run(options), ReferenceRound(cluster, units, options));
    }
  }
}

// Many of the same and many of different standing: all the ways of gathering
// and sorting come up.
std::vector<RoundUnit> ManyUnits(const Cluster& cluster, size_t jobs,
                                 uint64_t kind, std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<RoundUnit> units;
  for (size_t i = 1; i <= jobs; ++i) {
    RoundUnit unit = MakeUnit(i, 1, {0, 0, 0});
    if (kind % 3 == 1) unit.scale_factor = 1 << (random() % 3);
    if (kind % 4 == 3 && i % 5 == 0) unit.unit = Pair(i, i + 1);
    for (size_t j = 0; j < 3; ++j) {
      unit.usable[j] = random() % 8 != 0;
      if (random() % 2 == 0) continue;
      unit.share[j] = kind < 4 ? uniform(random) : 0.25;
      const double rounds =
          kind < 2 ? 1000 * uniform(random) : static_cast<double>(random() % 3);
      unit.time_received_s[j] = kind == 5 ? 0 : 180 * rounds;
    }
    unit.deficit_s = {uniform(random), static_cast<double>(random() % 2), -1};
    if (i <= cluster.accelerators().size() && unit.scale_factor == 1) {
      unit.holds = Ids({i});
    }
    units.push_back(std::move(unit));
  }
  return units;
}

TEST(ReferenceRound, IsMatchedByThousandsOfUnits) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Servers servers;
    for (const char* type : {"v100", "p100", "k80"}) {
      const size_t count = 1 + random() % (seed % 2 == 0 ? 8 : 300);
      for (size_t s = 0; s < count; ++s) {
        servers.push_back(
            {StrCat(type, "-", s), std::vector<std::string>(1 + s % 4, type)});
      }
    }
    const Cluster cluster = MakeCluster(servers);
    const std::vector<RoundUnit> units =
        ManyUnits(cluster, 4000 + random() % 5000, seed % 6, random);
    const RoundOptions options = OptionsFor(seed / 6, random);
    ASSERT_EQ(PlanRound(cluster, units, options),
              ReferenceRound(cluster, units, options));
  }
}

}  // namespace
}  // namespace gavel::testing
