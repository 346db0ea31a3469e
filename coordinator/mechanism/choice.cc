#include "coordinator/mechanism/choice.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace gavel {
namespace {

// Candidates are sorted in pieces, as far as there is room for them: at first
// so many and as many again as there is room.
constexpr size_t kPieceMin = 64;

bool UsableAt(const RoundUnit& unit, size_t type) {
  return type < unit.usable.size() && unit.usable[type];
}

double Sum(const std::vector<double>& row) {
  double sum = 0;
  for (size_t j = 0; j < row.size(); ++j) sum += At(row, j);
  return sum;
}

}  // namespace

Choice::Choice(const RoundTable& table, const RoundOptions& options)
    : table_(table),
      options_(options),
      room_(table.cluster.Capacity()),
      scale_factor_min_(std::numeric_limits<int>::max()),
      type_of_(table.units.size(), kNone),
      taken_(table.jobs, false) {
  for (const RoundUnit& unit : table.units) {
    scale_factor_min_ = std::min(scale_factor_min_, unit.scale_factor);
  }
  scale_factor_min_ = std::max(scale_factor_min_, 1);
}

void Choice::KeepRunning() {
  for (const uint32_t u : table_.order) {
    if (table_.rows[u].held != kNone) Take(u, table_.rows[u].held);
  }
}

void Choice::Take(size_t unit, size_t type) {
  const RoundRow& row = table_.rows[unit];
  const int scale_factor = table_.units[unit].scale_factor;
  if (type >= room_.size() || scale_factor < 1 || room_[type] < scale_factor ||
      !Free(row)) {
    return;
  }
  room_[type] -= scale_factor;
  type_of_[unit] = static_cast<uint32_t>(type);
  taken_[row.job] = taken_[row.partner] = true;
}

// With a queue per type, what is left of one type goes out before the next
// type's turn, as in the original: its first type is never idle for the sake of
// a share of another.
void Choice::TakeAll() {
  if (options_.mechanism == MechanismKind::kMoveAware) {
    debts_.emplace(table_, options_.round_duration_s);
  }
  const size_t types = room_.size();
  const size_t step = options_.queue == QueueKind::kGlobal ? types : 1;
  for (size_t begin = 0; begin < types; begin += step) {
    TakeByPriority(begin, begin + step);
    if (options_.work_conserving) TakeLeftovers(begin, begin + step);
  }
}

bool Choice::HasRoom(size_t begin, size_t end) const {
  return std::any_of(room_.begin() + static_cast<std::ptrdiff_t>(begin),
                     room_.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](int room) { return room >= scale_factor_min_; });
}

// Most candidates of a large round are never reached, so they are not sorted.
template <class Before>
void Choice::TakeInOrder(std::vector<Candidate>& candidates, size_t begin,
                         size_t end, Before before) {
  auto next = candidates.begin();
  size_t piece = kPieceMin;
  for (size_t j = begin; j < end; ++j) {
    piece += 2 * static_cast<size_t>(room_[j]);
  }
  while (next != candidates.end() && HasRoom(begin, end)) {
    auto stop = candidates.end();
    if (static_cast<size_t>(stop - next) > 2 * piece) {
      stop = next + static_cast<std::ptrdiff_t>(piece);
      std::nth_element(next, stop, candidates.end(), before);
    }
    std::sort(next, stop, before);
    for (; next != stop; ++next) Take(next->unit, next->type);
    piece *= 4;
  }
}

// The priority of Gavel section 5.1 is share / time received, up to a factor
// of the type; its reciprocal needs no infinity for who has received nothing.
std::optional<Candidate> Choice::Claim(uint32_t unit, size_t type) const {
  const RoundUnit& entry = table_.units[unit];
  const RoundRow& row = table_.rows[unit];
  Candidate claim;
  claim.share = At(entry.share, type);
  if (claim.share <= kShareMin || !UsableAt(entry, type)) return std::nullopt;
  if (debts_ && options_.work_conserving && debts_->StaysForNow(unit)) {
    return std::nullopt;
  }
  claim.standing =
      debts_ ? debts_->Standing(unit, type)
             : std::max(0.0, At(entry.time_received_s, type)) / claim.share;
  claim.holds = row.held == type;
  claim.deficit_s = At(entry.deficit_s, type);
  claim.position = row.position;
  claim.unit = unit;
  claim.type = static_cast<uint32_t>(type);
  return claim;
}

// Gavel section 5.2, algorithm 1: by priority, what fits, each job once.
void Choice::TakeByPriority(size_t begin, size_t end) {
  std::vector<Candidate> candidates;
  candidates.reserve(table_.units.size());
  for (uint32_t u = 0; u < table_.units.size(); ++u) {
    if (!Free(table_.rows[u])) continue;
    for (size_t j = begin; j < end; ++j) {
      if (const auto claim = Claim(u, j)) candidates.push_back(*claim);
    }
  }
  TakeInOrder(
      candidates, begin, end, [](const Candidate& a, const Candidate& b) {
        if (a.standing != b.standing) return a.standing < b.standing;
        return std::tuple(-a.deficit_s, -a.share, !a.holds, a.position,
                          a.type) <
               std::tuple(-b.deficit_s, -b.share, !b.holds, b.position, b.type);
      });
}

// An idle accelerator is of use to anyone who can run there; who received
// least comes first.
void Choice::TakeLeftovers(size_t begin, size_t end) {
  if (!HasRoom(begin, end)) return;
  std::vector<Candidate> candidates;
  for (uint32_t u = 0; u < table_.units.size(); ++u) {
    const RoundUnit& unit = table_.units[u];
    const RoundRow& row = table_.rows[u];
    if (!Free(row)) continue;
    const double received_s = debts_ ? 0.0 : Sum(unit.time_received_s);
    for (size_t j = begin; j < end; ++j) {
      if (!UsableAt(unit, j) || room_[j] < unit.scale_factor) continue;
      Candidate& candidate = candidates.emplace_back();
      candidate.standing = debts_ ? debts_->LeftoverStanding(u, j) : received_s;
      candidate.position = row.position;
      candidate.unit = u;
      candidate.type = static_cast<uint32_t>(j);
      candidate.holds = row.held == j;
      candidate.packed = unit.unit.packed();
    }
  }
  TakeInOrder(
      candidates, begin, end, [](const Candidate& a, const Candidate& b) {
        return std::tuple(a.packed, a.standing, a.position, !a.holds, a.type) <
               std::tuple(b.packed, b.standing, b.position, !b.holds, b.type);
      });
}

}  // namespace gavel
