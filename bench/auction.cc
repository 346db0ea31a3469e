// The auction of Themis: one choice among all bids and one without each bid
// that got a row, against HiGHS, which solves each of them anew as an integer
// program with the default presolve and cuts. Processor time on both sides, one
// core.
//
// HiGHS is asked for the choice among all bids and for kAsked of those without
// one, each for --highs-seconds at most; its time is that of as many programs
// as the auction solved. A run that was stopped is named in its row, and its
// time is then the least that it can be. Where HiGHS proves its optimum, the
// products agree to 1e-6, or the program ends with code 3.
//
//   bench_auction [--out FILE.json] [--highs-seconds S] [--check]
//
// --check: small auctions only.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bench/checks.h"
#include "bench/table.h"
#include "coordinator/policy/partial_allocation.h"
#include "core/text.h"
#include "tests/policy/auctions.h"

namespace gavel::bench {

using namespace policy;
namespace {

using testing::Auction;
using testing::AuctionShape;

constexpr int kRepeats = 5;
constexpr int kAsked = 3;
constexpr double kAgreeMax = 1e-6;

struct Options {
  std::string out;
  double highs_s = 10;
  bool check = false;
};

AuctionResult Hold(const Auction& auction) {
  auto result = AllocatePartially(auction.offer, auction.bids);
  if (!result.ok()) Die(std::string(result.status().message()));
  return *std::move(result);
}

// The choice of HiGHS, and its time for `choices` programs.
struct Referee {
  BundleChoice all;
  double ms = 0;
  bool proven = true;
};

Referee AskHighs(const BundleProgram& program, const AuctionResult& result,
                 double seconds_max) {
  Referee referee;
  std::vector<int> without = {-1};
  for (size_t i = 0;
       i < result.bids.size() && without.size() <= static_cast<size_t>(kAsked);
       ++i) {
    if (result.bids[i].row != kNoRow) without.push_back(static_cast<int>(i));
  }
  double all_s = 0;
  double others_s = 0;
  for (const int bid : without) {
    const double start_s = CpuSeconds();
    BundleChoice choice = ChooseByHighs(program, bid, seconds_max);
    (bid < 0 ? all_s : others_s) += CpuSeconds() - start_s;
    referee.proven =
        referee.proven && choice.bound <= choice.gain + kAgreeMax / 10;
    if (bid < 0) referee.all = std::move(choice);
  }
  const auto asked = static_cast<double>(without.size() - 1);
  const double each_s = asked > 0 ? others_s / asked : 0;
  referee.ms = 1e3 * (all_s + each_s * (result.iterations - 1));
  return referee;
}

void Measure(const AuctionShape& shape, uint64_t seed, Goal goal,
             const Options& options, std::vector<Row>* rows, Checks* checks) {
  const Auction auction = testing::AppAuction(seed, shape);
  const std::string name =
      StrCat(shape.bids, " bids, ", shape.rows_max, " rows, ", shape.servers,
             " servers, ", shape.free_min, "-", shape.free_max, " free");
  AuctionResult result;
  std::vector<double> ms;
  for (int i = 0; i < kRepeats; ++i) {
    const double start_s = CpuSeconds();
    result = Hold(auction);
    ms.push_back((CpuSeconds() - start_s) * 1e3);
  }
  const BundleProgram program = ProgramOf(auction);
  double nothing = 0;
  for (const Bid& bid : auction.bids) nothing -= std::log(bid.rho_nothing);
  const Referee highs = AskHighs(program, result, options.highs_s);
  Row row{name,     Median(ms), "ms", highs.proven ? "HiGHS" : "HiGHS, stopped",
          highs.ms, goal};
  Add(rows, std::move(row));
  const auto bids = static_cast<double>(shape.bids);
  const auto percent = [&](double logarithm) {
    return 100 * std::expm1(logarithm / bids);
  };
  Add(rows, {"  geometric mean of values to its bound",
             percent(result.bound - result.objective), "%", "HiGHS",
             percent(highs.all.bound - highs.all.gain)});
  Add(rows,
      {"  product to its bound, logarithm", result.bound - result.objective, "",
       "HiGHS", highs.all.bound - highs.all.gain});
  Add(rows, {"  the best product known to this, logarithm",
             std::max(0.0, nothing + highs.all.gain - result.objective), ""});
  std::vector<double> fraction;
  std::vector<double> least;
  for (const BidOutcome& outcome : result.bids) {
    if (outcome.row == kNoRow) continue;
    fraction.push_back(outcome.fraction);
    least.push_back(outcome.fraction_least);
  }
  if (!fraction.empty()) {
    Add(rows,
        {"  fraction of a bundle that is kept, median", Median(fraction), ""});
    Add(rows, {"    proven for this choice, median", Median(least), ""});
  }
  checks->Holds(
      name + ", not above HiGHS' bound",
      result.objective <= nothing + highs.all.bound + kAgreeMax * bids);
  checks->Holds(name + ", HiGHS not above the bound",
                nothing + highs.all.gain <= result.bound + kAgreeMax * bids);
  if (highs.proven && result.outcome == SolveOutcome::kOptimal) {
    checks->Agree(name + ", product",
                  std::exp(result.objective - nothing - highs.all.gain), 1,
                  kAgreeMax);
  }
}

Options Parse(int argc, char** argv) {
  Options options;
  ReadFlags(argc, argv,
            {{"--out", &options.out},
             {"--highs-seconds", &options.highs_s},
             {"--check", &options.check}});
  return options;
}

}  // namespace
}  // namespace gavel::bench

int main(int argc, char** argv) {
  using namespace gavel::bench;  // NOLINT
  const Options options = Parse(argc, argv);
  std::vector<Row> rows;
  Checks checks;
  const auto measure = [&](const AuctionShape& shape, Goal goal) {
    Measure(shape, /*seed=*/1, goal, options, &rows, &checks);
  };
  measure(
      {.bids = 4, .rows_max = 16, .servers = 4, .free_min = 1, .free_max = 4},
      {});
  measure(
      {.bids = 8, .rows_max = 32, .servers = 4, .free_min = 2, .free_max = 8},
      {});
  if (!options.check) {
    measure({.bids = 16,
             .rows_max = 64,
             .servers = 8,
             .free_min = 2,
             .free_max = 8},
            {});
    for (const int free_min : {2, 8}) {
      measure({.bids = 128,
               .rows_max = 256,
               .servers = 64,
               .free_min = free_min,
               .free_max = 8},
              ValueAtMost(100));
    }
  }
  const int code = Report(rows, options.out);
  return checks.wrong() > 0 ? 3 : code;
}
