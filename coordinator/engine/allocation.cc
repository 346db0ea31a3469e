#include "coordinator/engine/allocation.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/engine/type_names.h"
#include "core/text.h"

namespace gavel::engine {

bool AllocationTable::IsAllocated(const Job& job) const {
  if (result_.is_assignment) return job.target_share > 0;
  return options_.reset_interval_s > 0 || result_.allocation.Contains(job.id);
}

std::span<const double> AllocationTable::Allocated(
    const ShareUnit& unit) const {
  const std::optional<size_t> position = result_.allocation.Find(unit);
  if (!position.has_value()) return {};
  const std::span<const double> row = result_.allocation.RowAt(*position);
  return IsShare(row) ? row : std::span<const double>();
}

uint32_t AllocationTable::Chosen(const Job& job) const {
  return job.chosen < cluster_.types().size() ? job.chosen : kNoIndex;
}

uint32_t AllocationTable::Chosen(const ShareUnit& unit) const {
  if (!unit.packed()) {
    const Job* job = jobs_.Find(unit.job);
    return job == nullptr ? kNoIndex : Chosen(*job);
  }
  const auto found =
      std::lower_bound(result_.assignment.begin(), result_.assignment.end(),
                       unit, [](const TypeAssignment& a, const ShareUnit& key) {
                         return a.unit < key;
                       });
  return found != result_.assignment.end() && found->unit == unit &&
                 found->type < cluster_.types().size()
             ? static_cast<uint32_t>(found->type)
             : kNoIndex;
}

void AllocationTable::NoteChosen(std::span<const TypeAssignment> entries) {
  for (const TypeAssignment& entry : entries) {
    Job* job = entry.unit.packed() ? nullptr : jobs_.Find(entry.unit.job);
    if (job == nullptr) continue;
    job->chosen = static_cast<uint32_t>(entry.type);
    // A damaged row may name an accelerator that never existed.
    const bool known = entry.host.value() <= cluster_.accelerators().size();
    job->chosen_host = known ? entry.host : AcceleratorId();
  }
}

bool AllocationTable::HasShare(const ShareUnit& unit) const {
  return !Allocated(unit).empty() || Chosen(unit) != kNoIndex;
}

void AllocationTable::Replace(const PolicyResult& result) {
  for (const TypeAssignment& entry : result_.assignment) {
    if (Job* job = jobs_.Find(entry.unit.job)) job->chosen = kNoIndex;
  }
  result_ = result;
  std::ranges::sort(result_.assignment, {}, &TypeAssignment::unit);
  NoteChosen(result_.assignment);
}

void AllocationTable::Succeed(const PolicyResult& result,
                              std::vector<TypeAssignment> assignment) {
  assert(result.is_assignment && result_.is_assignment);
  result_ = result;
  if (!assignment.empty()) result_.assignment = std::move(assignment);
}

void AllocationTable::Rebuild() {
  // Older snapshots hold assignments unsorted.
  if (result_.is_assignment) {
    std::ranges::sort(result_.assignment, {}, &TypeAssignment::unit);
  }
  NoteChosen(result_.assignment);
}

bool Candidates::MayRun(const Job& job) const {
  return job.active() && !checkpoints_.IsStranded(job) &&
         std::ranges::any_of(job.gang(), [](const Worker& worker) {
           return !worker.finished && worker.process != ProcessState::kDone;
         });
}

bool Candidates::MayRun(const ShareUnit& unit) const {
  const auto may_run = [&](JobId id) {
    const Job* job = jobs_.FindLive(id);
    return job != nullptr && MayRun(*job);
  };
  return may_run(unit.job) && (!unit.packed() || may_run(unit.partner));
}

namespace {

std::string Figure(double steps_per_s) {
  return absl::StrFormat("%.3g", steps_per_s);
}

}  // namespace

// The job's speed on the type, as a multiple of its row's. nullopt: not known.
std::optional<double> Figures::ScaleOf(const Job& job, size_t type,
                                       size_t table_type) const {
  if (!(job.row_speed > 0)) return 1;
  const auto alone = options_.throughputs->Alone(*job.table_row, table_type);
  if (!alone.has_value()) return std::nullopt;
  if (!(*alone > 0)) return 0;
  return throughputs_.Get(job.id, cluster_.types()[type]).steps_per_s / *alone;
}

std::optional<std::pair<double, double>> Figures::PairThroughput(
    const Job& a, const Job& b, size_t type, std::optional<size_t> table_type,
    bool consolidated) const {
  const std::string& name = cluster_.types()[type];
  if (cluster_.IsExclusive(type)) return std::nullopt;
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

std::optional<std::pair<double, double>> Figures::TablePair(
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

bool Figures::PairFits(const Job& a, const Job& b, size_t type) const {
  if (cluster_.IsExclusive(type)) return false;
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

bool Figures::IsKeptOut(const Job& job, size_t type) const {
  return avoidance_.IsRestricted(job.id) &&
         avoidance_.CountLeft(job.id, type) < job.spec.LeastWorkers();
}

const std::vector<bool>& Figures::UsableTypes(const Job& job) const {
  const std::vector<std::string>& types = cluster_.types();
  const bool kept_out = avoidance_.IsRestricted(job.id);
  if (!kept_out && job.usable_version == throughputs_.version() &&
      job.usable.size() == types.size()) {
    return job.usable;
  }
  job.usable.clear();
  job.steps_per_s.clear();
  job.guessed = false;
  for (const std::string& type : types) {
    const Throughput throughput = throughputs_.Get(job.id, type);
    const bool left = !kept_out || !IsKeptOut(job, job.usable.size());
    job.usable.push_back(left && throughput.steps_per_s > 0);
    job.steps_per_s.push_back(throughput.steps_per_s);
    job.guessed |= throughput.source == ThroughputSource::kGuessed;
  }
  // The accelerators that a job is kept out of change without a new version of
  // the matrix, so the result is not reused.
  job.usable_version = kept_out ? 0 : throughputs_.version();
  return job.usable;
}

double Figures::StepsDone(const Job& job, Time now) const {
  if (job.workers.empty()) return 0;  // an element that was never in the queue
  const Worker& worker = job.workers.front();
  const auto told = static_cast<double>(worker.known.steps_done);
  if (worker.held_epoch == 0) return told;
  const double since = std::max(worker.known.at, worker.leased_at);
  // IsolatedTime has counted its steps since the last report, at the pace of
  // that time. The pace may be another one now, beside another partner.
  const bool counted = job.pace.steps_per_s > 0 &&
                       job.pace.epoch == worker.held_epoch &&
                       job.pace.at >= worker.known.at;
  const double done =
      counted ? job.isolated_steps +
                    job.pace.steps_per_s * std::max(0.0, now - job.pace.at)
              : told + Pace(job) * std::max(0.0, now - since);
  const auto total = static_cast<double>(job.spec.steps_total);
  return total > 0 ? std::min(total, done) : done;
}

double Figures::AloneSeconds(const Job& job, double steps) const {
  double best = 0;
  for (const std::string& type : cluster_.types()) {
    best = std::max(best, throughputs_.Get(job.id, type).steps_per_s);
  }
  return best > 0 ? steps / best : 0;
}

double Figures::Pace(const Job& job) const {
  const Worker& worker = job.workers.front();
  const size_t type = static_cast<size_t>(cluster_.TypeOf(worker.held));
  if (jobs_.Together(job, job.partner)) {
    return TogetherThroughput(job, jobs_.at(job.partner), type);
  }
  const std::string name =
      FigureName(job.id, cluster_.types()[type], LevelOf(job));
  return throughputs_.AtSize(job.id, name, worker.world_size).steps_per_s *
         SpeedOf(job);
}

std::string Figures::FigureName(JobId job, const std::string& type,
                                Locality level) const {
  if (!options_.placement_sensitive) return type;
  for (; level != Locality::kServer; level = SubstituteFor(level)) {
    std::string name = TypeNameAt(type, level);
    if (!throughputs_.NeedsTrial(job, name)) return name;
  }
  return type;
}

// The steps/s of `job` beside `other`. If the pair is not known, half of the
// job's steps/s alone.
double Figures::TogetherThroughput(const Job& job, const Job& other,
                                   size_t type) const {
  const std::string& name = cluster_.types()[type];
  const ThroughputTable* table = options_.throughputs.get();
  const auto known = PairThroughput(
      job, other, type,
      table == nullptr ? std::nullopt
                       : FindColumn(*table, name, cluster_.types()),
      /*consolidated=*/true);
  if (known.has_value()) return known->first;
  return throughputs_.Get(job.id, name).steps_per_s / 2;
}

double Figures::SpeedOf(const Job& job) const {
  double speed = 1;
  if (!speeds_.any()) return speed;
  for (const Worker& worker : job.workers) {
    if (worker.held_epoch != 0)
      speed = std::min(speed, speeds_.Of(worker.held));
  }
  return speed;
}

Locality Figures::LevelOf(const Job& job) const {
  absl::InlinedVector<AcceleratorId, 8> held;
  for (const Worker& worker : job.workers) {
    if (worker.held_epoch != 0) held.push_back(worker.held);
  }
  return cluster_.LevelOf(held);
}

std::string Figures::ThroughputNotes(const Job& job) const {
  std::vector<std::string> notes;
  for (const std::string& type : cluster_.types()) {
    const auto told = throughputs_.Contradicted(job.id, type);
    if (told.given > 0) {
      const bool by_table = IsOfTable(job, type, told.given);
      notes.push_back(
          StrCat(by_table ? "the throughput table says " : "submitted ",
                 Figure(told.given), " steps/s on ", type, ", measured ",
                 Figure(told.measured)));
    }
    if (told.before > 0) {
      notes.push_back(
          StrCat(told.measured < told.before ? "slower" : "faster", " on ",
                 type, " than before: ", Figure(told.measured), " steps/s, ",
                 Figure(told.before), " over the last hour"));
    }
  }
  return absl::StrJoin(notes, "; ");
}

bool Figures::IsOfTable(const Job& job, const std::string& type,
                        double given) const {
  if (!job.table_row.has_value() || job.row_speed > 0) return false;
  const std::optional<size_t> column =
      FindColumn(*options_.throughputs, type, cluster_.types());
  return column.has_value() &&
         options_.throughputs->Alone(*job.table_row, *column) == given;
}

}  // namespace gavel::engine
