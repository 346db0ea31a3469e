// An engine with many running jobs, whose workers obey at once, and the
// recorder that keeps it. Together they write the journal of a large
// coordinator.
#ifndef GAVEL_TESTS_SERVER_BUSY_ENGINE_H_
#define GAVEL_TESTS_SERVER_BUSY_ENGINE_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/policy/policy.h"
#include "coordinator/server/journal_writer.h"
#include "core/text.h"

namespace gavel::testing {

// Time passes only as the test says, so no peer is given up.
inline EngineOptions BusyOptions() {
  EngineOptions options;
  options.round_duration_s = 1e6;
  options.lease_duration_s = 1e6;
  options.drift = 1e9;
  options.agent_timeout_s = kNever;
  options.launch_timeout_s = kNever;
  options.pause_grace_s = kNever;
  return options;
}

class BusyEngine {
 public:
  // `on_row` is called for each row of the journal, after the step.
  using OnRow = std::function<void(const action::Persist&, const Engine&)>;
  BusyEngine(OnRow on_row, EngineOptions options = BusyOptions())
      : engine(options),
        on_row_(std::move(on_row)),
        policy_(*MakePolicy("fifo")) {}

  void Start(uint64_t term, double wall_s = 0,
             const std::string& policy = "fifo") {
    policy_ = *MakePolicy(policy);
    event::CoordinatorStarted started{term};
    started.policy = policy;
    started.wall_s = wall_s;
    Step(started);
  }

  // Adds servers of 100 accelerators each.
  void AddAccelerators(int count, const std::string& type = "v100") {
    for (int server = 0; count > 0; ++server) {
      AgentHello hello;
      hello.server = StrCat(type, "-", server);
      hello.incarnation = 1;
      for (int i = 0; i < 100 && count > 0; ++i, --count) {
        AcceleratorInfo info;
        info.type = type;
        info.uuid = StrCat(hello.server, "-", i);
        hello.accelerators.push_back(info);
      }
      Step(event::ServerJoined{hello});
    }
  }

  void Submit(const std::string& name, uint64_t steps_total = 1'000'000) {
    JobSpec spec;
    spec.name = name;
    spec.argv = {"./train"};
    spec.owner = "ada";
    spec.steps_total = steps_total;
    Step(event::JobSubmitted{spec, 1});
  }

  // Reports the progress of rank 0 of each running job.
  void ReportAll(uint64_t steps, double steps_per_s = 10) {
    for (const auto& [id, job] : engine.jobs()) {
      const Worker& worker = job.workers.front();
      if (worker.held_epoch == 0) continue;
      Step(event::StepsReported{{id, 0, worker.incarnation},
                                worker.held_epoch,
                                ProgressOf(steps, steps_per_s)});
    }
  }

  // The job's program has done its steps and ends.
  void End(JobId id, uint64_t steps, int exit_code = 0) {
    const Worker worker = engine.jobs().at(id).workers.front();
    const WorkerKey key{id, 0, worker.incarnation};
    Step(event::LeaseEnded{key, worker.held_epoch, ProgressOf(steps, 0),
                           exit_code == 0});
    WorkerExited exit;
    exit.server = worker.server;
    exit.worker = key;
    exit.exit_code = exit_code;
    exit.finished_code = exit_code;
    Step(event::WorkerGone{exit});
  }

  static Progress ProgressOf(uint64_t steps, double steps_per_s) {
    Progress progress;
    progress.steps_done = steps;
    progress.throughput_steps_per_s = steps_per_s;
    progress.window_s = 10;
    return progress;
  }

  void Step(const Event& event) {
    inbox_.push_back(event);
    while (!inbox_.empty()) {
      const Event next = std::move(inbox_.front());
      inbox_.pop_front();
      Take(engine.Step(now, next));
    }
  }

  Engine engine;
  Time now = 0;
  uint64_t rows = 0;
  bool launched_speak = true;  // processes say hello once they are launched

 private:
  void Take(const Actions& actions) {
    bool persisted = false;
    for (const Action& action : actions) {
      if (const auto* row = std::get_if<action::Persist>(&action)) {
        ++rows;
        on_row_(*row, engine);
        persisted = true;
      } else if (const auto* solve =
                     std::get_if<action::SolvePolicy>(&action)) {
        inbox_.push_back(event::AllocationReady{
            solve->epoch, *policy_->Solve(*solve->problem)});
      } else if (const auto* agent =
                     std::get_if<action::SendToAgent>(&action)) {
        Launch(*agent);
      } else if (const auto* worker =
                     std::get_if<action::SendToWorker>(&action)) {
        Answer(*worker);
      }
    }
    if (persisted) inbox_.push_back(event::Persisted{engine.position().seq});
  }

  void Launch(const action::SendToAgent& action) {
    const auto* launch = std::get_if<LaunchWorker>(&action.message);
    if (launch == nullptr || !launched_speak) return;
    WorkerHello hello;
    hello.worker = launch->worker;
    inbox_.push_back(event::WorkerJoined{hello});
  }

  void Answer(const action::SendToWorker& action) {
    const auto* notice = std::get_if<LeaseNotice>(&action.message);
    if (notice == nullptr) return;
    LeaseRequest request;
    request.worker = action.worker;
    request.epoch = notice->epoch;
    request.nonce = ++nonce_;
    inbox_.push_back(event::LeaseRequested{request});
  }

  OnRow on_row_;
  std::unique_ptr<Policy> policy_;
  std::deque<Event> inbox_;
  uint64_t nonce_ = 0;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SERVER_BUSY_ENGINE_H_
