// The parts that share accelerators out (coordinator/engine/rounds), each
// alone: what it records is not applied.
#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/parts_kit.h"

namespace gavel::engine {
namespace {

Progress StepsDone(uint64_t steps) {
  Progress progress;
  progress.steps_done = steps;
  return progress;
}

class AllocationTableTest : public PartsTest {};
class CandidatesTest : public PartsTest {};
class FiguresTest : public PartsTest {};
class MeasurementsTest : public PartsTest {};
class LedgerTest : public PartsTest {};
class IsolatedTimeTest : public PartsTest {};
class TrialBookTest : public PartsTest {};
class RoundClockTest : public PartsTest {};
class RoundRowsTest : public PartsTest {};
class PlannerTest : public PartsTest {};
class ResizingTest : public PartsTest {};
class RoundsTest : public PartsTest {};
class ProblemsTest : public PartsTest {};
class SolverTest : public PartsTest {};
class MemoryPlanTest : public PartsTest {};

TEST_F(AllocationTableTest, AnAssignmentChoosesATypeForItsJobsOnly) {
  Job& first = Add("first");
  Job& second = Add("second");
  AllocationTable& allocation = parts_.allocation;
  allocation.Replace(AssignedTo(first, 0));
  EXPECT_EQ(allocation.Chosen(first), 0u);
  EXPECT_EQ(allocation.Chosen(second), kNoIndex);
  EXPECT_TRUE(allocation.HasShare({first.id, JobId()}));
  allocation.Replace(AssignedTo(second, 0));
  EXPECT_EQ(allocation.Chosen(first), kNoIndex);
  EXPECT_EQ(allocation.Chosen(second), 0u);
}

TEST_F(AllocationTableTest, AFailedSolveLeavesTheAllocationInForce) {
  Job& job = Add("job");
  parts_.allocation.Replace(AssignedTo(job, 0));
  PolicyResult failed;
  failed.detail = "no answer";
  parts_.allocation.NoteFailure(failed);
  EXPECT_EQ(parts_.allocation.Chosen(job), 0u);
  EXPECT_EQ(parts_.allocation.result().detail, "no answer");
}

TEST_F(CandidatesTest, AJobWhoseLoopsAreOverOnlyHasToExit) {
  Job& job = Add("job");
  EXPECT_TRUE(parts_.candidates.MayRun(job));
  job.workers.front().finished = true;
  EXPECT_FALSE(parts_.candidates.MayRun(job));
}

TEST_F(FiguresTest, StepsAreCountedOnByThePaceSinceTheLastReport) {
  Job& job = Add("job");
  EXPECT_EQ(parts_.figures.StepsDone(job, 50), 0);
  Run(job, first_).Know(10, StepsDone(100));
  EXPECT_EQ(parts_.figures.Pace(job), 10);
  EXPECT_EQ(parts_.figures.StepsDone(job, 15), 150);
}

TEST_F(MeasurementsTest, AFigureThatMovedIsSolvedForInTheNextRound) {
  Job& job = Add("job");
  Run(job, first_);
  Progress told;
  told.throughput_steps_per_s = 40;
  told.window_s = 60;
  parts_.measurements.Measure(100, job, told);
  const Throughput known = parts_.throughputs.Get(job.id, "v100");
  EXPECT_EQ(known.source, ThroughputSource::kMeasured);
  EXPECT_GT(known.steps_per_s, 30);
  EXPECT_FALSE(parts_.agenda.unsolved());
  parts_.agenda.BeginRound();
  EXPECT_TRUE(parts_.agenda.unsolved());
}

TEST_F(MeasurementsTest, TypesThatAJobDoesNotWantAreBarred) {
  Job& job = Add("job");
  job.spec.types = {"k80"};
  parts_.measurements.BarTypes(job);
  EXPECT_TRUE(parts_.throughputs.IsBarred(job.id, "v100"));
}

TEST_F(LedgerTest, ALeaseAddsToTheTimeReceived) {
  Job& job = Add("job");
  Worker& worker = Run(job, first_);
  EXPECT_EQ(parts_.ledger.SecondsReceived(job, 30), 30);
  parts_.ledger.BookWorker(20, job, worker);
  EXPECT_EQ(job.received_s, 20);
  EXPECT_EQ(worker.accrued_at, 20);
  const ShareUnit alone{job.id, JobId()};
  std::vector<double> since_reset;
  std::vector<double> deficit;
  parts_.ledger.time_received().Rows(alone, 1, since_reset, deficit);
  EXPECT_EQ(since_reset, std::vector<double>{20});
  EXPECT_EQ(parts_.ledger.SecondsReceived(job, 30), 30);
  parts_.ledger.RemoveJob(job.id);
  parts_.ledger.time_received().Rows(alone, 1, since_reset, deficit);
  EXPECT_EQ(since_reset, std::vector<double>{0});
}

TEST_F(LedgerTest, SharesCountFromTheFirstAllocation) {
  Job& job = Add("job");
  Run(job, first_);
  EXPECT_EQ(parts_.ledger.SharesOf(job.id, 100).received, 0);
  job.counted_since = 0;
  job.target_share = 0.5;
  const JobShares shares = parts_.ledger.SharesOf(job.id, 100);
  EXPECT_EQ(shares.received, 1);
  EXPECT_EQ(shares.target, 0.5);
}

TEST_F(IsolatedTimeTest, StepsCountInTheTimeOfAnEqualPart) {
  Job& job = Add("job");
  Add("other");
  Run(job, first_).Know(10, StepsDone(100));
  // One of two jobs has one of two accelerators, at 10 steps/s.
  parts_.isolated.CountIsolated(10);
  EXPECT_DOUBLE_EQ(job.isolated_s, 10);
}

TEST_F(TrialBookTest, AnUnknownTypeIsTriedUntilTheJobHasRunThere) {
  Job& job = parts_.jobs.Add(0, SpecOf("new"));
  parts_.throughputs.AddJob(job.id, {});  // nobody gave a figure
  parts_.allocation.Replace(AssignedTo(job, 0));
  job.target_share = 1;
  RoundTable units = parts_.rows.RoundUnits(0, /*with_trials=*/false);
  ASSERT_EQ(units.size(), 1u);
  parts_.trials.AddTrials(units);
  EXPECT_EQ(units.deficit_s(0)[0], kTrialDebt_s);
  parts_.trials.NoteTried(job, Run(job, first_));
  RoundTable again = parts_.rows.RoundUnits(0, /*with_trials=*/false);
  parts_.trials.AddTrials(again);
  EXPECT_NE(again.deficit_s(0)[0], kTrialDebt_s);
}

TEST_F(TrialBookTest, ATurnCostsItsLeaseAndARoundAtMost) {
  Job& job = Add("job");
  Worker& worker = Run(job, first_);
  worker.profiles = true;
  EXPECT_EQ(parts_.trials.ProfilingAt(30).accelerators, 1);
  parts_.trials.CountTrial(1000, worker);
  EXPECT_EQ(parts_.trials.ProfilingAt(1000).accelerator_s, 100);
  EXPECT_EQ(parts_.trials.ProfilingAt(1000).accelerators, 0);
}

TEST_F(RoundClockTest, ALeaseGoesOnWhereTheNextRoundIsPlannedSo) {
  Job& job = Add("job");
  Run(job, first_);
  RoundClock& round = parts_.round;
  EXPECT_EQ(round.NextDeadline(), kNever);
  round.StartRounds(0);
  EXPECT_EQ(round.LeaseHorizon(job), 100);
  EXPECT_EQ(round.NextDeadline(), round.PlanDue());
  job.planned = job.assigned;
  round.Plan(std::nullopt);
  EXPECT_EQ(round.LeaseHorizon(job), 200);
  EXPECT_FALSE(round.IsOver(99));
  EXPECT_TRUE(round.IsOver(100));
  round.Begin(100);
  round.EndPlan(/*stop=*/false);
  EXPECT_EQ(round.rounds(), 2u);
  EXPECT_EQ(round.LeaseHorizon(job), 200);
}

TEST_F(RoundRowsTest, ARowTellsWhatAJobHoldsAndHasReceived) {
  Job& job = Add("job");
  Run(job, first_);
  parts_.allocation.Replace(AssignedTo(job, 0));
  const RoundTable units = parts_.rows.RoundUnits(40, /*with_trials=*/true);
  ASSERT_EQ(units.size(), 1u);
  EXPECT_EQ(units.unit(0).job, job.id);
  ASSERT_EQ(units.holds(0).size(), 1u);
  EXPECT_EQ(units.holds(0)[0], first_);
}

TEST_F(PlannerTest, OfAnAssignmentOnlyUnsettledJobsArePlanned) {
  Job& runs = Add("runs");
  Run(runs, first_);
  parts_.allocation.Replace(AssignedTo(runs, 0));
  runs.target_share = 1;
  RoundPlan plan = parts_.planner.PlanAll(0, /*keep_running=*/false);
  ASSERT_TRUE(plan.jobs.has_value());
  EXPECT_TRUE(plan.jobs->empty());
  Job& waits = Add("waits");
  PolicyResult both = AssignedTo(runs, 0);
  both.assignment.push_back({{waits.id, JobId()}, 0});
  parts_.allocation.Replace(both);
  waits.target_share = 1;
  parts_.changes.Touch(waits);
  plan = parts_.planner.PlanAll(0, /*keep_running=*/false);
  EXPECT_EQ(*plan.jobs, std::vector<JobId>{waits.id});
  EXPECT_TRUE(plan.places.contains({waits.id, JobId()}));
}

TEST_F(ResizingTest, AJobGetsTheSizeOfTheRowFromThenOn) {
  Job& job = Add("job");
  parts_.resizing.On(7, event::JobsResized{{{job.id, 2, {}}}});
  EXPECT_EQ(job.scale_factor, 2);
  EXPECT_EQ(job.workers.size(), 2u);
  EXPECT_EQ(job.world_size, 1) << "until it is assigned anew";
  EXPECT_EQ(job.resized_at, 7);
}

TEST_F(RoundsTest, ARoundIsPlannedAheadOfItsStart) {
  Job& job = Add("job");
  parts_.allocation.Replace(AssignedTo(job, 0));
  job.target_share = 1;
  parts_.round.StartRounds(0);
  parts_.rounds.Look(90);
  EXPECT_TRUE(kept_.events.empty());
  parts_.rounds.Look(96);
  const auto* plan = kept_.Last<event::RoundPlanned>();
  ASSERT_NE(plan, nullptr);
  ASSERT_EQ(plan->places.size(), 1u);
  EXPECT_EQ(plan->places[0].first.job, job.id);
}

TEST_F(RoundsTest, WhatIsFreeIsFilledInTheMiddleOfARound) {
  Job& job = Add("job");
  parts_.allocation.Replace(AssignedTo(job, 0));
  job.target_share = 1;
  parts_.round.StartRounds(0);
  parts_.rounds.Fill(10);
  ASSERT_NE(kept_.Last<event::UnitsAssigned>(), nullptr);
  parts_.rounds.On(10, *kept_.Last<event::UnitsAssigned>());
  EXPECT_EQ(job.assigned.size(), 1u);
  EXPECT_EQ(job.workers.front().process, ProcessState::kLaunching);
}

TEST_F(ProblemsTest, ActiveJobsAreRowsWithTheirThroughputs) {
  Job& job = Add("job");
  Job& held = Add("held");
  parts_.jobs.End(held, JobState::kHeld);
  parts_.problems.BuildProblem(0);
  const PolicyProblem& problem = *parts_.problems.problem();
  ASSERT_EQ(problem.jobs.size(), 1u);
  EXPECT_EQ(problem.jobs[0].id, job.id);
  EXPECT_EQ(problem.capacity, std::vector<int>{2});
  EXPECT_EQ(problem.throughputs, std::vector<double>{10});
}

TEST_F(SolverTest, AsksOnceAndDropsAnswersToEarlierProblems) {
  Job& job = Add("job");
  parts_.agenda.SolveSoon();
  parts_.solver.MaybeSolve(5, "fifo");
  const Actions actions = parts_.outbox.Take();
  ASSERT_EQ(actions.size(), 1u);
  const auto& solve = std::get<action::SolvePolicy>(actions[0]);
  EXPECT_EQ(solve.policy, "fifo");
  parts_.agenda.SolveSoon();
  parts_.solver.MaybeSolve(6, "fifo");
  EXPECT_TRUE(parts_.outbox.Take().empty()) << "one problem is out at a time";
  parts_.solver.Abandon(/*answer=*/true);
  parts_.solver.Admit(7, {solve.epoch, AssignedTo(job, 0)});
  EXPECT_TRUE(kept_.events.empty());
}

TEST_F(SolverTest, AnAnswerStartsRounds) {
  Job& job = Add("job");
  parts_.solver.On(5, {1, AssignedTo(job, 0)});
  EXPECT_EQ(job.target_share, 1);
  EXPECT_EQ(job.counted_since, 5);
  EXPECT_EQ(parts_.round.ends_at(), 105);
  EXPECT_TRUE(parts_.agenda.fill_due());
}

TEST_F(MemoryPlanTest, ParkedMemoryIsToldOfAJobThatWaits) {
  Job& job = Add("job");
  Worker& worker = job.workers.front();
  worker.process = ProcessState::kJoined;
  worker.server = "here";
  EXPECT_EQ(parts_.memory.MemoryText(job), "");
  worker.parked_at = 1;
  EXPECT_EQ(parts_.memory.MemoryText(job), "parked in host memory on here");
}

TEST_F(MemoryPlanTest, WithoutBudgetsNobodyIsEvicted) {
  parts_.agenda.MakeRoomSoon();
  parts_.memory.MakeRoom(0);
  EXPECT_FALSE(parts_.agenda.memory_due());
  EXPECT_TRUE(kept_.events.empty());
  EXPECT_TRUE(parts_.memory.ChooseTiers(0).empty());
}

}  // namespace
}  // namespace gavel::engine
