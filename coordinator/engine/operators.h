// Commands of operators to the cluster, and of owners to their jobs: checks
// whether a command can be carried out, and applies it. Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_OPERATORS_H_
#define GAVEL_COORDINATOR_ENGINE_OPERATORS_H_

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/engine/agents.h"
#include "coordinator/engine/checkpoints.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/leases.h"
#include "coordinator/engine/reason.h"
#include "coordinator/engine/solver.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/engine/workers.h"
#include "coordinator/mechanism/cluster.h"
#include "core/units.h"

// Submissions: decides whether a job is admitted, and records it. Not
// thread-safe; stateless.

namespace gavel::engine {

struct State;

// The parents of a new job (FindParents). INVALID_ARGUMENT: the job is refused.
absl::StatusOr<std::vector<Parent>> FindParentsIfAdmitted(const State& s,
                                                          const JobSpec& spec);
void Admit(State& s, Time now, event::JobSubmitted e);
void On(State& s, Time now, const event::JobSubmitted& e);
// A held job, or one that is kept out of accelerators, may run again. An
// element of an array waits for its turn.
void Release(State& s, Time now, Job& job);
// A new job, or one that may run again, is in the queue from now on.
void EnterQueue(State& s, Time now, Job& job);
// The job is excluded from some type, kept out of some accelerator, or
// stranded. A release undoes that, for an active job too.
bool IsKeptOut(const State& s, const Job& job);

}  // namespace gavel::engine

namespace gavel {

// These functions say why a command of an operator or an owner can't be carried
// out, and which drains keep a job waiting. They only read parts of the engine.
// Pure, stateless.

// The job's name, qualified by its owner: two users may each have a "train".
std::string NameOf(std::string_view owner, std::string_view name);
std::string NameOf(const JobSpec& spec);
// Whether the job has its name. It keeps it until its end, also while held.
bool HasName(const Job& job);
// Whether the job is held for its not_before, its parents or its array, and for
// nothing else: it starts without a command.
bool WaitsByItself(const Job& job);

// Why the command can't be carried out, with the remedy; empty if it can.
// `job`: the job that the event names, or null if there is none. `kept_out`:
// engine::IsKeptOut.
std::string WhyNot(const event::JobCommanded& e, const Job* job, bool kept_out);
std::string WhyNot(const event::JobUpdated& e, const Job* job,
                   const Cluster& cluster);
std::string WhyNot(const event::ServerForgotten& e,
                   const engine::Agents& agents,
                   const engine::LeaseBook& leases,
                   const engine::JobTable& jobs, const Cluster& cluster,
                   double agent_timeout_s);
// Also resolves the name of an accelerator: sets `e.server` and `e.uuid` if
// `e.server` is not a server.
std::string WhyNot(event::AcceleratorsDrained& e, const Cluster& cluster);
// Why no job may count for that entity; empty: one may, or it is of none.
std::string WhyNoEntity(const std::vector<PolicyEntity>& entities,
                        const std::string& name);

// The accelerators that the event means: one, or all of its server. When a
// server is resumed, those that were drained by themselves are left out.
std::vector<AcceleratorId> AcceleratorsOf(const event::AcceleratorsDrained& e,
                                          const Cluster& cluster);

}  // namespace gavel

namespace gavel::engine {

// Applies the commands of operators and owners. Each is one event; drains,
// holds, updates and changes of the policy are undone by another event.
//
// Not thread-safe. Snapshot fields: the policy that was set, and drains.

// The drained accelerators that the job could run on otherwise, and why they
// are drained; nullopt if there are none.
std::optional<reason::Drained> WhyDrained(const State& s, const Job& job);

void On(State& s, Time now, const event::PricesChanged& e);
void Admit(State& s, Time now, const event::JobCommanded& e);
void Admit(State& s, Time now, event::JobUpdated e);
void Admit(State& s, Time now, const event::ServerForgotten& e);
void Admit(State& s, Time now, event::AcceleratorsDrained e);
void On(State& s, Time now, const event::JobCommanded& e);
void On(State& s, Time now, const event::JobUpdated& e);
void On(State& s, Time now, const event::AcceleratorsDrained& e);
// Makes workers leave the drained accelerators on which their time is up.
void SweepDrains(State& s, Time now);
void On(State& s, Time now, const event::ServerForgotten& e);
void On(State& s, Time now, const event::PolicyChanged& e);
// Takes the policy that the new coordinator names. If that is the policy
// which an operator had set, it stays set with its options.
void TakePolicyOf(State& s, const event::CoordinatorStarted& e);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_OPERATORS_H_
