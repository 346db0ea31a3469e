// The truth about auctions (docs/apps.md): which bids apps have made, which
// auctions are over, what each one may give, and who has won. Reports where a
// coordinator or the policy is wrong. Used by VirtualCluster. Not thread-safe.
#ifndef GAVEL_TESTS_SIMULATION_WORLD_AUCTION_TRUTH_H_
#define GAVEL_TESTS_SIMULATION_WORLD_AUCTION_TRUTH_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/event.h"
#include "coordinator/policy/policy.h"
#include "core/bids.h"
#include "core/messages.h"
#include "core/units.h"
#include "tests/simulation/world/world_truth.h"

namespace gavel {

class AuctionTruth {
 public:
  // Borrows `truth`, which gets the violations.
  explicit AuctionTruth(WorldTruth& truth) : truth_(truth) {}

  // A process of the app sends this bid.
  void Bid(const BidReply& reply);
  // The coordinator of this life sends the message to a bidder. No auction is
  // open again once it was closed, and no two coordinators have one number.
  void Told(Time now, uint64_t life, const Message& message);
  // The coordinator of this life had the problem solved. `apps` names the
  // problem's apps. Bids in the problem were made for this auction, and the
  // answer stays within the problem's accelerators.
  void Solved(Time now, uint64_t life, const action::SolvePolicy& solve,
              const std::vector<std::string>& apps, const PolicyResult& result);
  // The coordinator journals the answer: divisions give no app more than it
  // won.
  void Answered(Time now, uint64_t life, const event::AllocationReady& ready);
  // From now on all bidders answer in time, and the bids of these apps have to
  // count.
  void Healed(Time now, std::set<std::string> apps);

  // After each step of the present coordinator. `flushing`: what leaves was
  // decided in earlier steps.
  void Check(Time now, Time engine_now, const Engine& engine,
             const Actions& actions, bool flushing);
  // Another coordinator is the present one, or it has started anew.
  void Restarted();

  // How much there was to check.
  uint64_t bids_counted() const { return bids_counted_; }
  uint64_t payments_checked() const { return payments_checked_; }

 private:
  struct Auction {
    uint64_t number = 0;
    bool closed = false;
    // The problem that was solved last, and the answer.
    uint64_t epoch = 0;
    std::shared_ptr<const PolicyProblem> problem;
    std::vector<TypeAssignment> assignment;
  };

  void CheckResult(Time now, const PolicyProblem& problem,
                   const PolicyResult& result);
  void CheckPayments(Time now, const PolicyProblem& problem,
                     const PolicyResult& result);
  void CheckLeases(Time now, const Engine& engine);
  void CheckIdle(Time now, Time engine_now, const Engine& engine);

  WorldTruth& truth_;
  std::map<uint64_t, uint64_t> life_of_;  // by number of the auction
  std::map<uint64_t, Auction> auctions_;  // the last one, by life
  std::map<std::pair<std::string, uint64_t>, std::vector<OwnBid>> bids_;
  std::set<std::string> healed_;
  Time healed_at_ = kNever;
  // The solves in a row without the app's bid, and the time of the first one.
  std::map<std::string, std::pair<Time, int>> missed_;
  // The state at the last check.
  bool checked_ = false;
  std::set<JobId> won_, assigned_;
  // The leases of jobs that have no accelerators any more, and their ends.
  std::map<std::pair<WorkerKey, uint64_t>, Time> leaving_;
  // The jobs that wait beside idle accelerators which they can use.
  std::map<JobId, Time> idle_since_;
  uint64_t bids_counted_ = 0, payments_checked_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_WORLD_AUCTION_TRUTH_H_
