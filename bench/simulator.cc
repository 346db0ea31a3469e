// Measures the cost of a simulation: CPU seconds from a trace in memory to the
// result, on one core. The policies `fifo_perf` and `isolated` take next to no
// time to solve, so their rows are the cost of the engine and of its world.
//
//   bench_simulator [--out FILE.json] [--reference DIR] [--full]
//
// --reference: the recorded runs of the original Gavel, with the trace
// c1_400_r3_s0, where they are not found by themselves; without them, their
// rows are left out. --full: also 100,000 jobs on 10,000 accelerators of three
// types, which takes minutes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/table.h"
#include "core/text.h"
#include "simulator/trace_simulation.h"
#include "tests/support/files.h"

namespace {

using gavel::bench::CpuSeconds;
using gavel::bench::Row;
using gavel::bench::ValueAtMost;

// The least of `repeats` runs, because other work of the machine only adds
// time.
Row Measure(const std::string& name, const gavel::SimulationOptions& options,
            const gavel::Trace& trace, const gavel::ThroughputTable& table,
            int repeats, double goal_s) {
  double least_s = 0;
  gavel::SimulationResult result;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const double begin_s = CpuSeconds();
    auto simulation = gavel::TraceSimulation::Create(options, trace, table);
    if (!simulation.ok()) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(),
                   std::string(simulation.status().message()).c_str());
      std::exit(2);
    }
    while (!(*simulation)->Run(100'000)) {
    }
    result = (*simulation)->Result();
    const double taken_s = CpuSeconds() - begin_s;
    least_s = repeat == 0 ? taken_s : std::min(least_s, taken_s);
  }
  if (!result.complete)
    std::printf("%s: %s\n", name.c_str(), result.stopped.c_str());
  return {gavel::StrCat(name, ", ", result.rounds, " rounds, ", result.solves,
                        " solves"),
          least_s,
          "s",
          "",
          0,
          goal_s > 0 ? ValueAtMost(goal_s) : gavel::bench::Goal()};
}

void MeasureReference(const std::filesystem::path& folder,
                      std::vector<Row>* rows) {
  const auto file = folder / "sim" / "traces" / "c1_400_r3_s0.trace";
  if (folder.empty() || !std::filesystem::exists(file)) {
    std::printf(
        "c1_400_r3_s0 is left out: give the folder of the recorded runs with "
        "--reference DIR\n");
    return;
  }
  const auto trace =
      gavel::ParseTrace(gavel::testing::ReadText(file), file.string());
  const auto table = gavel::ThroughputTable::Parse(
      gavel::testing::ReadText(folder / "data" / "simulation_throughputs.json"),
      "throughputs");
  if (!trace.ok() || !table.ok()) std::abort();
  for (const char* policy :
       {"max_min_fairness_perf", "fifo_perf", "isolated"}) {
    gavel::SimulationOptions options;
    options.policy = policy;
    options.cluster = *gavel::ParseCluster("36:36:36");
    Add(rows, Measure(gavel::StrCat("c1_400_r3_s0, ", policy), options, *trace,
                      *table, 5, 0.05));
  }
}

// Job types that differ in speed, as in the paper's throughput file.
gavel::ThroughputTable MakeTable(size_t job_types) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(1, 4);
  std::string k80;
  std::string p100;
  std::string v100;
  for (size_t i = 0; i < job_types; ++i) {
    const std::string key =
        gavel::StrCat(i == 0 ? "" : ",", "\"('job ", i, "', 1)\":{\"null\":");
    const double slow = uniform(random);
    const double fast = slow * uniform(random);
    gavel::StrAppend(&k80, key, slow, "}");
    gavel::StrAppend(&p100, key, fast, "}");
    gavel::StrAppend(&v100, key, fast * uniform(random), "}");
  }
  auto table = gavel::ThroughputTable::Parse(
      gavel::StrCat("{\"k80\":{", k80, "},\"p100\":{", p100, "},\"v100\":{",
                    v100, "}}"),
      "made");
  if (!table.ok()) {
    std::fprintf(stderr, "%s\n", std::string(table.status().message()).c_str());
    std::abort();
  }
  return *std::move(table);
}

// `jobs` arrive over `rounds` rounds of 360 s and run for half a day on average
// (on a v100), at most as many at once as fill about 80 % of the cluster.
void MeasureLarge(size_t jobs, size_t accelerators, size_t rounds,
                  double goal_s, std::vector<Row>* rows) {
  constexpr size_t kJobTypes = 26;
  const gavel::ThroughputTable table = MakeTable(kJobTypes);
  const double span_s = 360 * static_cast<double>(rounds);
  const double mean_s = 0.8 * span_s * static_cast<double>(accelerators) /
                        static_cast<double>(jobs) / 2;
  std::mt19937_64 random(2);
  std::exponential_distribution<double> duration_s(1 / mean_s);
  gavel::Trace trace;
  for (size_t i = 0; i < kJobTypes; ++i) {
    trace.templates.emplace_back().type = gavel::StrCat("job ", i);
  }
  for (size_t i = 0; i < jobs; ++i) {
    gavel::TraceJob& job = trace.jobs.emplace_back();
    job.job_template = random() % kJobTypes;
    job.arrival_s = span_s * static_cast<double>(i) / static_cast<double>(jobs);
    job.duration_s = 60 + duration_s(random);
  }
  gavel::SimulationOptions options;
  options.policy = "fifo_perf";
  options.engine.reset_interval_s = 360;
  const int third = static_cast<int>(accelerators / 3);
  options.cluster = {{"v100", third, 1}, {"p100", third, 1}, {"k80", third, 1}};
  Add(rows, Measure(gavel::StrCat(jobs, " jobs, ", 3 * third,
                                  " accelerators, fifo_perf"),
                    options, trace, table, 1, goal_s));
}

}  // namespace

int main(int argc, char** argv) {
  std::string out;
  std::string reference = gavel::bench::ReferenceFolder();
  bool full = false;
  gavel::bench::ReadFlags(
      argc, argv,
      {{"--full", &full}, {"--out", &out}, {"--reference", &reference}});
  std::vector<Row> rows;
  MeasureReference(reference, &rows);
  MeasureLarge(2000, 300, 1000, 0, &rows);
  if (full) MeasureLarge(100'000, 10'000, 8000, 3, &rows);
  return gavel::bench::Report(rows, out);
}
