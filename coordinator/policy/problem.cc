#include "coordinator/policy/problem.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

template <class... T>
absl::Status Refuse(const T&... what) {
  return absl::InvalidArgumentError(StrCat(what...));
}

// Not a number is neither.
bool FiniteFromZero(double value) {
  return (value >= 0) & (value <= std::numeric_limits<double>::max());
}

absl::Status CheckSizes(const PolicyProblem& problem) {
  const size_t types = problem.types.size();
  const size_t columns = problem.columns();
  if (problem.capacity.size() != types) {
    return Refuse("problem: ", problem.capacity.size(), " capacities for ",
                  types, " accelerator types; give one for each");
  }
  if (problem.placement_sensitive() && problem.servers.size() != types) {
    return Refuse("problem: servers of ", problem.servers.size(), " types for ",
                  types, " accelerator types; give a list for each, or none");
  }
  if (problem.throughputs.size() != problem.jobs.size() * columns) {
    return Refuse("problem: ", problem.throughputs.size(), " throughputs for ",
                  problem.jobs.size(), " jobs x ", columns,
                  " columns; give one for each pair");
  }
  if (problem.pair_throughputs.size() != problem.pairs.size() * columns * 2) {
    return Refuse("problem: ", problem.pair_throughputs.size(),
                  " pair throughputs for ", problem.pairs.size(), " pairs x ",
                  columns, " columns x 2 jobs; give one for each");
  }
  if (!problem.cost.empty() && problem.cost.size() != types) {
    return Refuse("problem: ", problem.cost.size(), " costs for ", types,
                  " accelerator types; give one for each, or none");
  }
  return absl::OkStatus();
}

absl::Status CheckType(const PolicyProblem& problem, size_t j) {
  const auto refuse = [&](const auto&... what) {
    return Refuse("type ", problem.types[j], ": ", what...);
  };
  if (problem.capacity[j] < 0) {
    return refuse("capacity ", problem.capacity[j],
                  " is negative; give 0 or more");
  }
  if (!problem.cost.empty() && !FiniteFromZero(problem.cost[j])) {
    return refuse("cost ", problem.cost[j], "; give a finite one, 0 or more");
  }
  if (!problem.placement_sensitive()) return absl::OkStatus();
  int64_t accelerators = 0;
  for (const int size : problem.servers[j]) {
    if (size < 0) return refuse("a server with ", size, " accelerators");
    accelerators += size;
  }
  if (accelerators != problem.capacity[j]) {
    return refuse("servers with ", accelerators, " accelerators, capacity ",
                  problem.capacity[j], "; give the same");
  }
  return absl::OkStatus();
}

absl::Status CheckEntity(const PolicyEntity& entity) {
  if (std::isfinite(entity.weight) && entity.weight > 0) {
    return absl::OkStatus();
  }
  return Refuse("entity ", entity.name, ": weight ", entity.weight,
                "; give a finite one above 0");
}

// The name of a column, for messages.
std::string ColumnName(const PolicyProblem& problem, size_t column) {
  const std::string& type = problem.types[problem.TypeOfColumn(column)];
  if (!problem.placement_sensitive()) return type;
  return StrCat(type, column < problem.types.size() ? " consolidated"
                                                    : " unconsolidated");
}

absl::Status CheckTimes(const PolicyJob& job) {
  const struct {
    const char* name;
    double value;
  } fields[] = {{"steps remaining", job.steps_remaining},
                {"time since start", job.time_since_start_s},
                {"time received", job.time_received_s},
                {"isolated time", job.isolated_s}};
  for (const auto& field : fields) {
    if (FiniteFromZero(field.value)) continue;
    return Refuse("job ", job.id.value(), ": ", field.name, " ", field.value,
                  "; give a finite one, 0 or more");
  }
  if (!std::isfinite(job.arrival_s)) {
    return Refuse("job ", job.id.value(), ": arrival ", job.arrival_s,
                  "; give seconds");
  }
  if (!std::isnan(job.deadline_s)) return absl::OkStatus();
  return Refuse("job ", job.id.value(), ": deadline ", job.deadline_s,
                "; give seconds from now, infinity for none");
}

absl::Status CheckJob(const PolicyProblem& problem, size_t m) {
  const PolicyJob& job = problem.jobs[m];
  const auto refuse = [&](const auto&... what) {
    return Refuse("job ", job.id.value(), ": ", what...);
  };
  if (!job.id.valid()) return refuse("not an id; ids count from 1");
  if (m > 0 && !(problem.jobs[m - 1].id < job.id)) {
    return refuse("comes after job ", problem.jobs[m - 1].id.value(),
                  "; give each job once, in ascending order of ids");
  }
  if (job.scale_factor < 1) {
    return refuse("scale factor ", job.scale_factor, "; give 1 or more");
  }
  if (!std::isfinite(job.weight) || job.weight <= 0) {
    return refuse("weight ", job.weight, "; give a finite one above 0");
  }
  const auto entities = static_cast<int64_t>(problem.entities.size());
  if (job.entity < -1 || job.entity >= entities) {
    return refuse("entity ", job.entity, " of ", entities,
                  "; give an index, -1 for none");
  }
  const std::span<const double> row = problem.Row(m);
  for (size_t c = 0; c < row.size(); ++c) {
    if (FiniteFromZero(row[c])) continue;
    return refuse("throughput ", row[c], " on ", ColumnName(problem, c),
                  "; give steps/s, 0 when it cannot run there");
  }
  return CheckTimes(job);
}

// The first job of each kind, n for none; of jobs of one kind the scale factor.
absl::Status CheckKinds(const PolicyProblem& problem,
                        std::vector<size_t>* first_of) {
  const size_t n = problem.jobs.size();
  if (!problem.kinds.empty() && problem.kinds.size() != n) {
    return Refuse("problem: kinds of ", problem.kinds.size(), " jobs for ", n,
                  " jobs; give one for each, or none");
  }
  first_of->assign(n, n);
  for (size_t m = 0; m < n; ++m) {
    const PolicyJob& job = problem.jobs[m];
    const size_t kind = problem.KindOf(m);
    if (kind >= n) {
      return Refuse("job ", job.id.value(), ": kind ", kind, " of ", n,
                    "; count kinds from 0");
    }
    size_t& first = (*first_of)[kind];
    if (first == n) first = m;
    if (problem.jobs[first].scale_factor != job.scale_factor) {
      return Refuse("job ", job.id.value(), ": scale factor ", job.scale_factor,
                    ", that of job ", problem.jobs[first].id.value(),
                    " of its kind is ", problem.jobs[first].scale_factor,
                    "; give them different kinds");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPair(const PolicyProblem& problem,
                       const std::vector<size_t>& first_of, size_t p) {
  const PolicyPair& pair = problem.pairs[p];
  const size_t n = first_of.size();
  const bool alike = pair.first == pair.second && !problem.kinds.empty();
  if ((pair.first >= pair.second && !alike) || pair.second >= n) {
    return Refuse("pair ", p, ": jobs at ", pair.first, " and ", pair.second,
                  " of ", n, "; give two indices, the smaller one first");
  }
  for (const size_t kind : {pair.first, pair.second}) {
    if (first_of[kind] < n) continue;
    return Refuse("pair ", p, ": kind ", kind,
                  " has no jobs; leave its pairs out");
  }
  const PolicyJob& first = problem.jobs[first_of[pair.first]];
  const PolicyJob& second = problem.jobs[first_of[pair.second]];
  const auto refuse = [&](const auto&... what) {
    return Refuse("pair of job ", first.id.value(), " and job ",
                  second.id.value(), ": ", what...);
  };
  if (p > 0) {
    const PolicyPair& last = problem.pairs[p - 1];
    if (std::pair(last.first, last.second) >=
        std::pair(pair.first, pair.second)) {
      return refuse("out of order; give each pair once, ascending");
    }
  }
  if (first.scale_factor != second.scale_factor) {
    return refuse("scale factors ", first.scale_factor, " and ",
                  second.scale_factor, "; only equal ones share accelerators");
  }
  const std::span<const double> row = problem.PairRow(p);
  for (size_t i = 0; i < row.size(); ++i) {
    if (FiniteFromZero(row[i])) continue;
    return refuse("throughput ", row[i], " of job ",
                  (i % 2 == 0 ? first : second).id.value(), " on ",
                  ColumnName(problem, i / 2),
                  "; give steps/s, 0 when they cannot share there");
  }
  for (size_t i = 0; alike && i < row.size(); i += 2) {
    if (row[i] == row[i + 1]) continue;
    return refuse("of one kind, and throughputs ", row[i], " and ", row[i + 1],
                  " on ", ColumnName(problem, i / 2), "; give the same");
  }
  return absl::OkStatus();
}

}  // namespace

bool IsSoundJob(const PolicyProblem& problem, size_t job) {
  return CheckJob(problem, job).ok();
}

absl::Status CheckProblem(const PolicyProblem& problem) {
  if (problem.checked) return absl::OkStatus();
  GAVEL_RETURN_IF_ERROR(CheckSizes(problem));
  for (size_t j = 0; j < problem.types.size(); ++j) {
    GAVEL_RETURN_IF_ERROR(CheckType(problem, j));
  }
  for (const PolicyEntity& entity : problem.entities) {
    GAVEL_RETURN_IF_ERROR(CheckEntity(entity));
  }
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    GAVEL_RETURN_IF_ERROR(CheckJob(problem, m));
  }
  if (problem.kinds.empty() && problem.pairs.empty()) return absl::OkStatus();
  std::vector<size_t> first_of;
  GAVEL_RETURN_IF_ERROR(CheckKinds(problem, &first_of));
  for (size_t p = 0; p < problem.pairs.size(); ++p) {
    GAVEL_RETURN_IF_ERROR(CheckPair(problem, first_of, p));
  }
  return absl::OkStatus();
}

std::optional<size_t> FindPair(const PolicyProblem& problem, size_t job,
                               size_t other) {
  size_t first = problem.KindOf(job);
  size_t second = problem.KindOf(other);
  if (first > second) std::swap(first, second);
  const std::vector<PolicyPair>& pairs = problem.pairs;
  const auto found = std::lower_bound(
      pairs.begin(), pairs.end(), std::pair(first, second),
      [](const PolicyPair& pair, const std::pair<size_t, size_t>& key) {
        return std::pair(pair.first, pair.second) < key;
      });
  if (found == pairs.end() || found->first != first ||
      found->second != second) {
    return std::nullopt;
  }
  return static_cast<size_t>(found - pairs.begin());
}

}  // namespace gavel
