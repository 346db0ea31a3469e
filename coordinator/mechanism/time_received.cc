#include "coordinator/mechanism/time_received.h"

#include <algorithm>
#include <cmath>
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

}  // namespace gavel
