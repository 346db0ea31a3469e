#include "study/simulation/rate_search.h"

#include <bit>
#include <cmath>

namespace gavel {

RateSearch::RateSearch(const SweepSearch& search)
    : search_(search),
      last_(static_cast<int64_t>(std::floor(
          (search.rate_max - search.rate_min) / search.precision + 1e-9))),
      high_(last_ + 1) {}

double RateSearch::RateOf(int64_t index) const {
  const double rate =
      search_.rate_min + static_cast<double>(index) * search_.precision;
  return std::round(rate * 1e9) / 1e9;  // 0.3, not 0.30000000000000004
}

// The ends first: then the answer lies between a rate that can be sustained and
// one that can't, or it is known.
int64_t RateSearch::Candidate() const {
  if (low_ < 0) return 0;
  if (high_ > last_) return last_;
  return low_ + (high_ - low_) / 2;
}

std::optional<double> RateSearch::Next() const {
  if (high_ - low_ <= 1) return std::nullopt;
  return RateOf(Candidate());
}

void RateSearch::Answer(bool sustainable) {
  const int64_t candidate = Candidate();
  if (sustainable) {
    low_ = candidate;
  } else {
    high_ = candidate;
  }
}

int RateSearch::tries_max() const {
  return 2 + static_cast<int>(std::bit_width(static_cast<uint64_t>(last_)));
}

}  // namespace gavel
