// The table of our own that the README simulates with: it is what its generator
// prints, and the README's commands run on it.
#include <cstdlib>

#include "gavel_paths.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

constexpr char kExamples[] = GAVEL_SOURCE_DIR "/examples";

class SyntheticThroughputsTest : public GavelTest {
 protected:
  void ExpectRuns(const std::vector<std::string>& arguments) {
    const Ended ended = Run(arguments);
    EXPECT_EQ(ended.exit_code, 0) << arguments.front() << ": " << ended.errors;
  }

  const std::string table_ =
      std::string(kExamples) + "/throughputs/synthetic.json";
};

TEST_F(SyntheticThroughputsTest, AreWhatTheGeneratorPrints) {
  if (std::system("python3 --version >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "there is no python3";
  }
  const std::string generator =
      std::string(kExamples) + "/throughputs/make_synthetic.py";
  EXPECT_EQ(
      std::system(("python3 " + generator + " | cmp - " + table_).c_str()), 0);
}

TEST_F(SyntheticThroughputsTest, TheReadmesCommandsRun) {
  const std::string trace = Path("jobs.trace");
  ExpectRuns({"trace", "generate", "--jobs", "40", "--rate", "3",
              "--throughputs", table_, "--output", trace});
  for (const char* policy :
       {"max_min_fairness_perf", "max_min_fairness_packed"}) {
    ExpectRuns({"simulate", "--trace", trace, "--throughputs", table_,
                "--cluster", "v100:36,p100:36,k80:36", "--policy", policy});
  }
  ExpectRuns({"simulate", "--generate", "--jobs", "40", "--rate", "3",
              "--multi-gpu", "--throughputs", table_, "--cluster",
              "v100:16x4,p100:16x4,k80:16x4", "--placement-sensitive"});
  ExpectRuns({"sweep", std::string(kExamples) + "/sweeps/small.toml",
              "--output", Path("results.db")});
  ExpectRuns({"report", Path("results.db"), "--output", Path("report.html")});
}

// Nine workloads, of which each type of the generator has its row.
TEST_F(SyntheticThroughputsTest, HasNineWorkloadsOnThreeTypes) {
  const nlohmann::json table = nlohmann::json::parse(ReadText(table_));
  for (const char* type : {"k80", "p100", "v100"}) {
    for (const char* row :
         {"('ResNet-18 (batch size 64)', 8)",
          "('ResNet-50 (batch size 64)', 4)",
          "('Transformer (batch size 64)', 2)", "('LM (batch size 20)', 1)",
          "('GPT (batch size 8)', 1)", "('Recommendation (batch size 512)', 1)",
          "('A3C', 1)", "('CycleGAN', 1)", "('VGG-16 (batch size 32)', 4)"}) {
      EXPECT_GT(table.at(type).at(row).at("null").get<double>(), 0) << row;
    }
  }
}

}  // namespace
}  // namespace gavel::testing
