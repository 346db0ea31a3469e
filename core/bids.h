// The bid of an app that bids itself, and what the optimiser of an app says of
// its work (docs/apps.md). Messages, the policy's problem and the journal carry
// them. Plain structs. Accelerators are counted by type; a type is an index
// into the types of the offer, which are those of the cluster, in their order.
#ifndef GAVEL_CORE_BIDS_H_
#define GAVEL_CORE_BIDS_H_

#include <cstddef>
#include <string>
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

// The work of an app, as its optimiser says. Until the optimiser ends it, the
// app stays also without jobs. Numbers of steps are finite and >= 0.
struct AppGoal {
  std::string app = "";
  bool ended = false;  // no further jobs come: the app ends with its last one
  // The work that is in no job yet: its steps, and the most of them that are
  // trained one after another, as those of one trial are.
  double steps_to_come = 0;
  double longest_to_come = 0;
  // All work from the app's beginning on, likewise. 0: not known.
  double steps_total = 0;
  double longest_total = 0;
  // Each job is going to be stopped when it has made so many steps. 0: none is.
  double stop_at = 0;
  friend bool operator==(const AppGoal&, const AppGoal&) = default;
};

}  // namespace gavel

#endif  // GAVEL_CORE_BIDS_H_
