// Policies that share between apps by finish-time fairness (app_fairness.h).
//
// `themis` is the arbiter of Themis (Mahajan et al., NSDI'20, section 4). All
// leases end with the round, so each round offers all accelerators:
//
// 1. The offer goes to the ceil((1 - f) n) of n apps that have the largest rho.
//    f is the fairness knob, 0.8 unless the policy is called "themis_f=F".
// 2. Each of them bids: rho for the bundles that are useful to it, here numbers
//    of accelerators of one type, because its jobs are gangs that run on one.
//    The coordinator bids for an app, by the throughputs that it knows, unless
//    the app has made a bid itself (PolicyApp::bid). That bid counts until the
//    app has won something, because its rows are about nothing else.
//    Where placement matters, a bundle also says on which servers; equal ones
//    are not told apart (AuctionRooms). The coordinator bids for servers of
//    each kind, and rho counts what each gang loses there. Rows of an app name
//    types only: they ask for the servers on which so many accelerators are
//    closest to each other.
// 3. Partial allocation (partial_allocation.h) chooses a row of each bid, and
//    the part of it that each app keeps. Auctions repeat, with what the apps
//    hold by then, until one gives nothing.
// 4. The remaining accelerators go to the apps outside the offer and then to
//    all, one gang after the other, so that none that a job can use stays idle.
//    Jobs that run go first, and stay on their type.
//
// A part of a bundle is rounded to whole accelerators, up or down so that an
// app keeps the fraction over the rounds: otherwise an app that bids for one
// accelerator would never keep it.
//
// The paper compares Themis with `strawman` (section 2.3): the app of the
// largest rho takes all that it can use, then the next one. An app that
// overstates its rho starves the others.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/policy/app_fairness.h"
#include "coordinator/policy/assigner.h"
#include "coordinator/policy/partial_allocation.h"
#include "coordinator/policy/policies.h"
#include "coordinator/policy/policy.h"
#include "core/status.h"

namespace gavel::policy {
namespace {

// After so many auctions, the rest is given without one.
constexpr int kAuctionsMax = 4;

// The job's speed at that level, relative to its highest one on the type. A
// gang that cannot run at the level counts as very slow.
double PaceAt(const PolicyProblem& problem, const Assigner& assigner,
              size_t job, size_t type, Locality level) {
  constexpr double kPaceMin = 1e-6;
  if (!problem.placement_sensitive()) return 1;
  return std::clamp(
      problem.ThroughputAt(job, type, level) / assigner.Throughput(job, type),
      kPaceMin, 1.0);
}

// The apps with the largest rho first; ties go to the app whose job came first.
std::vector<std::pair<double, size_t>> WorstFirst(
    const PolicyProblem& problem, const Assigner& assigner,
    const AuctionRooms& rooms, const std::vector<FairApp>& apps) {
  std::vector<std::pair<double, size_t>> order;
  std::vector<double> paces;
  for (size_t a = 0; a < apps.size(); ++a) {
    if (apps[a].bid != nullptr) {
      order.emplace_back(-apps[a].bid->rho, a);
      continue;
    }
    paces.clear();
    for (const size_t job : apps[a].jobs) {
      const auto type = assigner.FitWhereItRuns(job);
      const Locality level = rooms.LevelOf(job, assigner.Job(job).scale_factor);
      paces.push_back(type ? PaceAt(problem, assigner, job, *type, level) : 1);
    }
    order.emplace_back(-PresentRho(assigner, apps[a], problem.round_s, paces),
                       a);
  }
  std::sort(order.begin(), order.end());
  for (auto& [rho, app] : order) rho = -rho;
  return order;
}

// Assigns those of `jobs` that there is room for: running ones first, so that
// they stay where they are, then the others in their order.
void TakeAll(Assigner& assigner, const std::vector<size_t>& jobs) {
  std::vector<size_t> waiting;
  for (const size_t job : jobs) {
    if (const auto type = assigner.FitWhereItRuns(job)) {
      assigner.Assign(job, *type);
    } else {
      waiting.push_back(job);
    }
  }
  for (const size_t job : waiting) {
    if (const auto type = assigner.BestFit(job)) assigner.Assign(job, *type);
  }
}

// The part of a row that is on one type.
struct RowPart {
  // The parts of the offer that its gangs take from while these have room.
  std::vector<size_t> rooms;  // ascending, not empty
  // Would run there, the first ones first. In a row of an own bid there are
  // none: any job of the app may.
  std::vector<size_t> jobs;
  int accelerators = 0;
};
using Row = std::vector<RowPart>;

int AcceleratorsOf(const Row& row) {
  int sum = 0;
  for (const RowPart& part : row) sum += part.accelerators;
  return sum;
}

// An app that takes part in the auctions of one round.
class Bidder {
 public:
  // `problem` and `app` outlive the bidder.
  Bidder(const PolicyProblem& problem, const Assigner& assigner,
         const FairApp& app)
      : problem_(problem),
        app_(app),
        left_(app.jobs),
        held_(assigner.types(), 0),
        paces_(app.jobs.size(), 1) {
    for (size_t i = 0; i < app.jobs.size(); ++i) index_of_[app.jobs[i]] = i;
    nothing_s_ = problem.round_s + LeastSecondsLeft(assigner, app);
  }

  // Jobs that have no accelerators yet.
  const std::vector<size_t>& left() const { return left_; }

  // The app's bid for the free accelerators, with the jobs that have none yet.
  // The bid has no rows if the app can use none of them.
  Bid MakeBid(const Assigner& assigner, const AuctionRooms& free) {
    rows_.clear();
    Bid bid;
    bid.id = BidderId(assigner.Job(app_.jobs.front()).id.value());
    app_.bid == nullptr ? FillBid(assigner, free, &bid)
                        : FillOwnBid(free, &bid);
    return bid;
  }

  // Assigns as many jobs of the part of a row that was won as `kept`
  // accelerators hold. Returns the number of accelerators.
  int Take(Assigner& assigner, AuctionRooms& rooms, const RowPart& won,
           int kept) {
    const size_t type = rooms.TypeOf(won.rooms.front());
    int taken = 0;
    for (const size_t job :
         won.jobs.empty() ? OrderOn(assigner, type) : won.jobs) {
      const int needed = assigner.Job(job).scale_factor;
      if (taken + needed > kept || !assigner.Fits(job, type)) continue;
      const auto place = rooms.Take(needed, won.rooms, rooms.HostsOf(job));
      if (!place) continue;
      assigner.Assign(job, type, place->host);
      std::erase(left_, job);
      const double pace = PaceAt(problem_, assigner, job, type, place->level);
      paces_[index_of_.at(job)] = pace;
      held_[type] += needed * pace;
      taken += needed;
    }
    return taken;
  }
  const Row& row(int index) const { return rows_[static_cast<size_t>(index)]; }

 private:
  static double Clamped(double rho) {
    return std::clamp(rho, 1 / kRhoMax, kRhoMax);
  }

  // Adds the rows of the app's own bid that still fit into the free room.
  void FillOwnBid(const AuctionRooms& free, Bid* bid) {
    bid->rho_nothing = Clamped(app_.bid->rho_nothing);
    if (left_.size() < app_.jobs.size()) return;
    for (const OwnBidRow& own : app_.bid->rows) {
      AuctionRooms rooms = free;
      Row row;
      BidRow priced{{}, Clamped(own.rho)};
      for (const auto& [type, count] : own.bundle) {
        const auto parts = rooms.PartsOf(static_cast<size_t>(type));
        if (parts.empty() || count < 1) break;
        const auto place = rooms.Take(count, parts);
        if (!place) break;
        RowPart& part = row.emplace_back();
        part.accelerators = count;
        for (const auto& [of, some] : place->parts) {
          part.rooms.push_back(of);
          priced.bundle.parts.push_back({static_cast<int>(of), some});
        }
      }
      if (row.size() < own.bundle.size()) continue;
      bid->rows.push_back(std::move(priced));
      rows_.push_back(std::move(row));
    }
  }

  void FillBid(const Assigner& assigner, const AuctionRooms& free, Bid* bid) {
    const double rate = RateHeld(assigner);
    bid->rho_nothing = Clamped(Rho(app_, rate > 0 ? 1 / rate : nothing_s_));
    const size_t rows_max =
        std::max<size_t>(1, kBidRowsMax / std::max<size_t>(1, free.parts()));
    for (size_t part = 0; part < free.parts(); ++part) {
      const size_t type = free.TypeOf(part);
      const double before =
          held_[type] > 0
              ? 1 / SecondsLeft(assigner, app_, type, held_[type], paces_)
              : 0;
      const std::vector<size_t> order = OrderOn(assigner, type);
      AuctionRooms rooms = free;
      std::map<size_t, int> counts;  // by part
      std::vector<double> paces = paces_;
      double accelerators = held_[type];
      RowPart row{{part}, {}, 0};
      size_t next = 1;  // the number of jobs of the next row
      for (const size_t job : order) {
        const int needed = assigner.Job(job).scale_factor;
        if (bid->rows.size() == kBidRowsMax) break;
        const auto place = rooms.Take(needed, row.rooms);
        if (!place) continue;
        const double pace = PaceAt(problem_, assigner, job, type, place->level);
        for (const auto& [of, count] : place->parts) counts[of] += count;
        paces[index_of_.at(job)] = pace;
        accelerators += needed * pace;
        row.jobs.push_back(job);
        row.accelerators += needed;
        if (row.jobs.size() < next && job != order.back()) continue;
        next = std::max(next + 1, NextSize(next, order.size(), rows_max));
        const double on_type =
            SecondsLeft(assigner, app_, type, accelerators, paces);
        const double left_s = 1 / (rate - before + 1 / on_type);
        BidRow& priced = bid->rows.emplace_back();
        for (const auto& [of, count] : counts) {
          priced.bundle.parts.push_back({static_cast<int>(of), count});
        }
        priced.rho = Clamped(Rho(app_, left_s));
        rows_.push_back({row});
      }
    }
  }

  // With at most `rows_max` rows for `jobs` jobs, rows grow by a factor once
  // they have grown by ones.
  static size_t NextSize(size_t size, size_t jobs, size_t rows_max) {
    if (jobs <= rows_max) return size + 1;
    const double factor = std::pow(static_cast<double>(jobs),
                                   2.0 / static_cast<double>(rows_max));
    return static_cast<size_t>(static_cast<double>(size) * factor) + 1;
  }

  double RateHeld(const Assigner& assigner) const {
    double rate = 0;
    for (size_t type = 0; type < held_.size(); ++type) {
      rate += 1 / SecondsLeft(assigner, app_, type, held_[type], paces_);
    }
    return rate;
  }

  // The jobs that can run on the type: those that run there, then those that
  // take the longest.
  std::vector<size_t> OrderOn(const Assigner& assigner, size_t type) const {
    std::vector<size_t> order;
    for (const size_t job : left_) {
      if (assigner.Throughput(job, type) > 0) order.push_back(job);
    }
    const auto key = [&](size_t job) {
      const bool runs = assigner.Job(job).running_on == static_cast<int>(type);
      return std::pair(runs ? 0 : 1, -SecondsLeft(assigner, job, type));
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return key(a) < key(b); });
    return order;
  }

  const PolicyProblem& problem_;
  const FairApp& app_;
  std::map<size_t, size_t> index_of_;  // in the app, by job
  std::vector<size_t> left_;
  std::vector<double> held_;   // by type: accelerators times their pace
  std::vector<double> paces_;  // by index in the app
  double nothing_s_ = 0;
  std::vector<Row> rows_;  // of the last bid
};

// `exact` rounded down or up, so that the mean over rounds is `exact`: up in
// the part of the rounds that its fraction says, spread evenly by multiples of
// the golden ratio.
int RoundOverTime(double exact, uint64_t round, uint64_t app) {
  constexpr double kGolden = 0.6180339887498949;
  const double turn = static_cast<double>(round % (1 << 20) + app % 1024);
  const double offset = turn * kGolden - std::floor(turn * kGolden);
  // An exact number of accelerators is kept as it is.
  constexpr double kRounding = 1e-9;
  return static_cast<int>(std::floor(exact + std::max(offset, kRounding)));
}

// Runs one auction. Returns the number of accelerators that it gave.
absl::StatusOr<int> Auction(const PolicyProblem& problem, Assigner& assigner,
                            AuctionRooms& rooms, std::vector<Bidder>& bidders,
                            std::map<size_t, AppBid>& notes,
                            AuctionResult& first) {
  AuctionOffer offer{rooms.free()};
  std::vector<Bid> bids;
  std::vector<size_t> bidder_of;
  for (size_t i = 0; i < bidders.size() && bids.size() < kBidsMax; ++i) {
    Bid bid = bidders[i].MakeBid(assigner, rooms);
    if (bid.rows.empty()) continue;
    bids.push_back(std::move(bid));
    bidder_of.push_back(i);
  }
  if (bids.empty()) return 0;
  GAVEL_ASSIGN_OR_RETURN(
      AuctionResult result,
      AllocatePartially(offer, bids,
                        {.solver = problem.solver,
                         .rotation = static_cast<size_t>(problem.round)}));
  int given = 0;
  for (size_t b = 0; b < result.bids.size(); ++b) {
    const BidOutcome& outcome = result.bids[b];
    if (outcome.row == kNoRow) continue;
    Bidder& bidder = bidders[bidder_of[b]];
    const Row& row = bidder.row(outcome.row);
    AppBid& note = notes[bidder_of[b]];
    if (note.bid == 0) {
      note.bid = AcceleratorsOf(row);
      note.type = static_cast<int>(rooms.TypeOf(row.front().rooms.front()));
      note.kept = outcome.fraction;
    }
    for (const RowPart& part : row) {
      const int kept = RoundOverTime(outcome.fraction * part.accelerators,
                                     problem.round, outcome.id.value());
      const int taken = bidder.Take(assigner, rooms, part, kept);
      note.given += taken;
      given += taken;
    }
  }
  if (first.bids.empty()) first = std::move(result);
  return given;
}

}  // namespace

absl::StatusOr<PolicyResult> SolveThemis(const PolicyProblem& problem,
                                         double f) {
  Assigner assigner(problem);
  const std::vector<FairApp> apps = FairAppsOf(problem, assigner);
  AuctionRooms rooms(problem);
  const auto worst = WorstFirst(problem, assigner, rooms, apps);
  const auto offered = std::min(
      worst.size(),
      static_cast<size_t>(std::max(
          1.0, std::ceil((1 - f) * static_cast<double>(worst.size())))));
  std::vector<Bidder> bidders;
  std::map<size_t, AppBid> notes;  // by place in `worst`
  for (size_t i = 0; i < worst.size(); ++i) {
    const auto& [rho, app] = worst[i];
    notes[i] = {.app = assigner.Job(apps[app].jobs.front()).id,
                .rho = rho,
                .offered = i < offered,
                .own = apps[app].bid != nullptr};
    if (i < offered) {
      bidders.emplace_back(problem, assigner, apps[app]);
    }
  }
  AuctionResult first;
  for (int i = 0; i < kAuctionsMax; ++i) {
    GAVEL_ASSIGN_OR_RETURN(const int given, Auction(problem, assigner, rooms,
                                                    bidders, notes, first));
    if (given == 0) break;
  }
  for (size_t i = offered; i < worst.size(); ++i) {
    TakeAll(assigner, apps[worst[i].second].jobs);
  }
  // Bidders that won nothing come first: a winner should not get back the part
  // of its bundle that it lost while others want it.
  for (const bool won : {false, true}) {
    for (size_t i = 0; i < bidders.size(); ++i) {
      if ((notes[i].bid > 0) == won) TakeAll(assigner, bidders[i].left());
    }
  }
  PolicyResult result = assigner.Result("partial-allocation");
  result.each_round = true;
  for (auto& [place, note] : notes) result.bids.push_back(note);
  if (first.bids.empty()) return result;
  static_cast<SolveReport&>(result) = first;
  result.objective = first.objective;
  result.bound = first.bound;
  result.gap = std::fabs(first.bound - first.objective) /
               std::max(1.0, std::fabs(first.bound));
  return result;
}

PolicyResult SolveStrawman(const PolicyProblem& problem) {
  Assigner assigner(problem);
  const std::vector<FairApp> apps = FairAppsOf(problem, assigner);
  const AuctionRooms rooms(problem);
  for (const auto& [rho, app] : WorstFirst(problem, assigner, rooms, apps)) {
    TakeAll(assigner, apps[app].jobs);
  }
  PolicyResult result = assigner.Result("greedy");
  result.each_round = true;
  return result;
}

}  // namespace gavel::policy
