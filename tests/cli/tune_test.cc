// Runs `gavel tune` on a coordinator and an agent that are real processes.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "coordinator/cli/tune_run.h"
#include "core/text.h"
#include "gavel_paths.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

namespace fs = std::filesystem;

constexpr double kSearchPatience_s = 120;

std::string SearchFile(const std::string& keys) {
  return StrCat("name = \"s\"\nmetric = \"loss\"\n", keys,
                "\n[[parameter]]\nname = \"lr\"\nkind = \"log_uniform\"\n"
                "min = 1e-4\nmax = 1\n");
}

// Eight trials: six with 10 steps, of which the best goes on to 60, and two
// with 60 (brackets 1 and 0 of R = 6, eta = 6).
constexpr char kEightTrials[] =
    "method = \"hyperband\"\nsteps = 60\nsteps_min = 10\neta = 6\n"
    "trials_at_once = 4\nseed = 4";

class TuneTest : public GavelClusterTest {
 protected:
  void SetUp() override {
    WriteCluster(4, 2, 1);
    ASSERT_NO_FATAL_FAILURE(StartCoordinator());
    agent_ = GavelClusterTest::StartAgent();
  }

  std::vector<std::string> Arguments(const std::string& file,
                                     const std::string& folder,
                                     std::vector<std::string> program = {}) {
    if (program.empty()) {
      program = {FakeWorker(), "--rate", "{lr}", "--step-ms", "10"};
    }
    std::vector<std::string> arguments = {
        "tune",          Write("search.toml", file),
        "--coordinator", endpoint_,
        "--folder",      Path(folder),
        "--json",        "--"};
    Append(program, &arguments);
    return arguments;
  }
  Ended Tune(const std::string& file, const std::string& folder,
             std::vector<std::string> program = {}) {
    const auto process = Start(Arguments(file, folder, std::move(program)));
    const std::optional<int> code = process->Wait(kSearchPatience_s);
    return {code.value_or(-1), process->output(), process->errors()};
  }
  static nlohmann::json Parsed(const Ended& ended) {
    EXPECT_EQ(ended.exit_code, 0) << ended.errors;
    return nlohmann::json::parse(ended.output, nullptr, false);
  }
  // The result of a search without times and folders.
  static nlohmann::json Found(nlohmann::json json) {
    json["best"].erase("checkpoint_directory");
    for (nlohmann::json& trial : json["trials"]) {
      trial.erase("first_s");
      trial.erase("checkpoint_directory");
    }
    return json;
  }
  // The state in a checkpoint of the fake worker at those steps.
  std::string StateAt(const std::string& directory, uint64_t steps) {
    for (const auto& entry : fs::directory_iterator(directory)) {
      const auto one = ParseGenerationName(entry.path().filename().string());
      if (one && one->step == steps) {
        return ReadText((entry.path() / "shard-00000.safetensors").string());
      }
    }
    return "no checkpoint";
  }
  int Done(const std::string& folder) {
    return Count(ReadText(Path(folder + "/search.json")), "\"done\"");
  }
};

TEST_F(TuneTest, HyperBandFindsTheBestTrialAndEachIsAsAlone) {
  const nlohmann::json found = Parsed(Tune(SearchFile(kEightTrials), "eight"));
  ASSERT_EQ(found["trials"].size(), 8) << found.dump(1);
  int to_60 = 0;
  double best = 1e9;
  int best_trial = -1;
  for (const nlohmann::json& trial : found["trials"]) {
    const uint64_t steps = trial["steps"];
    EXPECT_THAT(steps, AnyOf(10, 60));
    // Alone by hand, the worker's state after so many steps is their sum, and
    // its loss follows from the rate.
    const double lr = std::stod(trial["values"].get<std::string>().substr(3));
    const double sum = static_cast<double>(steps * (steps + 1) / 2);
    EXPECT_EQ(trial["value"], std::abs(std::log10(lr) + 2) + 1 / (1 + sum));
    EXPECT_EQ(StateAt(trial["checkpoint_directory"], steps),
              StrCat(steps, " ", steps * (steps + 1) / 2, "\n"));
    EXPECT_EQ(trial["state"], steps == 60 ? "done" : "stopped");
    EXPECT_GT(trial["first_s"], 0);
    if (steps != 60) continue;
    ++to_60;
    if (trial["value"] < best) {
      best = trial["value"];
      best_trial = trial["trial"];
    }
  }
  EXPECT_EQ(to_60, 3);
  EXPECT_EQ(found["best"]["trial"], best_trial);
  // The best of the six is the one that went on.
  int best_of_six = 0;
  for (int i = 1; i < 6; ++i) {
    const auto at_10 = [&](int trial) {
      return found["trials"][static_cast<size_t>(trial)]["curve"][0][1]
          .get<double>();
    };
    if (at_10(i) < at_10(best_of_six)) best_of_six = i;
  }
  EXPECT_EQ(found["trials"][static_cast<size_t>(best_of_six)]["steps"], 60);
  const Ended replay = Run({"replay", state()});
  EXPECT_THAT(replay.output, HasSubstr("AppGoalSet: app s, 0 steps to come"));
  EXPECT_THAT(replay.output,
              HasSubstr("AppGoalSet: app s has ended, as its optimiser says"));
  EXPECT_THAT(ReadText(Path("eight/report.html")), HasSubstr("loss by steps"));
  EXPECT_THAT(ReadText(Path("eight/report.html")), Not(HasSubstr("under way")));
}

TEST_F(TuneTest, AKilledSearchAndCoordinatorChangeNothing) {
  const std::string file = SearchFile(kEightTrials);
  const nlohmann::json undisturbed = Found(Parsed(Tune(file, "calm")));
  {
    const auto killed = Start(Arguments(file, "killed"));
    ASSERT_TRUE(Eventually([&] { return Done("killed") >= 2; }));
    killed->Signal(SIGKILL);
    killed->Wait();
  }
  KillCoordinator();
  ASSERT_NO_FATAL_FAILURE(StartCoordinator());
  {
    const auto running = Start(Arguments(file, "killed"));
    ASSERT_TRUE(Eventually([&] { return Done("killed") >= 5; }));
    agent_->Signal(SIGKILL);
    agent_->Wait();
    KillCoordinator();
    ASSERT_NO_FATAL_FAILURE(StartCoordinator());
    agent_ = GavelClusterTest::StartAgent();
    const std::optional<int> code = running->Wait(kSearchPatience_s);
    ASSERT_EQ(code, 0) << running->errors();
    EXPECT_EQ(Found(nlohmann::json::parse(running->output())), undisturbed);
  }
  // Once more there is nothing to do.
  EXPECT_EQ(Found(Parsed(Tune(file, "killed"))), undisturbed);
}

TEST_F(TuneTest, APopulationForksTheCheckpointsOfTheBest) {
  const nlohmann::json found =
      Parsed(Tune(SearchFile("method = \"population\"\ntrials = 4\nsteps = 30\n"
                             "steps_min = 10"),
                  "population"));
  int forked = 0;
  for (const nlohmann::json& trial : found["trials"]) {
    EXPECT_EQ(trial["steps"], 30);
    const std::string directory = trial["checkpoint_directory"];
    if (!directory.ends_with("/0")) ++forked;
    EXPECT_EQ(StateAt(directory, 30), "30 465\n");
  }
  EXPECT_GE(forked, 1);
}

TEST_F(TuneTest, TheBestTrialHasTheWeightThatTheFileGivesIt) {
  const auto running =
      Start(Arguments(SearchFile("method = \"successive_halving\"\ntrials = 4\n"
                                 "steps = 400\nsteps_min = 200\neta = 2\n"
                                 "best_weight = 4\n[job]\nweight = 2"),
                      "favoured"));
  // Both trials of the last rung train, one of them with four times the weight.
  EXPECT_TRUE(Eventually([&] {
    std::vector<double> weights;
    for (const nlohmann::json& row : Json({"queue", "--json"})) {
      if (row["ended_at_s"].is_null()) weights.push_back(row["weight"]);
    }
    std::ranges::sort(weights);
    return weights == std::vector<double>{2, 8};
  }));
  EXPECT_EQ(running->Wait(kSearchPatience_s), 0) << running->errors();
  EXPECT_EQ(nlohmann::json::parse(running->output())["trials"].size(), 4);
}

TEST_F(TuneTest, ATrialWithoutTheMetricEndsTheSearchWithTheReason) {
  const Ended ended =
      Tune(SearchFile("method = \"random\"\ntrials = 9\nsteps = 5\n"
                      "trials_at_once = 3"),
           "without", {FakeWorker(), "--name", "{lr}"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.errors, HasSubstr("has no checkpoint at step 5"));
  for (const nlohmann::json& row : Json({"queue", "--json"})) {
    EXPECT_FALSE(row["ended_at_s"].is_null()) << row["name"];
  }
  std::string file = SearchFile("method = \"random\"\ntrials = 3\nsteps = 5");
  file.replace(file.find("\"loss\""), 6, "\"accuracy\"");
  const Ended other = Tune(file, "other");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.errors,
              HasSubstr("it has no value of \"accuracy\" at step 5: it "
                        "reported none, or the last one was NaN or infinite "
                        "(it reported loss); call "
                        "session->Report(\"accuracy\", value)"));
}

TEST_F(TuneTest, ACancelledSearchGoesOnAfterwards) {
  const std::string file = SearchFile(
      "method = \"random\"\ntrials = 3\nsteps = 300\n"
      "trials_at_once = 3");
  {
    const auto running = Start(Arguments(file, "cancelled"));
    ASSERT_TRUE(Eventually([&] {
      return Count(ReadText(Path("cancelled/search.json")), "\"running\"") == 3;
    }));
    running->Signal(SIGINT);
    EXPECT_EQ(running->Wait(), 1);
  }
  std::vector<std::string> arguments = Arguments(file, "cancelled");
  arguments.insert(arguments.begin() + 1, "--cancel");
  const auto cancelled = Start(arguments);
  EXPECT_EQ(cancelled->Wait(kSearchPatience_s), 0) << cancelled->errors();
  EXPECT_EQ(Count(ReadText(Path("cancelled/search.json")), "\"running\""), 0);
  for (const nlohmann::json& trial :
       Parsed(Tune(file, "cancelled"))["trials"]) {
    EXPECT_EQ(trial["state"], "done") << trial.dump();
  }
  const auto nowhere = Start({"tune", Path("search.toml"), "--cancel",
                              "--folder", Path("nowhere"), "--", "true"});
  EXPECT_EQ(nowhere->Wait(), 1);
  EXPECT_THAT(nowhere->errors(), HasSubstr("search.json is not there"));
  EXPECT_FALSE(fs::exists(Path("nowhere")));
}

TEST_F(TuneTest, ADamagedRecordIsLeftAlone) {
  fs::create_directories(Path("damaged"));
  Write("damaged/search.json", "{");
  const Ended ended = Tune(SearchFile(kEightTrials), "damaged");
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.errors,
              HasSubstr("restore it from a copy, or give another --folder"));
  EXPECT_EQ(ReadText(Path("damaged/search.json")), "{");
}

TEST_F(TuneTest, ASearchOfJobsWithoutCheckpointsIsRefused) {
  const Ended ended =
      Tune(SearchFile("method = \"random\"\ntrials = 1\nsteps = 5") +
               "[job]\nclass = \"opaque\"\n",
           "opaque");
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.errors, HasSubstr("no checkpoint, and so no metric"));
}

TEST_F(TuneTest, AFolderOfAnotherSearchIsRefused) {
  const std::string file =
      SearchFile("method = \"random\"\ntrials = 1\nsteps = 5");
  EXPECT_EQ(Tune(file, "one").exit_code, 0);
  const Ended other = Tune(file + "\n# other\n", "one");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.errors, HasSubstr("of a search with another search file"));
}

TEST_F(TuneTest, AProgramMayBeTheOptimiser) {
  const std::string optimiser =
      Write("optimiser.sh",
            "while read -r line; do case $line in\n"
            "*'\"ask\":{\"trial\":2}'*) echo '{\"done\": true}' ;;\n"
            "*'\"ask\"'*) echo '{\"values\": {\"lr\": 0.01}}' ;;\n"
            "*'\"steps\":10,'*) echo '{\"continue\": true}' ;;\n"
            "*'\"tell\"'*) echo '{\"continue\": false}' ;;\n"
            "esac; done\n");
  const nlohmann::json found = Parsed(
      Tune(SearchFile(StrCat("method = \"program\"\ntrials = 5\nsteps = 30\n"
                             "steps_min = 10\nprogram = [\"sh\", \"",
                             optimiser, "\"]")),
           "program"));
  ASSERT_EQ(found["trials"].size(), 2);
  EXPECT_EQ(found["trials"][0]["steps"], 20);
}

TEST_F(TuneTest, OptunaIsAnOptimiser) {
  if (std::system("python3 -c 'import optuna' 2>/dev/null") != 0) {
    GTEST_SKIP() << "python3 has no optuna; pip install optuna";
  }
  const nlohmann::json found = Parsed(
      Tune(SearchFile("method = \"program\"\ntrials = 6\nsteps = 10\n"
                      "trials_at_once = 3\nprogram = [\"python3\", "
                      "\"" GAVEL_SOURCE_DIR "/examples/tune_with_optuna.py\"]"),
           "optuna"));
  EXPECT_EQ(found["trials"].size(), 6);
  EXPECT_EQ(found["best"]["steps"], 10);
}

// ---- The program that is the optimiser, when it misbehaves

absl::StatusOr<std::string> AskShell(const std::string& script) {
  auto program = OptimiserProgram::Start({"sh", "-c", script}, 0.5);
  if (!program.ok()) return program.status();
  const absl::Status written = (*program)->Write("{\"ask\":{\"trial\":0}}");
  if (!written.ok()) return written;
  return (*program)->Read();
}

TEST(OptimiserProgram, AnswersAreItsLines) {
  const absl::StatusOr<std::string> answer = AskShell("read line; echo $line");
  ASSERT_OK(answer);
  EXPECT_EQ(*answer, "{\"ask\":{\"trial\":0}}");
}

TEST(OptimiserProgram, OneThatEndsIsNamed) {
  EXPECT_THAT(AskShell("read line; exit 3"),
              StatusIs(kUnavailable, "the optimiser sh has ended"));
}

TEST(OptimiserProgram, OneThatIsSilentIsNotWaitedForForEver) {
  EXPECT_THAT(AskShell("sleep 1000"),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "did not answer"));
}

TEST(OptimiserProgram, ALineWithoutEndIsRefused) {
  EXPECT_THAT(AskShell("while :; do echo -n xxxxxxxxxxxxxxxx; done"),
              StatusIs(absl::StatusCode::kResourceExhausted, "a line of more"));
}

TEST(OptimiserProgram, OneThatIsNotThereIsAnError) {
  EXPECT_THAT(OptimiserProgram::Start({"/no/such/optimiser"}, 1).status(),
              StatusIs(absl::StatusCode::kNotFound, "/no/such/optimiser"));
}

}  // namespace
}  // namespace gavel::testing
