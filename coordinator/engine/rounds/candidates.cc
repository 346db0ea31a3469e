#include "coordinator/engine/rounds/candidates.h"

#include <algorithm>

namespace gavel::engine {

bool Candidates::MayRun(const Job& job) const {
  return job.active() && !checkpoints_.IsStranded(job) &&
         std::ranges::any_of(job.gang(), [](const Worker& worker) {
           return !worker.finished && worker.process != ProcessState::kDone;
         });
}

bool Candidates::MayRun(const ShareUnit& unit) const {
  const auto may_run = [&](JobId id) {
    const Job* job = jobs_.FindLive(id);
    return job != nullptr && MayRun(*job);
  };
  return may_run(unit.job) && (!unit.packed() || may_run(unit.partner));
}

}  // namespace gavel::engine
