#include "tests/engine/durable_events.h"

#include <optional>
#include <string>

namespace gavel {

std::vector<Event> DurableEvents() {
  const WorkerKey key{JobId(3), 1, 4};
  Progress progress;
  progress.steps_done = 77;
  progress.last_generation = {5, 70};
  progress.scalars = {{"loss", 0.25}};
  JobSpec spec;
  spec.name = "a";
  spec.argv = {"./train", "--x"};
  spec.environment = {{"K", "V"}};
  spec.job_class = JobClass::kInteractive;
  spec.deadline_s = 10;
  spec.after_success = {"prepare"};
  spec.after_by_index = {"parts"};
  spec.throughputs = {{"v100", 2.5}};
  WorkerHello worker_hello;
  worker_hello.worker = key;
  worker_hello.progress = progress;
  AgentHello hello;
  hello.server = "here";
  hello.accelerators.resize(2);
  hello.running = {{key, 4711}};
  WorkerExited exit;
  exit.worker = key;
  exit.launch_error = "no such file";
  exit.no_failure = true;
  PolicyResult result;
  result.outcome = SolveOutcome::kIterationLimit;
  result.allocation = Allocation::FromRows({{JobId(1), {}}, {JobId(3), {}}}, 2,
                                           {0.5, -0.0, 1e-300, 1});
  result.assignment = {{{JobId(1), JobId(2)}, 1}};
  result.each_round = true;
  result.left_out = {JobId(9)};
  result.gap = 1e-9;
  result.solver = "highs";
  JobUpdate update;
  update.weight = 2;
  update.types = {"v100", "k80"};
  update.scale_factor_max = 8;
  update.time_limit_s = 3600;
  update.after_any = {"b"};
  return {event::CoordinatorStarted{7, 360, 60, MechanismKind::kMoveAware,
                                    QueueKind::kPerType, 4},
          event::JobSubmitted{spec,
                              0,
                              {},
                              {},
                              {{JobId(2), true, true},
                               {JobId(1), true, false, true},
                               {JobId(7), true, false, false, true}}},
          event::JobCommanded{JobId(2), CommandKind::kRelease, 0},
          event::ServerJoined{hello},
          event::ServerLost{"here"},
          event::AcceleratorLost{"here", "here-0"},
          event::WorkerJoined{worker_hello},
          event::LeaseStarted{key, 9, AcceleratorId(2)},
          event::LeaseEnded{key, 9, progress, true},
          event::StepsReported{key, 9, progress},
          event::WorkerGone{exit},
          event::WorkerAbandoned{key},
          event::AllocationReady{12, result},
          event::RoundPlanned{
              {{{JobId(1), JobId(2)}, {AcceleratorId(4), AcceleratorId(5)}}},
              std::nullopt,
              {{JobId(1), JobId(2)}},
              {{JobId(6), 1}}},
          event::RoundStarted{{{JobId(4), PauseTier::kEvict}}},
          event::PricesChanged{{{"v100", 0.74}}},
          event::UnitsAssigned{{{{JobId(3), JobId()}, {AcceleratorId(1)}}},
                               {{JobId(3), 2}}},
          event::WorkersEvicted{{key}},
          event::JobsResized{{{JobId(3), 2, Reason()}}},
          event::AcceleratorsDrained{"here", "here-0", false, true, 7.5},
          event::JobUpdated{JobId(3), update, 0, {{JobId(2), false, true}}},
          event::PolicyChanged{"fifo", "max_min_fairness", true, false, 0, true,
                               true},
          event::ServerForgotten{"here"},
          event::TrialsNoted{{{TrialKind::kNeighbour,
                               TrialStage::kKept,
                               JobId(3),
                               JobId(4),
                               1.5,
                               12,
                               {AcceleratorId(5)}}}},
          event::TimeReached{JobId(3)},
          event::ParentsEnded{JobId(3)},
          event::AppGoalSet{
              "ann", {"search", false, 1500, 300, 4000, 900, 100}, 0, true}};
}

}  // namespace gavel
