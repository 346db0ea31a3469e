// Properties that hold in every round, for any cluster and any jobs.
#include <random>

#include "coordinator/mechanism/mechanism.h"
#include "tests/mechanism/round_fixture.h"
#include "tests/mechanism/rounds.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

// The seeds cover all mechanisms and queues.
RoundOptions OptionsOf(uint64_t seed) {
  RoundOptions options;
  if (seed % 2 == 1) options.mechanism = MechanismKind::kMoveAware;
  if (seed / 2 % 2 == 1) options.queue = QueueKind::kPerType;
  return options;
}

// Single and packed units, gangs of up to `scale_factor_max`, various costs.
std::vector<RoundUnit> AllKinds(const Cluster& cluster, int scale_factor_max,
                                std::mt19937_64& random) {
  const size_t jobs = 1 + random() % 25;
  const size_t pairs = random() % 20;
  std::vector<RoundUnit> units =
      RandomUnits(cluster, jobs, scale_factor_max, random, pairs);
  for (RoundUnit& unit : units) {
    unit.preempt_cost_s = static_cast<double>(random() % 200);
    unit.move_cost_s = static_cast<double>(random() % 200);
  }
  return units;
}

TEST(RoundProperty, TimeReceivedConvergesToTheAllocation) {
  constexpr int kRounds = 2000;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Cluster cluster = RandomCluster(random);
    Rounds rounds(cluster, RandomUnits(cluster, 2 + random() % 20, 1, random));
    RoundOptions options = OptionsOf(seed);
    options.queue = QueueKind::kGlobal;  // the only one that promises it
    rounds.Run(options, kRounds);
    for (const RoundUnit& unit : rounds.units) {
      for (size_t j = 0; j < unit.share.size(); ++j) {
        // Time that no unit has as its share goes to any unit that is present,
        // so a unit may receive more than its share.
        EXPECT_GE(rounds.Share(unit, j), unit.share[j] - 0.02)
            << "job " << unit.unit.job.value() << " type " << j;
      }
    }
  }
}

TEST(RoundProperty, GangsConvergeOnTheirSharesToo) {
  // Gangs leave holes that the fluid allocation does not know of: no job may
  // fall below the part of its share that whole gangs allow.
  constexpr int kRounds = 2000;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Cluster cluster =
        MakeCluster({{"a", std::vector<std::string>(8, "v100")}});
    Rounds rounds(cluster, RandomUnits(cluster, 4 + random() % 12, 4, random));
    rounds.Run(OptionsOf(seed), kRounds);
    for (const RoundUnit& unit : rounds.units) {
      EXPECT_GE(rounds.Share(unit, 0), 0.7 * unit.share[0])
          << "job " << unit.unit.job.value();
    }
  }
}

TEST(RoundProperty, EveryRoundIsValidThroughFailuresAndReturns) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Cluster cluster = RandomCluster(random);
    Rounds rounds(cluster, AllKinds(cluster, 6, random));
    for (int round = 0; round < 40; ++round) {
      if (random() % 5 == 0) {
        const auto& all = cluster.accelerators();
        cluster.MarkUnreachable(all[random() % all.size()].server);
      }
      RoundOptions options = OptionsOf(seed);
      options.keep_running = random() % 3 == 0;
      options.work_conserving = random() % 2 == 0;
      rounds.Run(options);
      EXPECT_EQ(rounds.moves_within_type(), 0);
      if (random() % 4 == 0) {
        std::shuffle(rounds.units.begin(), rounds.units.end(), random);
      }
    }
  }
}

TEST(RoundProperty, InTheMiddleOfARoundNobodyIsMoved) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Cluster cluster = RandomCluster(random);
    Rounds rounds(cluster, AllKinds(cluster, 4, random));
    for (int round = 0; round < 10; ++round) {
      RoundOptions options = OptionsOf(seed);
      const RoundAssignment before = rounds.Run(options);
      // Some units end, and the accelerators that they leave are filled.
      for (RoundUnit& unit : rounds.units) {
        if (random() % 4 == 0) unit.holds.clear();
      }
      const std::vector<RoundUnit>& units = rounds.units;
      options.keep_running = true;
      const RoundAssignment after = PlanRound(cluster, units, options);
      for (const RoundUnit& unit : units) {
        if (unit.holds.empty()) continue;
        EXPECT_EQ(after.at(unit.unit), before.at(unit.unit));
      }
      EXPECT_EQ(RoundErrors(cluster, units, after), "");
      EXPECT_EQ(IdleErrors(cluster, units, after), "");
    }
  }
}

TEST(RoundProperty, NoAcceleratorIsIdleWhileAUnitThatFitsWaits) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Cluster cluster = RandomCluster(random);
    Rounds rounds(cluster, AllKinds(cluster, 4, random));
    for (int round = 0; round < 5; ++round) {
      const RoundAssignment assignment = rounds.Run(OptionsOf(seed));
      EXPECT_EQ(IdleErrors(cluster, rounds.units, assignment), "");
    }
  }
}

}  // namespace
}  // namespace gavel::testing
