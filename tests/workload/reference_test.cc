// Reads and draws again the traces and tables that the original Gavel drew and
// shipped.
#include "tests/workload/reference.h"

#include "coordinator/workload/throughput_table.h"
#include "coordinator/workload/trace.h"
#include "coordinator/workload/trace_generator.h"
#include "nlohmann/json.hpp"
#include "tests/support/test.h"

namespace gavel {
namespace {

using Json = nlohmann::json;

GeneratorOptions OptionsOf(const Json& meta) {
  return {.seed = meta["seed"],
          .interarrival_s = meta["lam"],
          .multi_gpu = meta["multi_gpu"],
          .multi_priority = meta["multi_priority"],
          .slos = meta["slo"],
          .scale_factor_max = meta["max_sf"]};
}

void ExpectSameNumbers(const Trace& trace, const Json& jobs) {
  for (size_t i = 0; i < trace.jobs.size(); ++i) {
    SCOPED_TRACE(i);
    const TraceJob& job = trace.jobs[i];
    const Json& expected = jobs[i];
    EXPECT_EQ(trace.templates[job.job_template].type, expected["type"]);
    EXPECT_EQ(job.scale_factor, expected["scale_factor"]);
    EXPECT_EQ(job.duration_s, expected["duration_v100"]);
    EXPECT_EQ(job.steps_total, expected["total_steps_float"]);
    EXPECT_EQ(job.weight, expected["priority"]);
    EXPECT_EQ(job.arrival_s, expected["arrival"]);
    EXPECT_EQ(job.slo,
              expected["SLO"].is_null() ? 0.0 : expected["SLO"].get<double>());
  }
}

absl::StatusOr<ThroughputTable> ReferenceThroughputs(const std::string& name) {
  const std::string path = "data/" + name;
  return ThroughputTable::Parse(ReadReference(path), name);
}

TEST(TraceGenerator, DrawsTheTracesOfTheOriginalByteForByte) {
  const std::vector<std::string> paths = ReferenceTraces("sim/traces");
  if (paths.empty()) GTEST_SKIP() << kNoReference;
  ASSERT_OK_AND_ASSIGN(const ThroughputTable throughputs,
                       ReferenceThroughputs("simulation_throughputs.json"));
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    const std::string stem = path.substr(0, path.rfind('.'));
    const std::string text = ReadReference(stem + ".meta.json");
    if (text.empty()) continue;
    const Json meta = Json::parse(text);
    ASSERT_OK_AND_ASSIGN(TraceGenerator generator,
                         TraceGenerator::Create(OptionsOf(meta), throughputs));
    const Trace trace = generator.Take(meta["jobs"].size());
    EXPECT_EQ(FormatTrace(trace), ReadReference(path));
    ExpectSameNumbers(trace, meta["jobs"]);
  }
}

TEST(GavelJobTable, IsThatOfTheOriginal) {
  const std::string text = ReadReference("data/job_table.json");
  if (text.empty()) GTEST_SKIP() << kNoReference;
  const Json table = Json::parse(text);
  ASSERT_EQ(GavelJobTable().size(), table.size());
  for (size_t i = 0; i < table.size(); ++i) {
    SCOPED_TRACE(i);
    const JobTemplate expected = {
        .type = table[i]["model"],
        .command = table[i]["command"],
        .working_directory = table[i]["working_directory"],
        .steps_flag = table[i]["num_steps_arg"],
        .needs_data_directory = table[i]["needs_data_dir"],
        .distributed = table[i]["distributed"]};
    EXPECT_EQ(GavelJobTable()[i], expected);
  }
}

TEST(ParseTrace, ReadsEveryTraceOfTheOriginal) {
  std::vector<std::string> paths = ReferenceTraces("data/traces");
  if (paths.empty()) GTEST_SKIP() << kNoReference;
  for (const std::string& path : ReferenceTraces("sim/traces")) {
    paths.push_back(path);
  }
  for (const std::string& path : paths) {
    const std::string text = ReadReference(path);
    ASSERT_OK_AND_ASSIGN(const Trace trace, ParseTrace(text, path));
    EXPECT_EQ(trace.jobs.size(), std::count(text.begin(), text.end(), '\n'))
        << path;
    if (path.starts_with("sim/")) {
      EXPECT_EQ(FormatTrace(trace), text) << path;
    }
  }
}

TEST(ParseTrace, ReadsTheJobDistributionOfPhilly) {
  const std::string text = ReadReference("data/philly_job_distribution.csv");
  if (text.empty()) GTEST_SKIP() << kNoReference;
  ASSERT_OK_AND_ASSIGN(const Trace trace, ParseTrace(text, "philly.csv"));
  EXPECT_EQ(trace.jobs.size(), 33192U);
  EXPECT_EQ(trace.templates.size(), 1U);
  EXPECT_EQ(trace.jobs[0].duration_s, 860662);
  EXPECT_EQ(trace.jobs[0].steps_total, 860662);
  EXPECT_EQ(trace.jobs[0].scale_factor, 1);
}

// Expects that the table has every figure of the file, and no other.
void ExpectSameFigures(const ThroughputTable& table, const Json& file) {
  size_t pairs = 0;
  for (const auto& [worker_type, rows] : file.items()) {
    const bool consolidated = !worker_type.ends_with("_unconsolidated");
    const auto type =
        table.FindType(worker_type.substr(0, worker_type.find('_')));
    ASSERT_TRUE(type.has_value());
    size_t rows_found = 0;
    for (ThroughputTable::Row row = 0; row < table.rows(); ++row) {
      const auto& [name, scale_factor] = table.NameOf(row);
      EXPECT_EQ(table.FindRow(name, scale_factor), row);
      const auto key = [&table](ThroughputTable::Row of) {
        return "('" + table.NameOf(of).first + "', " +
               std::to_string(table.NameOf(of).second) + ")";
      };
      const auto alone = table.Alone(
          row, *type, consolidated ? Locality::kServer : Locality::kCluster);
      ASSERT_EQ(alone.has_value(), rows.contains(key(row)));
      if (!alone.has_value()) continue;
      ++rows_found;
      const Json& figures = rows[key(row)];
      EXPECT_EQ(*alone, figures["null"]);
      for (ThroughputTable::Row other = 0; other < table.rows(); ++other) {
        const auto found = table.Together(row, other, *type, consolidated);
        ASSERT_EQ(found.has_value(), figures.contains(key(other)));
        if (!found.has_value()) continue;
        const Json& both = figures[key(other)];
        const bool share = both[0] != 0 && both[1] != 0;
        EXPECT_EQ(*found, share ? std::pair(both[0].get<double>(),
                                            both[1].get<double>())
                                : std::pair(0.0, 0.0));
        pairs += share;
      }
    }
    EXPECT_EQ(rows_found, rows.size());
  }
  EXPECT_GT(pairs, 1000U);
}

TEST(ThroughputTable, HoldsTheFiguresOfTheOriginal) {
  for (const std::string name :
       {"simulation_throughputs.json", "physical_cluster_throughputs.json"}) {
    SCOPED_TRACE(name);
    const std::string text = ReadReference("data/" + name);
    if (text.empty()) GTEST_SKIP() << kNoReference;
    ASSERT_OK_AND_ASSIGN(const ThroughputTable table,
                         ThroughputTable::Parse(text, name));
    EXPECT_THAT(table.types(), ElementsAre("k80", "p100", "v100"));
    EXPECT_EQ(table.rows(), 83U);
    EXPECT_TRUE(table.has_pairs());
    EXPECT_TRUE(table.has_unconsolidated());
    ExpectSameFigures(table, Json::parse(text));
  }
}

}  // namespace
}  // namespace gavel
