#include "simulator/trace_simulation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/workload/file_keys.h"
#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/text_lines.h"
#include "coordinator/workload/toml_reader.h"
#include "core/status.h"
#include "core/text.h"
#include "simulator/round_simulation.h"

namespace gavel {
namespace {

constexpr std::array<std::string_view, 3> kGavelTypes = {"v100", "p100", "k80"};
constexpr size_t kOverheadsBytesMax = 16 * 1024 * 1024;
// A day; longer is not a pause.
constexpr NumberRange kOverhead = {.max = 24 * 3600};
constexpr std::string_view kOtherTypes = "*";

absl::Status Refusal(std::string_view part, std::string_view what) {
  return absl::InvalidArgumentError(StrCat(QuoteToml(part), what));
}

// "36" or "36x4": accelerators and how many of them are on a server.
absl::StatusOr<ClusterPart> ParseCount(std::string_view text, int count_min) {
  ClusterPart part;
  const size_t cross = text.find('x');
  const auto count = ParseInteger(text.substr(0, cross));
  if (!count.has_value() || *count < count_min ||
      *count > kSimulatedAcceleratorsMax) {
    return Refusal(
        text, StrCat(" is no number of accelerators; write ", count_min, " to ",
                     kSimulatedAcceleratorsMax,
                     ", and e.g. x4 behind it for 4 on each server"));
  }
  part.count = *count;
  part.per_server = std::max(1, part.count);
  if (cross == std::string_view::npos) return part;
  const auto per_server = ParseInteger(text.substr(cross + 1));
  if (!per_server.has_value() || *per_server < 1 ||
      part.count % *per_server != 0) {
    return Refusal(text, StrCat(" does not fill servers; write behind the x "
                                "how many are on each, a divisor of ",
                                part.count));
  }
  part.per_server = *per_server;
  return part;
}

absl::StatusOr<std::vector<ClusterPart>> ParseGavelCluster(
    std::string_view text) {
  std::vector<TextField> counts;
  SplitFields(text, ':', counts);
  if (counts.size() != kGavelTypes.size()) {
    return Refusal(text, StrCat(" has ", counts.size(),
                                " numbers; write three (v100:p100:k80), or "
                                "e.g. v100:36,k80:36"));
  }
  std::vector<ClusterPart> cluster;
  for (size_t i = 0; i < counts.size(); ++i) {
    GAVEL_ASSIGN_OR_RETURN(ClusterPart part, ParseCount(counts[i].text, 0));
    part.type = kGavelTypes[i];
    if (part.count > 0) cluster.push_back(std::move(part));
  }
  if (cluster.empty()) {
    return Refusal(text, " has no accelerators; write at least one");
  }
  return cluster;
}

// "group=4" or "rack=16", which must nest.
absl::Status ReadLevel(std::string_view text, ClusterPart& part) {
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  int* size = name == "group"  ? &part.per_group
              : name == "rack" ? &part.per_rack
                               : nullptr;
  if (size == nullptr || equals == std::string_view::npos) {
    return Refusal(text, " is no level of locality; write group=N or rack=N");
  }
  if (*size != 0) {
    return Refusal(text, StrCat(" gives the ", name, " twice; write it once"));
  }
  *size = ParseInteger(text.substr(equals + 1)).value_or(0);
  if (name == "group" && (*size < 1 || part.per_server % *size != 0)) {
    return Refusal(text, StrCat(" does not nest in servers of ",
                                part.per_server, "; write a divisor of it"));
  }
  if (name == "rack" && (*size < 1 || *size % part.per_server != 0)) {
    return Refusal(text, StrCat(" does not hold whole servers of ",
                                part.per_server, "; write a multiple of it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ClusterPart> ParsePart(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || !IsValidName(text.substr(0, colon))) {
    return Refusal(text, " is not TYPE:COUNT; write e.g. v100:36,k80:36x4");
  }
  std::vector<TextField> fields;
  SplitFields(text.substr(colon + 1), ':', fields);
  GAVEL_ASSIGN_OR_RETURN(ClusterPart part, ParseCount(fields[0].text, 1));
  part.type = text.substr(0, colon);
  for (size_t i = 1; i < fields.size(); ++i) {
    GAVEL_RETURN_IF_ERROR(ReadLevel(fields[i].text, part));
  }
  return part;
}

void ReadOverhead(TomlReader reader, Overhead& overhead) {
  reader.Read("start_s", overhead.start_s, kOverhead);
  reader.Read("pause_s", overhead.pause_s, kOverhead);
  reader.Read("resume_s", overhead.resume_s, kOverhead);
  overhead.move_s = overhead.resume_s;
  reader.Read("move_s", overhead.move_s, kOverhead);
}

}  // namespace

absl::StatusOr<std::vector<ClusterPart>> ParseCluster(std::string_view text) {
  if (text.find_first_not_of("0123456789:x") == std::string_view::npos &&
      !text.empty()) {
    return ParseGavelCluster(text);
  }
  std::vector<ClusterPart> cluster;
  std::vector<TextField> parts;
  SplitFields(text, ',', parts);
  for (const TextField& field : parts) {
    GAVEL_ASSIGN_OR_RETURN(ClusterPart part, ParsePart(field.text));
    if (std::any_of(cluster.begin(), cluster.end(),
                    [&part](const ClusterPart& other) {
                      return other.type == part.type &&
                             other.per_server == part.per_server;
                    })) {
      return Refusal(field.text,
                     StrCat(" is a second part of ", part.type,
                            " with servers of this size; write them together"));
    }
    cluster.push_back(std::move(part));
  }
  return cluster;
}

absl::StatusOr<Overheads> ParseOverheads(std::string_view text) {
  Overheads overheads;
  if (text == "none") return overheads;
  GAVEL_ASSIGN_OR_RETURN(
      const auto parts,
      ParseNamedNumbers(text, kOverhead, "pause=2,resume=5,move=9, or none"));
  std::optional<double> move_s;
  for (const auto& [name, seconds] : parts) {
    if (name == "start") {
      overheads.all.start_s = seconds;
    } else if (name == "pause") {
      overheads.all.pause_s = seconds;
    } else if (name == "resume") {
      overheads.all.resume_s = seconds;
    } else if (name == "move") {
      move_s = seconds;
    } else {
      return Refusal(name,
                     " is no overhead; write start, pause, resume or move");
    }
  }
  overheads.all.move_s = move_s.value_or(overheads.all.resume_s);
  return overheads;
}

absl::StatusOr<Overheads> ParseOverheadsFile(std::string_view toml,
                                             std::string_view source) {
  GAVEL_ASSIGN_OR_RETURN(const toml::table root,
                         ParseToml(toml, source, kOverheadsBytesMax));
  absl::Status status;
  TomlReader reader(root, source, status);
  Overheads overheads;
  for (const std::string& type : reader.Keys()) {
    const toml::table* table = root.get(type)->as_table();
    if (table == nullptr) {
      reader.Fail(type, StrCat(QuoteToml(type),
                               " is no table; write a job type, e.g. "
                               "[\"A3C\"], or [\"*\"] for all, and the "
                               "seconds below it"));
      break;
    }
    ReadOverhead(
        TomlReader(*table, source, {"start_s", "pause_s", "resume_s", "move_s"},
                   status),
        type == kOtherTypes ? overheads.all : overheads.by_type[type]);
  }
  GAVEL_RETURN_IF_ERROR(status);
  return overheads;
}

// ---- the ideal without rounds

namespace {

// The ideal: each job gets its allocated fractions all the time, as if rounds
// were infinitely short and preemption free (Gavel's --ideal). It runs the
// policy alone, without engine and mechanism, and is the standard that the
// round mechanism is measured against. Not thread-safe.
class FluidSimulation : public WorkSimulation {
 public:
  FluidSimulation(SimulationOptions options, SimulatedWork work,
                  std::unique_ptr<Policy> policy);

  bool Run(uint64_t events) override;
  Time now() const override { return now_; }
  SimulationResult Result() const override;
  absl::StatusOr<std::string> Checkpoint() const override;
  absl::Status Resume(std::string_view checkpoint) override;

 private:
  struct Active {
    size_t index = 0;
    double steps = 0;        // done
    double steps_per_s = 0;  // by the present allocation
    double isolated_s = 0;
    double time_received_s = 0;
    std::vector<double> share;  // [J] by type, its part of pairs halved
    double share_total = 0;
    SimulatedJob told;
  };

  bool RunOne();
  void Advance(Time to);
  void Arrive();
  void End();
  void Solve();
  PolicyProblem Problem() const;
  void AddPairs(PolicyProblem& problem) const;
  void Take(const PolicyResult& result);
  void Give(const ShareUnit& unit, size_t column, double share);

  Time now_ = 0;
  bool each_round_ = false;     // the policy wants to solve each round
  std::vector<Active> active_;  // by index
  double total_cost_ = 0;
  uint64_t solves_ = 0;
};

// Rounding may leave a job fewer steps than this; they count as done.
constexpr double kStepsLeftMin = 1e-6;

FluidSimulation::FluidSimulation(SimulationOptions options, SimulatedWork work,
                                 std::unique_ptr<Policy> policy)
    : WorkSimulation(std::move(options), std::move(work), std::move(policy)),
      now_(work_.job(0).arrival_s) {
  Arrive();
}

bool FluidSimulation::Run(uint64_t events) {
  for (uint64_t i = 0; i < events && !over_; ++i) {
    over_ = !RunOne() || WindowEnded();
  }
  return over_;
}

// Simulates one stretch of time in which no rate changes.
bool FluidSimulation::RunOne() {
  Solve();
  if (over_) return false;
  const double round_s = options_.engine.round_duration_s;
  Time until = next_ < work_.size() ? work_.job(next_).arrival_s : kNever;
  until = std::min(until, options_.prices.NextChange(now_));
  // Such a policy chooses jobs for one lease at a time.
  if (each_round_) until = std::min(until, now_ + round_s);
  for (const Active& job : active_) {
    if (job.steps_per_s <= 0) continue;
    const double left = work_.job(job.index).steps_total - job.steps;
    until = std::min(until, now_ + std::max(0.0, left) / job.steps_per_s);
  }
  if (until == kNever) {
    stopped_ = "jobs wait and the policy gives none of them a share";
    return false;
  }
  if (until > options_.time_limit_s) {
    EndAtTimeLimit();
    Advance(options_.time_limit_s);
    return false;
  }
  Advance(until);
  End();
  Arrive();
  return true;
}

void FluidSimulation::Advance(Time to) {
  const double seconds = to - now_;
  CountPresent(to, active_.size());
  for (Active& job : active_) {
    job.steps += job.steps_per_s * seconds;
    job.isolated_s +=
        work_.IsolatedSeconds(job.index, job.steps_per_s * seconds,
                              static_cast<double>(active_.size()));
    job.time_received_s += job.share_total * seconds;
    job.told.run_s += job.share_total * seconds;
    for (size_t type = 0; type < job.share.size(); ++type) {
      const double accelerators = job.share[type] * job.told.scale_factor;
      const double cost = options_.prices.At(work_.types()[type], now_) *
                          accelerators * seconds / kHour_s;
      busy_s_[type] += accelerators * seconds;
      job.told.cost += cost;
      total_cost_ += cost;
    }
  }
  now_ = to;
}

void FluidSimulation::Arrive() {
  TakeArrived(now_, [this](size_t index) {
    CountPresent(now_, active_.size());
    Active& job = active_.emplace_back();
    job.index = index;
    job.told = work_.Describe(index);
    job.told.present_s = present_s_;
  });
}

void FluidSimulation::End() {
  std::erase_if(active_, [this](Active& job) {
    const double left = work_.job(job.index).steps_total - job.steps;
    // The time left is compared as well, since a step may take hours.
    const bool ended =
        left <= kStepsLeftMin ||
        (job.steps_per_s > 0 && now_ + left / job.steps_per_s <= now_);
    if (!ended) return false;
    job.told.completion_s = now_;
    job.told.jct_s = now_ - job.told.arrival_s;
    job.told.rho = job.isolated_s > 0 ? job.told.jct_s / job.isolated_s : 0;
    job.told.share_target = job.told.share_received =
        job.told.jct_s > 0 ? job.told.run_s / job.told.jct_s : 1;
    TakeEnded(std::move(job.told));
    return true;
  });
}

void FluidSimulation::Solve() {
  for (Active& job : active_) {
    job.steps_per_s = 0;
    job.share.assign(work_.types().size(), 0.0);
    job.share_total = 0;
  }
  if (active_.empty()) return;
  ++solves_;
  absl::StatusOr<PolicyResult> result = policy_->Solve(Problem());
  if (!result.ok() || result->outcome == SolveOutcome::kFailed) {
    stopped_ = StrCat(
        "the policy failed: ",
        result.ok() ? result->detail : std::string(result.status().message()));
    over_ = true;
    return;
  }
  Take(*result);
}

PolicyProblem FluidSimulation::Problem() const {
  PolicyProblem problem;
  problem.types = work_.types();
  problem.capacity = work_.capacity();
  problem.entities = options_.engine.entities;
  for (const Active& job : active_) {
    PolicyJob& row = problem.jobs.emplace_back();
    row.id = JobId(job.index + 1);
    row.scale_factor = job.told.scale_factor;
    row.weight = job.told.weight;
    row.arrival_s = job.told.arrival_s;
    row.steps_remaining =
        std::max(0.0, work_.job(job.index).steps_total - job.steps);
    row.time_since_start_s = now_ - job.told.arrival_s;
    row.time_received_s = job.time_received_s;
    row.isolated_s = job.isolated_s;
    if (job.told.deadline_s < kNever) {
      row.deadline_s = job.told.deadline_s - now_;
    }
    const size_t entity = work_.job(job.index).entity;
    if (entity != TraceJob::kNoEntity) row.entity = static_cast<int>(entity);
  }
  if (options_.engine.placement_sensitive &&
      std::ranges::any_of(active_, [](const Active& job) {
        return job.told.scale_factor > 1;
      })) {
    for (size_t type = 0; type < problem.types.size(); ++type) {
      problem.servers.push_back(work_.Servers(type));
    }
  }
  for (const Active& job : active_) {
    for (size_t c = 0; c < problem.columns(); ++c) {
      problem.throughputs.push_back(
          work_.Alone(job.index, problem.TypeOfColumn(c),
                      work_.LevelIn(job.index, problem.TypeOfColumn(c),
                                    /*on_server=*/c < problem.types.size())));
    }
  }
  if (!options_.prices.empty()) {
    for (const std::string& type : problem.types) {
      problem.cost.push_back(options_.prices.At(type, now_));
    }
  }
  if (policy_->packs()) AddPairs(problem);
  return problem;
}

// Jobs that share a row of the throughputs have one kind, named by its first
// job.
void FluidSimulation::AddPairs(PolicyProblem& problem) const {
  std::map<ThroughputTable::Row, size_t> kind_of;
  std::vector<int> members(active_.size(), 0);
  for (size_t m = 0; m < active_.size(); ++m) {
    const std::optional<ThroughputTable::Row> row = work_.Row(active_[m].index);
    size_t kind = m;
    if (row.has_value()) kind = kind_of.emplace(*row, m).first->second;
    problem.kinds.push_back(kind);
    ++members[kind];
  }
  for (size_t a = 0; a < active_.size(); ++a) {
    if (members[a] == 0) continue;
    for (size_t b = members[a] > 1 ? a : a + 1; b < active_.size(); ++b) {
      if (members[b] == 0 ||
          active_[a].told.scale_factor != active_[b].told.scale_factor) {
        continue;
      }
      problem.pairs.push_back({a, b});
      for (size_t c = 0; c < problem.columns(); ++c) {
        const size_t type = problem.TypeOfColumn(c);
        const Locality level =
            c < problem.types.size() ? Locality::kServer : Locality::kCluster;
        problem.pair_throughputs.push_back(
            work_.Together(active_[a].index, active_[b].index, type, level));
        problem.pair_throughputs.push_back(
            work_.Together(active_[b].index, active_[a].index, type, level));
      }
    }
  }
}

void FluidSimulation::Take(const PolicyResult& result) {
  each_round_ = result.each_round;
  if (result.is_assignment) {
    for (const TypeAssignment& entry : result.assignment) {
      Give(entry.unit, entry.type, 1);
    }
    return;
  }
  const std::span<const ShareUnit> units = result.allocation.units();
  for (size_t u = 0; u < units.size(); ++u) {
    const std::span<const double> row = result.allocation.RowAt(u);
    for (size_t column = 0; column < row.size(); ++column) {
      if (row[column] > 0) Give(units[u], column, row[column]);
    }
  }
}

// On single servers unless the policy means it to be spread, as far as servers
// are large enough.
void FluidSimulation::Give(const ShareUnit& unit, size_t column, double share) {
  const size_t type = column % work_.types().size();
  const auto find = [this](JobId id) -> Active* {
    const auto found = std::lower_bound(active_.begin(), active_.end(), id,
                                        [](const Active& job, JobId key) {
                                          return job.index + 1 < key.value();
                                        });
    return found != active_.end() && found->index + 1 == id.value() ? &*found
                                                                    : nullptr;
  };
  const auto give = [&](Active* job, Active* other) {
    if (job == nullptr) return;
    const Locality level =
        work_.LevelIn(job->index, type,
                      column == type && work_.FitsOnServer(job->index, type));
    job->steps_per_s +=
        share * (other == nullptr
                     ? work_.Alone(job->index, type, level)
                     : work_.Together(job->index, other->index, type, level));
    job->share[type] += other == nullptr ? share : share / 2;
    job->share_total += share;
  };
  Active* const job = find(unit.job);
  Active* const partner = unit.packed() ? find(unit.partner) : nullptr;
  give(job, partner);
  if (partner != nullptr) give(partner, job);
}

absl::StatusOr<std::string> FluidSimulation::Checkpoint() const {
  return absl::UnimplementedError(
      "the ideal simulation has no checkpoints; leave --ideal or them out");
}

absl::Status FluidSimulation::Resume(std::string_view) {
  return Checkpoint().status();
}

SimulationResult FluidSimulation::Result() const {
  std::vector<SimulatedJob> running;
  for (const Active& job : active_) running.push_back(job.told);
  SimulationResult result =
      Summary(std::move(running), now_, work_.capacity(), busy_s_);
  result.total_cost = total_cost_;
  result.solves = solves_;
  return result;
}

// ---- simulations

absl::Status CheckFigure(std::string_view name, double value, double min,
                         bool above_min) {
  const bool fine =
      !std::isnan(value) && (above_min ? value > min : value >= min);
  if (fine) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(name, " is ", value, "; give one ",
             above_min ? "above " : "of at least ", min));
}

absl::Status CheckProfiling(const SimulationOptions& options) {
  GAVEL_RETURN_IF_ERROR(CheckFigure("the part of the cells that is profiled",
                                    options.profiling.part, 0, true));
  GAVEL_RETURN_IF_ERROR(CheckFigure("the time to profile a cell",
                                    options.profiling.cell_s, 0, false));
  if (options.profiling.part > 1) {
    return absl::InvalidArgumentError(
        StrCat("the part of the cells that is profiled is ",
               options.profiling.part, "; give one of at most 1"));
  }
  if (options.ideal) {
    return absl::InvalidArgumentError(
        "the ideal simulation knows all throughputs; leave out the estimator");
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const SimulationOptions& options) {
  GAVEL_RETURN_IF_ERROR(CheckFigure("the round duration",
                                    options.engine.round_duration_s,
                                    kRoundDurationMin_s, false));
  GAVEL_RETURN_IF_ERROR(CheckFigure("the reset interval",
                                    options.engine.reset_interval_s, 0, false));
  GAVEL_RETURN_IF_ERROR(
      CheckFigure("the time limit", options.time_limit_s, 0, true));
  GAVEL_RETURN_IF_ERROR(
      CheckFigure("the rate of failures", options.failures_per_hour, 0, false));
  GAVEL_RETURN_IF_ERROR(CheckFigure("the checkpoint interval",
                                    options.checkpoint_interval_s, 0, true));
  if (options.engine.reference_models > 0) {
    GAVEL_RETURN_IF_ERROR(CheckProfiling(options));
  }
  if (options.window_begin >= options.window_end) {
    return absl::InvalidArgumentError(
        StrCat("the window ", options.window_begin, ":", options.window_end,
               " holds no jobs; write BEGIN:END with BEGIN below END"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TraceSimulation>> TraceSimulation::Create(
    SimulationOptions options, const Trace& trace,
    const ThroughputTable& throughputs) {
  GAVEL_RETURN_IF_ERROR(CheckOptions(options));
  GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<Policy> policy,
                         MakePolicy(options.policy));
  options.engine.packing = policy->packs();
  options.engine.progress = policy->reads_progress();
  // The throughputs are borrowed, as Create() documents.
  options.engine.throughputs = std::shared_ptr<const ThroughputTable>(
      std::shared_ptr<void>(), &throughputs);
  // Introspection finds out by trying how jobs run beside each other.
  if (options.engine.introspection && !policy->packs() &&
      options.engine.reference_models == 0) {
    options.engine.throughputs = nullptr;
  }
  for (const TraceEntity& entity : trace.entities) {
    options.engine.entities.push_back(
        {entity.name, entity.weight, entity.policy});
  }
  GAVEL_ASSIGN_OR_RETURN(SimulatedWork work,
                         SimulatedWork::Create(options, trace, throughputs));
  if (options.window_begin >= work.size()) {
    return absl::InvalidArgumentError(
        StrCat("the window begins at job ", options.window_begin,
               ", and the trace ends at job ", work.size() - 1));
  }
  if (options.ideal) {
    const auto interactive =
        std::ranges::find(trace.jobs, true, &TraceJob::interactive);
    if (interactive != trace.jobs.end()) {
      return absl::InvalidArgumentError(
          StrCat("job ", interactive - trace.jobs.begin(),
                 " is interactive, and the ideal simulation pauses nothing for "
                 "it; leave out --ideal, or the interactive jobs"));
    }
    return std::make_unique<FluidSimulation>(
        std::move(options), std::move(work), std::move(policy));
  }
  return std::make_unique<RoundSimulation>(std::move(options), std::move(work),
                                           std::move(policy));
}

}  // namespace gavel
