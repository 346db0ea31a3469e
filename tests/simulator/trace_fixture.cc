#include "tests/simulator/trace_fixture.h"

#include "core/text.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

std::string RowOf(std::string_view type, int scale, double alone) {
  std::string row =
      StrCat("\"('", type, "', ", scale, ")\": {\"null\": ", alone);
  for (const char* other : {"a", "b"}) {
    StrAppend(&row, ", \"('", other, "', ", scale, ")\": [", alone * 0.75, ", ",
              alone * 0.75, "]");
  }
  return row + "}";
}

std::string Rows(double a, double b, double gang_factor) {
  return StrCat("{", RowOf("a", 1, a), ", ", RowOf("b", 1, b), ", ",
                RowOf("a", 2, a * gang_factor), ", ",
                RowOf("b", 2, b * gang_factor), "}");
}

}  // namespace

const ThroughputTable& SmallTable() {
  static const auto* const table = [] {
    auto parsed = ThroughputTable::Parse(
        StrCat("{\"fast\": ", Rows(4, 2, 2), ", \"slow\": ", Rows(1, 1, 2),
               ", \"fast_unconsolidated\": ", Rows(4, 2, 1),
               ", \"slow_unconsolidated\": ", Rows(1, 1, 1), "}"),
        "small table");
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    return new ThroughputTable(*std::move(parsed));
  }();
  return *table;
}

Trace SmallTrace(const std::vector<SmallJob>& jobs) {
  Trace trace;
  for (const SmallJob& job : jobs) {
    const auto known = std::find_if(
        trace.templates.begin(), trace.templates.end(),
        [&](const JobTemplate& other) { return other.type == job.type; });
    TraceJob& added = trace.jobs.emplace_back();
    added.job_template = static_cast<size_t>(known - trace.templates.begin());
    if (known == trace.templates.end()) {
      trace.templates.emplace_back().type = job.type;
    }
    added.steps_total = job.steps;
    added.arrival_s = job.arrival_s;
    added.scale_factor = job.scale_factor;
    added.weight = job.weight;
    added.slo = job.slo;
    added.duration_s = job.duration_s;
  }
  return trace;
}

SimulationOptions SmallOptions(std::string_view cluster, std::string policy) {
  SimulationOptions options;
  const auto parts = ParseCluster(cluster);
  EXPECT_TRUE(parts.ok()) << parts.status().message();
  options.cluster = *parts;
  options.policy = std::move(policy);
  options.engine.round_duration_s = 100;
  return options;
}

SimulationResult Simulate(const SimulationOptions& options, const Trace& trace,
                          const ThroughputTable& table) {
  auto simulation = TraceSimulation::Create(options, trace, table);
  EXPECT_TRUE(simulation.ok()) << simulation.status().message();
  if (!simulation.ok()) return {};
  while (!(*simulation)->Run(1000)) {
  }
  return (*simulation)->Result();
}

}  // namespace gavel::testing
