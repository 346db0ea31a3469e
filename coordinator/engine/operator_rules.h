// Whether what an operator or an owner wants can be done, and what of it a job
// waits for. Of an engine that is only read; pure, stateless.
#ifndef GAVEL_COORDINATOR_ENGINE_OPERATOR_RULES_H_
#define GAVEL_COORDINATOR_ENGINE_OPERATOR_RULES_H_

#include <string>
#include <vector>

#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/jobs/cluster.h"

namespace gavel {

class Engine;

// Names are of their owners: two users may each have a "train".
std::string NameOf(const JobSpec& spec);
// Until its end; a held job keeps it.
bool HasName(const Job& job);

// Why it can't be done, with the remedy; empty: it can.
std::string WhyNot(const event::JobCommanded& e, const Engine& engine);
std::string WhyNot(const event::JobUpdated& e, const Engine& engine);
std::string WhyNot(const event::ServerForgotten& e, const Engine& engine);
// Also finds out what was meant, and names it in full.
std::string WhyNot(event::AcceleratorsDrained& e, const Cluster& cluster);

// Those of an event that names a server, and an accelerator or none.
std::vector<AcceleratorId> AcceleratorsOf(const event::AcceleratorsDrained& e,
                                          const Cluster& cluster);

// kDrained, where the job could run but for what is drained.
Reason WhyDrained(const Job& job, const Engine& engine);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_OPERATOR_RULES_H_
