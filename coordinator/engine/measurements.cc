#include "coordinator/engine/measurements.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/operators.h"
#include "coordinator/engine/state.h"
#include "coordinator/engine/type_names.h"
#include "core/text.h"

namespace gavel::engine {

// ---- trials

bool TrialBook::IsPairTrial(const Job& a, const Job& b, size_t type) const {
  const std::string& name = cluster_.types()[type];
  for (const Job* job : {&a, &b}) {
    if (job->pair_trials >= kPairTrialsMax ||
        throughputs_.NeedsTrial(job->id, name) ||
        !(throughputs_.Get(job->id, name).steps_per_s > 0)) {
      return false;
    }
  }
  const ShareUnit unit = PairOf(a.id, b.id);
  if (a.spec.elastic() || b.spec.elastic() || a.spec.opaque() ||
      b.spec.opaque() || a.spec.scale_factor != b.spec.scale_factor ||
      tried_pairs_.contains({unit, type}) ||
      !allocation_.Allocated(unit).empty() || jobs_.UnitOf(a) == unit) {
    return false;
  }
  const ThroughputTable* table = options_.throughputs.get();
  const std::optional<size_t> table_type =
      table == nullptr ? std::nullopt
                       : FindColumn(*table, name, cluster_.types());
  return !figures_.PairThroughput(a, b, type, table_type, true).has_value() &&
         figures_.PairFits(a, b, type);
}

std::map<ShareUnit, size_t> TrialBook::PairsToTry(
    const PolicyProblem& problem) const {
  std::map<ShareUnit, size_t> pairs;
  if (!allocation_.result().is_assignment || !options_.pair_trials)
    return pairs;
  std::vector<int> budget = TrialBudgets(options_.profiling_percentage / 2);
  std::vector<const Job*> alone;
  for (const PolicyJob& row : problem.jobs) {
    if (row.running_on < 0 || row.running_with.valid()) continue;
    alone.push_back(&jobs_.at(row.id));
  }
  for (const auto& [id, waits] : jobs_.waiting()) {
    if (std::ranges::all_of(budget, [](int left) { return left == 0; })) break;
    if (!candidates_.MayRun(*waits) || waits->pair_trials >= kPairTrialsMax)
      continue;
    for (const Job*& runs : alone) {
      if (runs == nullptr || !candidates_.MayRun(*runs)) continue;
      const auto type =
          static_cast<size_t>(cluster_.TypeOf(runs->assigned.front()));
      const int needed = runs->scale_factor;
      if (budget[type] < needed || !IsPairTrial(*waits, *runs, type)) continue;
      budget[type] -= needed;
      pairs.emplace(PairOf(id, runs->id), type);
      runs = nullptr;
      break;
    }
  }
  return pairs;
}

std::vector<int> TrialBook::TrialBudgets(double percentage) const {
  std::vector<int> budgets = cluster_.Capacity();
  for (int& budget : budgets) {
    budget = static_cast<int>(std::ceil(budget * percentage / 100));
  }
  return budgets;
}

std::vector<int> TrialBook::AddTrials(RoundTable& units) const {
  std::vector<int> trials = TrialBudgets(options_.profiling_percentage);
  for (size_t u = 0; u < units.size(); ++u) {
    const ShareUnit& unit = units.unit(u);
    if (unit.packed() || !jobs_.live().at(unit.job)->guessed) continue;
    // It is not tried elsewhere.
    const bool is_kept = std::ranges::any_of(
        units.deficit_s(u),
        [](double deficit_s) { return deficit_s >= kStartDebt_s; });
    for (size_t type = 0; type < trials.size(); ++type) {
      if (is_kept && units.deficit_s(u)[type] < kStartDebt_s) continue;
      if (trials[type] < units.scale_factor(u) || !units.usable(u, type) ||
          tried_.contains({unit.job, type}) ||
          !throughputs_.NeedsTrial(unit.job, cluster_.types()[type])) {
        continue;
      }
      trials[type] -= units.scale_factor(u);
      units.share(u)[type] = 1;
      units.received_s(u)[type] = 0;
      units.deficit_s(u)[type] = kTrialDebt_s;
      std::ranges::fill(units.worth(u), 0.0);  // it stays there
    }
  }
  return trials;
}

std::vector<ShareUnit> TrialBook::TrialsOf(
    const RoundTable& units, const RoundAssignment& places) const {
  std::set<std::pair<ShareUnit, size_t>> offered;
  for (size_t u = 0; u < units.size(); ++u) {
    for (size_t type = 0; type < units.types(); ++type) {
      if (units.deficit_s(u)[type] >= kTrialDebt_s) {
        offered.emplace(units.unit(u), type);
      }
    }
  }
  std::vector<ShareUnit> trials;
  if (offered.empty()) return trials;
  for (const auto& [unit, accelerators] : places) {
    const auto type =
        static_cast<size_t>(cluster_.TypeOf(accelerators.front()));
    if (offered.contains({unit, type})) trials.push_back(unit);
  }
  std::ranges::sort(trials);
  return trials;
}

bool TrialBook::IsTried(JobId job) const {
  const ShareUnit unit{job, JobId()};
  return std::ranges::binary_search(trials_, unit) ||
         std::ranges::binary_search(planned_trials_, unit);
}

void TrialBook::StartTrials(Time now) {
  for (const ShareUnit& unit : trials_) {
    Job* job = jobs_.FindLive(unit.job);
    if (job == nullptr) continue;
    if (!unit.packed() && !job->assigned.empty()) {
      const uint32_t type = cluster_.TypeOf(job->assigned.front());
      if (type < cluster_.types().size()) tried_.emplace(job->id, type);
    }
    for (Worker& worker : job->workers) CountTrial(now, worker);
  }
  trials_ = std::move(planned_trials_);
  planned_trials_.clear();
}

void TrialBook::NoteTried(Job& job, Worker& worker) {
  const auto type = static_cast<size_t>(cluster_.TypeOf(worker.held));
  if (throughputs_.NeedsTrial(job.id, cluster_.types()[type])) {
    tried_.emplace(job.id, type);
  }
  const ShareUnit unit = jobs_.UnitOf(job);
  worker.profiles = unit.job == job.id &&
                    std::binary_search(trials_.begin(), trials_.end(), unit);
  const bool tries = options_.pair_trials || options_.introspection;
  if (!tries || !unit.packed()) return;
  if (tried_pairs_.contains({unit, type})) return;
  Job& partner = jobs_.at(job.partner);
  if (partner.HoldsAny()) {
    tried_pairs_.emplace(unit, type);
  } else if (&worker == &job.workers.front()) {
    // Should the other one not come in this round, nothing is learnt, and they
    // may try again: but each such turn counts.
    ++job.pair_trials;
    ++partner.pair_trials;
  }
}

void TrialBook::CountTrial(Time now, Worker& worker) {
  if (!worker.profiles) return;
  worker.profiles = false;
  profiling_s_ +=
      std::clamp(now - worker.leased_at, 0.0, terms_.round_duration_s());
}

TrialCost TrialBook::ProfilingAt(Time now) const {
  TrialCost told{0, profiling_s_};
  for (const auto& [id, job] : jobs_.live()) {
    for (const Worker& worker : job->workers) {
      if (worker.held_epoch == 0 || !worker.profiles) continue;
      const double held_s = std::max(0.0, now - worker.leased_at);
      told.accelerators += held_s < terms_.round_duration_s() ? 1 : 0;
      told.accelerator_s += std::min(held_s, terms_.round_duration_s());
    }
  }
  return told;
}

void TrialBook::ForgetJob(JobId job) {
  tried_.erase(tried_.lower_bound({job, 0}),
               tried_.lower_bound({JobId(job.value() + 1), 0}));
  std::erase_if(tried_pairs_,
                [&](const auto& entry) { return entry.first.Holds(job); });
}

// ---- figures from files and reports

namespace {

// When both ran together from, under their present leases.
Time TogetherSince(const Job& job, const Job& other) {
  Time since = 0;
  for (const Job* one : {&job, &other}) {
    for (const Worker& worker : one->workers) {
      if (worker.held_epoch != one->epoch) return kNever;
      since = std::max(since, worker.leased_at);
    }
  }
  return since;
}

}  // namespace

static bool WasBeside(const State& s, Time now, const Job& job,
                      double window_s);
static void MeasurePair(State& s, Time now, Job& job, const Progress& progress);
static std::vector<ProfiledCell> CellsOf(const State& s, const Job& job);
static void MeasureAlone(State& s, Time now, Job& job,
                         const Progress& progress);

void FillThroughputs(const State& s, JobSpec& spec) {
  NameInFull(s.cluster.types(), &spec.throughputs);
  const ThroughputTable* table = s.options.throughputs.get();
  if (table == nullptr) return;
  const std::optional<ThroughputTable::Row> row =
      table->FindRow(spec.Workload(), spec.scale_factor);
  if (!row.has_value()) return;
  for (const std::string& type : s.cluster.types()) {
    const std::optional<size_t> known =
        FindColumn(*table, type, s.cluster.types());
    if (!known.has_value()) continue;
    if (const std::optional<double> alone = table->Alone(*row, *known)) {
      spec.throughputs.try_emplace(type, *alone);
    }
    if (!s.options.placement_sensitive) continue;
    for (const Locality level : kAllLocalities) {
      if (const auto there = table->Alone(*row, *known, level)) {
        spec.throughputs.try_emplace(TypeNameAt(type, level), *there);
      }
    }
  }
}

void Measure(State& s, Time now, Job& job, const Progress& progress) {
  // Beside another job it says nothing of how fast it is alone.
  if (WasBeside(s, now, job, progress.window_s)) {
    return MeasurePair(s, now, job, progress);
  }
  MeasureAlone(s, now, job, progress);
}

void FindTableRows(State& s) {
  s.references.reset();
  if (s.options.reference_models > 0 && s.options.throughputs != nullptr) {
    s.references.emplace(s.options.throughputs, s.options.reference_models);
  }
  for (auto& [id, job] : s.jobs.all()) {
    if (!job.unqueued) FindTableRow(s, job);
  }
}

void BarTypes(State& s, const Job& job) {
  std::set<std::string, std::less<>> barred;
  const std::vector<std::string>& wanted = job.spec.types;
  for (const std::string& type : s.cluster.types()) {
    if (wanted.empty()) break;
    const std::vector<std::string> names = NamesOfType(type, s.cluster.types());
    const bool is_wanted =
        std::ranges::any_of(names, [&](const std::string& name) {
          return std::ranges::find(wanted, name) != wanted.end();
        });
    if (!is_wanted) barred.insert(type);
  }
  s.throughputs.SetBarred(job.id, std::move(barred));
}

void LearnTypes(State& s, Job& job) {
  BarTypes(s, job);
  NameInFull(s.cluster.types(), &job.spec.throughputs);
  s.throughputs.AddGiven(job.id, job.spec.throughputs);
}

void BarServers(State& s, const Job& job) {
  const std::vector<std::string>& wanted = job.spec.servers;
  const std::vector<std::string>& excluded = job.spec.exclude_servers;
  std::set<AcceleratorId> barred;
  if (wanted.empty() && excluded.empty()) return;
  for (const auto& [server, accelerators] : s.cluster.servers()) {
    const bool may =
        (wanted.empty() || std::ranges::find(wanted, server) != wanted.end()) &&
        std::ranges::find(excluded, server) == excluded.end();
    if (!may) barred.insert(accelerators.begin(), accelerators.end());
  }
  s.avoidance.SetBarred(job.id, std::move(barred));
}

// Whether another job shared its accelerators at some time in the last
// window_s.
bool WasBeside(const State& s, Time now, const Job& job, double window_s) {
  if (!job.partner.valid()) return false;
  const Job* other = s.jobs.Find(job.partner);
  if (other == nullptr) return false;
  return other->live || now - other->ended_at < window_s;
}

// Takes the throughput that `job` reports as the pair's, provided that the
// partner ran beside it all the time.
void MeasurePair(State& s, Time now, Job& job, const Progress& progress) {
  if (!s.jobs.Together(job, job.partner)) return;
  const Time since = TogetherSince(job, s.jobs.at(job.partner));
  if (!(now - since >= progress.window_s)) return;
  const Job& partner = s.jobs.at(job.partner);
  const AcceleratorId where = job.workers.front().held;
  const std::string& type = s.cluster.accelerator(where).info.type;
  // Only the first time: then it is known, and blended with that.
  std::optional<std::pair<double, double>> told;
  if (s.options.throughputs != nullptr &&
      !s.throughputs.Together(job.id, partner.id, type).has_value()) {
    told = s.figures.TablePair(
        job, partner, static_cast<size_t>(s.cluster.TypeIndex(type)),
        FindColumn(*s.options.throughputs, type, s.cluster.types()),
        /*consolidated=*/true);
  }
  const bool moved = s.throughputs.MeasureTogether(
      job.id, job.partner, type, progress.throughput_steps_per_s,
      progress.window_s, told.has_value() ? told->first : 0, now);
  const bool kept = KeepPairCell(s, job, partner, type);
  if (!moved) return;
  s.agenda.SolveNextRound();
  if (kept) FindTableRow(s, job);
}

bool KeepPairCell(State& s, Job& job, const Job& other,
                  const std::string& type) {
  const auto of_table = [](const Job& one) {
    return one.table_row.has_value() && !(one.row_speed > 0);
  };
  if (of_table(job) || !of_table(other)) return false;
  const auto& row = s.options.throughputs->NameOf(*other.table_row);
  const std::string& name = row.first;
  if (row.second != job.spec.scale_factor) return false;
  const Throughput alone = s.throughputs.Get(job.id, type);
  const auto together = s.throughputs.Together(job.id, other.id, type);
  if (alone.source == ThroughputSource::kGuessed || !(alone.steps_per_s > 0) ||
      !together.has_value()) {
    return false;
  }
  const double kept = *together / alone.steps_per_s;
  const auto cell =
      std::ranges::find_if(job.profile, [&](const ProfiledCell& known) {
        return known.type == type && known.beside == name;
      });
  if (cell == job.profile.end()) {
    job.profile.push_back({type, name, kept});
  } else {
    cell->value = kept;
  }
  return true;
}

// Whether two jobs of an app can be taken to be equally fast.
static bool IsAlike(const JobSpec& a, const JobSpec& b) {
  return a.Workload() == b.Workload() && a.scale_factor == b.scale_factor;
}

// The speed by type, where it is known, of `job` or a job of its app like it.
static std::map<std::string, double> KnownOfApp(const State& s, const App& app,
                                                const Job& job) {
  // The earliest jobs are the most likely ones to have run.
  constexpr int kLookedAtMax = 64;
  std::map<std::string, double> speeds;
  const auto add = [&](JobId id) {
    for (const std::string& type : s.cluster.types()) {
      const Throughput known = s.throughputs.Get(id, type);
      if (known.source == ThroughputSource::kGuessed) continue;
      if (known.steps_per_s > 0) speeds.try_emplace(type, known.steps_per_s);
    }
  };
  add(job.id);
  int looked_at = 0;
  for (const JobId id : app.jobs) {
    if (++looked_at > kLookedAtMax) break;
    if (IsAlike(s.jobs.at(id).spec, job.spec)) add(id);
  }
  return speeds;
}

static void EstimateByApp(State& s, const Job& job) {
  const App* app = s.apps.Find(job);
  if (app == nullptr) return;
  auto speeds = KnownOfApp(s, *app, job);
  if (!speeds.empty()) s.throughputs.Estimate(job.id, std::move(speeds));
}

// Tells the other jobs of the app, when the job was measured for the first
// time.
static void TellApp(State& s, const Job& job) {
  const App* app = s.apps.Find(job);
  if (app == nullptr) return;
  const auto speeds = KnownOfApp(s, *app, job);
  for (const JobId id : app->jobs) {
    if (IsAlike(s.jobs.at(id).spec, job.spec))
      s.throughputs.Estimate(id, speeds);
  }
}

void FindTableRow(State& s, Job& job) {
  const ThroughputTable* table = s.options.throughputs.get();
  job.table_row.reset();
  job.row_speed = 0;
  if (table != nullptr) {
    job.table_row = table->FindRow(job.spec.Workload(), job.spec.scale_factor);
  }
  if (job.table_row.has_value()) return;
  if (!s.references.has_value()) return EstimateByApp(s, job);
  const std::vector<ProfiledCell> cells = CellsOf(s, job);
  const auto match = s.references->Find(job.spec.scale_factor, cells);
  if (!match.has_value() || !(match->speed > 0)) return;
  // Its speed alone is not enough to say how it runs beside other jobs.
  if (std::any_of(cells.begin(), cells.end(),
                  [](const auto& cell) { return !cell.beside.empty(); })) {
    job.table_row = match->row;
    job.row_speed = match->speed;
  }
  std::map<std::string, double> estimates;
  for (size_t type = 0; type < table->types().size(); ++type) {
    const double alone = table->Alone(match->row, type).value_or(0);
    if (alone > 0) estimates[table->types()[type]] = match->speed * alone;
  }
  s.throughputs.Estimate(job.id, std::move(estimates));
}

// All its throughputs that were measured or given.
std::vector<ProfiledCell> CellsOf(const State& s, const Job& job) {
  std::vector<ProfiledCell> cells = job.profile;
  for (const std::string& type : s.cluster.types()) {
    const Throughput alone = s.throughputs.Get(job.id, type);
    if (alone.source == ThroughputSource::kGuessed) continue;
    cells.push_back({type, "", alone.steps_per_s});
  }
  return cells;
}

// Takes the throughput that a job reports while it runs alone, converted to
// accelerators that are as fast as their type.
void MeasureAlone(State& s, Time now, Job& job, const Progress& progress) {
  const Worker& first = job.workers.front();
  const Accelerator& held = s.cluster.accelerator(first.held);
  const double steps_per_s = progress.throughput_steps_per_s;
  const std::string& type = held.info.type;
  if (first.world_size == 1) {
    s.speeds.Measure(job.id, type, held.id, steps_per_s, progress.window_s);
  }
  const std::string name =
      s.figures.FigureName(job.id, type, s.figures.LevelOf(job));
  const bool is_new = s.throughputs.NeedsTrial(job.id, name);
  if (!s.throughputs.MeasureSize(job.id, name, first.world_size,
                                 steps_per_s / s.figures.SpeedOf(job),
                                 progress.window_s, now)) {
    return;
  }
  s.agenda.SolveNextRound();
  if (s.references.has_value()) {
    FindTableRow(s, job);
  } else if (is_new) {
    TellApp(s, job);
  }
}

}  // namespace gavel::engine
