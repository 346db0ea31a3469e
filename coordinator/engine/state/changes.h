// Which jobs have changed since a reader last looked: parts that keep something
// of each job (the plan, the problem for the policy, isolated time, filling)
// look only at those again. Also which accelerator types need no new plan, as
// nothing has changed on them.
//
// Not thread-safe. Snapshot fields: the changes that isolated time reads; after
// a restore the other readers look at all jobs.
#ifndef GAVEL_COORDINATOR_ENGINE_STATE_CHANGES_H_
#define GAVEL_COORDINATOR_ENGINE_STATE_CHANGES_H_

#include <array>
#include <cstdint>
#include <tuple>
#include <vector>

#include "coordinator/engine/engine_values.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/state/job_table.h"
#include "core/ids.h"

namespace gavel::engine {

class Changes {
 public:
  enum Reader : uint8_t { kPlan, kProblem, kIsolated, kFill, kReaders };

  // From now on every reader looks at it again.
  void Touch(Job& job);
  void TouchAll();  // at all jobs
  // All jobs, and not only those of Take, may have changed.
  bool all(Reader reader) const { return changes_[reader].all; }
  void SetAll(Reader reader, bool all) { changes_[reader].all = all; }
  // Those touched since the last Take, in the order in which they were.
  const std::vector<JobId>& Touched(Reader reader) const {
    return changes_[reader].jobs;
  }
  // The same ascending, and nothing has changed from then on.
  std::vector<JobId> Take(Reader reader, const JobTable& jobs);

  // Something has changed on the type, or on all of them.
  void ForgetType(size_t type);
  void ForgetTypes();
  FilledTypes& filled() { return filled_; }
  IdleTypes& idle() { return idle_; }

  static auto State(auto& c) {
    return std::tie(c.changes_[kIsolated].jobs, c.changes_[kIsolated].all);
  }
  // After State was read.
  void Rebuild();

 private:
  std::array<JobChanges, kReaders> changes_;
  FilledTypes filled_;
  IdleTypes idle_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_STATE_CHANGES_H_
