// Accelerators as they are handed out, one unit after another: what the
// policies share that choose accelerators themselves. Called by queues.cc,
// allox.cc and gandiva.cc. Not thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_ASSIGNER_H_
#define GAVEL_COORDINATOR_POLICY_ASSIGNER_H_

#include <cassert>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/policy/policy.h"

namespace gavel {

// Jobs are indices into PolicyProblem::jobs, types into PolicyProblem::types.
class Assigner {
 public:
  // `problem` has passed CheckProblem and outlives the assigner.
  explicit Assigner(const PolicyProblem& problem);

  // The jobs that can run somewhere, by arrival, ties by id.
  const std::vector<size_t>& queue() const { return queue_; }
  const PolicyJob& Job(size_t job) const { return problem_.jobs[job]; }
  size_t types() const { return room_.size(); }

  // Steps/s on a type that is empty: of a gang on one server where one is large
  // enough for it, else (or if that is faster) across servers. 0 where the job
  // can't run: the type is smaller than its gang, or the throughput is 0.
  double Throughput(size_t job, size_t type) const {
    return problem_.capacity[type] < Job(job).scale_factor
               ? 0
               : Rows()[job * types() + type];
  }

  // What two jobs gain by sharing: T_a'/T_a + T_b'/T_b on this type. 0 where
  // they can't share: not a pair of the problem, or a throughput of 0.
  double PackedThroughput(size_t a, size_t b, size_t type) const;

  // Free accelerators of the type, or of all types together.
  int room(size_t type) const { return room_[type]; }
  int room() const;
  const std::vector<int>& rooms() const { return room_; }  // by type
  bool HasRoom(size_t job, size_t type) const {
    return room_[type] >= Job(job).scale_factor;
  }
  // It can run there and there is room for its gang.
  bool Fits(size_t job, size_t type) const {
    return Throughput(job, type) > 0 && HasRoom(job, type);
  }
  // The type with the highest throughput of those where it fits; the first of
  // equal ones.
  std::optional<size_t> BestFit(size_t job) const {
    const size_t types = this->types();
    const int* room = room_.data();
    const double* row = Rows() + job * types;
    const int scale_factor = Job(job).scale_factor;
    size_t best = types;
    double most = 0;
    for (size_t j = 0; j < types; ++j) {
      const bool better = (row[j] > most) & (room[j] >= scale_factor);
      best = better ? j : best;
      most = better ? row[j] : most;
    }
    return best < types ? std::optional(best) : std::nullopt;
  }
  // Where the job runs now, if it can stay there.
  std::optional<size_t> FitWhereItRuns(size_t job) const;

  // Each job at most once, alone or in a pair.
  void Assign(size_t job, size_t type) {
    room_[type] -= Job(job).scale_factor;
    assert(assigned_ < assignment_.size());
    assignment_[assigned_++] = {{Job(job).id, JobId()}, type};
  }
  // A pair, on the accelerators of one gang.
  void AssignPair(size_t a, size_t b, size_t type);
  // Takes up to `count` accelerators of the type out of the room.
  void HoldBack(size_t type, int count);

  // Index of the job called `id` in PolicyProblem::jobs.
  std::optional<size_t> Find(JobId id) const;

  // What was assigned, which leaves nothing here. Greedy policies optimise
  // nothing: the objective, and the bound, count the jobs that run.
  PolicyResult Result(std::string solver);

 private:
  // [n x J] Of types that are large enough.
  const double* Rows() const {
    return problem_.placement_sensitive() ? throughputs_.data()
                                          : problem_.throughputs.data();
  }

  const PolicyProblem& problem_;
  std::vector<size_t> queue_;
  std::vector<JobId> left_out_;      // can run nowhere; by id
  std::vector<double> throughputs_;  // where placement matters
  std::vector<int> room_;
  std::vector<TypeAssignment> assignment_;  // [n], the first `assigned_` count
  size_t assigned_ = 0;
  size_t pairs_ = 0;  // of these
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_ASSIGNER_H_
