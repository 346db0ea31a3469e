// Fairness between users first and jobs second: the weight of a user is divided
// over its active jobs by their own weights, so that many jobs of one user
// weigh no more than one. Within an entity each user has its weight anew. The
// engine owns one. Not thread-safe; deterministic.
#ifndef GAVEL_COORDINATOR_ENGINE_USER_SHARES_H_
#define GAVEL_COORDINATOR_ENGINE_USER_SHARES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "coordinator/engine/job.h"
#include "core/ids.h"

namespace gavel {

class UserShares {
 public:
  // Looks at all live jobs. Returns the active ones whose weight has changed by
  // those that came, went or changed since the last look.
  std::vector<Job*> Update(const absl::btree_map<JobId, Job*>& live);

  // As of the last Update; a job of nobody, and one that was not among them,
  // keeps its own.
  double WeightOf(const Job& job) const;

 private:
  struct Share {
    double weight = 1;  // of the user, as its latest job has it
    double sum = 0;     // of the weights of its active jobs
    friend bool operator==(const Share&, const Share&) = default;
  };
  using Key = std::pair<std::string, std::string>;  // owner and entity
  absl::btree_map<Key, Share> shares_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_USER_SHARES_H_
