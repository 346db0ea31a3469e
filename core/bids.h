// The bid of an app that bids itself (docs/apps.md). Messages, the policy's
// problem and the journal carry it. Plain structs. Accelerators are counted by
// type; a type is an index into the types of the offer, which are those of the
// cluster, in their order.
#ifndef GAVEL_CORE_BIDS_H_
#define GAVEL_CORE_BIDS_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "core/ids.h"

namespace gavel {

// The most rows of a bid.
inline constexpr size_t kOwnBidRowsMax = 256;

struct OwnBidRow {
  // (type, accelerators > 0), ascending by type, not empty.
  std::vector<std::pair<int, int>> bundle;
  double rho = 0;  // with the bundle
  friend bool operator==(const OwnBidRow&, const OwnBidRow&) = default;
};

// Each rho is a finish-time fairness as in policy/app_fairness.h, by the app's
// own estimate.
struct OwnBid {
  double rho = 0;          // with the accelerators that the app has now
  double rho_nothing = 0;  // with none in the next round
  std::vector<OwnBidRow> rows;
  friend bool operator==(const OwnBid&, const OwnBid&) = default;
};

// A job of an app is to run on this type.
struct JobPlace {
  JobId job;
  int type = 0;
  friend bool operator==(const JobPlace&, const JobPlace&) = default;
};

}  // namespace gavel

#endif  // GAVEL_CORE_BIDS_H_
