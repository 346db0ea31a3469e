#include "study/reproduce_gandiva.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_format.h"
#include "coordinator/tune/optimiser.h"
#include "coordinator/workload/trace_generator.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"
#include "core/units.h"

namespace gavel::study {
namespace {

// Time slices of the paper.
constexpr double kGandivaSlice_s = 60;

absl::StatusOr<SimulationResult> RunToEnd(const SimulationOptions& options,
                                          const Trace& trace,
                                          const ThroughputTable& throughputs) {
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<TraceSimulation> simulation,
                         TraceSimulation::Create(options, trace, throughputs));
  constexpr uint64_t kEvents = 100'000;
  while (!simulation->Run(kEvents)) {
  }
  return simulation->Result();
}

// ---- section 6.1: time slices

// More jobs than accelerators on one server, which take turns.
Experiment TimeSlices() {
  Experiment made{
      "gandiva-slicing",
      "Gandiva: time slices",
      "Gandiva (OSDI'18), section 6.1: equal shares",
      "Simulated: six jobs of one GPU and of six hours each on a server of 4, "
      "1 s to pause and 1 s to resume. With equal shares no job takes longer "
      "than in an equal part of the server (a rho of 1), and the server is "
      "busy for 9 h.",
      {},
      {Measure::kMakespan, Measure::kAvgJct, Measure::kPreemptions,
       Measure::kLostTime}};
  for (const char* policy : {"gandiva_reactive", "fifo"}) {
    for (const double slice_s : {kGandivaSlice_s, 360.0}) {
      PaperCase& one = made.cases.emplace_back();
      one.spec.cluster = "v100:4x4";
      one.spec.jobs = 6;
      one.spec.fixed_duration_s = 6 * kHour_s;
      one.spec.overheads = "pause=1,resume=1";
      one.spec.policy = policy;
      one.spec.round_duration_s = slice_s;
      one.measure = Measure::kMaxRho;
      one.label = absl::StrFormat("%s, slices of %.0f s", policy, slice_s);
    }
  }
  return made;
}

// ---- section 6.3: time slices and packing on the cluster

// The jobs are the same in all cases and all of them end, so the work done for
// each hour of the cluster is to that of the first case as the first case's
// makespan is to this one's.
Experiment ClusterOfGandiva(bool quick) {
  Experiment made{
      "gandiva-cluster",
      "Gandiva: utilisation of a cluster",
      "Gandiva (OSDI'18), section 6.3 and abstract: 26 % more utilisation",
      "Simulated: 180 V100 on servers of 4, 720 jobs of 1 to 4 GPUs and of two "
      "hours each, which arrive within about six hours; slices of 60 s, 1 s to "
      "pause, 1 s to resume and 5 s to move. Utilisation is the work that is "
      "done in an hour, over that of `fifo`, where a job keeps its GPUs to its "
      "end. The paper's is what its GPUs report, live, of other models and on "
      "other GPUs. How jobs run beside each other is found by trying.",
      {},
      {Measure::kMakespan, Measure::kAvgJct, Measure::kPreemptions,
       Measure::kMoves, Measure::kLostTime}};
  const auto add = [&](const char* policy, bool introspection,
                       std::optional<double> published) {
    PaperCase& one = made.cases.emplace_back();
    one.spec.cluster = quick ? "v100:44x4" : "v100:180x4";
    one.spec.multi_gpu = true;
    one.spec.scale_factor_max = 4;
    one.spec.jobs = quick ? 180 : 720;
    one.spec.rate_per_h = quick ? 30 : 120;
    one.spec.fixed_duration_s = 2 * kHour_s;
    one.spec.round_duration_s = kGandivaSlice_s;
    one.spec.overheads = "pause=1,resume=1,move=5";
    one.spec.policy = policy;
    one.spec.introspection = introspection;
    one.measure = Measure::kUtilizationRatio;
    one.published = published;
    one.label = StrCat(policy, introspection ? ", introspection" : "");
  };
  add("fifo", false, std::nullopt);
  add("fifo", true, std::nullopt);
  add("gandiva_reactive", false, std::nullopt);
  add("gandiva_reactive", true, 1.26);
  add("max_min_fairness", false, std::nullopt);
  add("max_min_fairness", true, std::nullopt);
  return made;
}

// ---- section 6.4: time slices and migration on the cluster

Experiment Migration(bool quick) {
  Experiment made{
      "gandiva-migration",
      "Gandiva: migration",
      "Gandiva (OSDI'18), section 6.4; not compared, as its jobs are not "
      "published",
      "Simulated: 100 V100 on servers of 4, 300 jobs of 1, 2 or 4 GPUs and of "
      "0.5 to 8 hours, of a type of which no two fit on one GPU, so that "
      "introspection only moves jobs: to GPUs that others left, and gangs to "
      "one server. A gang keeps 0.7 of its speed on several servers; 5 s to "
      "move.",
      {},
      {Measure::kAvgJct, Measure::kMakespan, Measure::kMoves,
       Measure::kLostTime}};
  made.trace = MigrationTrace(quick);
  for (const char* policy : {"fifo", "gandiva_reactive"}) {
    for (const bool introspection : {false, true}) {
      PaperCase& one = made.cases.emplace_back();
      one.spec.cluster = quick ? "v100:24x4" : "v100:100x4";
      one.spec.placement_sensitive = true;
      one.spec.sensitive_apps = 1;
      one.spec.spread_speed = 0.7;
      one.spec.round_duration_s = kGandivaSlice_s;
      one.spec.overheads = "pause=1,resume=1,move=5";
      one.spec.policy = policy;
      one.spec.introspection = introspection;
      one.measure = Measure::kJctRatio;
      one.label = StrCat(policy, introspection ? ", migration" : "");
    }
  }
  return made;
}

}  // namespace

std::string MigrationTrace(bool quick) {
  constexpr std::array<int, 10> kScaleFactors = {1, 1, 1, 1, 1, 1, 2, 2, 4, 4};
  const int jobs = quick ? 75 : 300;
  const double interarrival_s = quick ? 240 : 60;
  std::mt19937_64 random(0);
  const auto uniform = [&random] {
    return static_cast<double>(random() >> 11) * 0x1p-53;
  };
  std::string toml;
  double arrival_s = 0;
  for (int i = 0; i < jobs; ++i) {
    const int scale_factor = kScaleFactors[random() % kScaleFactors.size()];
    const double hours = 0.5 * std::pow(16, uniform());
    // An app of its own, because gangs of apps lose speed when spread.
    StrAppend(&toml,
              "[[job]]\ntype = \"ResNet-50 (batch size 128)\"\napp = \"app-", i,
              "\"\nscale_factor = ", scale_factor,
              "\nduration_s = ", FieldText(std::round(hours * kHour_s)),
              "\narrival_s = ", FieldText(arrival_s), "\n");
    arrival_s += std::round(-std::log(1 - uniform()) * interarrival_s);
  }
  return toml;
}

// ---- section 6.2: hyperparameter search

namespace {

constexpr int kTrials = 64;
// How many of the first kTrials are good.
constexpr size_t kGoodTrials = 3;
constexpr uint64_t kRungs = 64;  // parts in which a trial's steps are counted

// The accuracy of a trial after a part of its steps.
struct LearningCurve {
  double best = 0;
  double pace = 0;
  double At(double part) const { return best * (1 - std::exp(-part / pace)); }
};

LearningCurve DrawCurve(uint64_t seed, int trial) {
  const auto number = static_cast<uint64_t>(trial);
  return {0.1 + 0.85 * tune::Draw(seed, number, 0, 0),
          0.05 * std::pow(6, tune::Draw(seed, number, 1, 0))};
}

double GoodAccuracy(uint64_t seed) {
  std::vector<double> accuracies;
  for (int trial = 0; trial < kTrials; ++trial) {
    accuracies.push_back(DrawCurve(seed, trial).At(1));
  }
  std::ranges::sort(accuracies, std::greater<>());
  return accuracies[kGoodTrials - 1];
}

// A trial's job, of the first of Gavel's types that the table has on the v100.
struct TrialJob {
  JobTemplate type;
  double steps_per_s = 0;
};

absl::StatusOr<TrialJob> FindTrialJob(const ThroughputTable& throughputs) {
  const auto v100 = throughputs.FindType("v100");
  for (const JobTemplate& job : GavelJobTable()) {
    const auto row = throughputs.FindRow(job.type, 1);
    if (!v100 || !row) continue;
    const double steps_per_s = throughputs.Alone(*row, *v100).value_or(0);
    if (steps_per_s > 0) return TrialJob{job, steps_per_s};
  }
  return absl::InvalidArgumentError(
      "the throughputs have none of Gavel's job types on the v100; give those "
      "that Gavel published");
}

}  // namespace

absl::StatusOr<double> TimeToGoodTrial(const SearchCase& search,
                                       const ThroughputTable& throughputs) {
  GAVEL_ASSIGN_OR_RETURN(const TrialJob job, FindTrialJob(throughputs));
  const auto rung = std::max<uint64_t>(
      1, static_cast<uint64_t>(job.steps_per_s * search.trial_s / kRungs));
  const uint64_t steps = rung * kRungs;
  std::string file =
      StrCat("name = 'search'\nmetric = 'accuracy'\ngoal = 'max'\nmethod = '",
             search.method, "'\nsteps = ", steps, "\nseed = ", search.seed,
             "\ntrials_at_once = ", 4 * kTrials, "\n");
  if (search.method != "random") {
    StrAppend(&file, "steps_min = ", rung, "\neta = 4\n");
  }
  // HyperBand counts its trials itself.
  if (search.method != "hyperband") {
    StrAppend(&file, "trials = ", kTrials, "\n");
  }
  StrAppend(
      &file,
      "[[parameter]]\nname = 'lr'\nkind = 'uniform'\nmin = 0.0\nmax = 1.0\n");
  GAVEL_ASSIGN_OR_RETURN(const tune::SearchSpec spec,
                         tune::ParseSearchSpec(file, "search"));
  SimulationOptions options;
  options.policy = search.policy;
  options.cluster = {{"v100", search.accelerators, search.accelerators}};
  options.engine.round_duration_s = kGandivaSlice_s;
  options.overheads.all = {.pause_s = 1, .resume_s = 1, .move_s = 1};
  const double good = GoodAccuracy(search.seed);
  double now = 0;
  std::vector<tune::SegmentRecord> begun;
  // The segments that a decision begins are jobs that come at once, and the
  // next decision is made when all of them have ended.
  while (true) {
    tune::Plan plan = tune::Decide(spec, begun);
    if (plan.next.empty()) return kNever;
    Trace trace;
    trace.templates.push_back(job.type);
    for (const tune::Segment& segment : plan.next) {
      trace.jobs.emplace_back().steps_total =
          static_cast<double>(segment.to_steps - segment.from_steps);
    }
    GAVEL_ASSIGN_OR_RETURN(const SimulationResult result,
                           RunToEnd(options, trace, throughputs));
    if (!result.complete || result.jobs.size() != plan.next.size()) {
      return absl::InternalError(
          StrCat("the search did not end: ", result.stopped));
    }
    double found = kNever;
    for (size_t i = 0; i < plan.next.size(); ++i) {
      tune::SegmentRecord& record =
          begun.emplace_back(tune::SegmentRecord{std::move(plan.next[i])});
      const tune::Segment& segment = record.segment;
      record.outcome = tune::Outcome::kDone;
      record.value = DrawCurve(search.seed, segment.trial)
                         .At(static_cast<double>(segment.to_steps) /
                             static_cast<double>(steps));
      if (segment.to_steps == steps && record.value >= good) {
        found = std::min(found, now + result.jobs[i].completion_s);
      }
    }
    if (found < kNever) return found;
    now += result.makespan_s;
  }
}

namespace {

absl::StatusOr<ExperimentTable> AnalyzeSearch(
    const ThroughputTable& throughputs, bool quick) {
  struct Way {
    std::string_view method;
    std::string_view policy;
    std::string_view published;
  };
  constexpr std::array<Way, 4> kWays = {
      {{"random", "fifo", "1"},
       {"random", "gandiva_reactive", ""},
       {"successive_halving", "gandiva_reactive", "up to 10"},
       {"hyperband", "gandiva_reactive", ""}}};
  const uint64_t seeds = quick ? 2 : 20;
  ExperimentTable table;
  table.titles = {"GPUS",  "METHOD",   "POLICY",
                  "FOUND", "MEAN (h)", "TIMES SOONER, MEAN",
                  "MOST",  "PUBLISHED"};
  for (const int accelerators : {4, 16}) {
    std::vector<double> first;  // of the first way, by seed
    for (const Way& way : kWays) {
      int found = 0;
      double sum_s = 0;
      double sum = 0;
      double most = 0;
      for (uint64_t seed = 0; seed < seeds; ++seed) {
        SearchCase search{way.method, way.policy, accelerators, seed};
        if (quick) search.trial_s /= 4;
        GAVEL_ASSIGN_OR_RETURN(const double time_s,
                               TimeToGoodTrial(search, throughputs));
        if (first.size() == seed) first.push_back(time_s);
        if (time_s >= kNever) continue;
        ++found;
        sum_s += time_s;
        sum += first[seed] / time_s;
        most = std::max(most, first[seed] / time_s);
      }
      table.rows.push_back(
          {StrCat(accelerators), std::string(way.method),
           std::string(way.policy), StrCat(found, " of ", seeds),
           found > 0 ? FormatNumber(sum_s / found / kHour_s, 2) : "-",
           found > 0 ? FormatNumber(sum / found, 2) : "-",
           found > 0 ? FormatNumber(most, 2) : "-",
           std::string(way.published)});
    }
  }
  return table;
}

}  // namespace

// ---- section 4.2: trials that are undone

namespace {

constexpr int kTrialTypes = 5;
constexpr int kTrialJobs = 24;
constexpr double kTrialHours = 5;
// The largest loss that introspection may cause.
constexpr double kLossMax = 0.02;

// Job types with random speeds on one accelerator type. Beside each other two
// jobs keep parts of their speeds between the bounds.
ThroughputTable RandomTrialTable(std::mt19937_64& random, double kept_min,
                                 double kept_max) {
  std::uniform_real_distribution<double> speed(1, 10);
  std::uniform_real_distribution<double> kept(kept_min, kept_max);
  std::array<double, kTrialTypes> alone{};
  for (double& one : alone) one = speed(random);
  std::array<std::array<double, kTrialTypes>, kTrialTypes> beside{};
  for (auto& row : beside) {
    for (double& one : row) one = kept(random);
  }
  std::string json = "{\"fast\": {";
  for (size_t a = 0; a < kTrialTypes; ++a) {
    StrAppend(&json, a > 0 ? ", " : "", "\"('t", a,
              "', 1)\": {\"null\": ", alone[a]);
    for (size_t b = 0; b < kTrialTypes; ++b) {
      StrAppend(&json, ", \"('t", b, "', 1)\": [", alone[a] * beside[a][b],
                ", ", alone[b] * beside[b][a], "]");
    }
    StrAppend(&json, "}");
  }
  StrAppend(&json, "}}");
  return *ThroughputTable::Parse(json, "random");
}

// The work done within the time limit, in seconds of each job alone.
double WorkDone(const ThroughputTable& table, const SimulationResult& result) {
  double sum_s = 0;
  for (const SimulatedJob& job : result.jobs) {
    const auto row = table.FindRow(job.type, 1);
    sum_s += job.steps / *table.Alone(*row, 0);
  }
  return sum_s;
}

}  // namespace

TrialWorkload RandomTrialWorkload(uint64_t seed, double kept_min,
                                  double kept_max) {
  std::mt19937_64 random(seed);
  TrialWorkload made{RandomTrialTable(random, kept_min, kept_max), {}, {}};
  std::uniform_int_distribution<int> type(0, kTrialTypes - 1);
  std::uniform_real_distribution<double> arrival_s(0, kHour_s);
  std::uniform_real_distribution<double> steps(10'000, 200'000);
  // Jobs of equal weights would take turns in lockstep, with hardly a move,
  // until the first trial.
  std::uniform_real_distribution<double> weight(0.8, 1.25);
  for (size_t i = 0; i < kTrialTypes; ++i) {
    made.trace.templates.emplace_back().type = StrCat("t", i);
  }
  std::vector<double> arrivals_s(kTrialJobs);
  for (double& one : arrivals_s) one = arrival_s(random);
  std::ranges::sort(arrivals_s);
  for (const double at : arrivals_s) {
    TraceJob& job = made.trace.jobs.emplace_back();
    job.job_template = static_cast<size_t>(type(random));
    job.steps_total = steps(random);
    job.arrival_s = at;
    job.weight = weight(random);
  }
  constexpr const char* kPolicies[] = {"max_min_fairness", "gandiva_reactive",
                                       "fifo", "max_min_fairness_perf"};
  made.options.policy = kPolicies[seed % std::size(kPolicies)];
  made.options.cluster = {{"fast", 4, seed % 2 == 0 ? 2 : 4}};
  made.options.engine.round_duration_s = kGandivaSlice_s;
  made.options.overheads.all = {.pause_s = 1, .resume_s = 3, .move_s = 10};
  made.options.time_limit_s = kTrialHours * kHour_s;
  return made;
}

absl::StatusOr<TrialOutcome> TryIntrospection(const TrialWorkload& workload) {
  SimulationOptions tries = workload.options;
  tries.engine.introspection = true;
  GAVEL_ASSIGN_OR_RETURN(
      const SimulationResult without,
      RunToEnd(workload.options, workload.trace, workload.table));
  GAVEL_ASSIGN_OR_RETURN(const SimulationResult with,
                         RunToEnd(tries, workload.trace, workload.table));
  return TrialOutcome{
      WorkDone(workload.table, with) / WorkDone(workload.table, without) - 1,
      without.preemptions, with.preemptions};
}

namespace {

absl::StatusOr<ExperimentTable> AnalyzeIntrospection(bool quick) {
  struct Pairs {
    const char* name;
    double kept_min;
    double kept_max;
  };
  constexpr std::array<Pairs, 3> kPairKinds = {
      {{"lose", 0.1, 0.5}, {"gain", 0.5, 1}, {"lose or gain", 0.1, 1}}};
  struct Sum {
    uint64_t workloads = 0;
    double least = 0;
    double sum = 0;
    double most = 0;
    uint64_t lost = 0;
    double pauses_without = 0;
    double pauses_with = 0;
  };
  std::array<Sum, kPairKinds.size()> sums{};
  const uint64_t workloads = quick ? 24 : 1000;
  for (uint64_t seed = 0; seed < workloads; ++seed) {
    const Pairs& pairs = kPairKinds[seed % kPairKinds.size()];
    GAVEL_ASSIGN_OR_RETURN(const TrialOutcome outcome,
                           TryIntrospection(RandomTrialWorkload(
                               seed, pairs.kept_min, pairs.kept_max)));
    Sum& sum = sums[seed % kPairKinds.size()];
    const bool first = sum.workloads++ == 0;
    sum.least = first ? outcome.gain : std::min(sum.least, outcome.gain);
    sum.most = first ? outcome.gain : std::max(sum.most, outcome.gain);
    sum.sum += outcome.gain;
    sum.lost += outcome.gain < -kLossMax ? 1 : 0;
    sum.pauses_without += static_cast<double>(outcome.pauses_without);
    sum.pauses_with += static_cast<double>(outcome.pauses_with);
  }
  ExperimentTable table;
  table.titles = {"PAIRS",
                  "WORKLOADS",
                  "LEAST GAIN %",
                  "MEAN %",
                  "MOST %",
                  "LOST MORE THAN 2 %",
                  "PAUSES A JOB AND HOUR",
                  "WITH INTROSPECTION"};
  for (size_t i = 0; i < kPairKinds.size(); ++i) {
    const Sum& sum = sums[i];
    const auto count = static_cast<double>(sum.workloads);
    const double job_hours = count * kTrialJobs * kTrialHours;
    table.rows.push_back({kPairKinds[i].name, StrCat(sum.workloads),
                          absl::StrFormat("%.2f", 100 * sum.least),
                          absl::StrFormat("%.2f", 100 * sum.sum / count),
                          absl::StrFormat("%.2f", 100 * sum.most),
                          StrCat(sum.lost),
                          FormatNumber(sum.pauses_without / job_hours, 2),
                          FormatNumber(sum.pauses_with / job_hours, 2)});
  }
  return table;
}

Experiment Computed(
    std::string name, std::string title, std::string source, std::string note,
    std::function<absl::StatusOr<ExperimentTable>(const ThroughputTable&)>
        analyze) {
  Experiment made{std::move(name), std::move(title), std::move(source),
                  std::move(note)};
  made.analyze = std::move(analyze);
  return made;
}

}  // namespace

std::vector<Experiment> GandivaExperiments(bool quick) {
  std::vector<Experiment> all;
  all.push_back(Computed("gandiva-packing", "Gandiva: two jobs on one GPU",
                         "Gandiva (OSDI'18), section 3; live, of other models",
                         "Computed from the throughputs of pairs on the P100.",
                         AnalyzePacking));
  all.push_back(Computed(
      "gandiva-introspection", "Gandiva: trials that are undone",
      "none: the paper states no limit",
      "Simulated: 24 jobs that need 4 GPUs for more than five hours, with "
      "random speeds alone and beside each other, under four policies. "
      "Gain: of the work done in that time, over that of the same policy "
      "without introspection. The aim here is to lose 2 % at most.",
      [quick](const ThroughputTable&) { return AnalyzeIntrospection(quick); }));
  all.push_back(TimeSlices());
  all.push_back(Computed(
      "gandiva-automl", "Gandiva: hyperparameter search",
      "Gandiva (OSDI'18), section 6.2 and abstract: up to an order of "
      "magnitude sooner",
      "Simulated: 64 trials of two hours each on one server; the time until a "
      "trial that is as good as the third best of them has trained to its end. "
      "The first way trains one trial after the other, each to its end. The "
      "others see all trials early, by slices of 60 s, and those with a method "
      "of `gavel tune` stop the worse ones. The paper's searches are live; our "
      "learning curves are drawn.",
      [quick](const ThroughputTable& throughputs) {
        return AnalyzeSearch(throughputs, quick);
      }));
  all.push_back(ClusterOfGandiva(quick));
  all.push_back(Migration(quick));
  for (Experiment& experiment : all) {
    if (!quick || experiment.name == "gandiva-packing" ||
        experiment.name == "gandiva-slicing") {
      continue;
    }
    experiment.note += " Quick: a part of the cluster, jobs or seeds.";
  }
  return all;
}

}  // namespace gavel::study
