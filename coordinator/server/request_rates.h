// How many requests users and viewers may make, whatever becomes of them: a
// bucket of tokens for each, asked before a request costs anything. The
// gatekeeper owns one. Not thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_REQUEST_RATES_H_
#define GAVEL_COORDINATOR_SERVER_REQUEST_RATES_H_

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include "core/units.h"

namespace gavel {

class RequestRates {
 public:
  // What a bucket holds: as much as so long a time allows for.
  static constexpr double kBurst_s = 10;
  // Buckets at once; beyond, all are full again, so that the table does not
  // grow.
  static constexpr size_t kBucketsMax = 65536;

  // `per_s_max`: requests a second of each; 0: no limit.
  explicit RequestRates(int per_s_max) : per_s_max_(per_s_max) {}

  // Whether `who` may make one more at `now`, which is counted then.
  bool Take(Time now, const std::string& who) {
    if (per_s_max_ <= 0) return true;
    if (buckets_.size() >= kBucketsMax && !buckets_.contains(who)) {
      buckets_.clear();
    }
    const double full = per_s_max_ * kBurst_s;
    Bucket& bucket = buckets_.try_emplace(who, Bucket{full, now}).first->second;
    bucket.tokens = std::min(
        full, bucket.tokens + std::max(0.0, now - bucket.at) * per_s_max_);
    bucket.at = now;
    if (bucket.tokens < 1) return false;
    bucket.tokens -= 1;
    return true;
  }

 private:
  struct Bucket {
    double tokens = 0;
    Time at = 0;
  };
  int per_s_max_;
  std::map<std::string, Bucket> buckets_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_REQUEST_RATES_H_
