#include "coordinator/engine/apps.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/solver.h"
#include "coordinator/engine/state.h"
#include "coordinator/policy/app_fairness.h"
#include "coordinator/policy/assigner.h"
#include "coordinator/policy/own_bids.h"
#include "core/error_line.h"
#include "core/text.h"

namespace gavel::engine {

double AppTable::PresenceAt(Time now) const {
  const double since_s = std::max(0.0, now - counted_at_);
  return presence_ + static_cast<double>(present_) * since_s;
}

void AppTable::CountTo(Time now) {
  presence_ = PresenceAt(now);
  counted_at_ = std::max(counted_at_, now);
}

void AppTable::NoteQueued(Time now, Job& job) {
  CountTo(now);
  job.queued_at = now;
  job.presence = presence_;
}

void AppTable::Add(Time now, Job& job) {
  NoteQueued(now, job);
  if (job.spec.app.empty()) {
    ++present_;
    return;
  }
  const auto [found, added] = apps_.try_emplace({job.spec.owner, job.spec.app},
                                                App{now, presence_, {}});
  if (added) ++present_;
  found->second.jobs.insert(job.id);
  found->second.idle_since = kNever;
}

void AppTable::End(Time now, const Job& job, double alone_s, bool goes_on) {
  CountTo(now);
  if (job.spec.app.empty()) {
    --present_;
    return;
  }
  const auto found = apps_.find({job.spec.owner, job.spec.app});
  if (found == apps_.end()) return;
  App& app = found->second;
  app.ended_longest_s = std::max(app.ended_longest_s, alone_s);
  app.ended_area_s += alone_s * job.spec.scale_factor;
  app.jobs.erase(job.id);
  if (!app.jobs.empty() || goes_on) return;
  if (app.goal.has_value()) {
    app.idle_since = now;
    return;
  }
  apps_.erase(found);
  --present_;
}

void AppTable::Set(Time now, const Key& key, const AppGoal& goal) {
  const auto found = apps_.find(key);
  if (found == apps_.end()) return;
  CountTo(now);
  App& app = found->second;
  const bool idle = app.idle_since != kNever;
  if (!goal.ended) {
    app.goal = goal;
    if (idle) app.idle_since = now;
    return;
  }
  app.goal.reset();
  if (!idle) return;
  apps_.erase(found);
  --present_;
}

void AppTable::HearAll(Time now) {
  for (auto& [key, app] : apps_) {
    if (app.idle_since != kNever) app.idle_since = now;
  }
}

double AppTable::StepsOf(const Job& job) const {
  const auto own = static_cast<double>(job.spec.steps_total);
  const App* app = Find(job);
  if (app == nullptr || !app->goal.has_value()) return own;
  const double stop_at = app->goal->stop_at;
  if (stop_at == 0) return own;
  return own == 0 ? stop_at : std::min(own, stop_at);
}

const App* AppTable::Find(const Job& job) const {
  if (job.spec.app.empty()) return nullptr;
  const auto found = apps_.find({job.spec.owner, job.spec.app});
  return found == apps_.end() ? nullptr : &found->second;
}

double AppTable::AverageSince(Time began_at, double presence, Time now) const {
  const double since_s = now - began_at;
  const double average = since_s > 0 ? (PresenceAt(now) - presence) / since_s
                                     : static_cast<double>(present_);
  return std::max(1.0, average);
}

double AppTable::AveragePresent(const App& app, Time now) const {
  return AverageSince(app.began_at, app.presence, now);
}

double AppTable::AveragePresent(const Job& job, Time now) const {
  return AverageSince(job.queued_at, job.presence, now);
}

void AppTable::Rebuild(const JobTable& jobs) {
  if (present_ > 0) return;
  for (const auto& [id, job] : jobs.live()) {
    if (job->state == JobState::kActive || job->state == JobState::kHeld) {
      Add(job->submitted_at, *job);
    }
  }
}

// ---- goals

namespace {

constexpr size_t kAppShownMax = 160;  // characters of its name

// Empty: it can be set.
std::string WhyNotSet(const AppTable& apps, const event::AppGoalSet& e) {
  const std::string name = PrintableLine(e.goal.app, kAppShownMax);
  const auto found = apps.all().find({e.owner, e.goal.app});
  if (found == apps.all().end()) {
    return StrCat("you have no app \"", name,
                  "\" now; submit a job with app = \"", name, "\" first");
  }
  if (e.goal.ended || found->second.goal.has_value()) return "";
  const auto goals = std::ranges::count_if(apps.all(), [&](const auto& one) {
    return one.first.first == e.owner && one.second.goal.has_value();
  });
  if (static_cast<size_t>(goals) < kGoalsOfOwnerMax) return "";
  return StrCat("app \"", name, "\": ", kGoalsOfOwnerMax,
                " of your apps have a goal already; end one of them first");
}

}  // namespace

void Admit(State& s, Time now, const event::AppGoalSet& e) {
  std::string error = WhyNotSet(s.apps, e);
  if (error.empty()) return Record(s, now, e);
  // It may tell of an app whose row is not yet on disk.
  s.outbox.Emit(action::Reply{e.reply_to, JobId(), std::move(error)});
  s.outbox.Flush();
}

void On(State& s, Time now, const event::AppGoalSet& e) {
  s.outbox.Emit(action::Reply{e.reply_to, JobId(), ""});
  s.apps.Set(now, {e.owner, e.goal.app}, e.goal);
  s.agenda.SolveSoon();
}

void SweepApps(State& s, Time now) {
  std::vector<AppTable::Key> silent;
  for (const auto& [key, app] : s.apps.all()) {
    if (app.idle_since == kNever) continue;
    const Time until = app.idle_since + s.options.app_timeout_s;
    if (now < until) {
      s.agenda.Due(until);
    } else {
      silent.push_back(key);
    }
  }
  for (const auto& [owner, name] : silent) {
    event::AppGoalSet ended{owner, {name, /*ended=*/true}};
    ended.given_up = true;
    Record(s, now, std::move(ended));
  }
}

// ---- apps that bid themselves

namespace {

using Stage = Bidding::Stage;

// The most jobs in an offer, so that it fits into a frame.
size_t OfferedJobsMax(size_t types) {
  constexpr size_t kOfferBytes = 48 * 1024;
  constexpr size_t kBytesOfType = 80;  // its name and number
  constexpr size_t kBytesOfJob = 45;
  constexpr size_t kBytesOfSpeed = 9;
  if (types * kBytesOfType >= kOfferBytes) return 0;
  return (kOfferBytes - types * kBytesOfType) /
         (kBytesOfJob + types * kBytesOfSpeed);
}

BidderKey KeyOf(const AppTable::Key& app, const Bidder& bidder) {
  return {app.first, app.second, bidder.incarnation};
}

void Send(State& s, const BidderKey& bidder, Message message) {
  s.outbox.EmitNow(action::SendToBidder{bidder, std::move(message)});
}

void Tell(State& s, const BidderKey& bidder, BidderNoticeKind kind,
          std::string text = "") {
  Send(s, bidder,
       BidderNotice{bidder, kind, s.bidding.auction, std::move(text)});
}

// The coordinator acts for the bidder in this auction.
void TakeOver(State& s, const AppTable::Key& app, Bidder& bidder,
              std::string why) {
  bidder.why = why;
  Tell(s, KeyOf(app, bidder), BidderNoticeKind::kDefault, std::move(why));
}

Bidder* Find(State& s, const BidderKey& key) {
  const auto found = s.bidding.bidders.find({key.owner, key.app});
  if (found == s.bidding.bidders.end() ||
      found->second.incarnation != key.incarnation) {
    return nullptr;
  }
  return &found->second;
}

void BeginStage(State& s, Time now, Stage stage) {
  s.bidding.stage = stage;
  s.bidding.asked_at = now;
  for (auto& [app, bidder] : s.bidding.bidders) {
    bidder.asked = bidder.answered = false;
  }
}

bool MayAnswerCome(const State& s, Time now) {
  return now < s.bidding.until() &&
         std::ranges::any_of(s.bidding.bidders, [](const auto& entry) {
           const Bidder& bidder = entry.second;
           return bidder.asked && !bidder.answered && bidder.prompt;
         });
}

// Takes over for those that did not answer.
void EndStage(State& s, const std::string& why) {
  s.bidding.stage = Stage::kClosed;
  for (auto& [app, bidder] : s.bidding.bidders) {
    if (!bidder.asked || bidder.answered) continue;
    bidder.prompt = false;
    TakeOver(s, app, bidder, why);
  }
}

// The app's part of the next auction; nullopt if no job of it can run.
std::optional<BidRequest> OfferTo(const State& s, Time now, const App& app) {
  if (app.jobs.empty()) return std::nullopt;
  const PolicyProblem problem =
      ProblemOfApp(s, now, s.jobs.at(*app.jobs.begin()));
  const Assigner assigner(problem);
  const std::vector<policy::FairApp> fair =
      policy::FairAppsOf(problem, assigner);
  const size_t jobs =
      std::min(problem.jobs.size(), OfferedJobsMax(problem.types.size()));
  if (fair.empty() || jobs == 0) return std::nullopt;
  BidRequest offer;
  offer.auction = s.bidding.auction;
  offer.types = problem.types;
  offer.accelerators = problem.capacity;
  offer.round_s = s.terms.round_duration_s();
  offer.age_s = fair.front().age_s;
  offer.ideal_s = fair.front().ideal_s;
  for (size_t m = 0; m < jobs; ++m) {
    const PolicyJob& job = problem.jobs[m];
    OfferedJob& row = offer.jobs.emplace_back();
    row.job = job.id;
    row.scale_factor = job.scale_factor;
    row.steps_done = job.steps_done;
    row.steps_left = job.steps_remaining;
    row.running_on = job.running_on;
    for (size_t type = 0; type < problem.types.size(); ++type) {
      row.steps_per_s.push_back(assigner.Throughput(m, type));
    }
  }
  return offer;
}

void SendOffers(State& s, Time now) {
  Bidding& bidding = s.bidding;
  // Numbers of an earlier term are not used again.
  constexpr int kAuctionsOfTermBits = 24;
  bidding.auction =
      std::max(bidding.auction, s.outbox.term() << kAuctionsOfTermBits) + 1;
  bidding.offered = s.cluster.Capacity();
  std::erase_if(bidding.bidders, [&](const auto& entry) {
    return !s.apps.all().contains(entry.first);
  });
  BeginStage(s, now, Stage::kBids);
  for (auto& [app, bidder] : bidding.bidders) {
    bidder.bid.reset();
    bidder.places.clear();
    std::optional<BidRequest> offer = OfferTo(s, now, s.apps.all().at(app));
    bidder.has_offer = offer.has_value();
    if (!offer.has_value()) continue;
    const BidderKey key = KeyOf(app, bidder);
    offer->bidder = key;
    bidder.asked = true;
    Send(s, key, *std::move(offer));
  }
}

// The bidder of each app of the problem that has one.
std::map<int, const AppTable::Key*> BiddersOf(const State& s,
                                              const PolicyProblem& problem) {
  std::map<int, const AppTable::Key*> bidders;
  if (s.bidding.bidders.empty()) return bidders;
  for (const PolicyJob& row : problem.jobs) {
    if (row.app < 0 || bidders.contains(row.app)) continue;
    const Job* job = s.jobs.Find(row.id);
    if (job == nullptr) continue;
    const auto found = s.bidding.bidders.find({job->spec.owner, job->spec.app});
    if (found != s.bidding.bidders.end()) bidders[row.app] = &found->first;
  }
  return bidders;
}

}  // namespace

void Admit(State& s, Time, const event::BidderJoined& e) {
  const BidderKey& key = e.bidder;
  const AppTable::Key app{key.owner, key.app};
  auto& bidders = s.bidding.bidders;
  if (!s.apps.all().contains(app)) {
    bidders.erase(app);
    return Tell(s, key, BidderNoticeKind::kNoApp,
                StrCat("app ", key.app, " has no job; submit one with app = \"",
                       key.app, "\" first"));
  }
  if (!bidders.contains(app) && bidders.size() >= Bidding::kBiddersMax) {
    return Tell(s, key, BidderNoticeKind::kRefused,
                StrCat("at most ", Bidding::kBiddersMax,
                       " apps may bid themselves, and so many do; try again "
                       "when one of them has ended"));
  }
  Bidder& bidder = bidders[app];
  if (bidder.incarnation > key.incarnation) {
    return Tell(s, key, BidderNoticeKind::kRefused,
                StrCat("a process that was started later bids for app ",
                       key.app, "; end one of the two"));
  }
  if (bidder.incarnation < key.incarnation) {
    bidder = Bidder();
    bidder.incarnation = key.incarnation;
  }
  Tell(s, key, BidderNoticeKind::kAccepted);
}

void Admit(State& s, Time now, const event::BidReceived& e) {
  Bidder* bidder = Find(s, e.reply.bidder);
  if (bidder == nullptr || e.reply.auction != s.bidding.auction) return;
  if (s.bidding.stage != Stage::kBids || !bidder->asked || bidder->answered) {
    // The engine had not waited for it.
    bidder->prompt |= now <= s.bidding.asked_at + Bidding::kAnswerWait_s;
    return;
  }
  bidder->answered = bidder->prompt = true;
  const absl::Status sound =
      policy::CheckOwnBid(e.reply.bid, s.cluster.types(), s.bidding.offered);
  if (!sound.ok()) {
    return TakeOver(s, {e.reply.bidder.owner, e.reply.bidder.app}, *bidder,
                    StrCat("its bid is not used: ", sound.message()));
  }
  bidder->bid = e.reply.bid;
  bidder->why.clear();
}

void Admit(State& s, Time, const event::ShareDivided& e) {
  Bidder* bidder = Find(s, e.reply.bidder);
  if (bidder == nullptr || e.reply.auction != s.bidding.auction ||
      s.bidding.stage != Stage::kDivisions || !bidder->asked) {
    return;
  }
  bidder->answered = bidder->prompt = true;
  bidder->places = e.reply.places;
}

bool WaitsForBids(State& s, Time now, const std::string& policy) {
  if (!policy::HoldsAuctions(policy) || s.bidding.bidders.empty()) {
    CloseAuction(s);
    return false;
  }
  if (s.bidding.stage == Stage::kClosed) SendOffers(s, now);
  if (MayAnswerCome(s, now)) return true;
  EndStage(s, "no bid came in time (1 s at most)");
  return false;
}

void AddBids(const State& s, PolicyProblem& problem) {
  for (const auto& [app, key] : BiddersOf(s, problem)) {
    problem.apps[static_cast<size_t>(app)].bid = s.bidding.bidders.at(*key).bid;
  }
}

bool HoldForDivisions(State& s, Time now, event::AllocationReady& e) {
  const PolicyProblem* problem = s.solving.problem.get();
  if (problem == nullptr || !e.result.is_assignment ||
      !policy::HoldsAuctions(s.operated.policy.name)) {
    return false;
  }
  const auto bidders = BiddersOf(s, *problem);
  const bool bid = std::ranges::any_of(
      problem->apps, [](const PolicyApp& app) { return app.bid.has_value(); });
  if (bidders.empty() && !bid) return false;
  BeginStage(s, now, Stage::kDivisions);
  const auto won = policy::AcceleratorsOf(*problem, e.result.assignment);
  for (const auto& [app, key] : bidders) {
    const std::vector<int>& of_app = won[static_cast<size_t>(app)];
    Bidder& bidder = s.bidding.bidders.at(*key);
    // One without the offer, as it came later, does not know what to divide.
    const bool can_divide = bidder.prompt && bidder.has_offer;
    if (!can_divide || std::ranges::count(of_app, 0) == std::ssize(of_app)) {
      continue;
    }
    bidder.asked = true;
    Send(s, KeyOf(*key, bidder),
         DivideRequest{KeyOf(*key, bidder), s.bidding.auction, of_app});
  }
  s.bidding.ready = std::move(e);
  return true;
}

std::optional<event::AllocationReady> TakeDivided(State& s, Time now) {
  if (s.bidding.stage != Stage::kDivisions || MayAnswerCome(s, now)) {
    return std::nullopt;
  }
  EndStage(s, "no division came in time (1 s at most)");
  event::AllocationReady ready = *std::exchange(s.bidding.ready, std::nullopt);
  const PolicyProblem& problem = *s.solving.problem;
  std::map<int, OwnAnswer> own;
  for (size_t app = 0; app < problem.apps.size(); ++app) {
    if (!problem.apps[app].bid.has_value()) continue;
    const int index = static_cast<int>(app);
    own[index] = {index, problem.apps[app].bid, {}};
  }
  const auto bidders = BiddersOf(s, problem);
  std::map<int, std::vector<JobPlace>> places;
  for (const auto& [app, key] : bidders) {
    const Bidder& bidder = s.bidding.bidders.at(*key);
    if (bidder.asked && !bidder.places.empty()) places[app] = bidder.places;
  }
  for (const auto& [app, divided] :
       policy::Divide(problem, places, ready.result.assignment)) {
    if (divided.ok()) {
      own[app].app = app;
      own[app].places = std::move(places[app]);
    } else {
      const AppTable::Key& key = *bidders.at(app);
      TakeOver(s, key, s.bidding.bidders.at(key),
               StrCat("its division is not used: ", divided.message()));
    }
  }
  for (auto& [app, answer] : own) ready.own.push_back(std::move(answer));
  return ready;
}

void CloseAuction(State& s) {
  s.bidding.stage = Stage::kClosed;
  s.bidding.ready.reset();
}

std::string BidderText(const State& s, const Job& job) {
  if (job.spec.app.empty() || !policy::HoldsAuctions(s.operated.policy.name)) {
    return "";
  }
  const auto found = s.bidding.bidders.find({job.spec.owner, job.spec.app});
  if (found == s.bidding.bidders.end()) return "";
  return found->second.why.empty() ? "itself" : found->second.why;
}

}  // namespace gavel::engine
