#include "coordinator/cli/doctor/doctor_report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "core/text.h"

namespace gavel {
namespace {

using Values = std::vector<std::string>;
using Key = std::pair<uint64_t, std::string>;  // step, name

// But for a last one that was cut off.
template <class Take>
void ForEachLine(std::string_view text, const Take& take) {
  for (size_t end = text.find('\n'); end != std::string_view::npos;
       end = text.find('\n')) {
    take(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
}

std::optional<ReportedValue> ParseLine(std::string_view line) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  ReportedValue value;
  if (first == std::string_view::npos || first == last ||
      !absl::SimpleAtoi(ToAbsl(line.substr(0, first)), &value.step)) {
    return std::nullopt;
  }
  value.name = line.substr(first + 1, last - first - 1);
  value.value = line.substr(last + 1);
  return value;
}

std::map<Key, Values> ByStepAndName(const std::vector<ReportedValue>& values,
                                    uint64_t from_step) {
  std::map<Key, Values> found;
  for (const ReportedValue& one : values) {
    if (one.step >= from_step) found[{one.step, one.name}].push_back(one.value);
  }
  return found;
}

// Steps and names in the order of the runs: `expected`'s first.
std::vector<Key> KeysInOrder(const std::vector<ReportedValue>& expected,
                             const std::vector<ReportedValue>& found,
                             uint64_t from_step) {
  std::vector<Key> keys;
  std::set<Key> seen;
  for (const auto* values : {&expected, &found}) {
    for (const ReportedValue& one : *values) {
      Key key{one.step, one.name};
      if (one.step < from_step || !seen.insert(key).second) continue;
      keys.push_back(std::move(key));
    }
  }
  std::stable_sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
    return a.first < b.first;
  });
  return keys;
}

bool IsClose(const std::optional<std::string>& a,
             const std::optional<std::string>& b, double tolerance) {
  if (a == b) return true;
  if (!a || !b || tolerance <= 0) return false;
  const double x = std::strtod(a->c_str(), nullptr);
  const double y = std::strtod(b->c_str(), nullptr);
  return std::abs(x - y) <= tolerance * std::max(std::abs(x), std::abs(y));
}

// The first value that differs; at the first step `found` may begin with more.
std::optional<ReportDifference> Differ(const Key& key, const Values& expected,
                                       const Values& found, bool is_first_step,
                                       double tolerance) {
  size_t skip = 0;
  if (is_first_step && found.size() > expected.size()) {
    skip = found.size() - expected.size();
  }
  const size_t count = std::max(expected.size(), found.size() - skip);
  for (size_t i = 0; i < count; ++i) {
    ReportDifference difference{key.first, key.second, {}, {}};
    if (i < expected.size()) difference.expected = expected[i];
    if (i + skip < found.size()) difference.found = found[i + skip];
    if (!IsClose(difference.expected, difference.found, tolerance)) {
      return difference;
    }
  }
  return std::nullopt;
}

std::string DescribeValue(const std::optional<std::string>& value) {
  if (!value) return "not reported";
  return absl::StrFormat("%.9g (%s)", std::strtod(value->c_str(), nullptr),
                         *value);
}

// Without the end of an epoch in sight.
constexpr uint64_t kMoreSteps = 4;

// What is before the first blank, which both lose.
std::string_view TakeWord(std::string_view* line) {
  const size_t end = std::min(line->find(' '), line->size());
  const std::string_view word = line->substr(0, end);
  line->remove_prefix(std::min(end + 1, line->size()));
  return word;
}

void TakeLine(std::string_view line, DoctorAccount* account) {
  const std::string_view word = TakeWord(&line);
  uint64_t step = 0;
  if (!absl::SimpleAtoi(ToAbsl(TakeWord(&line)), &step)) return;
  if (word == "tracked") {
    const std::string_view name = TakeWord(&line);
    account->tracked.push_back(StrCat(name, " (", line, ")"));
  } else if (word == "loop-begin") {
    ++account->loops_begun;
  } else if (word == "loop-end") {
    account->epoch_ends.push_back(step);
  } else if (word == "loop-break") {
    account->breaks.push_back(step);
  } else if (word == "evaluation") {
    account->evaluations.push_back(step);
  } else if (word == "untracked") {
    const std::string_view kind = TakeWord(&line);
    account->untracked.push_back({step, std::string(kind), std::string(line)});
  }
}

}  // namespace

std::vector<ReportedValue> ParseReport(std::string_view text) {
  std::vector<ReportedValue> values;
  ForEachLine(text, [&](std::string_view line) {
    if (auto value = ParseLine(line)) values.push_back(*std::move(value));
  });
  return values;
}

std::vector<std::string> NamesOf(const std::vector<ReportedValue>& values) {
  std::set<std::string> names;
  for (const ReportedValue& one : values) names.insert(one.name);
  return {names.begin(), names.end()};
}

std::optional<ReportedValue> FirstNan(
    const std::vector<ReportedValue>& values) {
  const auto it = std::ranges::find_if(values, [](const ReportedValue& one) {
    return std::isnan(std::strtod(one.value.c_str(), nullptr));
  });
  return it == values.end() ? std::nullopt : std::optional(*it);
}

bool AnyVaries(const std::vector<ReportedValue>& values) {
  std::map<std::string_view, std::string_view> first;
  return std::ranges::any_of(values, [&](const ReportedValue& one) {
    return first.emplace(one.name, one.value).first->second != one.value;
  });
}

std::vector<ReportDifference> CompareReports(
    const std::vector<ReportedValue>& expected,
    const std::vector<ReportedValue>& found, uint64_t from_step,
    double tolerance) {
  std::map<Key, Values> left = ByStepAndName(expected, from_step);
  std::map<Key, Values> right = ByStepAndName(found, from_step);
  std::vector<ReportDifference> differences;
  std::set<std::string> names;
  for (const Key& key : KeysInOrder(expected, found, from_step)) {
    if (names.contains(key.second)) continue;
    auto difference =
        Differ(key, left[key], right[key], key.first == from_step, tolerance);
    if (!difference) continue;
    names.insert(key.second);
    differences.push_back(*std::move(difference));
  }
  return differences;
}

std::string DescribeDifference(const ReportDifference& difference,
                               std::string_view other_run) {
  return StrCat(difference.name, " at step ", difference.step, ": ",
                DescribeValue(difference.expected), " undisturbed, ",
                DescribeValue(difference.found), " ", other_run);
}

std::vector<uint64_t> DoctorAccount::LoopEnds() const {
  std::vector<uint64_t> ends = epoch_ends;
  ends.insert(ends.end(), breaks.begin(), breaks.end());
  std::ranges::sort(ends);
  return ends;
}

bool DoctorAccount::CountsSomething() const {
  return std::ranges::any_of(tracked, [](const std::string& one) {
    return absl::StrContains(one, " number of ") ||
           absl::EndsWith(one, "(text)") || absl::EndsWith(one, "(bytes)");
  });
}

std::vector<std::string> DoctorAccount::TrackedAs(std::string_view kind) const {
  std::vector<std::string> names;
  for (const std::string& one : tracked) {
    if (!one.ends_with(StrCat(" (", kind, ")"))) continue;
    names.push_back(one.substr(0, one.find(' ')));
  }
  return names;
}

const UntrackedItem* DoctorAccount::Lost() const {
  const auto found =
      std::ranges::find_if(untracked, [](const UntrackedItem& one) {
        return one.kind == "module" || one.kind == "average";
      });
  return found == untracked.end() ? nullptr : &*found;
}

DoctorAccount ParseAccount(std::string_view text) {
  DoctorAccount account;
  ForEachLine(text, [&](std::string_view line) { TakeLine(line, &account); });
  return account;
}

uint64_t StepsForEpochs(const DoctorAccount& account, uint64_t steps) {
  if (account.loops_begun == 0) return 0;
  const std::vector<uint64_t> ends = account.LoopEnds();
  if (ends.empty()) return kMoreSteps * steps;
  const uint64_t epoch = std::max<uint64_t>(ends.front(), 1);
  const uint64_t wanted = 2 * epoch + std::max<uint64_t>(epoch / 4, 2);
  return wanted > steps ? wanted : 0;
}

}  // namespace gavel
