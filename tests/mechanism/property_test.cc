// What must hold of every round, whatever the cluster and the jobs.
#include <algorithm>
#include <numeric>
#include <random>

#include "coordinator/jobs/time_received.h"
#include "coordinator/mechanism/mechanism.h"
#include "coordinator/mechanism/placement.h"
#include "gtest/gtest.h"
#include "tests/mechanism/round_fixture.h"

namespace gavel::testing {
namespace {

constexpr double kRound_s = 360;

// Runs rounds and keeps the books, as the engine does.
struct Rounds {
  const Cluster& cluster;
  std::vector<RoundJob> jobs;
  TimeReceived received;
  int moves = 0;  // onto other accelerators of the same type

  RoundAssignment Run(const RoundOptions& options) {
    for (RoundJob& job : jobs) {
      job.time_received_s = received.SinceReset(job.id, job.share.size());
    }
    RoundAssignment assignment = PlanRound(cluster, jobs, options);
    EXPECT_EQ(RoundErrors(cluster, jobs, assignment), "");
    for (const RoundJob& job : jobs) {
      const auto now = assignment.find(job.id);
      if (now == assignment.end()) continue;
      const int type = cluster.TypeOf(now->second.front());
      received.Add(job.id, static_cast<size_t>(type), kRound_s);
      const bool stays = TypeHeld(cluster, job) == static_cast<size_t>(type);
      if (stays && now->second != job.holds) ++moves;
    }
    Hold(assignment, jobs);
    return assignment;
  }
};

TEST(RoundProperty, TimeReceivedConvergesToTheAllocation) {
  constexpr int kRounds = 2000;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Cluster cluster = RandomCluster(random);
    Rounds rounds{cluster, RandomJobs(cluster, 2 + random() % 20, 1, random),
                  TimeReceived()};
    rounds.received.Reset(kRound_s / 2);
    for (int round = 0; round < kRounds; ++round) rounds.Run({});
    for (const RoundJob& job : rounds.jobs) {
      const std::vector<double> share = rounds.received.ShareSinceReset(
          job.id, job.share.size(), kRounds * kRound_s);
      for (size_t j = 0; j < share.size(); ++j) {
        // What nobody was given is given to whoever is there: at least.
        EXPECT_GE(share[j], job.share[j] - 0.02)
            << "job " << job.id.value() << " type " << j;
      }
    }
  }
}

TEST(RoundProperty, GangsConvergeOnTheirSharesToo) {
  // Gangs leave holes that the fluid allocation does not know of: nobody may
  // fall below the part of its share that whole gangs allow.
  constexpr int kRounds = 2000;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Cluster cluster =
        MakeCluster({{"a", std::vector<std::string>(8, "v100")}});
    Rounds rounds{cluster, RandomJobs(cluster, 4 + random() % 12, 4, random),
                  TimeReceived()};
    rounds.received.Reset(kRound_s / 2);
    for (int round = 0; round < kRounds; ++round) rounds.Run({});
    for (const RoundJob& job : rounds.jobs) {
      const double share =
          rounds.received.ShareSinceReset(job.id, 1, kRounds * kRound_s)[0];
      EXPECT_GE(share, 0.7 * job.share[0]) << "job " << job.id.value();
    }
  }
}

TEST(RoundProperty, EveryRoundIsValidThroughFailuresAndReturns) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Cluster cluster = RandomCluster(random);
    Rounds rounds{cluster, RandomJobs(cluster, 1 + random() % 25, 6, random),
                  TimeReceived()};
    for (int round = 0; round < 40; ++round) {
      if (random() % 5 == 0) {
        const auto& all = cluster.accelerators();
        cluster.MarkUnreachable(all[random() % all.size()].server);
      }
      rounds.Run({.keep_running = random() % 3 == 0,
                  .work_conserving = random() % 2 == 0});
      EXPECT_EQ(rounds.moves, 0);
      if (random() % 4 == 0) {
        std::shuffle(rounds.jobs.begin(), rounds.jobs.end(), random);
      }
    }
  }
}

TEST(RoundProperty, InTheMiddleOfARoundNobodyIsMoved) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Cluster cluster = RandomCluster(random);
    Rounds rounds{cluster, RandomJobs(cluster, 1 + random() % 25, 4, random),
                  TimeReceived()};
    for (int round = 0; round < 10; ++round) {
      const RoundAssignment before = rounds.Run({});
      // Some end; what they leave is filled.
      for (RoundJob& job : rounds.jobs) {
        if (random() % 4 == 0) job.holds.clear();
      }
      std::vector<RoundJob> jobs = rounds.jobs;
      const RoundAssignment after =
          PlanRound(cluster, jobs, {.keep_running = true});
      for (const RoundJob& job : jobs) {
        if (job.holds.empty()) continue;
        EXPECT_EQ(after.at(job.id), before.at(job.id));
      }
      EXPECT_EQ(RoundErrors(cluster, jobs, after), "");
    }
  }
}

TEST(RoundProperty, NoAcceleratorIsIdleWhileAJobThatFitsWaits) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Cluster cluster = RandomCluster(random);
    Rounds rounds{cluster, RandomJobs(cluster, 1 + random() % 25, 4, random),
                  TimeReceived()};
    for (int round = 0; round < 5; ++round) {
      const RoundAssignment assignment = rounds.Run({});
      std::vector<int> idle = cluster.Capacity();
      for (const auto& [job, accelerators] : assignment) {
        idle[static_cast<size_t>(cluster.TypeOf(accelerators.front()))] -=
            static_cast<int>(accelerators.size());
      }
      for (const RoundJob& job : rounds.jobs) {
        if (assignment.contains(job.id)) continue;
        for (size_t j = 0; j < idle.size(); ++j) {
          EXPECT_FALSE(job.usable[j] && idle[j] >= job.scale_factor)
              << "job " << job.id.value() << " type " << j;
        }
      }
    }
  }
}

TEST(RoundProperty, TheOrderOfTheJobsDoesNotMatter) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Cluster cluster = RandomCluster(random);
    Rounds rounds{cluster, RandomJobs(cluster, 1 + random() % 25, 4, random),
                  TimeReceived()};
    for (int round = 0; round < 5; ++round) {
      std::vector<RoundJob> shuffled = rounds.jobs;
      for (RoundJob& job : shuffled) {
        job.time_received_s =
            rounds.received.SinceReset(job.id, job.share.size());
      }
      std::shuffle(shuffled.begin(), shuffled.end(), random);
      EXPECT_EQ(PlanRound(cluster, shuffled, {}), rounds.Run({}));
    }
  }
}

}  // namespace
}  // namespace gavel::testing
