// Apps: what finish-time fairness needs of them (AppTable), and those that bid
// themselves (Bidding). Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_APPS_H_
#define GAVEL_COORDINATOR_ENGINE_APPS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/policy/policy.h"
#include "core/bids.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

// The apps that are present: groups of jobs of one owner with one goal
// (JobSpec::app), and jobs without an app, each an app of its own. For each app
// it keeps what finish-time fairness needs (Themis, NSDI'20, section 3): when
// it began, how many apps were present on average since then, and the work of
// its jobs that have ended. An app ends with the last of its jobs, or, if it
// has a goal, when its optimiser says so; jobs that are submitted under its
// name later begin a new one.
//
// Not thread-safe. Snapshot fields: all.

// An app of several jobs, or one that may get more.
struct App {
  Time began_at = 0;
  double presence = 0;  // AppTable's integral when it began
  // Jobs that have entered the queue and have not ended. Empty between steps if
  // the other elements of an array are held, or while the optimiser decides.
  std::set<JobId> jobs;
  // The work of its jobs that have ended, as each would have run alone on the
  // type where it is fastest: the longest, in seconds, and the sum, in
  // accelerator-seconds.
  double ended_longest_s = 0;
  double ended_area_s = 0;
  // The last goal that its optimiser told; nullopt: none, or it has ended.
  std::optional<AppGoal> goal = std::nullopt;
  // Without its goal it would have ended: since then it has no job and has not
  // heard from its optimiser. kNever: it has a job.
  Time idle_since = kNever;
};

class AppTable {
 public:
  // The owner and the name of the app.
  using Key = std::pair<std::string, std::string>;

  // A job enters the queue for the first time: counts its app.
  void Add(Time now, Job& job);
  // Notes in the job that it waits for accelerators from now on. Add does so,
  // too.
  void NoteQueued(Time now, Job& job);
  // The job has ended; it would have run `alone_s` seconds alone on the type
  // where it is fastest. `goes_on`: other elements of its array have not ended,
  // so the app stays also without jobs. The end of the last element ends an app
  // without jobs, too, if that element was never added.
  void End(Time now, const Job& job, double alone_s, bool goes_on);
  // The optimiser has told a goal. Ignored if there is no such app.
  void Set(Time now, const Key& key, const AppGoal& goal);
  // As if all optimisers had told their goals again: nobody could have heard
  // them.
  void HearAll(Time now);

  // The job's app; null: the job is an app of its own.
  const App* Find(const Job& job) const;
  const std::map<Key, App>& all() const { return apps_; }
  size_t present() const { return present_; }
  // The steps that the job is going to make in all: its own, or fewer if it is
  // to be stopped before. 0: not known.
  double StepsOf(const Job& job) const;
  // The time average of the number of apps present since this one began, and of
  // a job that is an app of its own since it waits for accelerators; >= 1.
  double AveragePresent(const App& app, Time now) const;
  double AveragePresent(const Job& job, Time now) const;

  // Call this after State was read: adds the apps of live jobs that an older
  // snapshot lacks.
  void Rebuild(const JobTable& jobs);
  static auto State(auto& t) {
    return std::tie(t.apps_, t.present_, t.presence_, t.counted_at_);
  }

 private:
  double PresenceAt(Time now) const;
  void CountTo(Time now);
  double AverageSince(Time began_at, double presence, Time now) const;

  std::map<Key, App> apps_;
  uint64_t present_ = 0;
  double presence_ = 0;  // integral of present_ over time, up to counted_at_
  Time counted_at_ = 0;
};

struct State;

// Goals of apps, by their optimisers. An owner has at most so many.
inline constexpr size_t kGoalsOfOwnerMax = 256;
void Admit(State& s, Time now, const event::AppGoalSet& e);
void On(State& s, Time now, const event::AppGoalSet& e);
// Ends the apps without jobs whose optimisers are silent, and says when the
// next one is due.
void SweepApps(State& s, Time now);

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

#endif  // GAVEL_COORDINATOR_ENGINE_APPS_H_
