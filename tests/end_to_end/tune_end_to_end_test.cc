// A search over LibTorch training, with nothing faked: an app of eight trials
// by HyperBand finds the trial that one finds by hand with `gavel local`, and
// each trial is bit for bit what its program trains there.
#include <cstdlib>
#include <filesystem>

#include "core/text.h"
#include "gavel_paths.h"
#include "runtime/generation/manifest.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

constexpr double kSearchPatience_s = 300;
constexpr uint64_t kFirstRung = 8;
constexpr uint64_t kLastRung = 48;

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
  // A trial that a person runs: what to pass as --lr, and for how many steps.
  struct ByHand {
    std::string lr;
    uint64_t steps = 0;
  };
  // Trains all of them by one `gavel local`, with nothing in common with the
  // search. Returns their last checkpoints.
  std::vector<Manifest> TrainByHand(const std::vector<ByHand>& trials) {
    const std::string state = Path(StrCat("by-hand-", ++by_hand_));
    std::vector<std::string> arguments = {
        "local",    "--cluster", Path("cluster.toml"), "--state", state,
        "--policy", "fifo"};
    const auto directory = [&](size_t i) { return StrCat(state, "/", i); };
    for (size_t i = 0; i < trials.size(); ++i) {
      arguments.push_back(WriteCommand(
          StrCat("by-hand-", by_hand_, "-", i),
          {GAVEL_BINARY_DIR "/train_image", "--epochs", "1000", "--lr",
           trials[i].lr, "--steps", StrCat(trials[i].steps)},
          StrCat("checkpoint_directory = \"", directory(i),
                 "\"\nenvironment = { GAVEL_DEVICE = \"cpu\" }\n")));
    }
    const auto local = Start(arguments);
    EXPECT_EQ(local->Wait(kSearchPatience_s), 0)
        << local->output() << local->errors();
    std::vector<Manifest> last;
    for (size_t i = 0; i < trials.size(); ++i) {
      last.push_back(LastManifest(directory(i)));
      EXPECT_EQ(last.back().generation.step, trials[i].steps) << i;
      EXPECT_FALSE(last.back().shards.empty()) << i;
      EXPECT_TRUE(last.back().scalars.contains("loss")) << i;
    }
    return last;
  }

  int by_hand_ = 0;
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

  // By hand: the first six with 8 steps, the last two and the best of the six
  // with 48. The best of these three is the search's.
  std::vector<ByHand> by_hand;
  for (size_t i = 0; i < 8; ++i) {
    const auto lr = found["trials"][i]["values"].get<std::string>().substr(3);
    by_hand.push_back({lr, i < 6 ? kFirstRung : kLastRung});
  }
  std::vector<Manifest> alone = TrainByHand(by_hand);
  const auto loss = [&](size_t i) { return alone[i].scalars["loss"]; };
  size_t best_of_six = 0;
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(found["trials"][i]["curve"][0][1], loss(i)) << i;
    if (loss(i) < loss(best_of_six)) best_of_six = i;
  }
  alone[best_of_six] =
      TrainByHand({{by_hand[best_of_six].lr, kLastRung}}).front();
  size_t best = best_of_six;
  for (const size_t i : {best_of_six, size_t{6}, size_t{7}}) {
    if (loss(i) < loss(best)) best = i;
  }
  EXPECT_EQ(found["best"]["trial"], best);
  // Trial by trial to the bit, also those that were stopped.
  for (size_t i = 0; i < 8; ++i) {
    SCOPED_TRACE(i);
    const nlohmann::json& trial = found["trials"][i];
    const Manifest tuned = LastManifest(trial["checkpoint_directory"]);
    EXPECT_EQ(trial["steps"], alone[i].generation.step);
    EXPECT_EQ(tuned.generation.step, alone[i].generation.step);
    EXPECT_EQ(trial["value"], loss(i));
    EXPECT_THAT(DifferingTensors(tuned, alone[i]), IsEmpty());
  }
}

}  // namespace
}  // namespace gavel::testing
