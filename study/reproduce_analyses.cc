#include "study/reproduce_analyses.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <utility>

#include "absl/strings/str_format.h"
#include "coordinator/policy/policy.h"
#include "coordinator/workload/price_series.h"
#include "coordinator/workload/trace_generator.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"
#include "study/report_page.h"

namespace gavel::study {
namespace {

absl::StatusOr<size_t> TypeOf(const ThroughputTable& throughputs,
                              const char* type) {
  const auto found = throughputs.FindType(type);
  if (found) return *found;
  return absl::InvalidArgumentError(
      StrCat("the throughputs have no accelerator type ", type,
             "; give those that Gavel published"));
}

// The speed-ups that the paper states for two job types.
std::string PublishedSpeedUp(const std::string& job_type) {
  if (job_type.starts_with("ResNet-50")) return "about 10";
  return job_type == "A3C" ? "about 2" : "";
}

// Job types of the table that run alone on one accelerator.
std::vector<ThroughputTable::Row> RowsOfOne(
    const ThroughputTable& throughputs) {
  std::vector<ThroughputTable::Row> rows;
  for (const JobTemplate& job : GavelJobTable()) {
    if (const auto row = throughputs.FindRow(job.type, 1)) {
      rows.push_back(*row);
    }
  }
  return rows;
}

// The part of its throughput that `row` keeps beside `other`; NaN: they can't
// share.
double Kept(const ThroughputTable& throughputs, ThroughputTable::Row row,
            ThroughputTable::Row other, size_t type) {
  const double alone = throughputs.Alone(row, type).value_or(0);
  const auto together = throughputs.Together(row, other, type);
  return alone > 0 && together.has_value() && together->first > 0
             ? together->first / alone
             : kNaN;
}

// A map for the terminal: two letters a cell, darker is less.
std::string DrawMap(const HeatMap& map) {
  constexpr std::array<const char*, 5> kShades = {"  ", "░░", "▒▒", "▓▓", "██"};
  const size_t count = map.names.size();
  std::string drawing =
      "  kept: ██ above 80 %  ▓▓ above 60 %  ▒▒ above 40 %  ░░ above 20 %  "
      "·· can't share\n";
  for (size_t i = 0; i < count; ++i) {
    StrAppend(&drawing, absl::StrFormat("  %-32s ", map.names[i]));
    for (size_t j = 0; j < count; ++j) {
      const double value = map.values[i * count + j];
      drawing +=
          std::isfinite(value)
              ? kShades[std::min<size_t>(4, static_cast<size_t>(value * 5))]
              : "··";
    }
    drawing += "\n";
  }
  return drawing;
}

// "ResNet-18" for "ResNet-18 (batch size 64)".
std::string FamilyOf(const std::string& job_type) {
  return job_type.substr(0, job_type.find(" ("));
}

struct FamilyCount {
  size_t pairs = 0;
  size_t fit = 0;
  size_t gain = 0;  // together they do more than taking turns
  double best = 0;
};

}  // namespace

absl::StatusOr<ExperimentTable> AnalyzeThroughputRatios(
    const ThroughputTable& throughputs) {
  std::array<size_t, 3> types{};
  std::array<double, 3> price{};
  GAVEL_ASSIGN_OR_RETURN(const auto prices, PriceSeries::Constant("gcp"));
  for (size_t j = 0; j < kPaperTypes.size(); ++j) {
    GAVEL_ASSIGN_OR_RETURN(types[j], TypeOf(throughputs, kPaperTypes[j]));
    price[j] = prices.At(kPaperTypes[j], 0);
  }
  ExperimentTable table;
  table.titles = {"JOB TYPE",       "P100/K80",       "V100/K80",
                  "P100/K80 PER $", "V100/K80 PER $", "PUBLISHED V100/K80"};
  for (const ThroughputTable::Row row : RowsOfOne(throughputs)) {
    const auto ratio = [&](size_t j) {
      const double base = throughputs.Alone(row, types[0]).value_or(0);
      const double value = throughputs.Alone(row, types[j]).value_or(0);
      return base > 0 ? value / base : kNaN;
    };
    const std::string& name = throughputs.NameOf(row).first;
    table.rows.push_back({name, FormatNumber(ratio(1), 2),
                          FormatNumber(ratio(2), 2),
                          FormatNumber(ratio(1) * price[0] / price[1], 2),
                          FormatNumber(ratio(2) * price[0] / price[2], 2),
                          PublishedSpeedUp(name)});
  }
  return table;
}

absl::StatusOr<ExperimentTable> AnalyzeColocation(
    const ThroughputTable& throughputs) {
  GAVEL_ASSIGN_OR_RETURN(const size_t type, TypeOf(throughputs, "p100"));
  const std::vector<ThroughputTable::Row> rows = RowsOfOne(throughputs);
  HeatMap map;
  map.none = "can't share";
  map.title = "Part of its throughput that a row keeps beside a column (P100)";
  std::map<std::string, FamilyCount> families;
  for (const ThroughputTable::Row row : rows) {
    map.names.push_back(throughputs.NameOf(row).first);
    FamilyCount& family = families[FamilyOf(map.names.back())];
    for (const ThroughputTable::Row other : rows) {
      const double kept = Kept(throughputs, row, other, type);
      const double sum = kept + Kept(throughputs, other, row, type);
      map.values.push_back(kept);
      ++family.pairs;
      if (!std::isfinite(sum)) continue;
      ++family.fit;
      if (sum > 1) ++family.gain;
      family.best = std::max(family.best, sum);
    }
  }
  ExperimentTable table;
  table.titles = {"MODEL", "PAIRS", "CAN SHARE", "SHARING DOES MORE",
                  "BEST SUM OF PARTS KEPT"};
  for (const auto& [name, family] : families) {
    table.rows.push_back({name, StrCat(family.pairs), StrCat(family.fit),
                          StrCat(family.gain), FormatNumber(family.best, 2)});
  }
  table.drawing = DrawMap(map);
  table.figures.push_back(std::move(map));
  return table;
}

absl::StatusOr<ExperimentTable> AnalyzePacking(
    const ThroughputTable& throughputs) {
  GAVEL_ASSIGN_OR_RETURN(const size_t type, TypeOf(throughputs, "p100"));
  struct Pair {
    const char* job;
    const char* other;
    const char* published;
  };
  constexpr std::array<Pair, 3> kPairs = {
      {{"LM (batch size 80)", "LM (batch size 80)", "0.81"},
       {"ResNet-50 (batch size 64)", "LM (batch size 80)", "1.00"},
       {"LM (batch size 80)", "ResNet-50 (batch size 64)", ""}}};
  ExperimentTable table;
  table.titles = {"JOB", "BESIDE", "KEEPS", "PUBLISHED", "SUM OF BOTH"};
  for (const auto& [job, other, published] : kPairs) {
    const auto row = throughputs.FindRow(job, 1);
    const auto beside = throughputs.FindRow(other, 1);
    if (!row || !beside) continue;
    const double kept = Kept(throughputs, *row, *beside, type);
    const double sum = kept + Kept(throughputs, *beside, *row, type);
    table.rows.push_back(
        {job, other, FormatNumber(kept, 2), published, FormatNumber(sum, 2)});
  }
  return table;
}

// ---- the analyses that solve problems with policies

namespace {

constexpr size_t kTypeCount = kPaperTypes.size();

// A problem on `per_type` accelerators of each type, without jobs.
PolicyProblem EmptyProblem(int per_type) {
  PolicyProblem problem;
  problem.types.assign(kPaperTypes.begin(), kPaperTypes.end());
  problem.capacity.assign(kTypeCount, per_type);
  return problem;
}

// Adds a job of a random type; false when the table lacks it.
bool AddJob(const ThroughputTable& throughputs, std::mt19937_64& random,
            int entity, PolicyProblem* problem) {
  const auto table = GavelJobTable();
  const JobTemplate& drawn = table[random() % table.size()];
  const auto row = throughputs.FindRow(drawn.type, 1);
  if (!row) return false;
  PolicyJob job;
  job.id = JobId(problem->jobs.size() + 1);
  job.arrival_s = static_cast<double>(problem->jobs.size());
  job.entity = entity;
  for (const char* type : kPaperTypes) {
    const auto column = throughputs.FindType(type);
    if (!column) return false;
    problem->throughputs.push_back(
        throughputs.Alone(*row, *column).value_or(0));
  }
  job.steps_remaining = 36000 * problem->throughputs.back();
  problem->jobs.push_back(job);
  return true;
}

absl::Status NotGavelsTable() {
  return absl::InvalidArgumentError(
      "the throughputs lack Gavel's job types on k80, p100 and v100; give "
      "those that Gavel published");
}

// The true throughput of a job under `allocation`, as a part of that which an
// equal share of each type gives.
double NormalThroughput(const PolicyProblem& truth,
                        const Allocation& allocation, size_t job) {
  const std::vector<double> share = allocation.Row(truth.jobs[job].id);
  const auto throughput = truth.Row(job);
  double received = 0;
  double equal = 0;
  for (size_t j = 0; j < kTypeCount; ++j) {
    received += throughput[j] * (share.empty() ? 0 : share[j]);
    equal += throughput[j] / kTypeCount;
  }
  return equal > 0 ? received / equal : 0;
}

struct Gains {
  size_t lies = 0;
  size_t paid = 0;  // that gained more than a thousandth
  double sum = 0;
  double most = 0;
};

// All lies of one job: each throughput halved or doubled.
absl::Status TryLies(const Policy& policy, const PolicyProblem& truth,
                     const Allocation& honest, size_t job, Gains* gains) {
  const double before = NormalThroughput(truth, honest, job);
  if (before <= 0) return absl::OkStatus();
  for (size_t j = 0; j < kTypeCount; ++j) {
    for (const double factor : {0.5, 2.0}) {
      PolicyProblem lie = truth;
      lie.throughputs[job * kTypeCount + j] *= factor;
      GAVEL_ASSIGN_OR_RETURN(const PolicyResult result, policy.Solve(lie));
      const double gain =
          NormalThroughput(truth, result.allocation, job) / before - 1;
      ++gains->lies;
      if (gain > 1e-3) ++gains->paid;
      gains->sum += gain;
      gains->most = std::max(gains->most, gain);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Gains> MeasureGains(const Policy& policy,
                                   const ThroughputTable& throughputs,
                                   int problems) {
  constexpr int kJobs = 6;
  std::mt19937_64 random(0);
  Gains gains;
  for (int i = 0; i < problems; ++i) {
    PolicyProblem truth = EmptyProblem(1);
    for (int m = 0; m < kJobs; ++m) {
      if (!AddJob(throughputs, random, -1, &truth)) return NotGavelsTable();
    }
    GAVEL_ASSIGN_OR_RETURN(const PolicyResult honest, policy.Solve(truth));
    for (size_t m = 0; m < truth.jobs.size(); ++m) {
      GAVEL_RETURN_IF_ERROR(
          TryLies(policy, truth, honest.allocation, m, &gains));
    }
  }
  return gains;
}

}  // namespace

absl::StatusOr<ExperimentTable> AnalyzeHierarchy(
    const ThroughputTable& throughputs) {
  constexpr size_t kEntities = 3;
  constexpr size_t kJobsEach = 6;
  GAVEL_ASSIGN_OR_RETURN(const auto policy,
                         MakePolicy("max_min_fairness_water_filling_perf"));
  PolicyProblem problem = EmptyProblem(3);
  for (size_t i = 0; i < kEntities; ++i) {
    problem.entities.push_back(
        {StrCat("entity ", i), static_cast<double>(i + 1), "fairness"});
  }
  ExperimentTable table;
  table.titles = {"JOBS", "SHARE OF 0 (WEIGHT 1)", "1 (WEIGHT 2)",
                  "2 (WEIGHT 3)", "PUBLISHED"};
  std::mt19937_64 random(0);
  for (size_t present = 1; present <= kEntities; ++present) {
    for (size_t i = 0; i < kJobsEach; ++i) {
      if (!AddJob(throughputs, random, static_cast<int>(present - 1),
                  &problem)) {
        return NotGavelsTable();
      }
    }
    GAVEL_ASSIGN_OR_RETURN(const PolicyResult result, policy->Solve(problem));
    std::array<double, kEntities> sum{};
    double total = 0;
    for (size_t m = 0; m < problem.jobs.size(); ++m) {
      const double value = NormalThroughput(problem, result.allocation, m);
      sum[static_cast<size_t>(problem.jobs[m].entity)] += value;
      total += value;
    }
    std::vector<std::string> row = {StrCat(problem.jobs.size())};
    for (const double value : sum) {
      row.push_back(absl::StrFormat("%.3f", total > 0 ? value / total : 0));
    }
    row.emplace_back(present == 1   ? "1 : 0 : 0"
                     : present == 2 ? "1/3 : 2/3 : 0"
                                    : "1/6 : 2/6 : 3/6");
    table.rows.push_back(std::move(row));
  }
  return table;
}

absl::StatusOr<ExperimentTable> AnalyzeStrategyProofness(
    const ThroughputTable& throughputs, bool quick) {
  ExperimentTable table;
  table.titles = {"POLICY",      "LIES",        "THAT PAY %",
                  "MEAN GAIN %", "MOST GAIN %", "PUBLISHED"};
  for (const std::string& name : PolicyNames()) {
    const bool strategy_proof = name.find("strategy_proof") != name.npos;
    const bool compared = name == "max_min_fairness_perf" ||
                          name == "max_sum_throughput_perf" ||
                          name == "finish_time_fairness_perf";
    if (!strategy_proof && !compared) continue;
    GAVEL_ASSIGN_OR_RETURN(const auto policy, MakePolicy(name));
    GAVEL_ASSIGN_OR_RETURN(const Gains gains,
                           MeasureGains(*policy, throughputs, quick ? 3 : 30));
    const double lies = std::max<double>(1, static_cast<double>(gains.lies));
    table.rows.push_back(
        {name, StrCat(gains.lies),
         absl::StrFormat("%.1f", 100 * static_cast<double>(gains.paid) / lies),
         absl::StrFormat("%.2f", 100 * gains.sum / lies),
         absl::StrFormat("%.2f", 100 * gains.most),
         strategy_proof ? "no lie pays" : ""});
  }
  return table;
}

}  // namespace gavel::study
