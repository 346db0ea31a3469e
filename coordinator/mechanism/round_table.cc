#include "coordinator/mechanism/round_table.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <utility>

namespace gavel {

namespace {

bool Countable(double seconds) { return std::isfinite(seconds) && seconds > 0; }

void AddTo(std::vector<double>& row, size_t type, double seconds) {
  if (row.size() <= type) row.resize(type + 1, 0.0);
  row[type] += seconds;
}

// Returns the largest of `row` and `least`.
double Most(const std::vector<double>& row, double least) {
  for (const double seconds : row) least = std::max(least, seconds);
  return least;
}

double Factor(double keep_s, double most) {
  return most > keep_s ? keep_s / most : 1.0;
}

void Scale(std::vector<double>& row, double factor) {
  for (double& seconds : row) seconds *= factor;
}

// Sets `last` to the entry of `key`, and adds the entry if it is new. Returns
// whether it was added. On entry `last` is the entry of the previous key; the
// call is fast if the key is the same or the next one.
template <class Map, class Key>
bool Find(Map& map, const Key& key, typename Map::iterator& last) {
  if (last != map.end() && last->first == key) return false;
  if (last != map.end()) ++last;
  if (last != map.end() && last->first == key) return false;
  const size_t before = map.size();
  last = map.try_emplace(last, key);
  return map.size() != before;
}

}  // namespace

void TimeReceived::Add(const ShareUnit& unit, size_t type, double seconds) {
  Booking(*this).Add(unit, type, seconds);
}

void TimeReceived::Owe(const ShareUnit& unit, size_t type, double seconds) {
  Booking(*this).Owe(unit, type, seconds);
}

void TimeReceived::Begin(JobId job, size_t type, double since_reset_s,
                         double deficit_s) {
  const ShareUnit unit{job, JobId()};
  Add(unit, type, since_reset_s);
  Owe(unit, type, since_reset_s + deficit_s);
  // A surplus from before the reset counts as received, because neither side of
  // the deficit may be below 0.
  const double earlier_s = -(since_reset_s + deficit_s);
  if (!Countable(earlier_s)) return;
  AddTo(seconds_[unit].received, type, earlier_s);
}

TimeReceived::Booking::Booking(TimeReceived& time)
    : time_(time), entry_(time.seconds_.end()) {}

void TimeReceived::Booking::Add(const ShareUnit& unit, size_t type,
                                double seconds) {
  if (!Countable(seconds)) return;
  Seconds& entry = Of(unit);
  AddTo(entry.since_reset, type, seconds);
  AddTo(entry.received, type, seconds);
}

void TimeReceived::Booking::Owe(const ShareUnit& unit, size_t type,
                                double seconds) {
  if (!Countable(seconds)) return;
  AddTo(Of(unit).owed, type, seconds);
}

TimeReceived::Seconds& TimeReceived::Booking::Of(const ShareUnit& unit) {
  if (Find(time_.seconds_, unit, entry_) && unit.packed()) {
    time_.pairs_[unit.job].push_back(unit);
    time_.pairs_[unit.partner].push_back(unit);
  }
  return entry_->second;
}

void TimeReceived::Reset() {
  for (auto& [unit, entry] : seconds_) {
    entry.since_reset.assign(entry.since_reset.size(), 0.0);
  }
}

// Each kind of time has one factor for all types, because the mechanism
// compares times across types.
double TimeReceived::Age(double keep_s) {
  double most_since_reset = 0;
  double most = 0;
  for (const auto& [unit, entry] : seconds_) {
    most_since_reset = Most(entry.since_reset, most_since_reset);
    most = Most(entry.owed, Most(entry.received, most));
  }
  const double since_reset_factor = Factor(keep_s, most_since_reset);
  const double factor = Factor(kDeficitMemory * keep_s, most);
  for (auto& [unit, entry] : seconds_) {
    Scale(entry.since_reset, since_reset_factor);
    Scale(entry.owed, factor);
    Scale(entry.received, factor);
  }
  return factor;
}

std::vector<ShareUnit> TimeReceived::UnitsOf(JobId job) const {
  std::vector<ShareUnit> units = {{job, JobId()}};
  const auto found = pairs_.find(job);
  if (found != pairs_.end()) {
    units.insert(units.end(), found->second.begin(), found->second.end());
  }
  return units;
}

void TimeReceived::Remove(JobId job) {
  seconds_.erase({job, JobId()});
  const auto found = pairs_.find(job);
  if (found == pairs_.end()) return;
  const std::vector<ShareUnit> pairs = std::move(found->second);
  pairs_.erase(found);
  for (const ShareUnit& pair : pairs) {
    seconds_.erase(pair);
    const auto other = pairs_.find(pair.job == job ? pair.partner : pair.job);
    if (other == pairs_.end()) continue;
    std::erase(other->second, pair);
    if (other->second.empty()) pairs_.erase(other);
  }
}

void TimeReceived::Rows(const ShareUnit& unit, size_t types,
                        std::vector<double>& since_reset,
                        std::vector<double>& deficit) const {
  since_reset.assign(types, 0);
  deficit.assign(types, 0);
  const auto found = seconds_.find(unit);
  if (found == seconds_.end()) return;
  const Seconds& entry = found->second;
  for (size_t j = 0; j < std::min(types, entry.since_reset.size()); ++j) {
    since_reset[j] += entry.since_reset[j];
  }
  for (size_t j = 0; j < std::min(types, entry.owed.size()); ++j) {
    deficit[j] += entry.owed[j];
  }
  for (size_t j = 0; j < std::min(types, entry.received.size()); ++j) {
    deficit[j] -= entry.received[j];
  }
}

RoundTable::RoundTable(const std::vector<RoundUnit>& rows) : types_(0) {
  for (const RoundUnit& row : rows) {
    types_ =
        std::max({types_, row.share.size(), row.time_received_s.size(),
                  row.deficit_s.size(), row.usable.size(), row.worth.size()});
  }
  Reserve(rows.size());
  for (const RoundUnit& row : rows) Add(row);
}

void RoundTable::Reserve(size_t rows) {
  units_.reserve(rows);
  scale_factors_.reserve(rows);
  for (std::vector<double>* column :
       {&shares_, &received_s_, &deficits_s_, &worths_}) {
    column->reserve(rows * types_);
  }
  usable_.reserve(rows * types_);
  costs_.reserve(rows);
  homes_.reserve(rows);
  seen_.reserve(rows);
  claimed_.reserve(rows);
  held_at_.reserve(rows);
}

void RoundTable::Add(const RoundUnit& row) {
  ascending_ &= units_.empty() || units_.back() < row.unit;
  packed_ |= row.unit.packed();
  units_.push_back(row.unit);
  scale_factors_.push_back(row.scale_factor);
  AddColumn(row.share, shares_);
  AddColumn(row.time_received_s, received_s_);
  AddColumn(row.deficit_s, deficits_s_);
  AddColumn(row.worth, worths_);
  has_worth_ |= !row.worth.empty();
  for (size_t j = 0; j < types_; ++j) {
    usable_.push_back(j < row.usable.size() && row.usable[j] ? 1 : 0);
  }
  costs_.push_back({row.preempt_cost_s, row.move_cost_s, row.owed_part});
  homes_.push_back(row.home_server);
  seen_.push_back(row.home);
  claimed_.push_back(row.claimed);
  held_at_.push_back(kNoIndex);
  if (!row.holds.empty()) Hold(units_.size() - 1, row.holds);
}

void RoundTable::AddColumn(const std::vector<double>& row,
                           std::vector<double>& column) {
  for (size_t j = 0; j < types_; ++j) {
    const double value = j < row.size() ? row[j] : 0;
    column.push_back(std::isfinite(value) ? value : 0);
  }
}

void RoundTable::Hold(size_t u, std::vector<AcceleratorId> accelerators) {
  assert(u < size());
  uint32_t& at = held_at_[u];
  if (accelerators.empty()) {
    if (at == kNoIndex) return;
    held_at_[held_.back().unit] = at;
    std::swap(held_[at], held_.back());
    held_.pop_back();
    held_at_[u] = kNoIndex;
    return;
  }
  if (at == kNoIndex) {
    at = static_cast<uint32_t>(held_.size());
    held_.push_back({static_cast<uint32_t>(u), {}});
  }
  held_[at].accelerators = std::move(accelerators);
}

size_t RoundTable::Find(const ShareUnit& unit) const {
  return static_cast<size_t>(std::find(units_.begin(), units_.end(), unit) -
                             units_.begin());
}

std::span<const AcceleratorId> RoundTable::own(size_t u) const {
  if (held_at_[u] != kNoIndex) return holds(u);
  return {&seen_[u], seen_[u].valid() ? size_t{1} : 0};
}

std::span<const AcceleratorId> RoundTable::holds(size_t u) const {
  if (held_at_[u] == kNoIndex) return {};
  return held_[held_at_[u]].accelerators;
}

RoundTable::Avoided RoundTable::AvoidedBy(size_t u) const {
  Avoided all;
  if (!any_avoided()) return all;
  for (const JobId job : {units_[u].job, units_[u].partner}) {
    const auto found = avoided_.find(job);
    if (found == avoided_.end()) continue;
    for (const auto& [id, never] : found->second) all[id] |= never;
  }
  return all;
}

RoundView::RoundView(const Cluster& cluster, const RoundTable& table,
                     std::vector<int> capacity)
    : cluster_(cluster),
      table_(table),
      capacity_(std::move(capacity)),
      types_(std::min(cluster.types().size(), table.types())),
      type_of_(cluster.usable_types()),
      plain_(table.ascending() && !table.packed()) {
  static_assert(Cluster::kUnusable == kNoIndex);
  held_.reserve(table.held().size());
  for (const RoundTable::Held& held : table.held()) {
    held_.push_back(TypeHeld(held));
  }
  if (plain_) {
    jobs_ = table.size();
  } else {
    Number();
  }
}

uint32_t RoundView::TypeHeld(const RoundTable::Held& held) const {
  const std::vector<AcceleratorId>& ids = held.accelerators;
  const int scale_factor = table_.scale_factor(held.unit);
  if (scale_factor < 1 || ids.size() != static_cast<size_t>(scale_factor)) {
    return kNoIndex;
  }
  const uint32_t type = TypeOf(ids.front());
  const bool one_type =
      std::all_of(ids.begin(), ids.end(),
                  [&](AcceleratorId id) { return TypeOf(id) == type; });
  return one_type ? type : kNoIndex;
}

void RoundView::Number() {
  order_.resize(table_.size());
  std::iota(order_.begin(), order_.end(), 0u);
  if (!table_.ascending()) {
    std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
      return table_.unit(a) < table_.unit(b);
    });
  }
  const std::vector<JobId> ids = JobsInOrder();
  jobs_ = ids.size();
  rows_.resize(table_.size());
  size_t job = 0;  // of the last unit: they ascend
  for (uint32_t position = 0; position < order_.size(); ++position) {
    const ShareUnit& unit = table_.unit(order_[position]);
    while (ids[job] != unit.job) ++job;
    Row& row = rows_[order_[position]];
    row.position = position;
    row.job = row.partner = static_cast<uint32_t>(job);
    if (!unit.packed()) continue;
    row.partner = static_cast<uint32_t>(
        std::lower_bound(ids.begin(), ids.end(), unit.partner) - ids.begin());
  }
}

// Every job of the units once, ascending.
std::vector<JobId> RoundView::JobsInOrder() const {
  std::vector<JobId> jobs;
  jobs.reserve(table_.size());
  bool ascending = true;
  const auto add = [&](JobId job) {
    if (!jobs.empty() && jobs.back() == job) return;
    ascending = ascending && (jobs.empty() || jobs.back() < job);
    jobs.push_back(job);
  };
  for (const uint32_t u : order_) {
    add(table_.unit(u).job);
    if (table_.unit(u).packed()) add(table_.unit(u).partner);
  }
  if (ascending) return jobs;
  std::sort(jobs.begin(), jobs.end());
  jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
  return jobs;
}

}  // namespace gavel
