// Token buckets by name: requests of users and viewers, which are taken before
// the request is handled; bytes of answers, which are counted afterwards. Not
// thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_ACCESS_REQUEST_RATES_H_
#define GAVEL_COORDINATOR_SERVER_ACCESS_REQUEST_RATES_H_

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include "core/units.h"

namespace gavel {

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

#endif  // GAVEL_COORDINATOR_SERVER_ACCESS_REQUEST_RATES_H_
