#include "study/reproduce_run.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>

#include "absl/strings/str_format.h"
#include "coordinator/workload/toml_reader.h"
#include "core/status.h"
#include "core/text.h"
#include "core/units.h"
#include "study/reproduce_gandiva.h"

namespace gavel::study {
namespace {

constexpr char kLas[] = "max_min_fairness";
constexpr char kLasPerf[] = "max_min_fairness_perf";
constexpr char kLasPacked[] = "max_min_fairness_packed";

// The capacity of a cluster of 36 of each type for generated jobs: the rate at
// which the best division of types among jobs keeps all of it busy (a linear
// program over the published throughputs).
constexpr double kCapacity_per_h = 5.84;

// One published (or not published) figure.
struct Row {
  std::string_view policy;
  double rate_per_h;
  std::optional<double> published;
  Measure measure = Measure::kAvgJct;
};

constexpr Row kLasSingle[] = {
    {kLas, 2.0, 23.47},
    {kLas, 4.0, 23.49},
    {kLas, 5.6, 95.99},
    {kLasPerf, 2.0, 16.95},
    {kLasPerf, 4.0, 16.82},
    {kLasPerf, 5.6, 28.96},
    {"allox", 2.0, 16.93},
    {"allox", 4.0, 17.13},
    {"allox", 5.6, 25.32},
    {"gandiva", 2.0, std::nullopt},
    {"gandiva", 4.0, std::nullopt},
};

constexpr Row kLasMulti[] = {
    {kLas, 2.0, 28.91},     {kLas, 2.6, 70.54},       {kLasPerf, 2.0, 21.90},
    {kLasPerf, 2.6, 36.44}, {kLasPacked, 2.0, 20.85}, {kLasPacked, 2.6, 30.51},
};

constexpr Row kFifo[] = {
    {"fifo", 2.0, std::nullopt}, {"fifo", 4.0, std::nullopt},
    {"fifo_perf", 2.0, 15.45},   {"fifo_perf", 4.0, 17.08},
    {"fifo_perf", 5.6, 104.1},   {"fifo_packed", 4.0, std::nullopt},
};

constexpr Row kFinishTimeFairness[] = {
    {"finish_time_fairness", 2.0, std::nullopt},
    {"finish_time_fairness_perf", 2.0, 21.80},
    {"finish_time_fairness_perf", 2.6, 33.90},
};

constexpr Row kMakespan[] = {
    {"fifo", 0, 618, Measure::kMakespan},
    {"gandiva", 0, 346, Measure::kMakespan},
    {"min_total_duration_perf", 0, 243, Measure::kMakespan},
    {"min_total_duration_packed", 0, 226, Measure::kMakespan},
};

constexpr Row kPriorities[] = {
    {kLasPerf, 2.4, 18.55, Measure::kHighPriorityJct},
    {kLasPerf, 2.4, 20.18, Measure::kLowPriorityJct},
    {kLas, 2.4, std::nullopt, Measure::kHighPriorityJct},
    {kLas, 2.4, std::nullopt, Measure::kLowPriorityJct},
};

constexpr Row kPacking[] = {
    {kLasPerf, 1.2, 17.67}, {kLasPacked, 1.2, 19.69},
    {kLasPerf, 2.0, 16.95}, {kLasPacked, 2.0, 18.26},
    {kLasPerf, 4.0, 16.82}, {kLasPacked, 4.0, 16.96},
    {kLasPerf, 5.6, 28.96}, {kLasPacked, 5.6, 19.64},
    {kLasPerf, 6.0, 41.2},  {kLasPacked, 6.0, 20.4},
};

constexpr char kThroughput[] = "max_sum_throughput_perf";
constexpr char kCost[] = "max_sum_throughput_normalized_by_cost_perf";
constexpr char kCostSlos[] = "max_sum_throughput_normalized_by_cost_perf_SLOs";
constexpr Row kCostSlo[] = {
    {kThroughput, 0, 1.0, Measure::kCostSaving},
    {kCost, 0, 1.4, Measure::kCostSaving},
    {kCostSlos, 0, 1.23, Measure::kCostSaving},
    {kThroughput, 0, std::nullopt, Measure::kSloViolations},
    {kCost, 0, 0.35, Measure::kSloViolations},
    {kCostSlos, 0, 0.0, Measure::kSloViolations},
};

std::string LabelOf(const PaperCase& row) {
  std::string label = row.spec.policy;
  if (row.spec.rate_per_h > 0) {
    StrAppend(&label, absl::StrFormat(", %.4g jobs/h", row.spec.rate_per_h));
  }
  return label;
}

// The cases of `rows` on what `base` says.
template <size_t n>
std::vector<PaperCase> CasesOf(const Row (&rows)[n],
                               const SimulationSpec& base) {
  std::vector<PaperCase> cases;
  for (const Row& row : rows) {
    PaperCase& made = cases.emplace_back();
    made.spec = base;
    made.spec.policy = row.policy;
    made.spec.rate_per_h = row.rate_per_h;
    made.measure = row.measure;
    made.published = row.published;
    made.label = LabelOf(made);
  }
  return cases;
}

// "Continuous-single" and "continuous-multiple" of section 7.1.
SimulationSpec Continuous(bool multi_gpu) {
  SimulationSpec spec;
  spec.multi_gpu = multi_gpu;
  spec.window_begin = 4000;
  spec.window_end = 5000;
  return spec;
}

Experiment RoundLength() {
  Experiment made{
      "round-length",
      "Length of the round",
      "the paper, Figure 13a (no figures in print)",
      "JCT grows with the round; the paper finds 360 s a good compromise.",
      {},
      {Measure::kAvgJct, Measure::kWorstShare}};
  for (const double round_s : {360, 720, 1440, 2880}) {
    PaperCase& one = made.cases.emplace_back();
    one.spec = Continuous(true);
    one.spec.policy = kLasPerf;
    one.spec.rate_per_h = 2.0;
    one.spec.round_duration_s = round_s;
    one.measure = Measure::kJctRatio;
    one.label = absl::StrFormat("rounds of %.0f s", round_s);
  }
  return made;
}

Experiment MechanismAgainstIdeal() {
  Experiment made{"mechanism-vs-ideal",
                  "Mechanism against the ideal allocation",
                  "the paper, Figure 13b",
                  "The rounds do almost as well as shares given exactly: the "
                  "paper's lines lie on each other (a ratio of 1).",
                  {},
                  {Measure::kAvgJct}};
  for (const double rate : {2.0, 4.0, 5.6}) {
    for (const bool ideal : {true, false}) {
      PaperCase& one = made.cases.emplace_back();
      one.spec = Continuous(false);
      one.spec.policy = kLasPerf;
      one.spec.rate_per_h = rate;
      one.spec.ideal = ideal;
      one.measure = Measure::kJctRatio;
      one.published = 1.0;
      one.label = StrCat(LabelOf(one), ideal ? ", ideal" : ", rounds");
    }
  }
  return made;
}

Experiment OverheadsExperiment() {
  Experiment made{"overheads",
                  "What preemption costs, and the move-aware mechanism",
                  "none: the paper takes preemption to be free",
                  "Seconds lost by each preemption, at parts of the load that "
                  "the cluster can carry. Loads: of 5.84 jobs/h.",
                  {},
                  {Measure::kPreemptions, Measure::kMoves, Measure::kLostTime,
                   Measure::kWorstShare}};
  for (const int load_percent : {40, 80, 95}) {
    for (const int overhead_s : {0, 2, 30, 120}) {
      for (const char* mechanism : {"gavel", "move_aware"}) {
        PaperCase& one = made.cases.emplace_back();
        one.spec = Continuous(false);
        one.spec.policy = kLasPerf;
        one.spec.mechanism = mechanism;
        one.spec.rate_per_h = std::round(kCapacity_per_h * load_percent) / 100;
        if (overhead_s > 0) {
          one.spec.overheads = StrCat("resume=", overhead_s);
        }
        one.label =
            StrCat(load_percent, " % load, ", overhead_s, " s, ", mechanism);
      }
    }
  }
  return made;
}

Experiment EstimatorExperiment() {
  // Each job has one GPU: with 1 to 8 the 12 GPUs sustain only 0.31 jobs/h.
  SimulationSpec base = Continuous(false);
  base.cluster = "v100:4,p100:4,k80:4";
  base.rate_per_h = 0.65;
  base.policy = kLasPacked;
  Experiment made{
      "estimator",
      "Pairs with estimated throughputs",
      "the paper, Figure 14; seed 0",
      "4 GPUs of each type, one GPU a job. A fifth of the cells beside the "
      "reference models is profiled, a minute each, and charged; the rest is "
      "estimated, corrected by what is measured. Of 26 models each job's type "
      "is one, of 13 about half.",
      {},
      {Measure::kJctRatio, Measure::kProfilingTime}};
  const auto add = [&](const char* label, std::optional<double> published,
                       const SimulationSpec& spec) {
    made.cases.push_back({label, spec, Measure::kAvgJct, published});
  };
  add("all throughputs known", 21.7, base);
  SimulationSpec estimated = base;
  estimated.estimator = true;
  add("estimated, 26 reference models", 25.6, estimated);
  estimated.reference_models = 13;
  add("estimated, 13 reference models", std::nullopt, estimated);
  base.policy = kLasPerf;
  add("without pairs", std::nullopt, base);
  return made;
}

// Themis (NSDI'20, section 8): 256 GPUs on servers of 4, 2 and 1, apps of one
// to about a hundred jobs, of which 60 % do not care where they are. The
// paper's traces are not published: the apps are drawn, and how many servers
// there are of each size, and what the others lose when spread, is our choice.
// Jobs have 1 to 4 GPUs and take an hour alone, about the paper's median of 59
// minutes. In the ten hours in which apps arrive, they ask for about 1.6 times
// the cluster. Only apps count that arrive while this lasts: the last ones are
// alone for a part of their lives, which makes their rho that of a cluster
// without contention.
SimulationSpec ThemisCluster(uint64_t seed) {
  SimulationSpec spec;
  spec.cluster = "v100:128x4,v100:64x2,v100:64x1";
  spec.placement_sensitive = true;
  spec.sensitive_apps = 0.4;
  spec.spread_speed = 0.7;
  spec.multi_gpu = true;
  spec.scale_factor_max = 4;
  spec.fixed_duration_s = kHour_s;
  spec.app_jobs_max = 98;
  spec.rate_per_h = 10;  // apps
  spec.jobs = 2000;
  spec.window_begin = 200;
  spec.window_end = 1800;
  spec.round_duration_s = 1200;  // the paper's leases of 20 minutes
  spec.overheads = "resume=30";
  spec.seed = seed;
  return spec;
}

Experiment Themis() {
  Experiment made{
      "themis",
      "Themis: auctions between apps",
      "Themis (NSDI'20), Figure 5; no figures in print for our workload",
      "256 GPUs on servers of 4 (half of them), 2 and 1, apps of 1 to 98 jobs "
      "drawn log-uniformly, each an hour long on 1 to 4 GPUs, 30 s to resume. "
      "Apps of the first and the last tenth of the jobs do not count. "
      "Gangs of 40 % of the apps keep 0.7 "
      "of their speed when they are on several servers. The "
      "paper's Themis has a worst rho of 1.2 at the contention of its trace, "
      "and is up to 2.25 times fairer than the others.",
      {},
      {Measure::kMedianAppRho, Measure::kJainIndex, Measure::kAvgJct,
       Measure::kBusyTime}};
  for (const uint64_t seed : {0, 1, 2, 3, 4}) {
    for (const char* policy :
         {"themis", "strawman", "tiresias", "tiresias_gittins",
          "gandiva_reactive", "optimus", "slaq", "srtf", "drf",
          "max_min_fairness", "finish_time_fairness"}) {
      PaperCase& one = made.cases.emplace_back();
      one.spec = ThemisCluster(seed);
      one.spec.policy = policy;
      one.measure = Measure::kMaxAppRho;
      one.label = StrCat(policy, ", seed ", seed);
    }
  }
  return made;
}

Experiment ThemisOverheads() {
  Experiment made{
      "themis-overheads",
      "Themis: how much fairer, by what a restart costs",
      "Themis (NSDI'20), abstract: more than 2.25 times fairer",
      "The worst rho of each policy over that of themis, with 0, 2 and 30 s "
      "to resume. The jobs and the cluster are those of `themis`, seed 0. The "
      "paper has one figure, for the schedulers that it compares with; it "
      "stands beside tiresias here, which is one of them. "
      "Jobs report the losses of the default curve to optimus and slaq.",
      {},
      {Measure::kMaxAppRho, Measure::kMedianAppRho, Measure::kLostTime}};
  for (const char* overheads : {"none", "resume=2", "resume=30"}) {
    for (const char* policy : {"themis", "strawman", "tiresias",
                               "gandiva_reactive", "optimus", "slaq", "srtf"}) {
      PaperCase& one = made.cases.emplace_back();
      one.spec = ThemisCluster(0);
      one.spec.policy = policy;
      one.spec.overheads = overheads;
      one.measure = Measure::kMaxAppRhoRatio;
      if (one.spec.policy == "tiresias") one.published = 2.25;
      one.label = StrCat(policy, ", overheads ", overheads);
    }
  }
  return made;
}

Experiment ThemisLies() {
  Experiment made{
      "themis-lies",
      "Themis: apps that lie",
      "Themis (NSDI'20), section 2.3 (no figures in print)",
      "A quarter of the apps says that its rho is 2 or 5 times what it is. "
      "Ordering apps by what they say (strawman) gives them the cluster. The "
      "auction pays nothing for it, but a lie also gets an app into the offer "
      "to the worst-off; with f = 0 all apps are offered, and no lie counts.",
      {},
      {Measure::kHonestAppRho, Measure::kLyingAppRho}};
  for (const double lie : {1.0, 2.0, 5.0}) {
    for (const char* policy : {"strawman", "themis", "themis_f=0"}) {
      PaperCase& one = made.cases.emplace_back();
      one.spec = ThemisCluster(0);
      one.spec.policy = policy;
      one.spec.lying_apps = 0.25;
      one.spec.lie = lie;
      one.measure = Measure::kMaxHonestAppRho;
      one.label = lie == 1 ? StrCat(policy, ", no lies")
                           : absl::StrFormat("%s, rho times %g", policy, lie);
    }
  }
  return made;
}

Experiment ThemisKnob() {
  Experiment made{"themis-knob",
                  "Themis: the fairness knob f, and the length of leases",
                  "Themis (NSDI'20), Figures 8 and 9 (no figures in print)",
                  "The paper's worst rho falls and its accelerator time rises "
                  "with f; shorter leases are fairer.",
                  {},
                  {Measure::kMedianAppRho, Measure::kBusyTime}};
  const auto add = [&](const std::string& label, double f, double round_s) {
    PaperCase& one = made.cases.emplace_back();
    one.spec = ThemisCluster(0);
    one.spec.policy = absl::StrFormat("themis_f=%g", f);
    one.spec.round_duration_s = round_s;
    one.measure = Measure::kMaxAppRho;
    one.label = label;
  };
  for (const double f : {0.0, 0.2, 0.4, 0.6, 0.8, 1.0}) {
    add(absl::StrFormat("f = %g", f), f, 1200);
  }
  for (const int minutes : {5, 10, 20, 40, 60}) {
    add(StrCat("leases of ", minutes, " min"), 0.8, 60.0 * minutes);
  }
  return made;
}

std::vector<Experiment> JctExperiments() {
  SimulationSpec prioritized = Continuous(true);
  prioritized.multi_priority = true;
  return {
      {"las-single", "Least attained service, one GPU a job",
       "the paper, Figure 8; seed 0",
       "Jobs 4000 to 5000 of a continuous trace.",
       CasesOf(kLasSingle, Continuous(false))},
      {"las-multi", "Least attained service, 1 to 8 GPUs a job",
       "the paper, Figure 9; seed 0",
       "Jobs 4000 to 5000 of a continuous trace.",
       CasesOf(kLasMulti, Continuous(true))},
      {"fifo", "First in, first out", "the paper, section 7.3; seed 0",
       "Knowing the types helps most at high load.",
       CasesOf(kFifo, Continuous(false))},
      {"finish-time-fairness",
       "Finish-time fairness (Themis)",
       "the paper, Figure 10; seed 0",
       "rho: how much longer a job takes than with an equal part of the "
       "cluster.",
       CasesOf(kFinishTimeFairness, Continuous(true)),
       {Measure::kMaxRho}},
      {"priorities", "Jobs of two priorities",
       "the paper's runs with priorities; seed 0",
       "A fifth of the jobs has weight 5.", CasesOf(kPriorities, prioritized)},
      {"packing", "Two jobs on one accelerator", "the paper, Figure 8; seed 0",
       "It costs at low load and wins at high load.",
       CasesOf(kPacking, Continuous(false))},
      EstimatorExperiment()};
}

Experiment Makespan() {
  SimulationSpec at_once;
  at_once.multi_gpu = true;
  at_once.jobs = 700;
  return {"makespan", "Makespan of 700 jobs at once",
          "the paper, section 7.3; seed 0", "1 to 8 GPUs a job.",
          CasesOf(kMakespan, at_once)};
}

Experiment Cost(bool quick) {
  SimulationSpec spec;
  spec.prices = "gcp";
  return {"cost-slo",
          "Cost, and deadlines",
          "the paper, section 7.3",
          "The paper's trace is not published; ours is made of the same jobs, "
          "with arrivals of our own.",
          CasesOf(kCostSlo, spec),
          {Measure::kAvgJct},
          CostTrace(quick)};
}

// The experiments that need no simulation.
std::vector<Experiment> Analyses(bool quick) {
  std::vector<Experiment> all = {
      {"hierarchical", "Fairness among organisations", "the paper, Figure 11",
       "Three entities of weights 1, 2 and 3 with six jobs each, on 3 GPUs of "
       "each type."},
      {"throughput-ratios", "Throughputs, and throughputs per dollar",
       "the paper, Figure 1 and section 1",
       "Against a K80, at the prices of Google's cloud. The figure is older "
       "than the published table: its ResNet-50 gained more."},
      {"colocation", "Two jobs on one GPU", "the paper, Figure 4",
       "The part of its throughput that a row's job keeps beside a column's."},
      {"strategy-proofness", "What a lie is worth", "the paper, section 4.4",
       "The gain in true throughput of a job that misreports one of its "
       "throughputs."}};
  all[0].analyze = AnalyzeHierarchy;
  all[1].analyze = AnalyzeThroughputRatios;
  all[2].analyze = AnalyzeColocation;
  all[3].analyze = [quick](const ThroughputTable& throughputs) {
    return AnalyzeStrategyProofness(throughputs, quick);
  };
  return all;
}

void Shrink(SimulationSpec* spec) {
  if (spec->app_jobs_max > 0) {
    spec->cluster = "v100:32x4,v100:16x2,v100:16x1";
    spec->rate_per_h /= 4;
  }
  if (spec->cluster == SimulationSpec().cluster) {
    spec->cluster = "v100:9,p100:9,k80:9";
    spec->rate_per_h = std::round(spec->rate_per_h * 250) / 1000;
  }
  spec->jobs /= 10;
  spec->window_begin /= 10;
  spec->window_end /= 10;
}

}  // namespace

std::string_view MeasureTitle(Measure measure) {
  constexpr std::string_view kTitles[] = {
      "avg JCT (h)",        "avg JCT (h), weight 5", "avg JCT (h), weight 1",
      "makespan (h)",       "times cheaper",         "JCT / first",
      "SLOs violated",      "preemptions",           "moves",
      "lost time (h)",      "worst share",           "worst rho",
      "profiling (h)",      "worst rho of apps",     "median rho of apps",
      "Jain's index",       "accelerators (h)",      "times themis",
      "median, honest",     "worst, honest",         "median, lying",
      "utilisation / first"};
  return kTitles[static_cast<size_t>(measure)];
}

bool IsLowerBetter(Measure measure) {
  return measure != Measure::kCostSaving && measure != Measure::kWorstShare &&
         measure != Measure::kJainIndex &&
         measure != Measure::kMaxAppRhoRatio &&
         measure != Measure::kUtilizationRatio;
}

std::vector<Experiment> Experiments(bool quick) {
  std::vector<Experiment> all = JctExperiments();
  all.push_back(Makespan());
  all.push_back(Cost(quick));
  for (auto make : {RoundLength, MechanismAgainstIdeal, OverheadsExperiment,
                    Themis, ThemisKnob, ThemisOverheads, ThemisLies}) {
    all.push_back(make());
  }
  for (Experiment& experiment : all) {
    if (!quick) break;
    bool smaller = false;
    for (PaperCase& one : experiment.cases) {
      const std::string full_cluster = one.spec.cluster;
      const std::string full_label = LabelOf(one);
      Shrink(&one.spec);
      smaller |= one.spec.cluster != full_cluster;
      // Names the rate at which it was run.
      if (one.label.starts_with(full_label)) {
        one.label.replace(0, full_label.size(), LabelOf(one));
      }
    }
    StrAppend(&experiment.note, " Quick: ",
              smaller ? "a quarter of the cluster and of the rates, " : "",
              "a tenth of the jobs.");
  }
  // Those below know their quick sizes.
  for (auto& more : {Analyses(quick), GandivaExperiments(quick)}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

absl::StatusOr<std::vector<Experiment>> ChooseExperiments(std::string_view name,
                                                          bool quick) {
  std::vector<Experiment> all = Experiments(quick);
  if (name == "all") return all;
  const std::string beginning = StrCat(name, "-");
  std::vector<Experiment> chosen;
  std::vector<std::string_view> names;
  for (const Experiment& experiment : all) {
    names.push_back(experiment.name);
    if (experiment.name == name || experiment.name.starts_with(beginning)) {
      chosen.push_back(experiment);
    }
  }
  if (!chosen.empty()) return chosen;
  const std::string_view closest = ClosestWord(name, names);
  return absl::NotFoundError(
      StrCat("there is no result \"", name, "\"; ",
             closest.empty() ? "`gavel reproduce --list` lists them"
                             : StrCat("did you mean \"", closest, "\"?")));
}

std::string CostTrace(bool quick) {
  constexpr std::array<std::string_view, 2> kTypes = {
      "A3C", "ResNet-50 (batch size 128)"};
  constexpr std::array<double, 5> kDays = {0.5, 1, 2, 4, 8};
  constexpr std::array<double, 3> kSlos = {1.2, 2, 10};
  const int jobs = quick ? 100 : 500;
  // A mean of 3.1 days keeps about half of the v100 busy.
  const double interarrival_s = quick ? 14400 : 10800;
  std::mt19937_64 random(0);
  const auto pick = [&random](const auto& values) {
    return values[random() % values.size()];
  };
  std::string toml;
  double arrival_s = 0;
  for (int i = 0; i < jobs; ++i) {
    const std::string_view type = pick(kTypes);
    const double days = pick(kDays);
    StrAppend(&toml, "[[job]]\ntype = \"", type,
              "\"\nduration_s = ", FieldText(days * 86400),
              "\nslo = ", FieldText(pick(kSlos)),
              "\narrival_s = ", FieldText(arrival_s), "\n");
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;
    arrival_s += std::round(-std::log(1 - uniform) * interarrival_s);
  }
  return toml;
}

// ---- from the table to runs, and from runs to figures

namespace {

// The worst published average is 104 h.
constexpr double kJctLimit_s = 500 * kHour_s;
// The relative difference up to which a figure counts as reproduced.
constexpr double kTolerance = 0.05;

constexpr double kHighWeight = 5;

absl::StatusOr<double> JctOfWeight(SimulationStore& store, uint64_t run,
                                   bool high) {
  GAVEL_ASSIGN_OR_RETURN(const auto jobs, store.Jobs(run));
  double sum = 0;
  double count = 0;
  for (const SimulatedJob& job : jobs) {
    if (job.completion_s == kNever || (job.weight >= kHighWeight) != high) {
      continue;
    }
    sum += job.jct_s;
    ++count;
  }
  return count > 0 ? sum / count / kHour_s : kNaN;
}

double PartOf(uint64_t some, uint64_t all) {
  return all > 0 ? static_cast<double>(some) / static_cast<double>(all) : kNaN;
}

// `base`: the run that ratios refer to.
absl::StatusOr<double> ValueOf(Measure measure, const StoredRun& run,
                               const StoredRun* base, SimulationStore& store) {
  const SimulationResult& result = run.run.result;
  switch (measure) {
    case Measure::kAvgJct:
      return result.avg_jct_s / kHour_s;
    case Measure::kHighPriorityJct:
      return JctOfWeight(store, run.id, true);
    case Measure::kLowPriorityJct:
      return JctOfWeight(store, run.id, false);
    case Measure::kMakespan:
      return result.makespan_s / kHour_s;
    case Measure::kCostSaving:
      return base == nullptr ? kNaN
                             : base->run.result.total_cost / result.total_cost;
    case Measure::kJctRatio:
      return base == nullptr ? kNaN
                             : result.avg_jct_s / base->run.result.avg_jct_s;
    case Measure::kSloViolations:
      return PartOf(result.slo_violations, result.slo_jobs);
    case Measure::kPreemptions:
      return static_cast<double>(result.preemptions);
    case Measure::kMoves:
      return static_cast<double>(result.moves);
    case Measure::kLostTime:
      return result.lost_s / kHour_s;
    case Measure::kWorstShare:
      return result.worst_share;
    case Measure::kMaxRho:
      return result.max_rho;
    case Measure::kProfilingTime:
      return result.profiling_s / kHour_s;
    case Measure::kMaxAppRho:
      return result.max_app_rho;
    case Measure::kMedianAppRho:
      return result.median_app_rho;
    case Measure::kJainIndex:
      return result.app_jain_index;
    case Measure::kBusyTime:
      return result.busy_s / kHour_s;
    case Measure::kMaxAppRhoRatio:
      return base == nullptr
                 ? kNaN
                 : result.max_app_rho / base->run.result.max_app_rho;
    case Measure::kHonestAppRho:
      return result.median_honest_app_rho;
    case Measure::kMaxHonestAppRho:
      return result.max_honest_app_rho;
    case Measure::kLyingAppRho:
      return result.median_lying_app_rho;
    case Measure::kUtilizationRatio:
      return base == nullptr ? kNaN
                             : base->run.result.makespan_s / result.makespan_s;
  }
  return kNaN;
}

bool IsCount(Measure measure) {
  return measure == Measure::kPreemptions || measure == Measure::kMoves;
}

std::string Shown(Measure measure, double value) {
  if (!std::isfinite(value)) return "-";
  if (IsCount(measure)) return absl::StrFormat("%.0f", value);
  const double size = std::abs(value);
  return absl::StrFormat("%.*f", size < 10 ? 3 : size < 100 ? 2 : 1, value);
}

std::string ChangeOf(double ours, double base) {
  if (base == 0) return ours == 0 ? "as many" : "more";
  return absl::StrFormat("%+.0f %%", 100 * (ours / base - 1));
}

std::string Verdict(const PaperCase& one, double ours, bool comparable) {
  if (!one.published || !std::isfinite(ours) || !comparable) return "";
  if (*one.published == 0) return ours == 0 ? "same" : "more";
  const double ratio = ours / *one.published;
  const bool better = IsLowerBetter(one.measure) ? ratio <= 1 : ratio >= 1;
  const std::string difference = absl::StrFormat("%+.1f %%", 100 * (ratio - 1));
  if (std::abs(ratio - 1) <= kTolerance) return difference;
  return StrCat(difference, better ? ", better" : ", worse");
}

class Comparer {
 public:
  Comparer(const Experiment& experiment, const FindRun& find,
           SimulationStore& store, bool comparable)
      : experiment_(experiment),
        find_(find),
        store_(store),
        comparable_(comparable) {}

  absl::StatusOr<ExperimentTable> Compare() {
    ExperimentTable table;
    if (OneMeasure()) {
      table.titles = {
          "CASE", StrCat("OURS, ", MeasureTitle(experiment_.cases[0].measure))};
    } else {
      table.titles = {"CASE", "MEASURE", "OURS"};
    }
    table.titles.insert(table.titles.end(), {"PUBLISHED", "DIFFERENCE"});
    for (const Measure measure : experiment_.more) {
      table.titles.emplace_back(MeasureTitle(measure));
    }
    table.titles.emplace_back("NOTE");
    for (const PaperCase& one : experiment_.cases) {
      GAVEL_ASSIGN_OR_RETURN(std::vector<std::string> row, RowOf(one));
      table.rows.push_back(std::move(row));
    }
    return table;
  }

 private:
  bool OneMeasure() const {
    return std::ranges::all_of(experiment_.cases, [this](const auto& one) {
      return one.measure == experiment_.cases[0].measure;
    });
  }

  // The first case with the same rate and overheads.
  std::optional<StoredRun> BaseOf(const PaperCase& one) const {
    for (const PaperCase& other : experiment_.cases) {
      if (other.spec.rate_per_h == one.spec.rate_per_h &&
          other.spec.overheads == one.spec.overheads) {
        return find_(other.spec);
      }
    }
    return std::nullopt;
  }

  absl::StatusOr<std::vector<std::string>> RowOf(const PaperCase& one) {
    const std::optional<StoredRun> run = find_(one.spec);
    std::vector<std::string> row = {one.label};
    if (!OneMeasure()) row.emplace_back(MeasureTitle(one.measure));
    const std::string published =
        one.published ? Shown(one.measure, *one.published) : "";
    if (!run || run->run.status != RunStatus::kOk) {
      row.insert(row.end(), {"-", published, ""});
      row.resize(row.size() + experiment_.more.size());
      row.push_back(
          run ? StrCat(RunStatusName(run->run.status), ": ", run->run.detail)
              : "not run");
      return row;
    }
    const std::optional<StoredRun> base = BaseOf(one);
    const StoredRun* const base_run = base ? &*base : nullptr;
    GAVEL_ASSIGN_OR_RETURN(const double ours,
                           ValueOf(one.measure, *run, base_run, store_));
    row.push_back(Shown(one.measure, ours));
    row.push_back(published);
    row.push_back(Verdict(one, ours, comparable_));
    for (const Measure measure : experiment_.more) {
      GAVEL_ASSIGN_OR_RETURN(const double value,
                             ValueOf(measure, *run, base_run, store_));
      row.push_back(Shown(measure, value));
    }
    row.push_back(SavingOf(one, run->run.result));
    return row;
  }

  // The saving of the move-aware mechanism over the paper's, all else equal.
  std::string SavingOf(const PaperCase& one, const SimulationResult& ours) {
    if (one.spec.mechanism != "move_aware") return "";
    SimulationSpec spec = one.spec;
    spec.mechanism = "gavel";
    const std::optional<StoredRun> other = find_(spec);
    if (!other || other->run.status != RunStatus::kOk) return "";
    const SimulationResult& base = other->run.result;
    return StrCat("moves ",
                  ChangeOf(static_cast<double>(ours.moves),
                           static_cast<double>(base.moves)),
                  ", lost time ", ChangeOf(ours.lost_s, base.lost_s),
                  ", worst share ",
                  ChangeOf(ours.worst_share, base.worst_share));
  }

  const Experiment& experiment_;
  const FindRun& find_;
  SimulationStore& store_;
  const bool comparable_;
};

// Columns of empty cells only are left out.
ReportTable WithoutEmptyColumns(ReportTable table) {
  for (size_t i = table.titles.size(); i-- > 0;) {
    const bool empty = std::ranges::all_of(
        table.rows, [i](const auto& row) { return row[i].empty(); });
    if (!empty) continue;
    table.titles.erase(table.titles.begin() + static_cast<long>(i));
    for (auto& row : table.rows) row.erase(row.begin() + static_cast<long>(i));
  }
  return table;
}

// The columns of numbers only.
std::vector<bool> Aligned(const ReportTable& table) {
  std::vector<bool> right;
  for (size_t i = 0; i < table.titles.size(); ++i) {
    right.push_back(std::ranges::all_of(table.rows, [i](const auto& row) {
      return row[i].find_first_not_of("0123456789.+-% ") == std::string::npos;
    }));
  }
  return right;
}

std::string NoteOf(const Experiment& experiment) {
  return StrCat(experiment.note, " Published: ", experiment.source, ".");
}

}  // namespace

SweepSpec SweepOf(const std::vector<Experiment>& experiments) {
  SweepSpec sweep;
  sweep.jct_limit_s = kJctLimit_s;
  sweep.record = SweepRecord::kNone;
  for (const Experiment& experiment : experiments) {
    for (const PaperCase& one : experiment.cases) {
      if (std::ranges::find(sweep.runs, one.spec) == sweep.runs.end()) {
        sweep.runs.push_back(one.spec);
      }
    }
  }
  return sweep;
}

absl::StatusOr<ExperimentTable> Compare(const Experiment& experiment,
                                        const FindRun& find,
                                        SimulationStore& store,
                                        bool comparable) {
  return Comparer(experiment, find, store, comparable).Compare();
}

std::string RenderReproduction(const Reproduction& reproduction, size_t width) {
  constexpr size_t kColumnWidth = 48;
  const ReportTable table = WithoutEmptyColumns(reproduction.table);
  const Experiment& experiment = reproduction.experiment;
  return StrCat(experiment.name, ": ", experiment.title, "\n  ",
                NoteOf(experiment), "\n",
                RenderText(table, Aligned(table), width, kColumnWidth),
                reproduction.table.drawing, "\n");
}

std::string RenderMarkdown(const std::vector<Reproduction>& all, bool quick) {
  std::string text = StrCat(
      "# Results of the paper, reproduced\n\nMade by `gavel reproduce all "
      "--markdown",
      quick ? " --quick" : "",
      "`. The paper: Narayanan et al., "
      "Heterogeneity-Aware Cluster Scheduling\nPolicies for Deep Learning "
      "Workloads, OSDI 2020. JCT: job completion time. 36 GPUs of each of "
      "V100,\nP100 and K80, rounds of 360 s, preemption free, unless said.\n");
  if (quick) {
    text +=
        "\nQuick: a quarter of the cluster and of the rates, a tenth of "
        "the jobs; not comparable with the\npublished figures.\n";
  }
  for (const Reproduction& one : all) {
    const ReportTable table = WithoutEmptyColumns(one.table);
    StrAppend(&text, "\n## ", one.experiment.title, " (`", one.experiment.name,
              "`)\n\n", NoteOf(one.experiment), "\n\n",
              RenderMarkdown(table, Aligned(table)));
  }
  return text;
}

ReportPage PageOf(const std::vector<Reproduction>& all) {
  ReportPage page{"Results of the paper, reproduced",
                  "Ours beside the published figures.",
                  {}};
  for (const Reproduction& one : all) {
    ReportSection& section = page.sections.emplace_back();
    section.id = one.experiment.name;
    section.title = one.experiment.title;
    section.text = NoteOf(one.experiment);
    section.figures = one.table.figures;
    section.table = WithoutEmptyColumns(one.table);
    section.csv = Csv(section.table);
  }
  return page;
}

}  // namespace gavel::study
