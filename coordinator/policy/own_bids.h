// Checks the bids that apps make themselves (core/bids.h), and divides
// accelerators between the jobs of an app. Pure functions, thread-safe. Called
// by the engine before and after an auction, and by replays.
#ifndef GAVEL_COORDINATOR_POLICY_OWN_BIDS_H_
#define GAVEL_COORDINATOR_POLICY_OWN_BIDS_H_

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/policy/policy.h"
#include "core/bids.h"

namespace gavel::policy {

// Whether the policy of that name holds auctions, in which PolicyApp::bid
// counts.
bool HoldsAuctions(std::string_view policy);

// INVALID_ARGUMENT, for the app's author, unless every rho is a number in
// [1 / kRhoMax, kRhoMax], there are at most kOwnBidRowsMax rows, and each
// bundle is in order, not empty and within `accelerators`, which are offered by
// type.
absl::Status CheckOwnBid(const OwnBid& bid, std::span<const std::string> types,
                         std::span<const int> accelerators);

// [apps][types] the accelerators that the jobs of each of PolicyProblem::apps
// have in the assignment.
std::vector<std::vector<int>> AcceleratorsOf(
    const PolicyProblem& problem, std::span<const TypeAssignment> assignment);

// Divides, within each app, the accelerators that its jobs have in
// `assignment`: its `places` name the jobs that get them. Apps are indices into
// PolicyProblem::apps. A job that has the type already keeps its host.
// Accelerators that are left stay with jobs that had them before. Returns a
// status for each app. INVALID_ARGUMENT, for the app's author, and its jobs
// keep their accelerators: a place names a job twice, a job that is not the
// app's or can't run on the type, or more accelerators than the app has.
std::map<int, absl::Status> Divide(
    const PolicyProblem& problem,
    const std::map<int, std::vector<JobPlace>>& places,
    std::vector<TypeAssignment>& assignment);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_OWN_BIDS_H_
