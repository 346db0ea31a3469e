#include "coordinator/engine/rounds/problems.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/engine/type_names.h"
#include "coordinator/policy/problem.h"

namespace gavel::engine {
namespace {

// Without the rows at these ascending indices.
template <class T>
void EraseRows(const std::vector<std::ptrdiff_t>& gone, std::ptrdiff_t width,
               std::vector<T>& rows) {
  if (gone.empty()) return;
  const auto begin = rows.begin();
  auto end = begin + gone.front() * width;  // of what stays
  for (size_t i = 0; i < gone.size(); ++i) {
    const auto next =
        i + 1 < gone.size() ? begin + gone[i + 1] * width : rows.end();
    end = std::move(begin + (gone[i] + 1) * width, next, end);
  }
  rows.erase(end, rows.end());
}

// Which jobs are equal is known, and what is known of jobs that have gone does
// not outgrow it.
bool KeepsRows(const PolicyProblem& problem) {
  constexpr size_t kRowsGoneMax = 1024;
  const size_t n = problem.jobs.size();
  return problem.rows.row_of.size() == n &&
         problem.rows.size() <= 2 * n + kRowsGoneMax;
}

// Kinds for pairs: jobs of one row of the table, and as fast alone where the
// row is a guess, are alike beside all others, but for those of which more is
// known. Each kind is named by its first job.
std::vector<size_t> KindsOf(const std::vector<const Job*>& jobs,
                            const std::set<JobId>& measured,
                            const PolicyProblem& problem) {
  std::map<std::pair<ThroughputTable::Row, std::vector<double>>, size_t>
      kind_of;
  std::vector<size_t> kinds;
  for (size_t m = 0; m < jobs.size(); ++m) {
    const Job& job = *jobs[m];
    size_t kind = m;
    if (job.table_row.has_value() && !job.spec.elastic() &&
        !job.spec.opaque() && job.spec.types.empty() &&
        !measured.contains(job.id)) {
      std::vector<double> alone;
      if (job.row_speed > 0) {
        const auto row = problem.throughputs.begin() +
                         static_cast<std::ptrdiff_t>(m * problem.columns());
        alone.assign(row, row + static_cast<std::ptrdiff_t>(problem.columns()));
      }
      kind = kind_of.try_emplace({*job.table_row, std::move(alone)}, m)
                 .first->second;
    }
    kinds.push_back(kind);
  }
  return kinds;
}

}  // namespace

bool Problems::KeepsProblem() const {
  return !options_.progress && !options_.packing &&
         !options_.placement_sensitive && !changes_.all(Changes::kProblem) &&
         !problem_guesses_ && problem_version_ == throughputs_.version();
}

void Problems::UpdateProblem(Time now) {
  // Whoever solves the last one may still have it.
  if (problem_.use_count() > 1)
    problem_ = std::make_shared<PolicyProblem>(*problem_);
  PolicyProblem& problem = *problem_;
  const auto columns = static_cast<std::ptrdiff_t>(problem.columns());
  if (!KeepsRows(problem)) problem.rows = JobRows(problem);
  std::vector<uint32_t>& row_of = problem.rows.row_of;
  std::vector<std::ptrdiff_t> gone;
  bool sound = problem.checked;
  std::vector<double> throughputs;
  for (const JobId id : changes_.Take(Changes::kProblem, jobs_)) {
    const auto row =
        std::ranges::lower_bound(problem.jobs, id, {}, &PolicyJob::id);
    const std::ptrdiff_t index = row - problem.jobs.begin();
    const bool known = row != problem.jobs.end() && row->id == id;
    const Job* job = jobs_.FindLive(id);
    if (job == nullptr || !job->active() || job->pinned()) {
      if (known) gone.push_back(index);
      continue;
    }
    const PolicyJob now_so = ProblemJob(*job, now);
    const bool resized = known && (row->scale_factor != now_so.scale_factor ||
                                   row->weight != now_so.weight);
    if (known) *row = now_so;
    // No figure of a job that was there has changed.
    if (known && !resized) {
      sound = sound && IsSoundJob(problem, static_cast<size_t>(index));
      continue;
    }
    throughputs.clear();
    AddThroughputs(now_so, problem, throughputs);
    const uint32_t number = problem.rows.Number(now_so, throughputs);
    const auto at = problem.throughputs.begin() + index * columns;
    if (known) {
      std::ranges::copy(throughputs, at);
      row_of[static_cast<size_t>(index)] = number;
    } else {
      // Nearly always the last one; else what has gone is further ahead.
      problem.jobs.insert(row, now_so);
      problem.throughputs.insert(at, throughputs.begin(), throughputs.end());
      row_of.insert(row_of.begin() + index, number);
    }
    sound = sound && IsSoundJob(problem, static_cast<size_t>(index));
  }
  EraseRows(gone, 1, problem.jobs);
  EraseRows(gone, columns, problem.throughputs);
  EraseRows(gone, 1, row_of);
  problem.checked = sound;
  if (!sound) problem.checked = CheckProblem(problem).ok();
}

void Problems::BuildProblem(Time now) {
  if (options_.user_shares) {
    for (Job* job : users_.Update(jobs_.live())) changes_.Touch(*job);
  }
  if (problem_ != nullptr && KeepsProblem()) return UpdateProblem(now);
  changes_.Take(Changes::kProblem, jobs_);
  problem_ = std::make_shared<PolicyProblem>();
  PolicyProblem& problem = *problem_;
  problem.types = cluster_.types();
  problem.capacity = cluster_.Capacity();
  for (const auto& [id, job] : jobs_.live()) {
    if (!job->active() || job->pinned()) continue;
    problem.jobs.push_back(ProblemJob(*job, now));
  }
  for (const PolicyEntity& entity : options_.entities) {
    problem.entities.push_back(entity);
  }
  if (!allocation_.prices().empty()) {
    std::map<std::string, double> prices(allocation_.prices().begin(),
                                         allocation_.prices().end());
    NameInFull(problem.types, &prices);
    for (const std::string& type : problem.types) {
      const auto price = prices.find(type);
      problem.cost.push_back(price == prices.end() ? 0 : price->second);
    }
  }
  if (options_.placement_sensitive) AddPlacement(problem);
  AddThroughputs(problem);
  if (options_.packing) AddPairs(problem);
  problem_version_ = throughputs_.version();
}

PolicyJob Problems::ProblemJob(const Job& job, Time now) const {
  PolicyJob row;
  row.id = job.id;
  row.scale_factor = job.scale_factor;
  row.weight = options_.user_shares ? users_.WeightOf(job) : job.spec.weight;
  row.arrival_s = job.submitted_at;
  if (options_.progress) {
    row.time_since_start_s = now - job.submitted_at;
    row.time_received_s = ledger_.SecondsReceived(job, now);
    row.isolated_s = isolated_.SumOf(job, now).seconds;
    row.steps_remaining =
        std::max(0.0, static_cast<double>(job.spec.steps_total) -
                          figures_.StepsDone(job, now));
    if (job.spec.deadline_s.has_value()) {
      // A round realises shares to within its length: who had just what its
      // deadline takes would end up to a round late.
      const double left_s = job.submitted_at + *job.spec.deadline_s - now;
      row.deadline_s = left_s - std::min(terms_.round_duration_s(),
                                         std::max(0.0, left_s / 2));
    }
  }
  for (size_t i = 0; i < options_.entities.size(); ++i) {
    if (options_.entities[i].name == job.spec.entity) {
      row.entity = static_cast<int>(i);
    }
  }
  if (!job.assigned.empty()) {
    row.running_on = cluster_.TypeOf(job.assigned.front());
    if (jobs_.Together(job, job.partner)) row.running_with = job.partner;
  }
  return row;
}

// Only where some gang is told to run differently when it is spread.
void Problems::AddPlacement(PolicyProblem& problem) const {
  bool matters = false;
  for (const PolicyJob& row : problem.jobs) {
    if (row.scale_factor == 1) continue;
    for (const auto& [type, steps_per_s] : jobs_.at(row.id).spec.throughputs) {
      matters |= type.ends_with(Figures::kUnconsolidated);
    }
  }
  if (!matters) return;
  problem.servers.resize(problem.types.size());
  for (const auto& [server, ids] : cluster_.servers()) {
    std::vector<int> count(problem.types.size(), 0);
    for (const AcceleratorId id : ids) {
      if (!cluster_.accelerator(id).usable()) continue;
      ++count[static_cast<size_t>(cluster_.TypeOf(id))];
    }
    for (size_t type = 0; type < count.size(); ++type) {
      if (count[type] > 0) problem.servers[type].push_back(count[type]);
    }
  }
}

void Problems::AddThroughputs(PolicyProblem& problem) {
  problem_guesses_ = false;
  for (const PolicyJob& row : problem.jobs) {
    AddThroughputs(row, problem, problem.throughputs);
  }
}

void Problems::AddThroughputs(const PolicyJob& row, PolicyProblem& problem,
                              std::vector<double>& out) {
  const Job& job = jobs_.at(row.id);
  for (size_t type = 0; type < problem.types.size(); ++type) {
    const Throughput known =
        throughputs_.AtSize(row.id, problem.types[type], row.scale_factor);
    problem_guesses_ |= known.source == ThroughputSource::kGuessed;
    out.push_back(figures_.IsKeptOut(job, type) ? 0 : known.steps_per_s);
  }
  if (!problem.placement_sensitive()) return;
  for (size_t type = 0; type < problem.types.size(); ++type) {
    const std::string name =
        figures_.FigureName(row.id, problem.types[type], /*spread=*/true);
    const double steps_per_s =
        throughputs_.AtSize(row.id, name, row.scale_factor).steps_per_s;
    out.push_back(figures_.IsKeptOut(job, type) ? 0 : steps_per_s);
  }
}

// All pairs of kinds of equal scale factor that are known to go together. Of
// those that are to be tried the best is hoped: that neither slows the other
// down. So the policy makes them, and knows better from then on.
void Problems::AddPairs(PolicyProblem& problem) const {
  const ThroughputTable* table = options_.throughputs.get();
  const bool in_table = table != nullptr && table->has_pairs();
  const std::map<ShareUnit, size_t> to_try = trials_.PairsToTry(problem);
  if (!in_table && !throughputs_.has_pairs() && to_try.empty()) return;
  std::vector<const Job*> jobs;
  for (const PolicyJob& row : problem.jobs) jobs.push_back(&jobs_.at(row.id));
  std::set<JobId> unlike = throughputs_.UnlikeTheirKind();
  for (const auto& [unit, type] : to_try) {
    unlike.insert({unit.job, unit.partner});
  }
  problem.kinds = KindsOf(jobs, unlike, problem);
  std::vector<std::optional<size_t>> type_of;
  for (const std::string& type : problem.types) {
    type_of.push_back(in_table ? FindColumn(*table, type, problem.types)
                               : std::nullopt);
  }
  std::vector<int> members(problem.jobs.size(), 0);
  for (const size_t kind : problem.kinds) ++members[kind];
  const size_t columns = problem.columns();
  std::vector<double> row(2 * columns);
  for (size_t a = 0; a < problem.jobs.size(); ++a) {
    const Job& first = *jobs[a];
    if (members[a] == 0) continue;
    if (!first.table_row.has_value() && !throughputs_.has_pairs() &&
        to_try.empty()) {
      continue;
    }
    for (size_t b = members[a] > 1 ? a : a + 1; b < problem.jobs.size(); ++b) {
      if (members[b] == 0 ||
          problem.jobs[b].scale_factor != problem.jobs[a].scale_factor) {
        continue;
      }
      const Job& second = *jobs[b];
      // One that is packed does not grow, so an elastic one is not packed.
      if (first.spec.elastic() || second.spec.elastic()) continue;
      if (first.spec.opaque() || second.spec.opaque()) continue;
      bool any = false;
      for (size_t c = 0; c < columns; ++c) {
        const size_t type = problem.TypeOfColumn(c);
        std::tie(row[2 * c], row[2 * c + 1]) =
            figures_
                .PairThroughput(first, second, type, type_of[type],
                                /*consolidated=*/c < problem.types.size())
                .value_or(std::pair(0.0, 0.0));
        // Which of two equal jobs a table means nobody can tell.
        if (a == b)
          row[2 * c] = row[2 * c + 1] = (row[2 * c] + row[2 * c + 1]) / 2;
        any |= row[2 * c] > 0 && row[2 * c + 1] > 0;
      }
      if (const auto found = to_try.find({first.id, second.id});
          found != to_try.end()) {
        const size_t type = found->second;
        row[2 * type] = problem.throughputs[a * columns + type];
        row[2 * type + 1] = problem.throughputs[b * columns + type];
        any = true;
      }
      if (!any) continue;
      problem.pairs.push_back({a, b});
      problem.pair_throughputs.insert(problem.pair_throughputs.end(),
                                      row.begin(), row.end());
    }
  }
}

}  // namespace gavel::engine
