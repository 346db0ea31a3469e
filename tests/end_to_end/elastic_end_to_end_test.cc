// An elastic job under the real coordinator, on a server with four CPU slots:
// it grows when it is alone, shrinks for a second job, and grows again. It has
// to read every sample of every epoch once and train the same model as one
// worker.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/text.h"
#include "tests/end_to_end/sample_reads.h"
#include "tests/support/checkpoint_directory.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

using Json = nlohmann::json;

constexpr int kSlots = 4;
constexpr int kEpochs = 60;
constexpr double kPatience_s = 100;
// The sums are over other micro-batches, in float, and go through Adam for 240
// steps.
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
  std::string Submitted(const std::string& keys, const std::string& variables) {
    return WriteCommand(
        "elastic", {GAVEL_GANG_WORKER, Path("weights")},
        StrCat(keys, "[environment]\nREAD_FILE = \"", Path("reads"),
               "\"\nGAVEL_DEVICE = \"cpu\"\n", variables));
  }
  // Trains with one worker that nothing disturbs, and expects that the job has
  // read the same samples and trained the same model.
  void ExpectSameAsAlone(
      const std::vector<std::pair<std::string, std::string>>& variables) {
    for (const auto& [name, value] : variables) {
      setenv(name.c_str(), value.c_str(), 1);
    }
    setenv("GAVEL_DEVICE", "cpu", 1);
    setenv("READ_FILE", Path("reads.alone").c_str(), 1);
    Process alone({GAVEL_GANG_WORKER, Path("weights.alone")}, Path("alone"));
    ASSERT_EQ(alone.Wait(kPatience_s), 0) << alone.errors();

    ExpectSameReads(ReadsOf(Path("reads")), ReadsOf(Path("reads.alone")));
    const std::vector<double> together = Weights(Path("weights"));
    const std::vector<double> fixed = Weights(Path("weights.alone"));
    ASSERT_EQ(together.size(), fixed.size());
    ASSERT_FALSE(fixed.empty());
    for (size_t i = 0; i < fixed.size(); ++i) {
      EXPECT_NEAR(together[i], fixed[i], kTolerance * (1 + std::abs(fixed[i])));
    }
  }
  bool Committed() const {
    return HasGeneration(CheckpointDirectory(state(), "1-elastic"));
  }
  std::string LogOfRank(int rank) const { return LogOf(1, rank); }
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
  const auto local = StartLocal(
      {Submitted(StrCat("scale_factor = 1\nscale_factor_max = ", kSlots, "\n"),
                 StrCat("SAMPLE_MS = \"20\"\nEPOCHS = \"", kEpochs, "\"\n"))});
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

  ExpectSameAsAlone({{"EPOCHS", StrCat(kEpochs)}});
}

// The job takes turns with another one, and is checkpointed only when it
// pauses. At the second pause, rank 1 dies after all ranks have agreed to stop
// and before it has written its part of the generation. Rank 0 must neither
// wait long for that part nor continue from memory, which rank 1 no longer has.
TEST_F(ElasticEndToEnd, ARankLostBeforeItsPartMakesTheGangGoBackTogether) {
  WriteCluster(2, 3, 3);
  const std::string kill_file = Path("kill");
  const auto local = StartLocal(
      {Submitted("scale_factor = 2\n",
                 StrCat("EPOCHS = \"1\"\nSAMPLES = \"9600\"\nSTEP_MS = "
                        "\"30\"\nGAVEL_CHECKPOINT_INTERVAL_S = \"0\"\n"
                        "KILL_FILE = \"",
                        kill_file, "\"\n")),
       WriteJob("second", {"--steps", "800", "--step-ms", "10"},
                "scale_factor = 2\n")});
  ASSERT_TRUE(Eventually([&] { return Committed(); }, kPatience_s))
      << LogOfRank(0);
  Write("kill", "");
  ASSERT_TRUE(Eventually([&] { return !std::filesystem::exists(kill_file); },
                         kPatience_s))
      << LogOfRank(0);
  EXPECT_TRUE(Eventually(
      [&] {
        return LogOfRank(0).find("leaving the process after step") !=
               std::string::npos;
      },
      20))
      << LogOfRank(0);
  EXPECT_THAT(LogOfRank(0), HasSubstr("a rank of the gang is lost"));
  EXPECT_EQ(local->Wait(kPatience_s), 0) << local->errors() << LogOfRank(0);
  EXPECT_EQ(Summary()["jobs"][0]["state"], "finished");
  ExpectSameAsAlone({{"EPOCHS", "1"}, {"SAMPLES", "9600"}});
}

}  // namespace
}  // namespace gavel::testing
