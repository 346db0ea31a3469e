#include "coordinator/policy/policy.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {

class Allocation::Form {
 public:
  Form(std::vector<ShareUnit> u, std::vector<uint32_t> of, size_t c,
       std::vector<double> s)
      : units(std::move(u)),
        class_of(std::move(of)),
        columns(c),
        shares(std::move(s)) {
    assert(std::is_sorted(units.begin(), units.end()));
    assert(class_of.empty() || class_of.size() == units.size());
    for (size_t i = 0; i < units.size(); ++i) {
      if (units[i].packed()) by_partner.emplace_back(units[i].partner, i);
    }
    std::sort(by_partner.begin(), by_partner.end());
  }

  // Calls `visit` with the position of each unit that holds `job`.
  template <class Visit>
  void ForEach(JobId job, Visit visit) const {
    auto unit =
        std::lower_bound(units.begin(), units.end(), ShareUnit{job, JobId()});
    for (; unit != units.end() && unit->job == job; ++unit) {
      visit(static_cast<size_t>(unit - units.begin()));
    }
    auto pair = std::lower_bound(by_partner.begin(), by_partner.end(),
                                 std::pair(job, size_t{0}));
    for (; pair != by_partner.end() && pair->first == job; ++pair) {
      visit(pair->second);
    }
  }

  std::span<const double> RowAt(size_t i) const {
    const size_t row = class_of.empty() ? i : class_of[i];
    return {shares.data() + row * columns, columns};
  }

  std::vector<ShareUnit> units;    // ascending
  std::vector<uint32_t> class_of;  // [units]; empty: each has its own row
  size_t columns = 0;
  std::vector<double> shares;  // [rows x columns] row-major
  // (partner, position) of the packed ones, ascending.
  std::vector<std::pair<JobId, size_t>> by_partner;
};

Allocation Allocation::FromRows(std::vector<ShareUnit> units, size_t columns,
                                std::vector<double> shares) {
  shares.resize(units.size() * columns, 0.0);
  return FromClasses(std::move(units), {}, columns, std::move(shares));
}

Allocation Allocation::FromClasses(std::vector<ShareUnit> units,
                                   std::vector<uint32_t> class_of,
                                   size_t columns, std::vector<double> shares) {
  Allocation allocation;
  allocation.form_ = std::make_shared<const Form>(
      std::move(units), std::move(class_of), columns, std::move(shares));
  return allocation;
}

size_t Allocation::columns() const {
  return form_ == nullptr ? 0 : form_->columns;
}

std::span<const ShareUnit> Allocation::units() const {
  if (form_ == nullptr) return {};
  return form_->units;
}

std::optional<size_t> Allocation::Find(const ShareUnit& unit) const {
  const std::span<const ShareUnit> all = units();
  const auto found = std::lower_bound(all.begin(), all.end(), unit);
  if (found == all.end() || *found != unit) return std::nullopt;
  return static_cast<size_t>(found - all.begin());
}

std::span<const double> Allocation::RowAt(size_t position) const {
  return form_->RowAt(position);
}

bool Allocation::Contains(JobId job) const {
  bool found = false;
  if (form_ != nullptr) form_->ForEach(job, [&](size_t) { found = true; });
  return found;
}

std::vector<double> Allocation::Row(const ShareUnit& unit) const {
  const std::optional<size_t> position = Find(unit);
  if (!position.has_value()) return std::vector<double>(columns(), 0.0);
  const std::span<const double> row = RowAt(*position);
  return {row.begin(), row.end()};
}

std::vector<double> Allocation::Row(JobId job) const {
  std::vector<double> row(columns(), 0.0);
  if (form_ == nullptr) return row;
  form_->ForEach(job, [&](size_t i) {
    const std::span<const double> from = form_->RowAt(i);
    for (size_t c = 0; c < row.size(); ++c) row[c] += from[c];
  });
  return row;
}

std::string_view OutcomeName(SolveOutcome outcome) {
  constexpr std::array<std::string_view, 4> kNames = {
      "optimal", "iteration_limit", "infeasible", "failed"};
  const auto index = static_cast<size_t>(outcome);
  return index < kNames.size() ? kNames[index] : "unknown";
}

JobRows::JobRows(const PolicyProblem& problem, size_t rows_max) {
  row_of.reserve(problem.jobs.size());
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    row_of.push_back(Number(problem.jobs[m], problem.Row(m)));
    if (size() <= rows_max) continue;
    row_of.clear();
    return;
  }
}

uint32_t JobRows::Number(const PolicyJob& job,
                         std::span<const double> throughputs) {
  const size_t width = 2 + throughputs.size();
  const uint64_t hash = AddToHash(
      AddToHash(AddToHash(0, job.scale_factor), job.weight), throughputs);
  const size_t before = table_.size();
  const uint32_t number = table_.Number(hash, [&](uint32_t other) {
    const double* row = values_.data() + other * width;
    return row[0] == job.scale_factor && row[1] == job.weight &&
           std::equal(throughputs.begin(), throughputs.end(), row + 2);
  });
  if (table_.size() > before) {
    values_.push_back(job.scale_factor);
    values_.push_back(job.weight);
    values_.insert(values_.end(), throughputs.begin(), throughputs.end());
  }
  return number;
}

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
  if (!problem.level_throughputs.empty() &&
      problem.level_throughputs.size() !=
          problem.jobs.size() * types * kLocalities) {
    return Refuse("problem: ", problem.level_throughputs.size(),
                  " throughputs by level for ", problem.jobs.size(), " jobs x ",
                  types, " types x ", kLocalities,
                  " levels; give one for each, or none");
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
    return refuse("cost ", problem.cost[j],
                  "; give a finite number, 0 or more");
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
                "; give a finite number above 0");
}

bool IsAverage(double apps) { return std::isfinite(apps) && apps >= 1; }

bool IsFactor(double factor) { return std::isfinite(factor) && factor > 0; }

absl::Status CheckApp(const PolicyProblem& problem, size_t a) {
  const PolicyApp& app = problem.apps[a];
  if (!IsAverage(app.apps_average)) {
    return Refuse("app ", a, ": an average of ", app.apps_average,
                  " apps; give 1 or more");
  }
  if (!IsFactor(app.rho_factor)) {
    return Refuse("app ", a, ": rho times ", app.rho_factor,
                  "; give a finite factor above 0");
  }
  for (const double value :
       {app.age_s, app.ended_longest_s, app.ended_area_s}) {
    if (FiniteFromZero(value)) continue;
    return Refuse("app ", a, ": a time of ", value,
                  "; give a finite number, 0 or more");
  }
  const AppGoal goal = app.goal.value_or(AppGoal());
  for (const double steps : {goal.steps_to_come, goal.longest_to_come,
                             goal.steps_total, goal.longest_total}) {
    if (FiniteFromZero(steps)) continue;
    return Refuse("app ", a, ": ", steps,
                  " steps; give a finite number, 0 or more");
  }
  return absl::OkStatus();
}

absl::Status CheckHosts(const PolicyProblem& problem) {
  for (const PolicyHost& host : problem.hosts) {
    if (host.id.valid() && host.type < problem.types.size() &&
        host.capacity >= 1 && host.group >= 0 && host.group <= host.capacity) {
      continue;
    }
    return Refuse("host ", host.id.value(), ": ", host.capacity,
                  " accelerators of type ", host.type, " of ",
                  problem.types.size(), "; give 1 or more of a type");
  }
  size_t last = 0;
  for (const PolicyPlace& place : problem.places) {
    if (place.job < problem.jobs.size() && place.job >= last &&
        place.host < problem.hosts.size() && place.count >= 1) {
      last = place.job;
      continue;
    }
    return Refuse("a place of job ", place.job, " with ", place.count,
                  " accelerators on host ", place.host, " of ",
                  problem.hosts.size(),
                  "; give indices, ascending by job, and 1 or more");
  }
  return absl::OkStatus();
}

absl::Status CheckLosses(const PolicyProblem& problem) {
  const size_t n = problem.jobs.size();
  for (size_t i = 0; i < problem.losses.size(); ++i) {
    const PolicyLoss& loss = problem.losses[i];
    const bool follows = i == 0 || std::pair(problem.losses[i - 1].job,
                                             problem.losses[i - 1].steps) <
                                       std::pair(loss.job, loss.steps);
    if (loss.job < n && follows && FiniteFromZero(loss.steps) &&
        std::isfinite(loss.loss)) {
      continue;
    }
    if (loss.job < n && !std::isfinite(loss.loss)) {
      return Refuse("job ", problem.jobs[loss.job].id.value(), ": a loss of ",
                    loss.loss, " at step ", loss.steps,
                    "; leave out losses that are NaN or infinite");
    }
    return Refuse("a loss of ", loss.loss, " at step ", loss.steps,
                  " of the job at ", loss.job, " of ", n,
                  "; give the losses of jobs that are there, ascending by job "
                  "and step");
  }
  return absl::OkStatus();
}

absl::Status CheckSizesOfJobs(const PolicyProblem& problem) {
  const size_t n = problem.jobs.size();
  for (size_t i = 0; i < problem.sizes.size(); ++i) {
    const PolicySizes& sizes = problem.sizes[i];
    const bool follows = i == 0 || problem.sizes[i - 1].job < sizes.job;
    if (sizes.job < n && follows && sizes.least >= 1 &&
        !problem.types.empty() && !sizes.steps_per_s.empty() &&
        sizes.steps_per_s.size() % problem.types.size() == 0 &&
        std::ranges::all_of(sizes.steps_per_s, FiniteFromZero)) {
      continue;
    }
    return Refuse("sizes of the job at ", sizes.job, " of ", n, " from ",
                  sizes.least, " workers with ", sizes.steps_per_s.size(),
                  " throughputs; give finite numbers for each type and size, "
                  "ascending by job");
  }
  return absl::OkStatus();
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
                {"steps done", job.steps_done},
                {"time since start", job.time_since_start_s},
                {"time received", job.time_received_s},
                {"isolated time", job.isolated_s}};
  for (const auto& field : fields) {
    if (FiniteFromZero(field.value)) continue;
    return Refuse("job ", job.id.value(), ": ", field.name, " ", field.value,
                  "; give a finite number, 0 or more");
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
    return refuse("weight ", job.weight, "; give a finite number above 0");
  }
  const auto entities = static_cast<int64_t>(problem.entities.size());
  if (job.entity < -1 || job.entity >= entities) {
    return refuse("entity ", job.entity, " of ", entities,
                  "; give an index, -1 for none");
  }
  const auto apps = static_cast<int64_t>(problem.apps.size());
  if (job.app < -1 || job.app >= apps) {
    return refuse("app ", job.app, " of ", apps,
                  "; give an index, -1 for an app of its own");
  }
  if (!IsAverage(job.apps_average)) {
    return refuse("an average of ", job.apps_average, " apps; give 1 or more");
  }
  if (!IsFactor(job.rho_factor)) {
    return refuse("rho times ", job.rho_factor,
                  "; give a finite factor above 0");
  }
  const std::span<const double> row = problem.Row(m);
  for (size_t c = 0; c < row.size(); ++c) {
    if (FiniteFromZero(row[c])) continue;
    return refuse("throughput ", row[c], " on ", ColumnName(problem, c),
                  "; give steps/s, 0 when it cannot run there");
  }
  for (size_t i = 0; !problem.level_throughputs.empty() &&
                     i < problem.types.size() * kLocalities;
       ++i) {
    const size_t type = i / kLocalities;
    const Locality level = kAllLocalities[i % kLocalities];
    const double steps_per_s = problem.ThroughputAt(m, type, level);
    if (FiniteFromZero(steps_per_s)) continue;
    return refuse("throughput ", steps_per_s, " on ", problem.types[type],
                  " in a ", LocalityName(level),
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
  for (size_t a = 0; a < problem.apps.size(); ++a) {
    GAVEL_RETURN_IF_ERROR(CheckApp(problem, a));
  }
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    GAVEL_RETURN_IF_ERROR(CheckJob(problem, m));
  }
  GAVEL_RETURN_IF_ERROR(CheckHosts(problem));
  GAVEL_RETURN_IF_ERROR(CheckLosses(problem));
  GAVEL_RETURN_IF_ERROR(CheckSizesOfJobs(problem));
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

namespace gavel::policy {
namespace {

constexpr double kFigureMin = 1e-15;
constexpr double kFigureMax = 1e15;
// Jobs that are left out double with each try.
constexpr int kTriesMax = 6;

PolicyResult Failed(std::string detail) {
  PolicyResult result;
  result.outcome = SolveOutcome::kFailed;
  result.detail = std::move(detail);
  return result;
}

// The one wrapper around a solver's exceptions.
PolicyResult Ask(const Policy& policy, const PolicyProblem& problem) {
  try {
    absl::StatusOr<PolicyResult> result = policy.Solve(problem);
    if (result.ok()) return *std::move(result);
    return Failed(result.status().ToString());
  } catch (const std::exception& error) {
    return Failed(StrCat("the solver threw: ", error.what()));
  }
}

// By job: by how many powers of ten a figure of it is off the median's. Figures
// are all that makes a program's coefficients differ; 0: not known, no figure.
std::vector<double> Extremes(const PolicyProblem& problem) {
  const size_t n = problem.jobs.size();
  const auto figure = [&](size_t f, size_t m) {
    const PolicyJob& job = problem.jobs[m];
    if (f >= 3) return problem.Row(m)[f - 3];
    return f == 0 ? job.weight : f == 1 ? job.steps_remaining : job.isolated_s;
  };
  std::vector<double> extremes(n, 0);
  for (size_t f = 0; f < 3 + problem.columns(); ++f) {
    std::vector<double> known;
    for (size_t m = 0; m < n; ++m) {
      const double value = figure(f, m);
      if (value > 0 && std::isfinite(value)) known.push_back(std::log10(value));
    }
    if (known.empty()) continue;
    const auto middle =
        known.begin() + static_cast<std::ptrdiff_t>(known.size() / 2);
    std::nth_element(known.begin(), middle, known.end());
    for (size_t m = 0; m < n; ++m) {
      if (!(figure(f, m) > 0)) continue;
      extremes[m] =
          std::max(extremes[m], std::abs(std::log10(figure(f, m)) - *middle));
    }
  }
  return extremes;
}

bool IsTractable(const PolicyProblem& problem, size_t m) {
  const auto tractable = [](double value) {
    return value == 0 || (value >= kFigureMin && value <= kFigureMax);
  };
  return problem.jobs[m].weight > 0 && tractable(problem.jobs[m].weight) &&
         std::ranges::all_of(problem.Row(m), tractable);
}

// The rows of jobs that stay, with the indices that these jobs have now.
template <class Row>
std::vector<Row> RowsOf(const std::vector<size_t>& index_of, size_t none,
                        std::vector<Row> rows) {
  std::erase_if(rows,
                [&](const Row& row) { return index_of[row.job] == none; });
  for (Row& row : rows) row.job = index_of[row.job];
  return rows;
}

// Ascending by id without `out`. Kinds are numbered anew.
PolicyProblem Without(const PolicyProblem& problem,
                      const std::vector<bool>& out) {
  const size_t n = problem.jobs.size();
  const size_t columns = problem.columns();
  PolicyProblem kept = problem;
  kept.jobs.clear();
  kept.throughputs.clear();
  kept.level_throughputs.clear();
  kept.kinds.clear();
  kept.pairs.clear();
  kept.pair_throughputs.clear();
  kept.places.clear();
  kept.checked = false;
  kept.rows = JobRows();
  constexpr size_t kNone = static_cast<size_t>(-1);
  std::vector<size_t> kind_of(n, kNone);  // as they are numbered now
  for (size_t m = 0; m < n; ++m) {
    if (!out[m]) kind_of[problem.KindOf(m)] = 0;
  }
  size_t kinds = 0;
  for (size_t& kind : kind_of) {
    if (kind != kNone) kind = kinds++;
  }
  std::vector<size_t> index_of(n, kNone);
  for (size_t m = 0; m < n; ++m) {
    if (out[m]) continue;
    index_of[m] = kept.jobs.size();
    kept.jobs.push_back(problem.jobs[m]);
    const auto row = problem.Row(m);
    kept.throughputs.insert(kept.throughputs.end(), row.begin(), row.end());
    if (!problem.level_throughputs.empty()) {
      const auto width =
          static_cast<std::ptrdiff_t>(problem.types.size() * kLocalities);
      const auto at = problem.level_throughputs.begin() +
                      static_cast<std::ptrdiff_t>(m) * width;
      kept.level_throughputs.insert(kept.level_throughputs.end(), at,
                                    at + width);
    }
    if (!problem.kinds.empty()) {
      kept.kinds.push_back(kind_of[problem.KindOf(m)]);
    }
  }
  kept.places = RowsOf(index_of, kNone, problem.places);
  kept.losses = RowsOf(index_of, kNone, problem.losses);
  kept.sizes = RowsOf(index_of, kNone, problem.sizes);
  for (size_t p = 0; p < problem.pairs.size(); ++p) {
    const PolicyPair pair{kind_of[problem.pairs[p].first],
                          kind_of[problem.pairs[p].second]};
    if (pair.first == kNone || pair.second == kNone) continue;
    kept.pairs.push_back(pair);
    const auto row = problem.pair_throughputs.begin() +
                     static_cast<std::ptrdiff_t>(p * columns * 2);
    kept.pair_throughputs.insert(
        kept.pair_throughputs.end(), row,
        row + static_cast<std::ptrdiff_t>(columns * 2));
  }
  return kept;
}

PolicyResult AskWithout(const Policy& policy, const PolicyProblem& problem,
                        const std::vector<bool>& out) {
  PolicyResult result = Ask(policy, Without(problem, out));
  for (size_t m = 0; m < out.size(); ++m) {
    if (out[m]) result.too_extreme.push_back(problem.jobs[m].id);
  }
  return result;
}

}  // namespace

PolicyResult GuardedSolve(const Policy& policy, const PolicyProblem& problem) {
  const size_t n = problem.jobs.size();
  if (problem.throughputs.size() != n * problem.columns()) {
    return Ask(policy, problem);  // it is malformed, and says so
  }
  std::vector<bool> out(n);
  for (size_t m = 0; m < n; ++m) out[m] = !IsTractable(problem, m);
  const auto gone = static_cast<size_t>(std::ranges::count(out, true));
  PolicyResult result =
      gone == 0 ? Ask(policy, problem) : AskWithout(policy, problem, out);
  if (result.outcome != SolveOutcome::kFailed) return result;
  const std::vector<double> extremes = Extremes(problem);
  std::vector<size_t> order;
  for (size_t m = 0; m < n; ++m) {
    if (!out[m]) order.push_back(m);
  }
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](size_t m) { return extremes[m]; });
  size_t next = 0;
  for (size_t more = 1, tries = 0;
       tries < kTriesMax && next + more < order.size(); more *= 2, ++tries) {
    for (size_t i = 0; i < more; ++i) out[order[next++]] = true;
    PolicyResult without = AskWithout(policy, problem, out);
    if (without.outcome != SolveOutcome::kFailed) return without;
  }
  return result;
}

std::string CheckBound(Sense sense, double value, double scale, double* bound) {
  const double beyond =
      sense == Sense::kMaximum ? value - *bound : *bound - value;
  if (beyond <= 0) return "";
  if (beyond <= kBoundRounding * scale) {
    *bound = value;
    return "";
  }
  return absl::StrFormat("the bound %.12g is refused: %.12g was achieved",
                         *bound, value);
}

bool Certify(Sense sense, PolicyResult* result) {
  std::string error = CheckBound(sense, result->objective, &result->bound);
  const double distance = std::abs(result->bound - result->objective);
  const double size = std::abs(result->bound);
  result->gap = distance / std::max(1.0, size);
  const bool optimal = result->outcome == SolveOutcome::kOptimal;
  if (error.empty() && optimal &&
      distance > kOptimalGapMax * std::max(size, std::abs(result->objective))) {
    error = absl::StrFormat("the bound %.12g is not met: %.12g was achieved",
                            result->bound, result->objective);
  }
  if (error.empty()) return true;
  StrAppend(&result->detail, result->detail.empty() ? "" : "; ", error);
  if (optimal) result->outcome = SolveOutcome::kIterationLimit;
  return false;
}

PolicyResult Certified(Sense sense, const SolveReport& report,
                       PolicyResult result) {
  static_cast<SolveReport&>(result) = report;
  Certify(sense, &result);
  return result;
}

}  // namespace gavel::policy
