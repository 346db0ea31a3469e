// Limits of what senders may ask for: the weights and entities of jobs
// (WeightBounds, Allowance), the jobs and commands of one user (Quota), and the
// requests of one sender in a second (RequestRates).
#ifndef GAVEL_COORDINATOR_SERVER_LIMITS_H_
#define GAVEL_COORDINATOR_SERVER_LIMITS_H_

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/engine/job.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel {

// Part of the refusal of a request that came too soon after others: nothing was
// done, and a client may ask again a little later.
inline constexpr std::string_view kTooOften =
    " asks for more than its requests a second";

// Bounds of job weights, for all submitters. 0 < min <= max, finite.
struct WeightBounds {
  double min = 0.001;
  double max = 1000;
};

// The weights and entities that a submitter's jobs may have. The coordinator
// checks submissions and updates. Pure, thread-safe.
//
// What the file of principals says of one.
struct Allowance {
  // That its jobs may count for; a job that names none counts for the first.
  std::vector<std::string> entities = {};
  double weight = 1;         // its own, which its active jobs divide
  double weight_max = 1000;  // of one of its jobs
  friend bool operator==(const Allowance&, const Allowance&) = default;
};

// INVALID_ARGUMENT: the weight is out of bounds. `what`: "job \"x\"".
absl::Status CheckWeight(std::string_view what, double weight,
                         const WeightBounds& bounds);

// Checks a user's weight and entity. Returns PERMISSION_DENIED for a larger
// weight or another entity than the allowance has. Fills in an empty entity.
absl::Status CheckAllowance(std::string_view what, const Allowance& allowance,
                            double weight, std::string* entity);

// For each user; 0: no limit.
struct QuotaOptions {
  int jobs_max = 256;        // that have not ended
  int accelerators_max = 0;  // that those ask for, together
  int submissions_per_minute_max = 60;
  // A second, of users and viewers, whatever they ask (RequestRates).
  int requests_per_s_max = 200;
  WeightBounds weights = {};  // of jobs, also of operators
};

// Limits of what one user may ask for. The coordinator checks them before it
// takes a submission; operators have no quota. Not thread-safe.
class Quota {
 public:
  explicit Quota(QuotaOptions options) : options_(options) {}
  void Set(const QuotaOptions& options) { options_ = options; }

  // OK, and counted as a submission; or RESOURCE_EXHAUSTED with the remedy.
  // `jobs`: all that there are.
  absl::Status Take(Time now, const std::string& user, const JobSpec& spec,
                    const std::map<JobId, Job>& jobs);
  // Checks the same, except the number of submissions within a minute.
  absl::Status Check(const std::string& user, const JobSpec& spec,
                     const std::map<JobId, Job>& jobs) const;

 private:
  absl::Status CheckRate(Time now, const std::string& user);

  QuotaOptions options_;
  // Times of the last minute's submissions, by user.
  std::map<std::string, std::deque<Time>> submissions_;
};

// Token buckets by name: requests of users and viewers, which are taken before
// the request is handled; bytes of answers, which are counted afterwards. Not
// thread-safe.
class RequestRates {
 public:
  // A bucket holds the tokens of this long.
  static constexpr double kBurst_s = 10;
  // At most this many buckets; beyond, all are dropped, and so full again.
  static constexpr size_t kBucketsMax = 65536;

  // `per_s_max`: of each, a second; 0: no limit.
  explicit RequestRates(double per_s_max) : per_s_max_(per_s_max) {}
  void SetLimit(double per_s_max) { per_s_max_ = per_s_max; }

  // Whether `who` may have `cost` more at `now`, which is counted then.
  bool Take(Time now, const std::string& who, double cost = 1) {
    if (per_s_max_ <= 0) return true;
    Bucket& bucket = Fill(now, who);
    if (bucket.tokens < cost) return false;
    bucket.tokens -= cost;
    return true;
  }

  // Seconds until `who` owes nothing any more; 0: now.
  double WaitFor(Time now, const std::string& who) {
    if (per_s_max_ <= 0) return 0;
    return std::max(0.0, -Fill(now, who).tokens / per_s_max_);
  }
  // Takes `cost`, even if that is more than there is.
  void Spend(Time now, const std::string& who, double cost) {
    if (per_s_max_ > 0) Fill(now, who).tokens -= cost;
  }

 private:
  struct Bucket {
    double tokens = 0;
    Time at = 0;
  };
  Bucket& Fill(Time now, const std::string& who) {
    if (buckets_.size() >= kBucketsMax && !buckets_.contains(who)) {
      buckets_.clear();
    }
    const double full = per_s_max_ * kBurst_s;
    Bucket& bucket = buckets_.try_emplace(who, Bucket{full, now}).first->second;
    bucket.tokens = std::min(
        full, bucket.tokens + std::max(0.0, now - bucket.at) * per_s_max_);
    bucket.at = now;
    return bucket;
  }

  double per_s_max_;
  std::map<std::string, Bucket> buckets_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_LIMITS_H_
