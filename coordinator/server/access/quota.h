// Limits of what one user may ask for. The coordinator checks them before it
// takes a submission; operators have no quota. Not thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_ACCESS_QUOTA_H_
#define GAVEL_COORDINATOR_SERVER_ACCESS_QUOTA_H_

#include <deque>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "coordinator/engine/job.h"
#include "coordinator/server/access/allowance.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel {

// For each user; 0: no limit.
struct QuotaOptions {
  int jobs_max = 256;        // that have not ended
  int accelerators_max = 0;  // that those ask for, together
  int submissions_per_minute_max = 60;
  // A second, of users and viewers, whatever they ask (request_rates.h).
  int requests_per_s_max = 200;
  WeightBounds weights = {};  // of jobs, also of operators
};

class Quota {
 public:
  explicit Quota(QuotaOptions options) : options_(options) {}
  void Set(const QuotaOptions& options) { options_ = options; }

  // OK, and counted as a submission; or RESOURCE_EXHAUSTED with the remedy.
  // `jobs`: all that there are.
  absl::Status Take(Time now, const std::string& user, const JobSpec& spec,
                    const std::map<JobId, Job>& jobs);

 private:
  absl::Status CheckRate(Time now, const std::string& user);

  QuotaOptions options_;
  // Times of the last minute's submissions, by user.
  std::map<std::string, std::deque<Time>> submissions_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_ACCESS_QUOTA_H_
