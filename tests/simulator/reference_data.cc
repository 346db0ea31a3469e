#include "tests/simulator/reference_data.h"

#include <fstream>
#include <sstream>

#include "gavel_paths.h"
#include "tests/simulator/trace_fixture.h"
#include "tests/support/test.h"

namespace gavel::testing {

#ifndef GAVEL_REFERENCE_DIR
#define GAVEL_REFERENCE_DIR ""
#endif

std::filesystem::path ReferenceDir() {
  const std::filesystem::path folder(GAVEL_REFERENCE_DIR);
  return std::filesystem::exists(folder / "sim") ? folder
                                                 : std::filesystem::path();
}

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

const ThroughputTable& ReferenceTable() {
  static const auto* const table = [] {
    const char* const name = "simulation_throughputs.json";
    auto parsed =
        ThroughputTable::Parse(ReadAll(ReferenceDir() / "data" / name), name);
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    return new ThroughputTable(*std::move(parsed));
  }();
  return *table;
}

SimulationResult SimulateReference(const std::filesystem::path& trace,
                                   std::string_view cluster, std::string policy,
                                   SimulationOptions options) {
  const auto parsed = ParseTrace(ReadAll(trace), trace.filename().string());
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  const auto parts = ParseCluster(cluster);
  EXPECT_TRUE(parts.ok()) << parts.status().message();
  if (!parsed.ok() || !parts.ok()) return {};
  options.cluster = *parts;
  options.policy = std::move(policy);
  return Simulate(options, *parsed, ReferenceTable());
}

}  // namespace gavel::testing
