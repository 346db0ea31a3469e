// Jobs that are submitted: whether they are let in, and what is kept of them.
// Not thread-safe; stateless.
#ifndef GAVEL_COORDINATOR_ENGINE_SUBMISSIONS_H_
#define GAVEL_COORDINATOR_ENGINE_SUBMISSIONS_H_

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/ledger.h"
#include "coordinator/engine/measurements.h"
#include "coordinator/engine/outbox.h"
#include "coordinator/engine/terms.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/mechanism/cluster.h"
#include "core/units.h"

namespace gavel::engine {

class Submissions {
 public:
  // Borrowed, and outlive this.
  Submissions(Outbox& outbox, Agenda& agenda, JobTable& jobs, Changes& changes,
              const Cluster& cluster, ThroughputMatrix& throughputs,
              const EngineOptions& options, Recorder& recorder,
              Measurements& measurements, IsolatedTime& isolated,
              Ledger& ledger)
      : outbox_(outbox),
        agenda_(agenda),
        jobs_(jobs),
        changes_(changes),
        cluster_(cluster),
        throughputs_(throughputs),
        options_(options),
        recorder_(recorder),
        measurements_(measurements),
        isolated_(isolated),
        ledger_(ledger) {}

  void Admit(Time now, event::JobSubmitted e);
  void On(Time now, const event::JobSubmitted& e);

 private:
  Outbox& outbox_;
  Agenda& agenda_;
  JobTable& jobs_;
  Changes& changes_;
  const Cluster& cluster_;
  ThroughputMatrix& throughputs_;
  const EngineOptions& options_;
  Recorder& recorder_;
  Measurements& measurements_;
  IsolatedTime& isolated_;
  Ledger& ledger_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_SUBMISSIONS_H_
