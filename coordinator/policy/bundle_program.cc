#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include "Eigen/Cholesky"
#include "Eigen/Core"
#include "coordinator/policy/highs_solver.h"
#include "coordinator/policy/partial_allocation.h"

namespace gavel::policy {
namespace {

// Two sums of gains closer than this are equal: rounding of the largest sums.
constexpr double kTie = 1e-12;

size_t Of(int index) { return static_cast<size_t>(index); }

double Cost(std::span<const BundlePart> parts, std::span<const double> price) {
  double cost = 0;
  for (const BundlePart& part : parts) {
    cost += price[Of(part.server)] * part.count;
  }
  return cost;
}

bool Fits(std::span<const BundlePart> parts, std::span<const int> left) {
  for (const BundlePart& part : parts) {
    if (left[Of(part.server)] < part.count) return false;
  }
  return true;
}

// Takes the parts from the accelerators that are left (times = 1), or gives
// them back (times = -1).
void Take(std::span<const BundlePart> parts, int times, std::span<int> left) {
  for (const BundlePart& part : parts) {
    left[Of(part.server)] -= times * part.count;
  }
}

// A program whose rows are sorted, within each bid, by their profit (gain less
// cost) at some prices, so that the best row at prices nearby is among the
// first ones.
struct Sorted {
  BundleProgram program;
  std::vector<int> original;    // [rows] in the program that was sorted
  std::vector<double> profit;   // [rows] at `price`, falling within a bid
  std::vector<int> size_after;  // [rows] accelerators of the largest row of
                                // the bid from this one on
  std::vector<double> price;    // [servers]

  // The most that the rows of a bid from `row` on can earn at prices that are
  // lower by at most `drop` each.
  double MostFrom(int row, double drop) const {
    return profit[Of(row)] + drop * size_after[Of(row)];
  }
};

int SizeOf(std::span<const BundlePart> parts) {
  int size = 0;
  for (const BundlePart& part : parts) size += part.count;
  return size;
}

Sorted SortedAt(const BundleProgram& program, std::span<const int> original,
                std::vector<double> price) {
  Sorted sorted;
  const auto rows = static_cast<size_t>(program.rows());
  BundleProgram& to = sorted.program;
  to.capacity = program.capacity;
  to.bid_begin = program.bid_begin;
  to.gain.reserve(rows);
  to.parts.reserve(program.parts.size());
  to.part_begin.reserve(rows + 1);
  sorted.original.reserve(rows);
  sorted.profit.reserve(rows);
  sorted.size_after.resize(rows);
  struct Key {
    double profit = 0;
    int original = 0;
    int row = 0;
  };
  std::vector<Key> keys;
  for (int bid = 0; bid < program.bids(); ++bid) {
    keys.clear();
    for (int r = program.BidBegin(bid); r < program.BidEnd(bid); ++r) {
      keys.push_back({program.Gain(r) - Cost(program.Parts(r), price),
                      original[Of(r)], r});
    }
    std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
      return a.profit != b.profit ? a.profit > b.profit
                                  : a.original < b.original;
    });
    for (const Key& key : keys) {
      to.AddRow(program.Gain(key.row), program.Parts(key.row));
      sorted.original.push_back(key.original);
      sorted.profit.push_back(key.profit);
    }
    int largest = 0;
    for (int r = program.BidEnd(bid) - 1; r >= program.BidBegin(bid); --r) {
      largest = std::max(largest, SizeOf(to.Parts(r)));
      sorted.size_after[Of(r)] = largest;
    }
  }
  sorted.price = std::move(price);
  return sorted;
}

// Improves a choice by moving one bid to another row, or two bids of which one
// makes room for the other. It visits only servers that have gained room since
// their last visit. Copied for each removal. Not thread-safe.
class LocalSearch {
 public:
  // `row` fits. The program outlives this and its copies.
  LocalSearch(const BundleProgram& program, std::vector<int> row)
      : program_(&program),
        row_(std::move(row)),
        left_(program.capacity),
        users_(program.capacity.size()),
        changed_(program.capacity.size(), true),
        queue_(program.capacity.size()) {
    std::iota(queue_.begin(), queue_.end(), 0);
    auto rows = std::make_shared<std::vector<std::vector<BidRowIndex>>>(
        program.capacity.size());
    for (int bid = 0; bid < program.bids(); ++bid) {
      if (row_[Of(bid)] != kNoRow) Occupy(bid, row_[Of(bid)]);
      for (int r = program.BidBegin(bid); r < program.BidEnd(bid); ++r) {
        for (const BundlePart& part : program.Parts(r)) {
          (*rows)[Of(part.server)].push_back({bid, r});
        }
      }
    }
    rows_ = std::move(rows);
  }

  // Takes the bid's row from it, and leaves the bid out from then on.
  void Remove(int bid) {
    Move(bid, kNoRow);
    removed_ = bid;
  }

  // Gives each of `bids` the row at its place; the rows fit when all bids have
  // left theirs.
  void Replace(std::span<const int> bids, std::span<const int> rows) {
    for (const int bid : bids) Move(bid, kNoRow);
    for (size_t k = 0; k < bids.size(); ++k) Move(bids[k], rows[k]);
  }

  void Run() {
    // Each move raises the sum by more than rounding; the limit is for
    // programs on which that takes too long.
    constexpr int kMovesMax = 4000;
    for (int moves = 0; !queue_.empty() && moves < kMovesMax;) {
      const int server = queue_.back();
      const Exchange best = BestAt(server);
      if (best.row == kNoRow) {
        queue_.pop_back();
        changed_[Of(server)] = false;
        continue;
      }
      if (best.other >= 0) Move(best.other, best.other_row);
      Move(best.bid, best.row);
      ++moves;
    }
  }
  // Simulated annealing: bids move to rows by chance, and those in the way to
  // the best row that then fits. Room at half its price counts beside gains, so
  // that the search does not fill it with what gains little. Ends with the best
  // choice that it met.
  void Anneal(std::span<const double> price, int moves) {
    constexpr double kPartOfPrice = 0.5;
    constexpr double kWarm = 0.3;  // a loss that is accepted 1 time in e
    constexpr double kCold = 0.004;
    if (program_->rows() == 0) return;
    std::mt19937_64 random(1);
    SortByWorth(price, kPartOfPrice);
    std::vector<int> best = row_;
    double gain = 0;  // beyond that of the first choice
    double most = 0;
    double heat = kWarm;
    const double cooling = std::pow(kCold / kWarm, 1.0 / moves);
    for (int move = 0; move < moves; ++move, heat *= cooling) {
      const auto row = static_cast<int>(random() % program_->gain.size());
      const int bid = bid_of_[Of(row)];
      const double chance = static_cast<double>(1 + (random() >> 11)) * 0x1p-53;
      if (bid == removed_ || row == row_[Of(bid)]) continue;
      gain += Displace(bid, row, heat * std::log(chance), random);
      if (gain <= most + kTie) continue;
      most = gain;
      best = row_;
    }
    for (int bid = 0; bid < program_->bids(); ++bid) {
      if (best[Of(bid)] != row_[Of(bid)]) Move(bid, kNoRow);
    }
    for (int bid = 0; bid < program_->bids(); ++bid) {
      if (best[Of(bid)] != row_[Of(bid)]) Move(bid, best[Of(bid)]);
    }
  }

  const std::vector<int>& row() const { return row_; }
  std::span<const int> left() const { return left_; }
  // The bids that have accelerators of the server.
  std::span<const int> users(int server) const { return users_[Of(server)]; }

 private:
  struct BidRowIndex {
    int bid = 0;
    int row = 0;
  };
  struct Exchange {
    double more = kTie;
    int bid = -1;
    int row = kNoRow;
    int other = -1;  // moves first, to make room; -1: none
    int other_row = kNoRow;
  };

  void SortByWorth(std::span<const double> price, double part_of_price) {
    worth_.resize(program_->gain.size());
    bid_of_.resize(program_->gain.size());
    by_worth_.resize(program_->gain.size());
    std::iota(by_worth_.begin(), by_worth_.end(), 0);
    for (int bid = 0; bid < program_->bids(); ++bid) {
      for (int r = program_->BidBegin(bid); r < program_->BidEnd(bid); ++r) {
        bid_of_[Of(r)] = bid;
        worth_[Of(r)] =
            program_->Gain(r) - part_of_price * Cost(program_->Parts(r), price);
      }
      std::sort(by_worth_.begin() + program_->BidBegin(bid),
                by_worth_.begin() + program_->BidEnd(bid), [&](int a, int b) {
                  const double x = worth_[Of(a)];
                  const double y = worth_[Of(b)];
                  return x != y ? x > y : a < b;
                });
    }
  }

  // Moves the bid to the row, and the bids that are in its way to other rows,
  // if that is worth at least `least`. Returns the gain; 0 if nothing moved.
  double Displace(int bid, int row, double least, std::mt19937_64& random) {
    const int before = row_[Of(bid)];
    double worth = worth_[Of(row)] - WorthAt(bid);
    double gain = program_->Gain(row) - GainAt(bid);
    moved_.clear();
    Vacate(bid);
    for (const auto& [server, count] : program_->Parts(row)) {
      while (left_[Of(server)] < count) {
        const std::vector<int>& users = users_[Of(server)];
        const int other = users[random() % users.size()];
        moved_.emplace_back(other, row_[Of(other)]);
        worth -= WorthAt(other);
        gain -= GainAt(other);
        Vacate(other);
      }
    }
    Settle(bid, row);
    for (const auto& [other, held] : moved_) {
      for (int k = program_->BidBegin(other); k < program_->BidEnd(other);
           ++k) {
        const int r = by_worth_[Of(k)];
        if (worth_[Of(r)] < 0) break;
        if (!Fits(program_->Parts(r), left_)) continue;
        Settle(other, r);
        worth += worth_[Of(r)];
        gain += program_->Gain(r);
        break;
      }
    }
    if (worth >= least) return gain;
    for (const auto& [other, held] : moved_) Vacate(other);
    Vacate(bid);
    if (before != kNoRow) Settle(bid, before);
    for (const auto& [other, held] : moved_) Settle(other, held);
    return 0;
  }
  void Vacate(int bid) {
    Take(Held(bid), -1, left_);
    for (const BundlePart& part : Held(bid)) {
      std::vector<int>& users = users_[Of(part.server)];
      users.erase(std::find(users.begin(), users.end(), bid));
    }
    row_[Of(bid)] = kNoRow;
  }
  void Settle(int bid, int row) {
    row_[Of(bid)] = row;
    Occupy(bid, row);
  }

  double GainAt(int bid) const {
    const int row = row_[Of(bid)];
    return row == kNoRow ? 0 : program_->Gain(row);
  }
  double WorthAt(int bid) const {
    const int row = row_[Of(bid)];
    return row == kNoRow ? 0 : worth_[Of(row)];
  }
  std::span<const BundlePart> Held(int bid) const {
    const int row = row_[Of(bid)];
    return row == kNoRow ? std::span<const BundlePart>() : program_->Parts(row);
  }
  void Occupy(int bid, int row) {
    Take(program_->Parts(row), 1, left_);
    for (const BundlePart& part : program_->Parts(row)) {
      users_[Of(part.server)].push_back(bid);
    }
  }
  void Move(int bid, int row) {
    Take(Held(bid), -1, left_);
    for (const BundlePart& part : Held(bid)) {
      std::vector<int>& users = users_[Of(part.server)];
      users.erase(std::find(users.begin(), users.end(), bid));
    }
    MarkChanged(Held(bid));
    row_[Of(bid)] = row;
    if (row != kNoRow) Occupy(bid, row);
    MarkChanged(Held(bid));
  }
  void MarkChanged(std::span<const BundlePart> parts) {
    for (const BundlePart& part : parts) {
      if (changed_[Of(part.server)]) continue;
      changed_[Of(part.server)] = true;
      queue_.push_back(part.server);
    }
  }

  // The exchange that gains most of those that use room of the server.
  Exchange BestAt(int server) {
    Exchange best;
    for (const auto& [bid, row] : (*rows_)[Of(server)]) {
      if (bid == removed_ || row == row_[Of(bid)]) continue;
      const double more = program_->Gain(row) - GainAt(bid);
      const std::span<const BundlePart> parts = program_->Parts(row);
      Take(Held(bid), -1, left_);
      const int shortage = ShortServer(parts);
      Take(parts, 1, left_);
      if (shortage < 0) {
        if (more > best.more) best = {more, bid, row, -1, kNoRow};
        TryFollowers(bid, row, more, &best);
      } else if (more > best.more) {
        for (const int other : users_[Of(shortage)]) {
          if (other != bid) TryVictim(other, more, bid, row, &best);
        }
      }
      Take(parts, -1, left_);
      Take(Held(bid), 1, left_);
    }
    return best;
  }

  int ShortServer(std::span<const BundlePart> parts) const {
    for (const BundlePart& part : parts) {
      if (left_[Of(part.server)] < part.count) return part.server;
    }
    return -1;
  }

  // `bid` has moved to `row` in left_: what does another gain by its old place?
  void TryFollowers(int bid, int row, double more, Exchange* best) {
    for (const BundlePart& part : Held(bid)) {
      for (const auto& [next, next_row] : (*rows_)[Of(part.server)]) {
        const double total = more + program_->Gain(next_row) - GainAt(next);
        if (total <= best->more || next == bid || next == removed_) continue;
        Take(Held(next), -1, left_);
        if (Fits(program_->Parts(next_row), left_)) {
          *best = {total, next, next_row, bid, row};
        }
        Take(Held(next), 1, left_);
      }
    }
  }

  // `row` of `bid` is taken from left_, which is negative where that is too
  // much: does it fit when `other` takes its best row of those that fit then?
  void TryVictim(int other, double more, int bid, int row, Exchange* best) {
    const double now = GainAt(other);
    Take(Held(other), -1, left_);
    bool fits = true;
    for (const BundlePart& part : program_->Parts(row)) {
      fits = fits && left_[Of(part.server)] >= 0;
    }
    if (fits) {
      if (more - now > best->more) {
        *best = {more - now, bid, row, other, kNoRow};
      }
      for (int r = program_->BidBegin(other); r < program_->BidEnd(other);
           ++r) {
        const double total = more + program_->Gain(r) - now;
        if (total <= best->more) continue;
        if (Fits(program_->Parts(r), left_)) {
          *best = {total, bid, row, other, r};
        }
      }
    }
    Take(Held(other), 1, left_);
  }

  const BundleProgram* program_;
  std::vector<int> row_;
  int removed_ = -1;
  std::vector<int> left_;
  std::vector<std::vector<int>> users_;  // [servers] bids
  // [servers] the rows that name each
  std::shared_ptr<const std::vector<std::vector<BidRowIndex>>> rows_;
  std::vector<bool> changed_;  // [servers] in the queue
  std::vector<int> queue_;
  // For Anneal:
  std::vector<double> worth_;               // [rows]
  std::vector<int> by_worth_;               // [rows] falling within each bid
  std::vector<int> bid_of_;                 // [rows]
  std::vector<std::pair<int, int>> moved_;  // reused: bids, their rows before
};

// Branch and bound over the rows of a program, by depth first. Each node
// lowers the bound of its own capacities by a few subgradient steps from the
// prices of its parent. Not thread-safe.
class Tree {
 public:
  Tree(const BundleProgram& program, std::vector<int> row, double gain,
       int64_t work_max)
      : program_(program),
        best_(std::move(row)),
        best_gain_(gain),
        work_max_(work_max),
        chosen_(Of(program.bids()), kNoRow),
        usage_(program.capacity.size()) {}

  void Run(std::vector<double> price, int without) {
    levels_.resize(Of(program_.bids()) + 2);
    Level& root = levels_[0];
    root.price = std::move(price);
    root.left = program_.capacity;
    for (int bid = 0; bid < program_.bids(); ++bid) {
      if (bid == without || program_.BidBegin(bid) == program_.BidEnd(bid)) {
        continue;
      }
      root.bids.push_back(bid);
      for (int r = program_.BidBegin(bid); r < program_.BidEnd(bid); ++r) {
        root.rows.push_back(r);
      }
      root.begin.push_back(static_cast<int>(root.rows.size()));
    }
    Visit(0, std::numeric_limits<double>::infinity());
  }

  const std::vector<int>& row() const { return best_; }
  double gain() const { return best_gain_; }
  // No choice gains more than this: the best one or the best node left open.
  double bound() const { return std::max(best_gain_, open_bound_); }
  int64_t work() const { return work_; }

 private:
  struct Level {
    double fixed = 0;            // the gains of bids that are decided
    std::vector<int> left;       // [servers] what these leave
    std::vector<int> bids;       // undecided
    std::vector<int> begin{0};   // [undecided + 1]
    std::vector<int> rows;       // those that fit and may be in a better choice
    std::vector<double> profit;  // [rows] at `price`
    std::vector<double> price;   // [servers]
    std::vector<int> top;        // [undecided] the best row, or kNoRow
    std::vector<double> top_profit;
  };

  static constexpr int kRootSteps = 20;
  static constexpr int kSteps = 6;

  // The bound at `price`, which is not the level's. Fills the tops, the
  // profits and usage_.
  double Evaluate(const std::vector<double>& price, Level* level) {
    double bound = level->fixed;
    for (size_t s = 0; s < price.size(); ++s) {
      bound += price[s] * level->left[s];
      usage_[s] = 0;
    }
    level->top.resize(level->bids.size());
    level->top_profit.resize(level->bids.size());
    level->profit.resize(level->rows.size());
    for (size_t k = 0; k < level->bids.size(); ++k) {
      int top = kNoRow;
      double most = 0;
      for (int i = level->begin[k]; i < level->begin[k + 1]; ++i) {
        const int r = level->rows[Of(i)];
        const double profit = program_.Gain(r) - Cost(program_.Parts(r), price);
        level->profit[Of(i)] = profit;
        if (profit > most) {
          most = profit;
          top = r;
        }
      }
      level->top[k] = top;
      level->top_profit[k] = most;
      bound += most;
      if (top == kNoRow) continue;
      for (const BundlePart& part : program_.Parts(top)) {
        usage_[Of(part.server)] += part.count;
      }
    }
    work_ += static_cast<int64_t>(level->rows.size() + level->bids.size());
    return bound;
  }

  bool TopsFit(const Level& level) const {
    for (size_t s = 0; s < usage_.size(); ++s) {
      if (usage_[s] > level.left[s]) return false;
    }
    return true;
  }

  void Record(const Level& level, std::span<const int> rows) {
    double gain = level.fixed;
    for (const int r : rows) gain += r == kNoRow ? 0 : program_.Gain(r);
    if (gain <= best_gain_ + kTie) return;
    std::vector<int> row = chosen_;
    for (size_t k = 0; k < level.bids.size(); ++k) {
      row[Of(level.bids[k])] = rows[k];
    }
    best_gain_ = GainOf(program_, row);
    best_ = std::move(row);
  }

  // A choice near the tops: each bid in turn takes the most profitable row that
  // still fits, those first that lose most by another row.
  void Repair(Level* level) {
    left_ = level->left;
    repaired_.assign(level->bids.size(), kNoRow);
    order_.resize(level->bids.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::sort(order_.begin(), order_.end(), [&](int a, int b) {
      const double x = regret_[Of(a)];
      const double y = regret_[Of(b)];
      return x != y ? x > y : a < b;
    });
    for (const int k : order_) {
      double most = 0;
      int row = kNoRow;
      for (int i = level->begin[Of(k)]; i < level->begin[Of(k) + 1]; ++i) {
        if (level->profit[Of(i)] <= most) continue;
        const int r = level->rows[Of(i)];
        if (!Fits(program_.Parts(r), left_)) continue;
        most = level->profit[Of(i)];
        row = r;
      }
      repaired_[Of(k)] = row;
      if (row != kNoRow) Take(program_.Parts(row), 1, left_);
    }
    work_ += static_cast<int64_t>(level->rows.size());
    Record(*level, repaired_);
  }

  // [undecided] what each bid loses by its second best row.
  void FillRegrets(const Level& level) {
    regret_.assign(level.bids.size(), 0);
    for (size_t k = 0; k < level.bids.size(); ++k) {
      double second =
          level.top[k] == kNoRow ? -std::numeric_limits<double>::infinity() : 0;
      for (int i = level.begin[k]; i < level.begin[k + 1]; ++i) {
        if (level.rows[Of(i)] == level.top[k]) continue;
        second = std::max(second, level.profit[Of(i)]);
      }
      regret_[k] = level.top_profit[k] - second;
    }
  }

  // Lowers the bound of the level by subgradient steps. Returns it, with the
  // level's prices, profits and tops those of the lowest.
  double Lower(int depth, Level* level) {
    price_ = level->price;
    double lowest = std::numeric_limits<double>::infinity();
    double scale = 1;
    const int steps = depth == 0 ? kRootSteps : kSteps;
    bool current = false;  // the level's tops are those of its prices
    for (int step = 0; step < steps; ++step) {
      const double bound = Evaluate(price_, level);
      current = bound < lowest;
      if (current) {
        lowest = bound;
        level->price = price_;
      } else {
        scale *= 0.6;
      }
      if (lowest <= best_gain_ + kTie) return lowest;
      if (TopsFit(*level)) {
        Record(*level, level->top);
        if (lowest <= best_gain_ + kTie) return lowest;
      }
      double norm = 0;
      for (size_t s = 0; s < usage_.size(); ++s) {
        const double slack = level->left[s] - usage_[s];
        if (slack > 0 && price_[s] == 0) continue;
        norm += slack * slack;
      }
      if (norm == 0) break;
      const double length = scale * (bound - best_gain_) / norm;
      for (size_t s = 0; s < usage_.size(); ++s) {
        const double slack = level->left[s] - usage_[s];
        price_[s] = std::max(0.0, price_[s] - length * slack);
      }
    }
    if (!current) Evaluate(level->price, level);
    return lowest;
  }

  // The undecided bid to branch on: of those whose best rows ask for too much
  // of a server, one that loses most by another row.
  size_t BranchBid(const Level& level) const {
    size_t chosen = 0;
    double most = -1;
    for (const bool conflicts : {true, false}) {
      for (size_t k = 0; k < level.bids.size(); ++k) {
        if (conflicts && !Conflicts(level, level.top[k])) continue;
        if (regret_[k] <= most) continue;
        most = regret_[k];
        chosen = k;
      }
      if (most >= 0) break;
    }
    return chosen;
  }
  bool Conflicts(const Level& level, int row) const {
    if (row == kNoRow) return false;
    for (const BundlePart& part : program_.Parts(row)) {
      if (usage_[Of(part.server)] > level.left[Of(part.server)]) return true;
    }
    return false;
  }

  void Visit(int depth, double parent_bound) {
    Level& level = levels_[Of(depth)];
    if (level.bids.empty()) {
      Record(level, {});
      return;
    }
    if (work_ >= work_max_) {
      open_bound_ = std::max(open_bound_, parent_bound);
      return;
    }
    const double bound = std::min(parent_bound, Lower(depth, &level));
    if (bound <= best_gain_ + kTie) return;
    FillRegrets(level);
    Repair(&level);
    if (bound <= best_gain_ + kTie) return;
    const size_t k = BranchBid(level);
    std::vector<std::pair<double, int>> children;  // regret, row
    for (int i = level.begin[k]; i < level.begin[k + 1]; ++i) {
      children.emplace_back(level.top_profit[k] - level.profit[Of(i)],
                            level.rows[Of(i)]);
    }
    children.emplace_back(level.top_profit[k], kNoRow);
    std::sort(
        children.begin(), children.end(), [](const auto& a, const auto& b) {
          return a.first != b.first ? a.first < b.first : a.second < b.second;
        });
    for (const auto& [regret, row] : children) {
      const double child_bound = bound - regret;
      if (child_bound <= best_gain_ + kTie) break;
      Descend(level, k, row, child_bound, &levels_[Of(depth) + 1]);
      chosen_[Of(level.bids[k])] = row;
      Visit(depth + 1, child_bound);
      chosen_[Of(level.bids[k])] = kNoRow;
    }
  }

  // The level below, where the bid at position `decided` has `row`.
  void Descend(const Level& level, size_t decided, int row, double bound,
               Level* below) const {
    below->fixed = level.fixed + (row == kNoRow ? 0 : program_.Gain(row));
    below->left = level.left;
    if (row != kNoRow) Take(program_.Parts(row), 1, below->left);
    below->price = level.price;
    below->bids.clear();
    below->begin.assign(1, 0);
    below->rows.clear();
    for (size_t k = 0; k < level.bids.size(); ++k) {
      if (k == decided) continue;
      // A row that loses more than this is in no better choice.
      const double least = level.top_profit[k] - (bound - best_gain_) - kTie;
      const size_t first = below->rows.size();
      for (int i = level.begin[k]; i < level.begin[k + 1]; ++i) {
        if (level.profit[Of(i)] < least) continue;
        if (!Fits(program_.Parts(level.rows[Of(i)]), below->left)) continue;
        below->rows.push_back(level.rows[Of(i)]);
      }
      if (below->rows.size() == first) continue;  // nothing is left for it
      below->bids.push_back(level.bids[k]);
      below->begin.push_back(static_cast<int>(below->rows.size()));
    }
  }

  const BundleProgram& program_;
  std::vector<int> best_;
  double best_gain_;
  double open_bound_ = -std::numeric_limits<double>::infinity();
  int64_t work_ = 0;
  const int64_t work_max_;
  std::vector<Level> levels_;  // by depth; never resized while in use
  std::vector<int> chosen_;    // [bids] the rows of the decided
  std::vector<double> usage_;  // [servers] by the tops
  std::vector<double> price_;  // reused
  std::vector<double> regret_;
  std::vector<int> left_;
  std::vector<int> repaired_;
  std::vector<int> order_;
};

}  // namespace

double GainOf(const BundleProgram& program, std::span<const int> row,
              int without) {
  double gain = 0;
  for (int bid = 0; bid < program.bids(); ++bid) {
    if (bid == without || row[Of(bid)] == kNoRow) continue;
    gain += program.Gain(row[Of(bid)]);
  }
  return gain;
}

BundleLimits LimitsFor(int rows, int bids) {
  constexpr int kSmallRowsMax = 1024;
  if (rows <= kSmallRowsMax) {
    return {.work_all = 3'000'000,
            .work_without = 3'000'000,
            .steps_all = 60,
            .steps_without = 20,
            .moves = 0,
            .finish_by_highs = true};
  }
  constexpr int64_t kWorkWithout = 4'000'000;  // for all bids together
  return {.work_all = 1'000'000,
          .work_without = kWorkWithout / std::max(bids, 1),
          .steps_all = 200,
          .steps_without = 0,
          .moves = 100'000,
          .finish_by_highs = false};
}

class BundleSolver::Impl {
 public:
  Impl(const BundleProgram& program, const BundleLimits& limits)
      : program_(program),
        limits_(limits),
        usage_(program.capacity.size()),
        top_(Of(program.bids())),
        top_profit_(Of(program.bids())) {
    std::vector<int> original(program.gain.size());
    std::iota(original.begin(), original.end(), 0);
    sorted_ = SortedAt(program, original,
                       std::vector<double>(program.capacity.size()));
  }

  const BundleChoice& Solve() {
    work_ = 0;
    price_ = sorted_.price;
    std::vector<int> best(Of(program_.bids()), kNoRow);
    double gain = 0;
    double bound = UsesNewton()
                       ? LowerByNewton(&price_)
                       : Lower(-1, limits_.steps_all, &price_, &best, &gain);
    Resort(price_);
    Evaluate(price_, -1);
    Keep(Repaired(price_, -1), &best, &gain);
    CoreAt(-1, price_, kInfinity, kNearRows, best, &near_core_);
    near_.emplace(near_core_.program, near_core_.row);
    near_->Run();
    Adopt(near_core_, near_->row(), &best, &gain);
    if (bound > gain + kTie && limits_.moves > 0) {
      near_->Anneal(price_, limits_.moves);
      near_->Run();
      Adopt(near_core_, near_->row(), &best, &gain);
    }
    all_ = {};
    Branch(-1, price_, limits_.work_all, &best, &gain, &bound, &all_);
    all_.row = std::move(best);
    all_.gain = gain;
    all_.bound = std::max(gain, bound);
    all_.work = work_;
    return all_;
  }

  BundleChoice SolveWithout(int bid, std::span<const int> known) {
    work_ = 0;
    std::vector<int> best(known.begin(), known.end());
    best[Of(bid)] = kNoRow;
    double gain = GainOf(program_, best);
    std::vector<double> price = price_;
    double bound = Evaluate(price, bid);
    if (limits_.steps_without > 0) {
      bound = std::min(bound,
                       Lower(bid, limits_.steps_without, &price, &best, &gain));
    }
    LocalSearch search = *near_;
    search.Remove(bid);
    search.Run();
    Adopt(near_core_, search.row(), &best, &gain);
    BundleChoice choice;
    Branch(bid, price, limits_.work_without, &best, &gain, &bound, &choice);
    choice.row = std::move(best);
    choice.gain = gain;
    choice.bound = std::max(gain, bound);
    choice.work = work_;
    return choice;
  }

 private:
  // The dual bound at `price`; fills the tops and usage_.
  double Evaluate(std::span<const double> price, int without) {
    double value = 0;
    double drop = 0;
    for (size_t s = 0; s < price.size(); ++s) {
      value += price[s] * program_.capacity[s];
      drop = std::max(drop, sorted_.price[s] - price[s]);
      usage_[s] = 0;
    }
    const BundleProgram& program = sorted_.program;
    for (int bid = 0; bid < program.bids(); ++bid) {
      int top = kNoRow;
      double most = 0;
      const int end =
          bid == without ? program.BidBegin(bid) : program.BidEnd(bid);
      int r = program.BidBegin(bid);
      for (; r < end && sorted_.MostFrom(r, drop) > most; ++r) {
        const double profit = program.Gain(r) - Cost(program.Parts(r), price);
        if (profit > most) {
          most = profit;
          top = r;
        }
      }
      work_ += r - program.BidBegin(bid) + 1;
      top_[Of(bid)] = top;
      top_profit_[Of(bid)] = most;
      value += most;
      if (top == kNoRow) continue;
      for (const BundlePart& part : program.Parts(top)) {
        usage_[Of(part.server)] += part.count;
      }
    }
    return value;
  }

  // A choice near the tops at `price`, as rows of the sorted program: the bids,
  // in the order of their payments, take the most profitable row that fits.
  std::vector<int> Repaired(std::span<const double> price, int without) {
    const BundleProgram& program = sorted_.program;
    std::vector<int> order(Of(program.bids()));
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      const double x = top_profit_[Of(a)];
      const double y = top_profit_[Of(b)];
      return x != y ? x > y : a < b;
    });
    const double drop = DropTo(price);
    std::vector<int> left = program.capacity;
    std::vector<int> row(Of(program.bids()), kNoRow);
    for (const int bid : order) {
      if (bid == without) continue;
      double most = 0;
      for (int r = program.BidBegin(bid);
           r < program.BidEnd(bid) && sorted_.MostFrom(r, drop) > most; ++r) {
        ++work_;
        if (!Fits(program.Parts(r), left)) continue;
        const double profit = program.Gain(r) - Cost(program.Parts(r), price);
        if (profit <= most) continue;
        most = profit;
        row[Of(bid)] = r;
      }
      if (row[Of(bid)] != kNoRow) {
        Take(program.Parts(row[Of(bid)]), 1, left);
      }
    }
    return row;
  }

  void Keep(const std::vector<int>& sorted_row, std::vector<int>* best,
            double* best_gain) const {
    if (GainOf(sorted_.program, sorted_row) <= *best_gain + kTie) return;
    for (size_t bid = 0; bid < best->size(); ++bid) {
      const int r = sorted_row[bid];
      (*best)[bid] = r == kNoRow ? kNoRow : sorted_.original[Of(r)];
    }
    *best_gain = GainOf(program_, *best);
  }

  void Resort(std::vector<double> price) {
    const std::vector<int> original = std::move(sorted_.original);
    const BundleProgram program = std::move(sorted_.program);
    sorted_ = SortedAt(program, original, std::move(price));
    work_ += program.rows();
  }

  // Lowers the dual bound from `price` on, by Polyak's steps towards the gain
  // of the best choice; leaves the prices of the lowest. Returns the bound.
  double Lower(int without, int steps, std::vector<double>* price,
               std::vector<int>* best, double* best_gain) {
    constexpr double kDeflection = 0.4;
    constexpr int kPatience = 4;
    constexpr int kRepairEvery = 20;
    constexpr int kResortEvery = 20;
    std::vector<double> at = *price;
    std::vector<double> direction(at.size(), 0.0);
    double lowest = std::numeric_limits<double>::infinity();
    double scale = 1;
    int idle = 0;
    for (int step = 0; step < steps; ++step) {
      if (without < 0 && step % kResortEvery == kResortEvery - 1) {
        Resort(*price);
      }
      const double bound = Evaluate(at, without);
      if (bound < lowest) {
        lowest = bound;
        *price = at;
        idle = 0;
      } else if (++idle == kPatience) {
        scale *= 0.7;
        idle = 0;
        at = *price;
        std::fill(direction.begin(), direction.end(), 0.0);
        continue;
      }
      if (step % kRepairEvery == 0) {
        Keep(Repaired(at, without), best, best_gain);
      }
      if (lowest <= *best_gain + kTie) break;
      double norm = 0;
      for (size_t s = 0; s < at.size(); ++s) {
        const double slack = program_.capacity[s] - usage_[s];
        direction[s] = slack + kDeflection * direction[s];
        if (direction[s] > 0 && at[s] == 0) direction[s] = 0;
        norm += direction[s] * direction[s];
      }
      if (norm == 0) break;
      const double length = scale * (bound - *best_gain) / norm;
      for (size_t s = 0; s < at.size(); ++s) {
        at[s] = std::max(0.0, at[s] - length * direction[s]);
      }
    }
    return lowest;
  }

  // The dual with each maximum over rows smoothed to mu log sum exp(profit /
  // mu), and a barrier of mu at prices of 0. Fills gradient_ and, if asked,
  // hessian_; sets `bound` to the dual bound itself. Returns the smoothed dual.
  double Smooth(std::span<const double> price, double mu, bool second_order,
                double* bound) {
    const auto servers = static_cast<Eigen::Index>(price.size());
    gradient_.setZero(servers);
    if (second_order) hessian_.setZero(servers, servers);
    double drop = 0;
    double smooth = 0;
    *bound = 0;
    for (size_t s = 0; s < price.size(); ++s) {
      const double capacity = program_.capacity[s];
      smooth += price[s] * capacity - mu * std::log(price[s]);
      *bound += price[s] * capacity;
      const auto i = static_cast<Eigen::Index>(s);
      gradient_[i] += capacity - mu / price[s];
      if (second_order) hessian_(i, i) += mu / (price[s] * price[s]);
      drop = std::max(drop, sorted_.price[s] - price[s]);
    }
    // exp(-kFar) is too little to turn a step.
    constexpr double kFar = 12;
    const BundleProgram& program = sorted_.program;
    mean_.assign(price.size(), 0);
    for (int bid = 0; bid < program.bids(); ++bid) {
      close_.clear();
      double most = 0;
      int r = program.BidBegin(bid);
      for (; r < program.BidEnd(bid) &&
             sorted_.MostFrom(r, drop) > most - kFar * mu;
           ++r) {
        const double profit = program.Gain(r) - Cost(program.Parts(r), price);
        if (profit <= most - kFar * mu) continue;
        most = std::max(most, profit);
        close_.emplace_back(r, profit);
      }
      work_ += r - program.BidBegin(bid) + 1;
      double sum = std::exp(-most / mu);
      for (auto& [row, profit] : close_) {
        profit = std::exp((profit - most) / mu);
        sum += profit;
      }
      *bound += most;
      smooth += most + mu * std::log(sum);
      touched_.clear();
      for (const auto& [row, weight] : close_) {
        const double part = weight / sum;
        if (part < 1e-8) continue;
        for (const auto& [server, count] : program.Parts(row)) {
          if (mean_[Of(server)] == 0) touched_.push_back(server);
          mean_[Of(server)] += part * count;
          if (!second_order) continue;
          for (const auto& [other, other_count] : program.Parts(row)) {
            hessian_(server, other) += part * count * other_count / mu;
          }
        }
      }
      for (const int server : touched_) {
        gradient_[server] -= mean_[Of(server)];
        if (!second_order) continue;
        for (const int other : touched_) {
          hessian_(server, other) -= mean_[Of(server)] * mean_[Of(other)] / mu;
        }
      }
      for (const int server : touched_) mean_[Of(server)] = 0;
    }
    return smooth;
  }

  // Newton's method on the smoothed dual, while mu falls. Leaves the prices of
  // the lowest dual bound, and returns it.
  double LowerByNewton(std::vector<double>* price) {
    constexpr double kFirstPrice = 0.3;
    constexpr double kMuFirst = 0.05;
    constexpr double kMuLast = 1e-3;
    constexpr double kShrink = 0.25;
    constexpr double kCentred = 10;
    constexpr double kMuSorted = 0.02;
    constexpr int kStepsMax = 60;
    double lowest = std::numeric_limits<double>::infinity();
    double mu = kMuFirst;
    std::vector<double> at(price->size(), kFirstPrice);
    std::vector<double> next(at.size());
    const auto keep = [&](const std::vector<double>& prices, double bound) {
      if (bound >= lowest) return;
      lowest = bound;
      *price = prices;
    };
    // Without contention nothing has a price.
    const std::vector<double> none(at.size(), 0.0);
    keep(none, Evaluate(none, -1));
    for (int step = 0; step < kStepsMax; ++step) {
      double bound = 0;
      const double value = Smooth(at, mu, /*second_order=*/true, &bound);
      keep(at, bound);
      // Columns of servers that no row near the best ones names.
      constexpr double kRegular = 1e-12;
      hessian_.diagonal().array() += kRegular;
      const Eigen::VectorXd gradient = gradient_;
      const Eigen::VectorXd direction = -hessian_.llt().solve(gradient);
      const double slope = gradient.dot(direction);
      if (!(slope < 0)) break;
      double length = 1;
      for (size_t s = 0; s < at.size(); ++s) {
        const double change = direction[static_cast<Eigen::Index>(s)];
        if (change < 0) length = std::min(length, -0.9 * at[s] / change);
      }
      for (int halving = 0; halving < 6; ++halving) {
        for (size_t s = 0; s < at.size(); ++s) {
          next[s] = at[s] + length * direction[static_cast<Eigen::Index>(s)];
        }
        const double reached = Smooth(next, mu, /*second_order=*/false, &bound);
        keep(next, bound);
        if (reached <= value + 0.1 * length * slope) break;
        length *= 0.4;
      }
      at = next;
      if (-slope > kCentred * mu) continue;
      if (mu <= kMuLast) break;
      mu = std::max(kMuLast, mu * kShrink);
      // Before, most rows are near the best ones in any case.
      if (mu < kMuSorted) Resort(at);
    }
    // The barrier leaves about mu / slack as the price of a server that is not
    // scarce.
    for (double& one : at) one = one <= 2 * mu ? 0 : one;
    keep(at, Evaluate(at, -1));
    return lowest;
  }

  // A part of the rows, as a program of their own.
  struct Core {
    BundleProgram program;
    std::vector<int> original;  // [rows] in program_
    std::vector<int> row;       // [bids] of the best choice, in `program`
  };

  // Fills the rows whose regret at `price` is at most `regret_max`, and those
  // of `best`. With an infinite regret at most rows_max for each bid; else at
  // most rows_max in all, and false is returned if there are more.
  bool CoreAt(int without, std::span<const double> price, double regret_max,
              int rows_max, std::span<const int> best, Core* core) {
    Evaluate(price, without);
    const double drop = DropTo(price);
    *core = {};
    const BundleProgram& program = sorted_.program;
    core->program.capacity = program.capacity;
    core->row.assign(best.size(), kNoRow);
    const bool by_bid = regret_max == kInfinity;
    for (int bid = 0; bid < program.bids(); ++bid) {
      const double least = top_profit_[Of(bid)] - regret_max - kRegretSlack;
      const int held = best[Of(bid)];
      const int first = by_bid ? core->program.rows() : 0;
      for (int r = program.BidBegin(bid);
           bid != without && r < program.BidEnd(bid); ++r) {
        const bool is_held = sorted_.original[Of(r)] == held;
        const bool full = core->program.rows() - first >= rows_max;
        if (!is_held) {
          if (sorted_.MostFrom(r, drop) < least || (by_bid && full)) {
            // Only the row of the best choice may still come.
            if (held == kNoRow || core->row[Of(bid)] != kNoRow) break;
            continue;
          }
          if (program.Gain(r) - Cost(program.Parts(r), price) < least) continue;
          if (full) return false;
        }
        if (is_held) core->row[Of(bid)] = core->program.rows();
        core->program.AddRow(program.Gain(r), program.Parts(r));
        core->original.push_back(sorted_.original[Of(r)]);
      }
      core->program.EndBid();
    }
    work_ += core->program.rows();
    return true;
  }

  // The most that a price is below the one that rows are sorted at.
  double DropTo(std::span<const double> price) const {
    double drop = 0;
    for (size_t s = 0; s < price.size(); ++s) {
      drop = std::max(drop, sorted_.price[s] - price[s]);
    }
    return drop;
  }

  void Adopt(const Core& core, const std::vector<int>& row,
             std::vector<int>* best, double* best_gain) const {
    std::vector<int> mapped(row.size(), kNoRow);
    for (size_t bid = 0; bid < row.size(); ++bid) {
      if (row[bid] != kNoRow) mapped[bid] = core.original[Of(row[bid])];
    }
    const double gain = GainOf(program_, mapped);
    if (gain <= *best_gain) return;
    *best = std::move(mapped);
    *best_gain = gain;
  }

  // Closes the rest of the gap by branch and bound over the rows that may be in
  // a better choice: those whose regret is at most the gap.
  void Branch(int without, std::span<const double> price, int64_t work_max,
              std::vector<int>* best, double* gain, double* bound,
              BundleChoice* choice) {
    if (*bound <= *gain + kTie) return;
    // Over more rows than this the work allows for too few nodes.
    constexpr int64_t kNodesMin = 200;
    const int rows_max = limits_.finish_by_highs
                             ? std::numeric_limits<int>::max()
                             : static_cast<int>(work_max / kNodesMin);
    Core core;
    if (!CoreAt(without, price, *bound - *gain, rows_max, *best, &core)) return;
    Tree tree(core.program, core.row, *gain, work_max);
    tree.Run({price.begin(), price.end()}, without);
    work_ += tree.work();
    *bound = std::min(*bound, tree.bound());
    Adopt(core, tree.row(), best, gain);
    if (*bound <= *gain + kTie || !limits_.finish_by_highs) return;
    const BundleChoice highs =
        ChooseByHighs(core.program, without, kInfinity, kHighsNodesMax);
    *bound = std::min(*bound, highs.bound);
    Adopt(core, highs.row, best, gain);
    choice->used_highs = true;
  }

  // A round waits for the auction, so HiGHS stops after so many nodes. The
  // result then has a gap.
  static constexpr int kHighsNodesMax = 500;
  // Rows of a bid that local search looks at: the most profitable ones.
  static constexpr int kNearRows = 40;
  // A regret is compared with a gap after as many roundings as there are bids.
  static constexpr double kRegretSlack = 1e-9;
  // With more servers the steps of Newton's method take too long.
  static constexpr size_t kNewtonServersMax = 256;
  bool UsesNewton() const {
    return program_.capacity.size() <= kNewtonServersMax;
  }

  const BundleProgram& program_;
  const BundleLimits limits_;
  Sorted sorted_;
  std::vector<double> price_;  // of the choice among all bids
  BundleChoice all_;
  std::vector<double> usage_;       // [servers] by the tops
  std::vector<int> top_;            // [bids] rows of sorted_
  std::vector<double> top_profit_;  // [bids]
  Eigen::VectorXd gradient_;
  Eigen::MatrixXd hessian_;
  std::vector<double> mean_;  // [servers] 0 between bids
  std::vector<int> touched_;
  std::vector<std::pair<int, double>> close_;
  Core near_core_;  // the rows of which the best choice is improved
  std::optional<LocalSearch> near_;
  int64_t work_ = 0;
};

BundleSolver::BundleSolver(const BundleProgram& program,
                           const BundleLimits& limits)
    : impl_(std::make_unique<Impl>(program, limits)) {}
BundleSolver::~BundleSolver() = default;
const BundleChoice& BundleSolver::Solve() { return impl_->Solve(); }
BundleChoice BundleSolver::SolveWithout(int bid, std::span<const int> known) {
  return impl_->SolveWithout(bid, known);
}

BundleChoice ChooseByHighs(const BundleProgram& program, int without,
                           double seconds_max, int nodes_max) {
  LinearProgram lp;
  std::vector<int> row_of;  // by column
  std::vector<std::vector<LpEntry>> used(program.capacity.size());
  for (int bid = 0; bid < program.bids(); ++bid) {
    if (bid == without) continue;
    std::vector<LpEntry> one;
    for (int r = program.BidBegin(bid); r < program.BidEnd(bid); ++r) {
      const int column = lp.AddColumn(program.Gain(r), 0, 1);
      row_of.push_back(r);
      one.push_back({column, 1});
      for (const BundlePart& part : program.Parts(r)) {
        used[Of(part.server)].push_back(
            {column, static_cast<double>(part.count)});
      }
    }
    if (!one.empty()) lp.AddRow(-kInfinity, 1, one);
  }
  for (int s = 0; s < program.servers(); ++s) {
    if (used[Of(s)].empty()) continue;
    lp.AddRow(-kInfinity, program.capacity[Of(s)], used[Of(s)]);
  }
  BundleChoice choice;
  choice.used_highs = true;
  choice.row.assign(Of(program.bids()), kNoRow);
  if (row_of.empty()) return choice;
  const IntegerSolution solution =
      SolveIntegers(lp, {.nodes_max = nodes_max, .seconds_max = seconds_max});
  std::vector<int> left = program.capacity;
  int bid = 0;
  for (size_t c = 0; c < solution.column_values.size(); ++c) {
    if (solution.column_values[c] < 0.5) continue;
    while (program.BidEnd(bid) <= row_of[c]) ++bid;
    // HiGHS keeps rows to a tolerance; what does not fit exactly is left out.
    if (choice.row[Of(bid)] != kNoRow) continue;
    if (!Fits(program.Parts(row_of[c]), left)) continue;
    Take(program.Parts(row_of[c]), 1, left);
    choice.row[Of(bid)] = row_of[c];
  }
  choice.gain = GainOf(program, choice.row);
  choice.bound = std::max(choice.gain, solution.bound);
  choice.work = solution.iterations;
  return choice;
}

}  // namespace gavel::policy
