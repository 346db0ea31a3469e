// A search over LibTorch training, with nothing faked: an app of eight trials
// by HyperBand finds the trial that one finds by hand, and each trial is bit
// for bit what its program trains alone.
#include <cstdlib>
#include <filesystem>

#include "core/text.h"
#include "examples/demo/run_alone.h"
#include "gavel_paths.h"
#include "runtime/generation/manifest.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

constexpr double kSearchPatience_s = 300;

// Six trials of 8 steps, of which the best goes on to 48, and two of 48.
constexpr char kSearch[] = R"(name = "digits"
method = "hyperband"
metric = "loss"
steps = 48
steps_min = 8
eta = 6
trials_at_once = 2
seed = 3
[[parameter]]
name = "lr"
kind = "log_uniform"
min = 1e-4
max = 0.3
[job]
environment = { GAVEL_DEVICE = "cpu" }
)";

Manifest LastManifest(const std::string& directory) {
  const auto attempts = ListAttempts(FileSystem::Posix(), directory);
  EXPECT_OK(attempts);
  if (!attempts.ok() || attempts->committed.empty()) return {};
  const auto manifest = DecodeManifest(
      ReadText(StrCat(directory, "/", AttemptName(attempts->committed.back()),
                      "/", kManifestFileName)));
  EXPECT_OK(manifest);
  return manifest.value_or(Manifest());
}

class TuneEndToEndTest : public GavelClusterTest {
 protected:
  Manifest TrainAlone(const std::string& lr, uint64_t steps) {
    const demo::AloneOptions options = {
        .checkpoint_directory = Path(StrCat("alone-", ++alone_)),
        .output = Path("alone.output")};
    JobSpec job;
    job.name = "alone";
    job.argv = {GAVEL_BINARY_DIR "/train_image",
                "--epochs",
                "1000",
                "--lr",
                lr,
                "--steps",
                StrCat(steps)};
    job.environment = {{"GAVEL_DEVICE", "cpu"}};
    EXPECT_OK(demo::RunAlone(job, options)) << ReadText(options.output);
    return LastManifest(options.checkpoint_directory);
  }

  int alone_ = 0;
};

TEST_F(TuneEndToEndTest, HyperBandFindsWhatOneFindsByHand) {
  if (!std::filesystem::exists(GAVEL_DIGITS_DIR)) {
    GTEST_SKIP() << GAVEL_DIGITS_DIR
                 << " is missing; ./gavel-dev setup exports the digits";
  }
  WriteCluster(2, 4, 1.5);
  ASSERT_NO_FATAL_FAILURE(StartCoordinator());
  const auto agent = StartAgent();
  const auto search = Start(
      {"tune", Write("search.toml", kSearch), "--coordinator", endpoint_,
       "--folder", Path("search"), "--json", "--",
       GAVEL_BINARY_DIR "/train_image", "--epochs", "1000", "--lr", "{lr}"});
  ASSERT_EQ(search->Wait(kSearchPatience_s), 0) << search->errors();
  const nlohmann::json found = nlohmann::json::parse(search->output());
  ASSERT_EQ(found["trials"].size(), 8);

  // By hand: all with 8 steps, the best of the first six and the last two with
  // 48, and the best of these.
  std::vector<std::string> rates;
  for (const nlohmann::json& trial : found["trials"]) {
    rates.push_back(trial["values"].get<std::string>().substr(3));
  }
  size_t best_of_six = 0;
  std::vector<double> losses;
  for (size_t i = 0; i < 6; ++i) {
    losses.push_back(TrainAlone(rates[i], 8).scalars["loss"]);
    if (losses[i] < losses[best_of_six]) best_of_six = i;
  }
  size_t best = best_of_six;
  double best_loss = 1e9;
  for (const size_t i : {best_of_six, size_t{6}, size_t{7}}) {
    SCOPED_TRACE(i);
    const nlohmann::json& trial = found["trials"][i];
    EXPECT_EQ(trial["steps"], 48);
    const Manifest alone = TrainAlone(rates[i], 48);
    const Manifest tuned = LastManifest(trial["checkpoint_directory"]);
    EXPECT_EQ(tuned.generation.step, 48);
    EXPECT_FALSE(alone.shards.empty());
    EXPECT_THAT(DifferingTensors(tuned, alone), IsEmpty());
    const double loss = alone.scalars.at("loss");
    EXPECT_EQ(trial["value"], loss);
    if (loss < best_loss) {
      best = i;
      best_loss = loss;
    }
  }
  EXPECT_EQ(found["best"]["trial"], best);
  for (size_t i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(found["trials"][i]["curve"][0][1], losses[i]);
    if (i != best_of_six) {
      EXPECT_EQ(found["trials"][i]["steps"], 8);
    }
  }
}

}  // namespace
}  // namespace gavel::testing
