// Apps that bid themselves (docs/apps.md): which process bids for which app,
// its answers in the present auction, and how long the engine waits for them.
//
// 1. Before a solve of a policy that holds auctions, the engine offers the
//    accelerators to the bidders, and solves when all have bid, after
//    kAnswerWait_s at the latest (WaitsForBids). For others the policy bids.
// 2. An answer of the policy waits likewise for the bidders to say which of
//    their jobs get what (HoldForDivisions), and is journaled as divided, with
//    the bids and divisions that it contains.
//
// The engine does not wait for a bidder that was late the last time, until it
// answers in time again: one that is gone delays one solve.
//
// Not thread-safe. No snapshot fields: a restart forgets all of it, and bidders
// say hello again.
#ifndef GAVEL_COORDINATOR_ENGINE_BIDDING_H_
#define GAVEL_COORDINATOR_ENGINE_BIDDING_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/engine/apps.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/policy/policy.h"
#include "core/bids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

struct State;

struct Bidder {
  uint64_t incarnation = 0;
  bool prompt = true;            // it answered the last question in time
  bool asked = false;            // in the present stage
  bool answered = false;         // likewise
  bool has_offer = false;        // of the present auction
  std::optional<OwnBid> bid;     // in the present auction
  std::vector<JobPlace> places;  // its division in the present auction
  // Why the coordinator bid or divided for it the last time, for people; empty:
  // it did so itself.
  std::string why;
};

struct Bidding {
  static constexpr size_t kBiddersMax = 128;
  static constexpr double kAnswerWait_s = 1;

  enum class Stage : uint8_t { kClosed, kBids, kDivisions };

  std::map<AppTable::Key, Bidder> bidders;
  Stage stage = Stage::kClosed;
  uint64_t auction = 0;
  Time asked_at = -kNever;
  std::vector<int> offered;                     // accelerators by type
  std::optional<event::AllocationReady> ready;  // in kDivisions

  Time until() const {
    return stage == Stage::kClosed ? kNever : asked_at + kAnswerWait_s;
  }
};

void Admit(State& s, Time now, const event::BidderJoined& e);
void Admit(State& s, Time now, const event::BidReceived& e);
void Admit(State& s, Time now, const event::ShareDivided& e);

// A problem is about to be made. True: not yet, because bids may still come;
// the first call sends the offers.
bool WaitsForBids(State& s, Time now, const std::string& policy);
// Adds the bids that came to the apps of the problem.
void AddBids(const State& s, PolicyProblem& problem);
// Asks bidders that had an offer, and whose jobs get accelerators, to divide
// them, and keeps the answer until TakeDivided. False: nobody bids.
bool HoldForDivisions(State& s, Time now, event::AllocationReady& e);
// The answer that was kept, as divided; nullopt: divisions may still come.
std::optional<event::AllocationReady> TakeDivided(State& s, Time now);
// Gives up the present auction.
void CloseAuction(State& s);

// The bidder of the job's app: empty if the policy bids, "itself", or why the
// coordinator bid or divided for it the last time.
std::string BidderText(const State& s, const Job& job);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_BIDDING_H_
