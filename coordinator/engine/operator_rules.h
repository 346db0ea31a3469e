// Whether what an operator or an owner wants can be done, and what of it a job
// waits for. Parts of the engine are only read; pure, stateless.
#ifndef GAVEL_COORDINATOR_ENGINE_OPERATOR_RULES_H_
#define GAVEL_COORDINATOR_ENGINE_OPERATOR_RULES_H_

#include <optional>
#include <string>
#include <vector>

#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/reason.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/throughput/throughput_matrix.h"

namespace gavel {

namespace engine {
class Agents;
class JobTable;
class LeaseBook;
}  // namespace engine

// Names are of their owners: two users may each have a "train".
std::string NameOf(const JobSpec& spec);
// Until its end; a held job keeps it.
bool HasName(const Job& job);

// Why it can't be done, with the remedy; empty: it can.
// `job`: the one of the event; null: there is none. `kept_out`: it is excluded
// from some type, or stranded, which a release undoes for an active job too.
std::string WhyNot(const event::JobCommanded& e, const Job* job, bool kept_out);
std::string WhyNot(const event::JobUpdated& e, const Job* job,
                   const Cluster& cluster);
std::string WhyNot(const event::ServerForgotten& e,
                   const engine::Agents& agents,
                   const engine::LeaseBook& leases,
                   const engine::JobTable& jobs, const Cluster& cluster,
                   double agent_timeout_s);
// Also finds out what was meant, and names it in full.
std::string WhyNot(event::AcceleratorsDrained& e, const Cluster& cluster);

// The accelerators that the event means: one, or all of its server. When a
// server is resumed, those that were drained by themselves are left out.
std::vector<AcceleratorId> AcceleratorsOf(const event::AcceleratorsDrained& e,
                                          const Cluster& cluster);

// Where the job could run but for what is drained, and why that is.
std::optional<reason::Drained> WhyDrained(const Job& job,
                                          const Cluster& cluster,
                                          const ThroughputMatrix& throughputs);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_OPERATOR_RULES_H_
