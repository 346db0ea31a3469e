// The parts that many others use (coordinator/engine/state), each alone.
#include "coordinator/engine/state/agenda.h"
#include "coordinator/engine/state/agents.h"
#include "coordinator/engine/state/assigned_accelerators.h"
#include "coordinator/engine/state/changes.h"
#include "coordinator/engine/state/job_table.h"
#include "coordinator/engine/state/lease_book.h"
#include "coordinator/engine/state/outbox.h"
#include "coordinator/engine/state/terms.h"
#include "gtest/gtest.h"
#include "tests/engine/parts_kit.h"

namespace gavel::engine {
namespace {

Action Reply(uint64_t to) { return action::Reply{to, JobId(), ""}; }

TEST(Outbox, WhatFollowsFromARowWaitsForTheDisk) {
  Outbox outbox(/*journal=*/true);
  outbox.BeginRow();
  outbox.Emit(Reply(1));
  outbox.EmitNow(Reply(2));
  EXPECT_EQ(outbox.Take().size(), 1u);
  EXPECT_FALSE(outbox.empty());
  outbox.Persisted(1);
  const Actions late = outbox.Take();
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(std::get<action::Reply>(late[0]).reply_to, 1u);
  EXPECT_TRUE(outbox.empty());
}

TEST(Outbox, NothingLeavesDuringAReplay) {
  Outbox outbox(/*journal=*/true);
  outbox.BeginReplay(7, 2);
  outbox.Emit(Reply(1));
  outbox.EmitNow(Reply(2));
  outbox.EndReplay();
  EXPECT_TRUE(outbox.Take().empty());
  EXPECT_EQ(outbox.position().seq, 7u);
  EXPECT_EQ(outbox.durable_position().seq, 7u);
}

TEST(Outbox, APeerThatKnowsMoreHaltsItAndOnlyTheReasonLeaves) {
  Outbox outbox(/*journal=*/true);
  outbox.BeginReplay(7, 2);
  outbox.EndReplay();
  outbox.EmitNow(Reply(1));
  event::AgentHeard heard;
  heard.heartbeat.server = "here";
  heard.heartbeat.highest_seen.term = 3;
  outbox.Fence(heard);
  EXPECT_TRUE(outbox.halted());
  const Actions left = outbox.Take();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<action::Halt>(left[0]));
}

TEST(Agenda, KeepsTheEarliestDeadline) {
  Agenda agenda;
  agenda.Due(30);
  agenda.Due(20);
  agenda.Due(40);
  EXPECT_EQ(agenda.next_sweep(), 20);
  agenda.BeginSweep();
  EXPECT_EQ(agenda.next_sweep(), kNever);
}

TEST(Agenda, ThroughputsThatMovedAreSolvedForOnceARound) {
  Agenda agenda;
  agenda.BeginRound();
  EXPECT_FALSE(agenda.unsolved());
  agenda.SolveNextRound();
  EXPECT_FALSE(agenda.unsolved());
  agenda.BeginRound();
  EXPECT_TRUE(agenda.unsolved());
  agenda.BeginSolve();
  agenda.BeginRound();
  EXPECT_FALSE(agenda.unsolved());
}

TEST(Terms, TellTheirOwnSettingsAndObeyThoseOfTheTerm) {
  EngineOptions options;
  options.plan_lead_s = 7;
  options.lease_duration_s = 30;
  Terms terms(options);
  event::CoordinatorStarted other;
  other.lease_duration_s = 90;
  other.settings.told = true;
  other.settings.plan_lead_s = 1;
  terms.TakeDurations(other);
  terms.TakeSettings(other.settings);
  EXPECT_EQ(terms.options().plan_lead_s, 1);
  EXPECT_EQ(terms.lease_duration_s(), 90);
  event::CoordinatorStarted own;
  terms.Tell(own);
  EXPECT_TRUE(own.settings.told);
  EXPECT_EQ(own.settings.plan_lead_s, 7);
  EXPECT_EQ(own.lease_duration_s, 30);
}

TEST(Terms, RowsThatDoNotTellChangeNothing) {
  Terms terms{EngineOptions()};
  const double before = terms.round_duration_s();
  terms.TakeDurations({});
  terms.TakeSettings({});
  EXPECT_EQ(terms.round_duration_s(), before);
  EXPECT_EQ(terms.options().plan_lead_s, EngineOptions().plan_lead_s);
}

TEST(JobTable, ANameIsTakenUntilItsJobEnds) {
  JobTable jobs;
  Job& job = jobs.Add(5, SpecOf("train"));
  EXPECT_EQ(job.submitted_at, 5);
  EXPECT_EQ(jobs.Named(SpecOf("train")), job.id);
  EXPECT_EQ(jobs.waiting().size(), 1u);
  EXPECT_EQ(jobs.active(), 1u);
  jobs.End(job, JobState::kHeld);
  EXPECT_EQ(jobs.Named(SpecOf("train")), job.id);
  jobs.End(job, JobState::kCancelled);
  EXPECT_FALSE(jobs.Named(SpecOf("train")).valid());
  EXPECT_EQ(jobs.active(), 0u);
}

TEST(JobTable, AnEndedJobStaysLiveWhileAProcessOfItIs) {
  JobTable jobs;
  Job& job = jobs.Add(0, SpecOf("train"));
  const JobId id = job.id;
  job.workers.front().process = ProcessState::kJoined;
  jobs.End(job, JobState::kFinished);
  jobs.Prune(/*ended_kept=*/0);
  EXPECT_NE(jobs.FindLive(id), nullptr);
  job.workers.front().process = ProcessState::kNone;
  jobs.MayBeOver(job);
  jobs.Prune(/*ended_kept=*/0);
  EXPECT_EQ(jobs.Find(id), nullptr);
}

TEST(JobTable, AWorkerIsFoundByItsLatestIncarnationOnly) {
  JobTable jobs;
  Job& job = jobs.Add(0, SpecOf("train"));
  job.workers.front().incarnation = 2;
  EXPECT_NE(jobs.Find(WorkerKey{job.id, 0, 2}), nullptr);
  EXPECT_EQ(jobs.Find(WorkerKey{job.id, 0, 1}), nullptr);
  EXPECT_EQ(jobs.Find(WorkerKey{job.id, 1, 2}), nullptr);
}

TEST(Changes, EachReaderSeesAChangeOnce) {
  JobTable jobs;
  Changes changes;
  for (int reader = 0; reader < Changes::kReaders; ++reader) {
    changes.Take(static_cast<Changes::Reader>(reader), jobs);
  }
  Job& job = jobs.Add(0, SpecOf("train"));
  changes.Touch(job);
  changes.Touch(job);
  EXPECT_EQ(changes.Take(Changes::kPlan, jobs), std::vector<JobId>{job.id});
  EXPECT_TRUE(changes.Take(Changes::kPlan, jobs).empty());
  EXPECT_EQ(changes.Take(Changes::kFill, jobs), std::vector<JobId>{job.id});
  changes.TouchAll();
  EXPECT_TRUE(changes.all(Changes::kPlan));
}

TEST(AssignedAccelerators, CountWhatIsFreeByType) {
  Cluster cluster;
  Changes changes;
  AssignedAccelerators assigned(cluster, changes);
  ASSERT_TRUE(cluster.Join("here", HelloOf("here", 2).accelerators).ok());
  assigned.Recount();
  EXPECT_EQ(assigned.free(), std::vector<int>{2});
  // Two of a packed pair take one.
  assigned.Add(AcceleratorId(1), JobId(1));
  assigned.Add(AcceleratorId(1), JobId(2));
  EXPECT_EQ(assigned.free(), std::vector<int>{1});
  assigned.Remove(AcceleratorId(1), JobId(1));
  EXPECT_FALSE(assigned.IsFree(AcceleratorId(1)));
  assigned.Remove(AcceleratorId(1), JobId(2));
  EXPECT_TRUE(assigned.IsFree(AcceleratorId(1)));
  EXPECT_EQ(assigned.free(), std::vector<int>{2});
}

TEST(Agents, AStrangerIsDroppedByItsOwnServerOnly) {
  Agents agents;
  const WorkerKey stranger{JobId(1), 0, 1};
  agents.AddStranger(stranger, "here");
  agents.DropStranger(stranger, "there");
  EXPECT_EQ(agents.strangers().size(), 1u);
  agents.DropStranger(stranger, "here");
  EXPECT_TRUE(agents.strangers().empty());
}

TEST(Agents, AllServersShareTheirCheckpointsOrNoneDoes) {
  Agents agents;
  agents.Join(0, HelloOf("here", 1), 0);
  AgentHello other = HelloOf("there", 1);
  EXPECT_TRUE(agents.FitsCheckpoints(other));
  other.own_checkpoints = true;
  EXPECT_FALSE(agents.FitsCheckpoints(other));
  agents.Lose(5, "here", /*left=*/false);
  EXPECT_TRUE(agents.FitsCheckpoints(other));
  EXPECT_FALSE(agents.IsReachable("here"));
}

class LeaseBookTest : public PartsTest {
 protected:
  // Its process is there, and it is assigned.
  Job& Ready(const std::string& name, AcceleratorId where) {
    Job& job = Add(name);
    Worker& worker = Run(job, where);
    parts_.leases.End(where, job.id);
    worker.held_epoch = 0;
    worker.held = AcceleratorId();
    return job;
  }
};

TEST_F(LeaseBookTest, AnAcceleratorIsGivenAgainWhenItsHolderHasReleasedIt) {
  LeaseBook& leases = parts_.leases;
  Job& next = Ready("next", first_);
  EXPECT_TRUE(leases.CanStart(next));
  Job& holder = Add("holder");
  Run(holder, first_);
  EXPECT_FALSE(leases.CanStart(next));
  ASSERT_NE(leases.HeldByOther(first_, next), nullptr);
  EXPECT_EQ(leases.HeldByOther(first_, next)->job, holder.id);
  leases.End(first_, holder.id);
  EXPECT_TRUE(leases.CanStart(next));
}

TEST_F(LeaseBookTest, NobodyStartsWhereAnEndIsNotConfirmed) {
  LeaseBook& leases = parts_.leases;
  Job& next = Ready("next", first_);
  Job& lost = Add("lost");
  const WorkerKey key{lost.id, 0, 1};
  leases.Quarantine(Run(lost, first_), key);
  leases.End(first_, lost.id);
  EXPECT_FALSE(leases.CanStart(next));
  EXPECT_TRUE(leases.IsQuarantined(key, "here"));
  EXPECT_EQ(leases.EndQuarantine(key), first_);
  EXPECT_EQ(leases.EndQuarantine(key), std::nullopt);
  EXPECT_TRUE(leases.CanStart(next));
}

TEST_F(LeaseBookTest, MemoryOfAProcessThatLeavesIsWaitedFor) {
  LeaseBook& leases = parts_.leases;
  Job& next = Ready("next", first_);
  Job& parked = Ready("parked", second_);
  Worker& worker = parked.workers.front();
  worker.parked_at = 1;
  leases.AddContext(first_, {parked.id, 0, 1});
  EXPECT_EQ(leases.ParkedOn(first_).size(), 1u);
  EXPECT_TRUE(leases.CanStart(next));
  worker.leaving = true;
  EXPECT_TRUE(leases.ParkedOn(first_).empty());
  EXPECT_FALSE(leases.CanStart(next));
  leases.EndContexts({parked.id, 0, 1});
  EXPECT_TRUE(leases.CanStart(next));
}

TEST_F(LeaseBookTest, AGangStartsWithAllItsRanksOrNotAtAll) {
  Job& gang = Add("gang", 2);
  Run(gang, first_);
  gang.assigned = {first_, second_};
  EXPECT_FALSE(parts_.leases.CanStart(gang));
  Worker& other = gang.workers.back();
  other.incarnation = 1;
  other.process = ProcessState::kJoined;
  other.server = "here";
  EXPECT_TRUE(parts_.leases.CanStart(gang));
}

}  // namespace
}  // namespace gavel::engine
