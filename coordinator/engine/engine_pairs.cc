// Two jobs beside each other on one accelerator, live: how fast they are
// together is measured, first on trial (Gavel sections 3.1 and 6).
#include <algorithm>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/type_names.h"

namespace gavel {
namespace {

// A job runs beside so many others on trial; what it is like beside the rest
// stays unknown, and the policy is not offered it.
constexpr int kPairTrialsMax = 4;

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

// Another job was on its accelerators, too, at some time in the last window_s.
bool Engine::WasBeside(Time now, const Job& job, double window_s) const {
  if (!job.partner.valid()) return false;
  const Job* other = Find(job.partner);
  if (other == nullptr) return false;
  return other->live || now - other->ended_at < window_s;
}

// What `job` reports while it runs beside its partner is the pair's figure,
// provided that the partner was there all the while.
void Engine::MeasurePair(Time now, Job& job, const Progress& progress) {
  if (!Together(job, job.partner)) return;
  const Time since = TogetherSince(job, jobs_.at(job.partner));
  if (!(now - since >= progress.window_s)) return;
  const Job& partner = jobs_.at(job.partner);
  const AcceleratorId where = job.workers.front().held;
  const std::string& type = cluster_.accelerator(where).info.type;
  // Only the first time: then it is known, and blended with that.
  std::optional<std::pair<double, double>> told;
  if (options_.throughputs != nullptr &&
      !throughputs_.Together(job.id, partner.id, type).has_value()) {
    told =
        TablePair(job, partner, static_cast<size_t>(cluster_.TypeIndex(type)),
                  FindColumn(*options_.throughputs, type, cluster_.types()),
                  /*consolidated=*/true);
  }
  const bool moved = throughputs_.MeasureTogether(
      job.id, job.partner, type, progress.throughput_steps_per_s,
      progress.window_s, told.has_value() ? told->first : 0, now);
  const bool kept = KeepPairCell(job, partner, type);
  if (!moved) return;
  throughputs_moved_ = true;
  if (kept) FindTableRow(job);
}

// What `job`, which the table lacks, keeps beside `other`, which it knows: so
// that it stays known when that one is gone. True: there is such a figure.
bool Engine::KeepPairCell(Job& job, const Job& other, const std::string& type) {
  const auto of_table = [](const Job& one) {
    return one.table_row.has_value() && !(one.row_speed > 0);
  };
  if (of_table(job) || !of_table(other)) return false;
  const auto& row = options_.throughputs->NameOf(*other.table_row);
  const std::string& name = row.first;
  if (row.second != job.spec.scale_factor) return false;
  const Throughput alone = throughputs_.Get(job.id, type);
  const auto together = throughputs_.Together(job.id, other.id, type);
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

// Its own, else that of the reference that it is most like by all that is known
// of it: then it is thought to be as that one on types where nobody knows.
void Engine::FindTableRow(Job& job) {
  const ThroughputTable* table = options_.throughputs.get();
  job.table_row.reset();
  job.row_speed = 0;
  if (table == nullptr) return;
  job.table_row =
      table->FindRow(job.spec.app.empty() ? job.spec.name : job.spec.app,
                     job.spec.scale_factor);
  if (job.table_row.has_value()) return;
  if (!references_.has_value()) return;
  const std::vector<ProfiledCell> cells = CellsOf(job);
  const auto match = references_->Find(job.spec.scale_factor, cells);
  if (!match.has_value() || !(match->speed > 0)) return;
  // How fast it is alone says too little of what it does beside others.
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
  throughputs_.Estimate(job.id, std::move(estimates));
}

// All that was measured of it, or given.
std::vector<ProfiledCell> Engine::CellsOf(const Job& job) const {
  std::vector<ProfiledCell> cells = job.profile;
  for (const std::string& type : cluster_.types()) {
    const Throughput alone = throughputs_.Get(job.id, type);
    if (alone.source == ThroughputSource::kGuessed) continue;
    cells.push_back({type, "", alone.steps_per_s});
  }
  return cells;
}

// How many times as fast as its row it is on that type. nullopt: not known.
std::optional<double> Engine::ScaleOf(const Job& job, size_t type,
                                      size_t table_type) const {
  if (!(job.row_speed > 0)) return 1;
  const auto alone = options_.throughputs->Alone(*job.table_row, table_type);
  if (!alone.has_value()) return std::nullopt;
  if (!(*alone > 0)) return 0;
  return throughputs_.Get(job.id, cluster_.types()[type]).steps_per_s / *alone;
}

// Of `a` and of `b` beside each other: as measured, else by the table, whose
// name for the type is `table_type`. nullopt: not known.
std::optional<std::pair<double, double>> Engine::PairThroughput(
    const Job& a, const Job& b, size_t type, std::optional<size_t> table_type,
    bool consolidated) const {
  const std::string& name = cluster_.types()[type];
  if (throughputs_.IsBarred(a.id, name) || throughputs_.IsBarred(b.id, name)) {
    return std::nullopt;
  }
  if (throughputs_.has_pairs()) {
    const auto first = throughputs_.Together(a.id, b.id, name);
    const auto second = throughputs_.Together(b.id, a.id, name);
    if (first.has_value() && second.has_value()) return {{*first, *second}};
  }
  return TablePair(a, b, type, table_type, consolidated);
}

std::optional<std::pair<double, double>> Engine::TablePair(
    const Job& a, const Job& b, size_t type, std::optional<size_t> table_type,
    bool consolidated) const {
  if (!table_type.has_value() || !a.table_row.has_value() ||
      !b.table_row.has_value()) {
    return std::nullopt;
  }
  const auto together = options_.throughputs->Together(
      *a.table_row, *b.table_row, *table_type, consolidated);
  const auto scale_a = ScaleOf(a, type, *table_type);
  const auto scale_b = ScaleOf(b, type, *table_type);
  if (!together.has_value() || !scale_a.has_value() || !scale_b.has_value()) {
    return std::nullopt;
  }
  return {{together->first * *scale_a, together->second * *scale_b}};
}

// As far as their memory is known, on any of the type's accelerators.
bool Engine::PairFits(const Job& a, const Job& b, size_t type) const {
  const uint64_t need = a.workers.front().need_bytes +  //
                        b.workers.front().need_bytes;
  for (const Accelerator& accelerator : cluster_.accelerators()) {
    const AcceleratorInfo& info = accelerator.info;
    if (static_cast<size_t>(cluster_.TypeOf(accelerator.id)) != type) continue;
    if (info.memory_bytes == 0 ||
        need + 2 * info.context_bytes <= info.memory_bytes) {
      return true;
    }
  }
  return false;
}

// What `rank` has of its accelerator: all, or its part beside a partner.
// Of the threads of a CPU slot each of the two has half, at least one, the
// first of them an odd one. Left behind, a job has all of them again.
// Of the memory, in bytes without its context, each has what it was seen to
// need, and half of the rest. Where that is too little for one, it runs out of
// memory and is not packed so again, instead of taking its partner down with
// it.
void Engine::AddPart(const Job& job, int rank, LeaseGrant& grant) const {
  const Worker& worker = job.workers[static_cast<size_t>(rank)];
  grant.accelerator = cluster_.accelerator(worker.held).info;
  if (!job.partner.valid()) return;
  grant.slots = 1;
  AcceleratorInfo& info = grant.accelerator;
  if (Together(job, job.partner)) {
    const int odd = job.id < job.partner ? 1 : 0;
    info.threads = std::max(1, (info.threads + odd) / 2);
  }
  if (info.memory_bytes <= 2 * info.context_bytes) return;
  const auto room =
      static_cast<double>(info.memory_bytes - 2 * info.context_bytes);
  const auto own = static_cast<double>(worker.need_bytes);
  double other = 0;
  const Job& partner = jobs_.at(job.partner);
  for (size_t i = 0; i < partner.assigned.size(); ++i) {
    if (partner.assigned[i] != worker.held) continue;
    other = static_cast<double>(partner.workers[i].need_bytes);
  }
  const double needs = own + other;
  const double limit =
      needs > room ? room * own / needs : own + (room - needs) / 2;
  grant.memory_limit_bytes =
      std::max<uint64_t>(1, static_cast<uint64_t>(limit));
}

// Each must be known alone there first: what they lose is seen against that.
bool Engine::IsPairTrial(const Job& a, const Job& b, size_t type) const {
  const std::string& name = cluster_.types()[type];
  for (const Job* job : {&a, &b}) {
    if (job->pair_trials >= kPairTrialsMax ||
        throughputs_.NeedsTrial(job->id, name) ||
        !(throughputs_.Get(job->id, name).steps_per_s > 0)) {
      return false;
    }
  }
  const ShareUnit unit = PairOf(a.id, b.id);
  if (a.spec.elastic() || b.spec.elastic() ||
      a.spec.scale_factor != b.spec.scale_factor ||
      tried_pairs_.contains({unit, type}) || !Allocated(unit).empty() ||
      UnitOf(a) == unit) {
    return false;
  }
  const ThroughputTable* table = options_.throughputs.get();
  const std::optional<size_t> table_type =
      table == nullptr ? std::nullopt
                       : FindColumn(*table, name, cluster_.types());
  return !PairThroughput(a, b, type, table_type, true).has_value() &&
         PairFits(a, b, type);
}

// Of a policy that says who runs: pairs that it may try, and on which type.
// Each is of a job that waits and one that runs alone; as many as may be on
// trial at once, and each job in one.
std::map<ShareUnit, size_t> Engine::PairsToTry(
    const PolicyProblem& problem) const {
  std::map<ShareUnit, size_t> pairs;
  if (!result_.is_assignment || !options_.pair_trials) return pairs;
  std::vector<int> budget = TrialBudgets(options_.profiling_percentage / 2);
  std::vector<const Job*> alone;
  for (const PolicyJob& row : problem.jobs) {
    if (row.running_on < 0 || row.running_with.valid()) continue;
    alone.push_back(&jobs_.at(row.id));
  }
  for (const auto& [id, waits] : waiting_) {
    if (std::ranges::all_of(budget, [](int left) { return left == 0; })) break;
    if (!MayRun(*waits) || waits->pair_trials >= kPairTrialsMax) continue;
    for (const Job*& runs : alone) {
      if (runs == nullptr || !MayRun(*runs)) continue;
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

// Only while jobs wait: with an accelerator for each, nothing is gained.
void Engine::AddPairTrials(RoundTable& units, Time at,
                           const std::vector<int>& left) const {
  const std::vector<int>& capacity = cluster_.Capacity();
  const std::vector<int> half = TrialBudgets(options_.profiling_percentage / 2);
  std::vector<JobId> alone;
  int wanted = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    if (units.unit(u).packed()) continue;
    alone.push_back(units.unit(u).job);
    wanted += units.scale_factor(u);
  }
  for (const int count : capacity) wanted -= count;
  if (wanted <= 0) return;
  std::set<JobId> taken;
  RoundUnit row;
  for (size_t type = 0; type < capacity.size(); ++type) {
    int budget = std::min(left[type], half[type]);
    for (size_t i = 0; i < alone.size() && budget > 0; ++i) {
      const Job& a = jobs_.at(alone[i]);
      if (taken.contains(a.id) || a.pair_trials >= kPairTrialsMax) continue;
      for (size_t j = i + 1; j < alone.size(); ++j) {
        const Job& b = jobs_.at(alone[j]);
        if (taken.contains(b.id) || a.spec.scale_factor > budget ||
            !IsPairTrial(a, b, type)) {
          continue;
        }
        MakeUnit({a.id, b.id}, *live_.at(a.id), at, row);
        row.share.assign(capacity.size(), 0);
        row.usable.assign(capacity.size(), false);
        row.share[type] = 1;
        row.usable[type] = true;
        row.time_received_s[type] = 0;
        row.deficit_s[type] = kTrialDebt_s;
        units.Add(row);
        budget -= a.spec.scale_factor;
        taken.insert({a.id, b.id});
        break;
      }
    }
  }
}

}  // namespace gavel
