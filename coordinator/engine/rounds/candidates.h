// Which jobs and pairs may run in a round. Stateless; not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_ROUNDS_CANDIDATES_H_
#define GAVEL_COORDINATOR_ENGINE_ROUNDS_CANDIDATES_H_

#include "coordinator/engine/job.h"
#include "coordinator/engine/state/job_table.h"
#include "coordinator/engine/workers/checkpoints.h"
#include "core/share_unit.h"

namespace gavel::engine {

class Candidates {
 public:
  // Borrowed, and outlive this.
  Candidates(const JobTable& jobs, const Checkpoints& checkpoints)
      : jobs_(jobs), checkpoints_(checkpoints) {}

  // One whose loops are over only has to exit: its accelerators are free.
  bool MayRun(const Job& job) const;
  bool MayRun(const ShareUnit& unit) const;

 private:
  const JobTable& jobs_;
  const Checkpoints& checkpoints_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ROUNDS_CANDIDATES_H_
