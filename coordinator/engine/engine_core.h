// The parts of the engine, each with the parts that it uses: a part refers only
// to parts that are declared above it. Each part owns its state and lists its
// fields of a snapshot (State). engine.cc says which part takes which event.
#ifndef GAVEL_COORDINATOR_ENGINE_ENGINE_CORE_H_
#define GAVEL_COORDINATOR_ENGINE_ENGINE_CORE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/engine/action.h"
#include "coordinator/engine/agents.h"
#include "coordinator/engine/allocation.h"
#include "coordinator/engine/assignments.h"
#include "coordinator/engine/checkpoints.h"
#include "coordinator/engine/endings.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/explanations.h"
#include "coordinator/engine/failures.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/lease_book.h"
#include "coordinator/engine/leases.h"
#include "coordinator/engine/ledger.h"
#include "coordinator/engine/measurements.h"
#include "coordinator/engine/memory_plan.h"
#include "coordinator/engine/operators.h"
#include "coordinator/engine/outbox.h"
#include "coordinator/engine/planner.h"
#include "coordinator/engine/processes.h"
#include "coordinator/engine/round_clock.h"
#include "coordinator/engine/rounds.h"
#include "coordinator/engine/servers.h"
#include "coordinator/engine/solver.h"
#include "coordinator/engine/submissions.h"
#include "coordinator/engine/sweeper.h"
#include "coordinator/engine/terms.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/engine/trial_book.h"
#include "coordinator/mechanism/cluster.h"
#include "core/units.h"

namespace gavel::engine {

struct Parts {
  // The recorder is borrowed, and must outlive this object.
  Parts(EngineOptions made_with, Recorder& with)
      : terms(std::move(made_with)), recorder(with) {}
  Parts(const Parts&) = delete;  // they refer to each other
  Parts& operator=(const Parts&) = delete;

  // ---- state that many parts use
  Terms terms;
  const EngineOptions& options = terms.options();
  Recorder& recorder;
  Outbox outbox{options.journal};
  Agenda agenda;
  JobTable jobs;
  Changes changes;
  Cluster cluster;
  ThroughputMatrix throughputs;
  AcceleratorSpeeds speeds;
  AssignedAccelerators assigned{cluster, changes};
  LeaseBook leases{jobs, cluster};
  Agents agents;
  Avoidance avoidance{cluster};

  // ---- parts that measure, decide and act
  AllocationTable allocation{jobs, cluster, options};
  Checkpoints checkpoints{outbox, agenda, jobs, cluster, agents};
  Candidates candidates{jobs, checkpoints};
  Figures figures{jobs, cluster, throughputs, speeds, avoidance, options};
  Measurements measurements{agenda, jobs,    cluster, throughputs,
                            speeds, options, figures};
  HangWatch hang{cluster, throughputs, options};
  Ledger ledger{terms, jobs, cluster, allocation, candidates};
  IsolatedTime isolated{jobs, changes, cluster, throughputs, options, figures};
  TrialBook trials{terms,   jobs,       cluster,    throughputs,
                   options, allocation, candidates, figures};
  RoundRows rows{terms,      jobs,       cluster, throughputs, options,
                 allocation, candidates, figures, ledger,      trials};
  RoundClock round{terms, jobs, options};
  Processes processes{outbox, agenda,  jobs,        changes, cluster, assigned,
                      leases, options, checkpoints, ledger,  round};
  Assignments assignments{agenda,   jobs,       changes, cluster,
                          assigned, allocation, ledger,  processes};
  Accusations accusations{agenda, cluster, assigned, agents, jobs, avoidance};
  Endings endings{agenda,       jobs,        changes,   cluster,    throughputs,
                  speeds,       assigned,    leases,    options,    checkpoints,
                  measurements, ledger,      isolated,  trials,     round,
                  processes,    assignments, avoidance, accusations};
  LeaseDesk desk{terms,  outbox,  agenda,   jobs, cluster, throughputs, leases,
                 agents, options, recorder, hang, round,   processes};
  LeaseEvents lease_events{outbox,       agenda,      jobs,        changes,
                           cluster,      leases,      options,     checkpoints,
                           measurements, hang,        ledger,      trials,
                           processes,    assignments, accusations, endings};
  ServerDesk servers{terms,        outbox,      agenda,      jobs,
                     cluster,      throughputs, speeds,      assigned,
                     leases,       agents,      options,     recorder,
                     measurements, processes,   accusations, endings};
  Problems problems{terms,       jobs,     changes,    cluster,
                    throughputs, options,  allocation, figures,
                    ledger,      isolated, trials};
  Solver solver{outbox,     agenda, jobs,     changes, options, recorder,
                allocation, ledger, isolated, round,   problems};
  Planner planner{terms,  jobs,    changes,    cluster,     assigned,
                  agents, options, allocation, checkpoints, candidates,
                  trials, rows,    figures,    speeds,      avoidance};
  Resizing resizing{terms,      agenda,      jobs,    changes,
                    cluster,    throughputs, options, recorder,
                    candidates, figures,     solver,  planner};
  Rounds rounds{agenda,      jobs,     changes,    throughputs, assigned,
                options,     recorder, allocation, checkpoints, candidates,
                figures,     ledger,   trials,     round,       processes,
                assignments, planner,  resizing};
  MemoryPlan memory{terms,  agenda,  jobs,     cluster, assigned, leases,
                    agents, options, recorder, rows,    round,    processes};
  Submissions submissions{outbox,       agenda,      jobs,    changes,
                          cluster,      throughputs, options, recorder,
                          measurements, isolated,    ledger};
  Operators operators{terms,       outbox,      agenda,       jobs,
                      changes,     cluster,     throughputs,  assigned,
                      leases,      agents,      options,      recorder,
                      allocation,  checkpoints, measurements, processes,
                      assignments, accusations, endings,      isolated,
                      problems,    solver};
  Sweeper sweeper{outbox,  agenda,   jobs, cluster,   leases,   agents,
                  options, recorder, hang, processes, operators};
  Explanations explanations{
      terms,       jobs,    cluster, throughputs, leases, options,  allocation,
      checkpoints, figures, hang,    ledger,      rows,   avoidance};
};

// The implementation of Engine (engine.h): takes events, hands each to the part
// that handles it (Parts), and writes the state of all parts as a snapshot. Not
// thread-safe.

class Core final : private Recorder {
 public:
  explicit Core(EngineOptions options);

  // The functions of Engine with the same names.
  Actions Step(Time now, Event event);
  void Reuse(Actions done) { parts_.outbox.Reuse(std::move(done)); }
  Time NextDeadline() const;
  void Replay(uint64_t seq, uint64_t term, Time time, const Event& event);
  absl::StatusOr<std::string> Snapshot() const;
  absl::Status Restore(std::string_view snapshot);

  // Read access to the state, for the accessors of Engine.
  const Parts& parts() const { return parts_; }

 private:
  void Record(Time now, Event event) override;
  void Admit(Time now, Event& event);
  void Apply(Time now, const Event& event);
  void TakeTick(Time now);
  void BeginTerm(Time now, const event::CoordinatorStarted& e);
  bool SetDownJobs(Time now);
  void SetDown(Time now, Job& job, int rank);
  void TakeSettings(const event::Settings& settings);
  static auto State(auto& parts);
  absl::Status Rebuild(const std::vector<JobId>& live);

  Parts parts_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ENGINE_CORE_H_
