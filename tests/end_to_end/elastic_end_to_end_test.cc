// An elastic job under the real coordinator, on a server with four CPU slots:
// it grows when it is alone, shrinks for a second job, and grows again, and has
// read every sample of every epoch once and trained the same model.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <vector>

#include "core/text.h"
#include "tests/cli/gavel_fixture.h"

namespace gavel::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr int kSlots = 4;
constexpr int kEpochs = 60;
constexpr int kSamples = 100;  // of gang_worker.cc
constexpr double kPatience_s = 100;
// Sums of other micro-batches, in float, through Adam, for 240 steps.
constexpr double kTolerance = 2e-3;

std::vector<double> Weights(const std::string& path) {
  std::vector<double> weights;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    weights.push_back(std::strtod(line.c_str(), nullptr));
  }
  return weights;
}

class ElasticEndToEnd : public GavelTest {
 protected:
  std::string Submitted(const std::string& keys) {
    return WriteCommand("elastic", {GAVEL_GANG_WORKER, Path("weights")},
                        StrCat(keys, "[environment]\nEPOCHS = \"", kEpochs,
                               "\"\nSAMPLE_MS = \"20\"\nREAD_FILE = \"",
                               Path("reads"), "\"\nGAVEL_DEVICE = \"cpu\"\n"));
  }
  bool ReachesSize(const std::string& endpoint, int size) {
    return Eventually(
        [&] {
          const Json row = QueueRow(endpoint, "elastic");
          return row.is_object() && row["scale_factor"] == size &&
                 row["accelerators"].size() == static_cast<size_t>(size);
        },
        kPatience_s);
  }
};

TEST_F(ElasticEndToEnd, GrowsAloneShrinksForAnotherAndGrowsAgain) {
  WriteCluster(kSlots, 5, 5);
  const auto local = StartLocal({Submitted(
      StrCat("scale_factor = 1\nscale_factor_max = ", kSlots, "\n"))});
  const std::string endpoint = EndpointOf(*local);
  ASSERT_TRUE(ReachesSize(endpoint, kSlots)) << local->output();
  EXPECT_THAT(Run({"why", "elastic", "--coordinator", endpoint}).output,
              HasSubstr("grown to 4: 3 cpu idle"));
  const Ended second =
      Run({"submit",
           WriteJob("second", {"--steps", "100", "--step-ms", "20"},
                    StrCat("scale_factor = ", kSlots - 1, "\n")),
           "--coordinator", endpoint});
  ASSERT_EQ(second.exit_code, 0) << second.errors;
  ASSERT_TRUE(ReachesSize(endpoint, 1)) << local->output();
  EXPECT_TRUE(ReachesState(endpoint, "second", "CD"));
  EXPECT_TRUE(ReachesSize(endpoint, kSlots)) << local->output();
  EXPECT_EQ(local->Wait(kPatience_s), 0) << local->errors();

  std::map<std::string, int> reads;
  std::ifstream in(Path("reads"));
  for (std::string line; std::getline(in, line);) ++reads[line];
  EXPECT_EQ(reads.size(), kSamples);
  // On a machine that is too busy a rank may miss its lease's end: that step is
  // void, and read again.
  std::string logs;
  for (int rank = 0; rank < kSlots; ++rank) {
    logs += ReadText(StrCat(state(), "/logs/1-elastic.", rank, ".log"));
  }
  const bool broken = logs.find("the gang is broken") != std::string::npos;
  for (const auto& [index, count] : reads) {
    EXPECT_GE(count, kEpochs) << index;
    if (!broken) {
      EXPECT_EQ(count, kEpochs) << index << "\n" << logs;
    }
  }

  // The same, with one worker all the time.
  const std::vector<double> elastic = Weights(Path("weights"));
  setenv("EPOCHS", std::to_string(kEpochs).c_str(), 1);
  setenv("GAVEL_DEVICE", "cpu", 1);
  Process alone({GAVEL_GANG_WORKER, Path("weights.alone")}, Path("alone"));
  ASSERT_EQ(alone.Wait(kPatience_s), 0) << alone.errors();
  const std::vector<double> fixed = Weights(Path("weights.alone"));
  ASSERT_EQ(elastic.size(), fixed.size());
  ASSERT_FALSE(fixed.empty());
  for (size_t i = 0; i < fixed.size(); ++i) {
    EXPECT_NEAR(elastic[i], fixed[i], kTolerance * (1 + std::abs(fixed[i])));
  }
}

}  // namespace
}  // namespace gavel::testing
