// Explains to people why a job is in its present state. Not thread-safe;
// stateless.
#ifndef GAVEL_COORDINATOR_ENGINE_EXPLANATIONS_H_
#define GAVEL_COORDINATOR_ENGINE_EXPLANATIONS_H_

#include <optional>

#include "coordinator/engine/allocation.h"
#include "coordinator/engine/checkpoints.h"
#include "coordinator/engine/endings.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/failures.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/lease_book.h"
#include "coordinator/engine/ledger.h"
#include "coordinator/engine/planner.h"
#include "coordinator/engine/terms.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/mechanism/cluster.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel::engine {

class Explanations {
 public:
  // The arguments are borrowed, and must outlive this object.
  Explanations(const Terms& terms, const JobTable& jobs, const Cluster& cluster,
               const ThroughputMatrix& throughputs, const LeaseBook& leases,
               const EngineOptions& options, const AllocationTable& allocation,
               const Checkpoints& checkpoints, const Figures& figures,
               const HangWatch& hang, const Ledger& ledger,
               const RoundRows& rows, const Avoidance& avoidance)
      : terms_(terms),
        jobs_(jobs),
        cluster_(cluster),
        throughputs_(throughputs),
        leases_(leases),
        options_(options),
        allocation_(allocation),
        checkpoints_(checkpoints),
        figures_(figures),
        hang_(hang),
        ledger_(ledger),
        rows_(rows),
        avoidance_(avoidance) {}

  // The time that an active job has received in all and, for each type, the
  // figures of the job alone (not of its pairs) that its priority is computed
  // from.
  event::Received ReceivedOf(JobId job, Time now) const;
  // The reason for the job's state, with its place in line if it waits for its
  // priority.
  Reason Why(JobId job, Time now) const;
  // The same without the place in line.
  Reason WhyUnranked(JobId job, Time now) const;

 private:
  Reason WhyWaiting(const Job& job, Time now) const;
  std::optional<reason::KeptOut> WhyKeptOut(const Job& job) const;
  std::optional<reason::WaitsForRelease> WhyReserved(const Job& job) const;

  const Terms& terms_;
  const JobTable& jobs_;
  const Cluster& cluster_;
  const ThroughputMatrix& throughputs_;
  const LeaseBook& leases_;
  const EngineOptions& options_;
  const AllocationTable& allocation_;
  const Checkpoints& checkpoints_;
  const Figures& figures_;
  const HangWatch& hang_;
  const Ledger& ledger_;
  const RoundRows& rows_;
  const Avoidance& avoidance_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_EXPLANATIONS_H_
