// The parts that run processes and answer workers, agents and operators
// (coordinator/engine/workers), each alone: what it records is not applied.
#include <string>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/parts_kit.h"

namespace gavel::engine {
namespace {

class AccusationsTest : public PartsTest {};
class AssignmentsTest : public PartsTest {};
class CheckpointsTest : public PartsTest {};
class EndingsTest : public PartsTest {};
class ExplanationsTest : public PartsTest {};
class HangWatchTest : public PartsTest {};
class LeaseDeskTest : public PartsTest {};
class LeaseEventsTest : public PartsTest {};
class OperatorsTest : public PartsTest {};
class ProcessesTest : public PartsTest {};
class ServerDeskTest : public PartsTest {};
class SubmissionsTest : public PartsTest {};
class SweeperTest : public PartsTest {};

TEST_F(AccusationsTest, AnAcceleratorIsBackWhenItsAccuserWithdraws) {
  Job& job = Add("job");
  parts_.cluster.MarkLost(first_);
  parts_.accusations.Accuse(first_, job.id);
  EXPECT_EQ(parts_.accusations.AccusedBy(job.id),
            std::vector<AcceleratorId>{first_});
  parts_.accusations.WithdrawAccusations(job.id);
  EXPECT_FALSE(parts_.accusations.any());
  EXPECT_TRUE(parts_.cluster.accelerator(first_).usable());
}

TEST_F(AccusationsTest, AJobThatRunsOnSuchATypeIsBelieved) {
  Job& job = Add("job");
  parts_.cluster.MarkLost(first_);
  parts_.accusations.Accuse(first_, job.id);
  parts_.accusations.BelieveAccuser(job.id, "k80");
  EXPECT_TRUE(parts_.accusations.any());
  parts_.accusations.BelieveAccuser(job.id, "v100");
  EXPECT_FALSE(parts_.accusations.any());
  EXPECT_EQ(parts_.cluster.accelerator(first_).state, AcceleratorState::kLost);
}

TEST_F(AssignmentsTest, AnAssignedJobIsLaunchedUnderANewEpoch) {
  Job& job = Add("job");
  parts_.assignments.Assign(0, job, {second_}, JobId());
  EXPECT_FALSE(parts_.assigned.IsFree(second_));
  EXPECT_TRUE(parts_.jobs.waiting().empty());
  EXPECT_EQ(job.workers.front().process, ProcessState::kLaunching);
  const uint64_t epoch = job.epoch;
  parts_.assignments.Assign(0, job, {second_}, JobId());
  EXPECT_EQ(job.epoch, epoch) << "nothing changed";
  parts_.assignments.Assign(0, job, {}, JobId());
  EXPECT_TRUE(parts_.assigned.IsFree(second_));
}

TEST_F(CheckpointsTest, AJobIsStrandedWhenNoServerHasItsLatestCheckpoint) {
  AgentHello hello = HelloOf("far", 1);
  hello.own_checkpoints = true;
  ASSERT_TRUE(parts_.cluster.Join("far", hello.accelerators).ok());
  parts_.agents.Join(0, hello, 0);
  Job& job = Add("job");
  EXPECT_FALSE(parts_.checkpoints.IsStranded(job));
  parts_.checkpoints.NoteWriter(job, "far", 3);
  EXPECT_FALSE(parts_.checkpoints.IsStranded(job));
  parts_.agents.Lose(9, "far", /*left=*/false);
  EXPECT_TRUE(parts_.checkpoints.IsStranded(job));
  EXPECT_TRUE(std::holds_alternative<reason::Stranded>(
      parts_.checkpoints.WhyStranded(job)));
  parts_.checkpoints.ForgoCheckpoints(job);
  EXPECT_FALSE(parts_.checkpoints.IsStranded(job));
}

TEST_F(EndingsTest, ALeaseThatEndsFreesItsAccelerator) {
  Job& job = Add("job");
  Worker& worker = Run(job, first_);
  parts_.endings.EndLease(40, job, worker);
  EXPECT_EQ(worker.held_epoch, 0u);
  EXPECT_EQ(job.received_s, 40);
  EXPECT_TRUE(parts_.leases.Holders(first_).empty());
}

TEST_F(EndingsTest, AJobIsOverWhenItsProcessesEndWithZero) {
  Job& job = Add("job");
  Run(job, first_);
  WorkerExited exit;
  exit.server = "here";
  exit.worker = {job.id, 0, 1};
  parts_.endings.On(50, event::WorkerGone{exit});
  EXPECT_EQ(job.state, JobState::kFinished);
  EXPECT_EQ(job.ended_at, 50);
  EXPECT_TRUE(parts_.assigned.IsFree(first_));
}

TEST_F(EndingsTest, AJobIsHeldWhenItHasFailedTooOften) {
  Job& job = Add("job");
  job.spec.retries_max = 1;
  Run(job, first_);
  WorkerExited exit;
  exit.server = "here";
  exit.worker = {job.id, 0, 1};
  exit.exit_code = 3;
  parts_.endings.On(50, event::WorkerGone{exit});
  EXPECT_EQ(job.state, JobState::kHeld);
  EXPECT_TRUE(std::holds_alternative<reason::HeldFailures>(job.reason));
}

TEST_F(ExplanationsTest, SayWhereAJobIs) {
  Job& job = Add("job");
  EXPECT_TRUE(std::holds_alternative<reason::Submitted>(
      parts_.explanations.Why(job.id, 0)));
  Run(job, first_);
  job.counted_since = 0;
  EXPECT_TRUE(std::holds_alternative<reason::Running>(
      parts_.explanations.Why(job.id, 10)));
  job.workers.front().finished = true;
  EXPECT_TRUE(std::holds_alternative<reason::Ending>(
      parts_.explanations.Why(job.id, 10)));
}

TEST_F(HangWatchTest, AWorkerStandsStillWhileItsCountsDoNotChange) {
  Job& job = Add("job");
  Worker& worker = Run(job, first_);
  Progress told;
  told.steps_done = 5;
  parts_.hang.NoteSteps(10, worker, told);
  EXPECT_EQ(worker.stepped_at, 10);
  parts_.hang.NoteSteps(400, worker, told);
  EXPECT_EQ(worker.stepped_at, 10);
  const auto still = parts_.hang.StandstillOf(job);
  ASSERT_TRUE(still.has_value());
  EXPECT_EQ(still->seconds, 390);
  EXPECT_EQ(still->allowed_s, parts_.options.hang_timeout_s);
}

TEST_F(LeaseDeskTest, ALeaseBeginsWhenTheJobMayStart) {
  Job& job = Add("job");
  Worker& worker = Run(job, first_);
  parts_.leases.End(first_, job.id);
  worker.held_epoch = 0;
  parts_.round.StartRounds(0);
  LeaseRequest request;
  request.worker = {job.id, 0, 1};
  request.nonce = 1;
  parts_.desk.Admit(1, event::LeaseRequested{request});
  const auto* started = kept_.Last<event::LeaseStarted>();
  ASSERT_NE(started, nullptr);
  EXPECT_EQ(started->accelerator, first_);
  // The same request once more is an old one.
  parts_.desk.Admit(1, event::LeaseRequested{request});
  EXPECT_EQ(kept_.events.size(), 1u);
}

TEST_F(LeaseDeskTest, AnEarlierIncarnationIsRejected) {
  Job& job = Add("job");
  Run(job, first_);
  LeaseRequest request;
  request.worker = {job.id, 0, 7};
  parts_.desk.Admit(1, event::LeaseRequested{request});
  EXPECT_TRUE(kept_.events.empty());
  EXPECT_EQ(Sent<WorkerRejected>(parts_.outbox.Take()), 1);
}

TEST_F(LeaseEventsTest, ALeaseIsInTheBookFromItsStartToItsEnd) {
  Job& job = Add("job");
  Worker& worker = Run(job, first_);
  parts_.leases.End(first_, job.id);
  worker.held_epoch = 0;
  const WorkerKey key{job.id, 0, 1};
  parts_.lease_events.On(5, event::LeaseStarted{key, 1, first_});
  EXPECT_EQ(worker.held, first_);
  EXPECT_EQ(parts_.leases.Holders(first_).size(), 1u);
  event::LeaseEnded ended;
  ended.worker = key;
  ended.epoch = 1;
  ended.progress.steps_done = 12;
  parts_.lease_events.On(9, ended);
  EXPECT_EQ(worker.known.steps_done, 12u);
  EXPECT_EQ(worker.parked_at, 9);
  EXPECT_TRUE(parts_.leases.Holders(first_).empty());
}

TEST_F(OperatorsTest, WhatCannotBeDoneIsAnsweredAtOnce) {
  parts_.operators.Admit(0, event::JobCommanded{JobId(4)});
  EXPECT_TRUE(kept_.events.empty());
  const Actions actions = parts_.outbox.Take();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_NE(std::get<action::Reply>(actions[0]).error, "");
}

TEST_F(OperatorsTest, APolicyThatIsSetMakesAnotherAllocation) {
  event::PolicyChanged changed{"gandiva", "fifo"};
  changed.packing = true;
  parts_.operators.On(0, changed);
  EXPECT_EQ(parts_.operators.operated().policy.name, "gandiva");
  EXPECT_TRUE(parts_.options.packing);
  EXPECT_TRUE(parts_.agenda.unsolved());
}

TEST_F(ProcessesTest, AWorkerThatIsAskedToEndMoreStronglyStaysSo) {
  Job& job = Add("job");
  Worker& worker = Run(job, first_);
  parts_.processes.Pause(3, job, 0, PauseTier::kEvict);
  EXPECT_TRUE(worker.leaving);
  EXPECT_EQ(worker.pause_sent_at, 3);
  parts_.processes.Pause(5, job, 0, PauseTier::kPark);
  EXPECT_EQ(worker.pause_tier, PauseTier::kEvict);
  EXPECT_EQ(worker.pause_sent_at, 3);
  EXPECT_EQ(Sent<PauseRequest>(parts_.outbox.Take()), 2);
}

TEST_F(ProcessesTest, OtherRanksWaitForTheStoreOfTheirEpoch) {
  Job& job = Add("gang", 2);
  EXPECT_FALSE(Processes::WaitsForGang(job, 0, 1));
  EXPECT_TRUE(Processes::WaitsForGang(job, 1, 1));
  job.gang_epoch = 1;
  EXPECT_FALSE(Processes::WaitsForGang(job, 1, 1));
}

TEST_F(ServerDeskTest, AnOlderAgentIsRefused) {
  AgentHello newer = HelloOf("here", 2);
  newer.incarnation = 2;
  parts_.servers.Admit(1, event::ServerJoined{newer});
  EXPECT_NE(kept_.Last<event::ServerJoined>(), nullptr);
  AgentHello older = HelloOf("here", 2);
  older.incarnation = 0;
  parts_.servers.Admit(1, event::ServerJoined{older});
  EXPECT_EQ(kept_.events.size(), 1u);
  EXPECT_EQ(Sent<AgentRejected>(parts_.outbox.Take()), 1);
}

TEST_F(ServerDeskTest, AProcessThatNobodyKnowsIsStopped) {
  AgentHello hello = HelloOf("here", 2);
  hello.incarnation = 2;
  RunningWorker stranger;
  stranger.worker = {JobId(9), 0, 1};
  hello.running = {stranger};
  parts_.servers.On(1, event::ServerJoined{hello});
  EXPECT_EQ(parts_.agents.strangers().size(), 1u);
  EXPECT_EQ(Sent<StopWorker>(parts_.outbox.Take()), 1);
}

TEST_F(SubmissionsTest, ANameThatIsTakenIsRefused) {
  parts_.submissions.Admit(0, {SpecOf("train"), 1});
  ASSERT_EQ(kept_.events.size(), 1u);
  parts_.submissions.On(0, std::get<event::JobSubmitted>(kept_.events[0]));
  EXPECT_EQ(parts_.jobs.active(), 1u);
  EXPECT_TRUE(parts_.agenda.unsolved());
  parts_.submissions.Admit(0, {SpecOf("train"), 2});
  EXPECT_EQ(kept_.events.size(), 1u);
}

TEST_F(SweeperTest, AnAgentThatIsSilentForTooLongIsLost) {
  const double timeout_s = parts_.options.agent_timeout_s;
  parts_.sweeper.Sweep(timeout_s - 1);
  EXPECT_TRUE(kept_.events.empty());
  EXPECT_EQ(parts_.agenda.next_sweep(), timeout_s);
  parts_.sweeper.Sweep(timeout_s);
  ASSERT_NE(kept_.Last<event::ServerLost>(), nullptr);
  EXPECT_EQ(kept_.Last<event::ServerLost>()->server, "here");
}

}  // namespace
}  // namespace gavel::engine
