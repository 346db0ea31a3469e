#include "tests/simulation/world/auction_truth.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <variant>

#include "core/text.h"

namespace gavel {
namespace {

constexpr double kTolerance = 1e-6;
// The auction is solved to within its gap.
constexpr double kPaymentTolerance = 1e-3;
// After the faults the coordinator may still take a bidder for a late one.
constexpr double kRecover_s = 30;
constexpr int kMissedMax = 4;
// More bidders have too many choices to try them all.
constexpr size_t kBiddersTried = 3;

bool HoldsAuctions(const Engine& engine) {
  return engine.operated().policy.name.starts_with("themis");
}

// Null: not of the problem.
const PolicyJob* FindJob(const PolicyProblem& problem, JobId id) {
  const auto found = std::ranges::find(problem.jobs, id, &PolicyJob::id);
  return found == problem.jobs.end() ? nullptr : &*found;
}

// By type; the app of the problem, or all jobs for -1.
std::vector<int> Counts(const PolicyProblem& problem,
                        const std::vector<TypeAssignment>& assignment,
                        int app) {
  std::vector<int> counts(problem.types.size(), 0);
  for (const TypeAssignment& entry : assignment) {
    const PolicyJob* job = FindJob(problem, entry.unit.job);
    if (job == nullptr || (app >= 0 && job->app != app)) continue;
    counts[entry.type] += job->scale_factor;
  }
  return counts;
}

// ---- an auction by trying all choices

struct TriedRow {
  std::vector<int> counts;  // by type
  int accelerators = 0;
  double gain = 0;  // log of the value, over that of nothing
};
struct TriedBidder {
  const AppBid* told = nullptr;
  std::vector<TriedRow> rows;  // the first one is nothing
};

// Calls visit(gain, rows) for each choice in which bidder `absent` has nothing.
void ForEachChoice(
    const std::vector<TriedBidder>& bidders, size_t absent,
    std::vector<int>& left, double gain, std::vector<size_t>& rows,
    const std::function<void(double, const std::vector<size_t>&)>& visit) {
  if (rows.size() == bidders.size()) return visit(gain, rows);
  const TriedBidder& bidder = bidders[rows.size()];
  const size_t choices = rows.size() == absent ? 1 : bidder.rows.size();
  for (size_t r = 0; r < choices; ++r) {
    const TriedRow& row = bidder.rows[r];
    const bool fits = std::ranges::equal(row.counts, left, std::less_equal{});
    if (!fits) continue;
    for (size_t type = 0; type < left.size(); ++type) {
      left[type] -= row.counts[type];
    }
    rows.push_back(r);
    ForEachChoice(bidders, absent, left, gain + row.gain, rows, visit);
    rows.pop_back();
    for (size_t type = 0; type < left.size(); ++type) {
      left[type] += row.counts[type];
    }
  }
}

double BestGain(const PolicyProblem& problem,
                const std::vector<TriedBidder>& bidders, size_t absent) {
  double best = 0;
  std::vector<int> left = problem.capacity;
  std::vector<size_t> rows;
  ForEachChoice(bidders, absent, left, 0, rows,
                [&](double gain, const auto&) { best = std::max(best, gain); });
  return best;
}

TriedBidder Tried(const AppBid& told, const OwnBid& bid, size_t types) {
  TriedBidder tried{&told, {{std::vector<int>(types, 0), 0, 0}}};
  for (const OwnBidRow& own : bid.rows) {
    TriedRow row{std::vector<int>(types, 0), 0,
                 std::log(bid.rho_nothing / own.rho)};
    for (const auto& [type, count] : own.bundle) {
      row.counts[static_cast<size_t>(type)] += count;
      row.accelerators += count;
    }
    if (row.gain > 0) tried.rows.push_back(std::move(row));
  }
  return tried;
}

// Whether the apps were told what follows from this choice: the bundle that
// each one has in it, and the part of the bundle that it keeps.
bool IsTold(const std::vector<TriedBidder>& bidders,
            const std::vector<double>& without, double gain,
            const std::vector<size_t>& rows) {
  for (size_t i = 0; i < bidders.size(); ++i) {
    const TriedRow& row = bidders[i].rows[rows[i]];
    // An app that had nothing here may win in the next auction of the solve.
    if (row.accelerators == 0) continue;
    const double kept = std::exp(gain - row.gain - without[i]);
    const AppBid& told = *bidders[i].told;
    if (told.bid != row.accelerators ||
        std::abs(told.kept - std::min(1.0, kept)) > kPaymentTolerance) {
      return false;
    }
  }
  return true;
}

}  // namespace

void AuctionTruth::Bid(const BidReply& reply) {
  bids_[{reply.bidder.app, reply.auction}].push_back(reply.bid);
}

void AuctionTruth::Told(Time now, uint64_t life, const Message& message) {
  Auction& auction = auctions_[life];
  if (const auto* offer = std::get_if<BidRequest>(&message)) {
    const uint64_t number = offer->auction;
    if (life_of_.try_emplace(number, life).first->second != life) {
      truth_.Violation(
          now, StrCat("two coordinators hold an auction ", number, " each"));
    }
    const bool again =
        number < auction.number || (number == auction.number && auction.closed);
    if (again) {
      truth_.Violation(now, StrCat("auction ", number, " is open again"));
    }
    if (number != auction.number) auction.closed = false;
    auction.number = number;
  }
  const auto* divide = std::get_if<DivideRequest>(&message);
  if (divide != nullptr && divide->auction != auction.number) {
    truth_.Violation(now, StrCat("app ", divide->bidder.app,
                                 " is to divide what it won in auction ",
                                 divide->auction, ", which is over"));
  }
}

void AuctionTruth::Solved(Time now, uint64_t life,
                          const action::SolvePolicy& solve,
                          const std::vector<std::string>& apps,
                          const PolicyResult& result) {
  const PolicyProblem& problem = *solve.problem;
  Auction& auction = auctions_[life];
  auction.closed = true;
  auction.epoch = solve.epoch;
  auction.problem = solve.problem;
  auction.assignment = result.assignment;
  for (size_t app = 0; app < problem.apps.size(); ++app) {
    const std::optional<OwnBid>& bid = problem.apps[app].bid;
    const std::string& name = apps[app];
    if (bid.has_value()) {
      ++bids_counted_;
      const auto sent = bids_.find({name, auction.number});
      if (sent == bids_.end() || std::ranges::count(sent->second, *bid) == 0) {
        truth_.Violation(now, StrCat("app ", name, " has made no such bid in ",
                                     "auction ", auction.number));
      }
    }
    if (now < healed_at_ + kRecover_s || !healed_.contains(name)) continue;
    if (bid.has_value()) {
      missed_.erase(name);
      continue;
    }
    auto& [since, missed] = missed_.try_emplace(name, now, 0).first->second;
    if (++missed <= kMissedMax || now < since + kRecover_s) continue;
    truth_.Violation(now, StrCat("app ", name, " answers in time, and ", missed,
                                 " auctions in a row are without its bid"));
  }
  CheckResult(now, problem, result);
}

void AuctionTruth::CheckResult(Time now, const PolicyProblem& problem,
                               const PolicyResult& result) {
  if (result.bids.empty()) return;
  const std::vector<int> counts = Counts(problem, result.assignment, -1);
  for (size_t type = 0; type < counts.size(); ++type) {
    if (counts[type] <= problem.capacity[type]) continue;
    truth_.Violation(now,
                     StrCat("an auction gives ", counts[type], " of ",
                            problem.capacity[type], " ", problem.types[type]));
  }
  const int all =
      std::accumulate(problem.capacity.begin(), problem.capacity.end(), 0);
  int given = 0;
  for (const AppBid& told : result.bids) {
    given += told.given;
    const bool kept = told.kept > 0 && told.kept <= 1;
    if (told.bid <= all && kept) continue;
    truth_.Violation(now, StrCat("the app of job ", told.app.value(),
                                 " wins a bundle of ", told.bid, " of ", all,
                                 " accelerators and keeps ", told.kept));
  }
  if (given > all) {
    truth_.Violation(
        now, StrCat("an auction gives ", given, " of ", all, " accelerators"));
  }
  CheckPayments(now, problem, result);
}

// Where all apps in an auction bid themselves, it is held once more by trying
// every choice: the product of the chosen rows is the largest one, and each app
// keeps the part that the others lose by its presence.
void AuctionTruth::CheckPayments(Time now, const PolicyProblem& problem,
                                 const PolicyResult& result) {
  if (result.outcome != SolveOutcome::kOptimal) return;
  std::vector<TriedBidder> bidders;
  for (const AppBid& told : result.bids) {
    if (!told.offered) continue;
    const PolicyJob* job = FindJob(problem, told.app);
    if (!told.own || job == nullptr || job->app < 0) return;
    const auto& bid = problem.apps[static_cast<size_t>(job->app)].bid;
    if (!bid.has_value()) return;
    bidders.push_back(Tried(told, *bid, problem.types.size()));
  }
  if (bidders.size() < 2 || bidders.size() > kBiddersTried) return;
  ++payments_checked_;
  std::vector<double> without;
  for (size_t i = 0; i < bidders.size(); ++i) {
    without.push_back(BestGain(problem, bidders, i));
  }
  const double best = BestGain(problem, bidders, bidders.size());
  bool told = false;
  std::vector<int> left = problem.capacity;
  std::vector<size_t> rows;
  ForEachChoice(bidders, bidders.size(), left, 0, rows,
                [&](double gain, const std::vector<size_t>& choice) {
                  told |= gain > best - kPaymentTolerance &&
                          IsTold(bidders, without, gain, choice);
                });
  if (told) return;
  std::string kept;
  for (const TriedBidder& bidder : bidders) {
    StrAppend(&kept, " ", bidder.told->kept, " of ", bidder.told->bid, ",");
  }
  truth_.Violation(
      now, StrCat("the apps of an auction keep", kept,
                  " which follows from no choice with the largest product"));
}

void AuctionTruth::Answered(Time now, uint64_t life,
                            const event::AllocationReady& ready) {
  if (ready.result.bids.empty()) return;
  const Auction& auction = auctions_[life];
  if (auction.problem == nullptr || auction.epoch != ready.epoch) return;
  const PolicyProblem& problem = *auction.problem;
  for (int app = 0; app < std::ssize(problem.apps); ++app) {
    const std::vector<int> won = Counts(problem, auction.assignment, app);
    const std::vector<int> has = Counts(problem, ready.result.assignment, app);
    if (std::ranges::equal(has, won, std::less_equal{})) continue;
    truth_.Violation(
        now, StrCat("the division of app ", app, " gives it more than it won"));
  }
}

void AuctionTruth::Healed(Time now, std::set<std::string> apps) {
  healed_at_ = now;
  healed_ = std::move(apps);
}

void AuctionTruth::Restarted() {
  checked_ = false;
  won_.clear();
  assigned_.clear();
  leaving_.clear();
  idle_since_.clear();
}

void AuctionTruth::Check(Time now, Time engine_now, const Engine& engine,
                         const Actions& actions, bool flushing) {
  if (!HoldsAuctions(engine)) return;
  std::set<JobId> won, assigned;
  for (const TypeAssignment& entry : engine.allocation().assignment) {
    won.insert(entry.unit.job);
  }
  for (const auto& [id, job] : engine.jobs()) {
    if (!job.assigned.empty()) assigned.insert(id);
  }
  // A step may have decided before or after an answer of the policy.
  const auto has_won = [&](JobId id) {
    return won.contains(id) || won_.contains(id);
  };
  const bool begins = std::ranges::any_of(actions, [](const Action& action) {
    const auto* row = std::get_if<action::Persist>(&action);
    return row != nullptr && row->event != nullptr &&
           std::holds_alternative<event::RoundStarted>(*row->event);
  });
  // Trials of the introspection run jobs on what nobody has won.
  const bool tries = engine.options().introspection;
  for (const JobId id : assigned) {
    const bool comes = begins || !assigned_.contains(id);
    if (!checked_ || tries || !comes || has_won(id)) continue;
    truth_.Violation(now, StrCat("job ", id.value(),
                                 " has accelerators that it has not won"));
  }
  for (const Action& action : actions) {
    const auto* send = std::get_if<action::SendToWorker>(&action);
    const auto* grant =
        send == nullptr ? nullptr : std::get_if<LeaseGrant>(&send->message);
    if (grant == nullptr || flushing || !checked_ || tries) continue;
    // A round that has ended while the coordinator was down leaves no time.
    const Time until = engine_now + grant->duration_s;
    if (grant->duration_s <= kTolerance ||
        until <= engine.round_ends_at() + kTolerance ||
        has_won(grant->worker.job)) {
      continue;
    }
    truth_.Violation(now, StrCat(NameOf(grant->worker),
                                 " gets a lease beyond the round, and has not "
                                 "won the next one"));
  }
  won_ = std::move(won);
  assigned_ = std::move(assigned);
  checked_ = true;
  CheckLeases(now, engine);
  CheckIdle(now, engine_now, engine);
}

// A job that has lost its accelerators leaves at the end of its lease.
void AuctionTruth::CheckLeases(Time now, const Engine& engine) {
  std::map<std::pair<WorkerKey, uint64_t>, Time> leaving;
  for (const auto& [id, job] : engine.jobs()) {
    if (!job.assigned.empty()) continue;
    for (size_t rank = 0; rank < job.workers.size(); ++rank) {
      const Worker& worker = job.workers[rank];
      if (worker.held_epoch == 0) continue;
      const WorkerKey key{id, static_cast<int>(rank), worker.incarnation};
      const std::pair lease(key, worker.held_epoch);
      const auto before = leaving_.find(lease);
      const Time ends =
          before == leaving_.end() ? worker.lease_expires : before->second;
      leaving.emplace(lease, ends);
      if (worker.lease_expires <= ends + kTolerance) continue;
      truth_.Violation(now, StrCat(NameOf(key), " has lost its accelerators, ",
                                   "and its lease was extended"));
    }
  }
  leaving_ = std::move(leaving);
}

// Accelerators that no bid wins are given out as well, so that none which a job
// can use stays idle for long.
void AuctionTruth::CheckIdle(Time now, Time engine_now, const Engine& engine) {
  if (now < healed_at_ + kRecover_s) return;
  std::set<AcceleratorId> used;
  for (const auto& [id, job] : engine.jobs()) {
    used.insert(job.assigned.begin(), job.assigned.end());
  }
  for (const auto& [id, holder] : engine.quarantined()) used.insert(id);
  const Cluster& cluster = engine.cluster();
  const auto idle_for = [&](const Job& job, size_t type) {
    int count = 0;
    for (const Accelerator& one : cluster.accelerators()) {
      const bool barred =
          std::ranges::count(job.spec.exclude_servers, one.server) > 0;
      count += one.usable() && !barred && !used.contains(one.id) &&
               cluster.TypeOf(one.id) == static_cast<int>(type) &&
               !engine.AccuserOf(one.id).valid();
    }
    return count;
  };
  const double limit_s = 3 * engine.options().round_duration_s + kRecover_s;
  for (const auto& [id, job] : engine.jobs()) {
    bool idle = false;
    const bool waits = job.active() && job.assigned.empty() && !job.AllDone();
    for (size_t type = 0; waits && type < cluster.types().size(); ++type) {
      const std::string& name = cluster.types()[type];
      const bool may_run = job.spec.types.empty() ||
                           std::ranges::count(job.spec.types, name) > 0;
      idle |= may_run && idle_for(job, type) >= job.scale_factor &&
              engine.throughputs().Get(id, name).steps_per_s > 0;
    }
    if (!idle) {
      idle_since_.erase(id);
      continue;
    }
    const Time since = idle_since_.try_emplace(id, now).first->second;
    if (now - since <= limit_s) continue;
    truth_.Violation(now,
                     StrCat("job ", id.value(), " has waited since ", since,
                            " s beside idle accelerators that it can use: ",
                            RenderReason(engine.Why(id, engine_now))));
  }
}

}  // namespace gavel
