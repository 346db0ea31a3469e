// Compares plans of a few jobs, and problems that are updated by changes, with
// an engine that looks at all jobs each time.
#include <random>

#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

// The rows of a run in which jobs come, start, are cancelled and fail at random
// times. With `whole`, the options make the engine plan and ask for everything
// anew.
std::vector<std::string> RowsOf(uint64_t seed, bool whole,
                                const std::string& policy) {
  EngineDriver driver(3, policy, [&](EngineOptions& options) {
    options.packing = whole;
    options.progress = whole;
    options.launch_timeout_s = 1e9;
    options.hang_timeout_s = 0;
    options.reset_interval_s = seed % 2 == 0 ? 0 : 70;
  });
  driver.JoinServer("there", 1);
  std::mt19937_64 random(seed);
  std::vector<JobId> jobs;
  for (int i = 0; i < 150; ++i) {
    const auto pick = [&] { return jobs[random() % jobs.size()]; };
    switch (jobs.empty() ? 0 : random() % 6) {
      case 0: {
        JobSpec spec;
        spec.throughputs["v100"] = static_cast<double>(1 + random() % 3);
        spec.retries_max = 2;
        jobs.push_back(driver.Submit(StrCat("job-", i),
                                     1 + static_cast<int>(random() % 2), spec));
        break;
      }
      case 1:
        driver.Step(event::JobCommanded{pick(), CommandKind::kCancel, 1});
        break;
      case 2: {
        const JobId job = pick();
        WorkerExited exit = driver.ExitOf(job);
        exit.exit_code = random() % 2 == 0 ? 0 : 1;
        driver.Step(event::WorkerGone{exit});
        break;
      }
      case 3:
        driver.At(driver.now + static_cast<double>(random() % 120));
        break;
      default: {
        const JobId job = pick();
        const auto ranks =
            static_cast<int>(driver.engine().jobs().at(job).workers.size());
        for (int rank = 0; rank < ranks; ++rank) {
          driver.Hello(driver.Key(job, rank));
        }
        for (int rank = 0; rank < ranks; ++rank) {
          driver.Request(driver.Key(job, rank));
        }
      }
    }
  }
  std::vector<std::string> rows;
  for (const action::Persist& row : driver.rows) rows.push_back(row.row);
  rows.erase(rows.begin());  // holds the options
  return rows;
}

TEST(Plan, OfTheJobsThatMayChangeIsThatOfAllJobs) {
  for (const std::string policy : {"fifo", "fifo_perf"}) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
      const std::vector<std::string> whole = RowsOf(seed, true, policy);
      EXPECT_GT(whole.size(), 40);
      ASSERT_EQ(RowsOf(seed, false, policy), whole)
          << policy << " seed " << seed;
    }
  }
}

TEST(Problem, KeptByChangeIsTheOneMadeAnew) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    ASSERT_EQ(RowsOf(seed, false, "max_min_fairness_perf"),
              RowsOf(seed, true, "max_min_fairness_perf"))
        << "seed " << seed;
  }
}

// The engine keeps track of which jobs are equal as they come and go.
TEST(Problem, KeptByChangeKnowsWhichJobsAreEqual) {
  EngineDriver driver(2, "max_min_fairness_perf",
                      [](EngineOptions& options) { options.progress = false; });
  std::vector<JobId> jobs;
  const auto submit = [&](int i) {
    JobSpec spec;
    spec.throughputs["v100"] = 1 + i % 3;
    spec.weight = i == 14 ? 2 : 1;
    jobs.push_back(driver.Submit(StrCat("job-", i), 1, spec));
  };
  for (int i = 0; i < 8; ++i) submit(i);
  for (int i = 8; i < 18; ++i) {
    driver.Step(event::JobCommanded{jobs.at(static_cast<size_t>(i - 8)),
                                    CommandKind::kCancel, 1});
    submit(i);
    const PolicyProblem& kept = driver.problem;
    const std::vector<uint32_t> anew = JobRows(kept).row_of;
    const std::vector<uint32_t>& row_of = kept.rows.row_of;
    ASSERT_EQ(row_of.size(), kept.jobs.size());
    for (size_t a = 0; a < anew.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        ASSERT_EQ(row_of[a] == row_of[b], anew[a] == anew[b])
            << "jobs " << a << " and " << b << " after " << i;
      }
    }
  }
}

// Between two allocations, the engine finds out only once that no waiting job
// can use the free accelerators. It tries again for each new job, and when more
// accelerators come free.
TEST(Fill, WhoCannotUseWhatIsFreeKeepsNobodyElseFromIt) {
  EngineDriver driver(1, "max_min_fairness_perf",
                      [](EngineOptions& o) { o.reset_interval_s = 1e6; });
  JobSpec useless;
  useless.throughputs["v100"] = 0;
  JobSpec useful;
  useful.throughputs["v100"] = 1;
  driver.Submit("first", 1, useless);
  const int solves = driver.solves;
  const JobId second = driver.Submit("second", 1, useless);
  const JobId third = driver.Submit("third", 1, useful);
  const JobId fourth = driver.Submit("fourth", 1, useful);
  EXPECT_EQ(driver.job(third).assigned.size(), 1u);
  EXPECT_TRUE(driver.job(second).assigned.empty());
  EXPECT_TRUE(driver.job(fourth).assigned.empty());
  driver.Step(event::JobCommanded{third, CommandKind::kCancel, 1});
  driver.Gone(driver.Key(third), 0, 15);
  EXPECT_EQ(driver.job(fourth).assigned.size(), 1u);
  EXPECT_EQ(driver.solves, solves);
}

// The new allocation decides about free accelerators, if it comes soon.
TEST(Fill, WaitsForTheNewAllocationButNotForLong) {
  for (const bool answers : {true, false}) {
    EngineDriver driver(1, "max_min_fairness");
    const JobId first = driver.Submit("first");
    const JobId second = driver.Submit("second");
    driver.Run(first);
    driver.At(10);
    driver.hold_solver = true;
    const int solves = driver.solves;
    driver.Step(event::JobCommanded{first, CommandKind::kCancel, 1});
    driver.Gone(driver.Key(first), 0, 15);
    ASSERT_EQ(driver.solves, solves + 1);
    driver.At(10.4);
    EXPECT_TRUE(driver.job(second).assigned.empty());
    if (answers) {
      uint64_t epoch = 0;
      for (const Action& action : driver.actions) {
        const auto* solve = std::get_if<action::SolvePolicy>(&action);
        if (solve != nullptr) epoch = solve->epoch;
      }
      const auto policy = *MakePolicy("max_min_fairness");
      driver.Step(
          event::AllocationReady{epoch, *policy->Solve(driver.problem)});
    } else {
      driver.At(10.6);
    }
    EXPECT_EQ(driver.job(second).assigned.size(), 1u) << answers;
  }
}

}  // namespace
}  // namespace gavel
