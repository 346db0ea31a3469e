// Hands out accelerators to one unit after another, for the policies that
// choose accelerators themselves. Called by queues.cc, allox.cc, gandiva.cc,
// loss_policies.cc and themis.cc. Not thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_ASSIGNER_H_
#define GAVEL_COORDINATOR_POLICY_ASSIGNER_H_

#include <algorithm>
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

  // The jobs that can run on some type, by arrival; ties by id.
  const std::vector<size_t>& queue() const { return queue_; }
  const PolicyJob& Job(size_t job) const { return problem_.jobs[job]; }
  size_t types() const { return room_.size(); }

  // Steps/s of the job on a type that is empty. A gang runs on one server if
  // one is large enough for it, or across servers if that is the only way or
  // faster. 0 if the job cannot run: the type is smaller than its gang, or the
  // throughput is 0.
  double Throughput(size_t job, size_t type) const {
    return problem_.capacity[type] < Job(job).scale_factor
               ? 0
               : Rows()[job * types() + type];
  }

  // The job's throughput on the type where it is fastest; > 0 for jobs of the
  // queue.
  double BestThroughput(size_t job) const {
    double best = 0;
    for (size_t type = 0; type < types(); ++type) {
      best = std::max(best, Throughput(job, type));
    }
    return best;
  }

  // The sum of the two jobs' normalised throughputs when they share this type:
  // T_a'/T_a + T_b'/T_b. 0 if they cannot share: the problem does not list the
  // pair, or a throughput is 0.
  double PackedThroughput(size_t a, size_t b, size_t type) const;

  // Free accelerators of the type, or of all types together.
  int room(size_t type) const { return room_[type]; }
  int room() const;
  const std::vector<int>& rooms() const { return room_; }  // by type
  bool HasRoom(size_t job, size_t type) const {
    return room_[type] >= Job(job).scale_factor;
  }
  // Whether the job can run on the type and its gang has room there.
  bool Fits(size_t job, size_t type) const {
    return Throughput(job, type) > 0 && HasRoom(job, type);
  }
  // The type with the highest throughput among those where the job fits; the
  // first of equal ones.
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
  // The type on which the job runs now, if it still fits there.
  std::optional<size_t> FitWhereItRuns(size_t job) const;

  // A job may be assigned at most once, alone or in a pair. `workers`: of an
  // elastic job; 0: its scale factor.
  void Assign(size_t job, size_t type, AcceleratorId host = {},
              int workers = 0) {
    room_[type] -= workers > 0 ? workers : Job(job).scale_factor;
    assert(assigned_ < assignment_.size());
    assignment_[assigned_++] = {{Job(job).id, JobId()}, type, host, workers};
  }
  // Assigns a pair, which shares the accelerators of one gang.
  void AssignPair(size_t a, size_t b, size_t type);
  // Removes up to `count` free accelerators of the type from the room.
  void HoldBack(size_t type, int count);

  // Index of the job called `id` in PolicyProblem::jobs.
  std::optional<size_t> Find(JobId id) const;

  // Moves the assignment out into a result, so call it once, at the end. Greedy
  // policies optimise nothing: the objective and the bound are the number of
  // jobs that run.
  PolicyResult Result(std::string solver);

 private:
  // [n x J] throughputs, valid for types that are large enough for the gang.
  const double* Rows() const {
    return problem_.placement_sensitive() ? throughputs_.data()
                                          : problem_.throughputs.data();
  }

  const PolicyProblem& problem_;
  std::vector<size_t> queue_;
  std::vector<JobId> left_out_;      // jobs that can run nowhere
  std::vector<double> throughputs_;  // if placement matters
  std::vector<int> room_;
  std::vector<TypeAssignment> assignment_;  // [n], the first `assigned_` count
  size_t assigned_ = 0;
  size_t pairs_ = 0;  // pairs among them
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_ASSIGNER_H_
