// A unit is one job alone, or two jobs that share accelerators (a packed pair,
// Gavel section 3.1). Policies give units shares of time, and the mechanism
// gives them rounds. Values, thread-safe.
#ifndef GAVEL_CORE_SHARE_UNIT_H_
#define GAVEL_CORE_SHARE_UNIT_H_

#include <algorithm>
#include <compare>

#include "core/ids.h"

namespace gavel {

struct ShareUnit {
  JobId job;
  JobId partner;  // > job; invalid if `job` is alone
  bool packed() const { return partner.valid(); }
  bool Holds(JobId id) const { return job == id || partner == id; }
  friend auto operator<=>(const ShareUnit&, const ShareUnit&) = default;
};

// The unit of two different jobs, which may be given in either order.
inline ShareUnit PairOf(JobId a, JobId b) {
  return {std::min(a, b), std::max(a, b)};
}

}  // namespace gavel

#endif  // GAVEL_CORE_SHARE_UNIT_H_
