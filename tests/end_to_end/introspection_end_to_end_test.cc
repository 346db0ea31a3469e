// Introspection (docs/gandiva.md) with nothing faked: real processes on CPU
// slots are packed, parted, moved and resized, and an operator switches it on
// and off.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/text.h"
#include "tests/end_to_end/sample_reads.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

using Json = nlohmann::json;

constexpr double kPatience_s = 100;
// Steps of a job that the test ends by `gavel cancel`.
constexpr char kForever[] = "1000000";
// A training with LibTorch has this many steps in each epoch.
constexpr int kStepsOfEpoch = 4;

class IntrospectionEndToEnd : public GavelTest {
 protected:
  // Servers with their numbers of CPU slots. `keys` are more of [scheduling].
  void WriteServers(const std::vector<std::pair<std::string, int>>& servers,
                    double round_duration_s,
                    const std::string& keys = "introspection = true\n") {
    std::string text =
        StrCat("[scheduling]\n", keys, "round_duration_s = ", round_duration_s,
               "\nlease_duration_s = ", round_duration_s, "\n");
    for (const auto& [server, slots] : servers) {
      StrAppend(&text, "[[server]]\nname = \"", server,
                "\"\n[[server.accelerator]]\ntype = \"cpu\"\ncount = ", slots,
                "\n");
    }
    Write("cluster.toml", text);
  }
  // A job whose speed alone, 90 steps/s, its file gives. `beside_ms` is the
  // time of a step beside another job.
  std::string WriteKnown(const std::string& name, const std::string& steps,
                         const std::string& beside_ms) {
    return WriteJob(name,
                    {"--steps", steps, "--step-ms", "10", "--beside-step-ms",
                     beside_ms, "--log", Path(name + ".log")},
                    "[throughputs]\ncpu = 90\n");
  }
  // The job file of a training with LibTorch, which writes its weights to
  // `weights.NAME` at its end.
  std::string WriteTraining(const std::string& name, int epochs, int step_ms,
                            const std::string& keys,
                            const std::string& variables = "") {
    return WriteCommand(
        name, {GAVEL_GANG_WORKER, Path("weights." + name)},
        StrCat(keys, "[environment]\nGAVEL_DEVICE = \"cpu\"\nEPOCHS = \"",
               epochs, "\"\nSTEP_MS = \"", step_ms, "\"\n", variables));
  }
  // Trains as much in one process that nothing disturbs. Returns its weights.
  std::string TrainAlone(int epochs) {
    const std::vector<std::pair<const char*, std::string>> variables = {
        {"EPOCHS", StrCat(epochs)},
        {"GAVEL_DEVICE", "cpu"},
        {"OMP_NUM_THREADS", "1"},
        {"READ_FILE", Path("reads.alone")}};
    for (const auto& [name, value] : variables) {
      setenv(name, value.c_str(), 1);
    }
    Process alone({GAVEL_GANG_WORKER, Path("weights.alone")}, Path("alone"));
    EXPECT_EQ(alone.Wait(kPatience_s), 0) << alone.errors();
    for (const auto& [name, value] : variables) unsetenv(name);
    return ReadText(Path("weights.alone"));
  }
  void StartLocalWith(const std::vector<std::string>& jobs,
                      const std::string& policy) {
    local_ = StartLocal(jobs, {"--policy", policy});
    endpoint_ = EndpointOf(*local_);
    ASSERT_THAT(endpoint_, Not(IsEmpty())) << local_->errors();
  }

  Ended Do(std::vector<std::string> arguments) {
    Append({"--coordinator", endpoint_}, &arguments);
    return Run(arguments);
  }
  void Submit(const std::string& job) {
    const Ended submitted = Do({"submit", job});
    ASSERT_EQ(submitted.exit_code, 0) << submitted.errors;
  }
  std::string Why(const std::string& name) { return Do({"why", name}).output; }
  bool WhySays(const std::string& name, const std::string& text) {
    return Eventually([&] { return Why(name).find(text) != std::string::npos; },
                      kPatience_s);
  }

  // Whether all of these jobs have accelerators, by one look at the queue.
  bool AllRun(const std::vector<std::string>& names) {
    return std::ranges::all_of(Look(names), [](const Json& row) {
      return row.is_object() && row["state"] == "R" &&
             !row["accelerators"].empty();
    });
  }
  bool RunTogether(const std::string& a, const std::string& b) {
    const std::vector<Json> rows = Look({a, b});
    return std::ranges::all_of(rows, [&](const Json& row) {
      return row.is_object() && row["state"] == "R" &&
             !row["accelerators"].empty() &&
             row["accelerators"] == rows.front()["accelerators"];
    });
  }
  // The servers where the job holds accelerators.
  std::set<std::string> ServersOf(const std::string& name) {
    std::set<std::string> servers;
    const Json row = QueueRow(endpoint_, name);
    if (!row.is_object()) return servers;
    for (const Json& one : row["accelerators"]) servers.insert(one["server"]);
    return servers;
  }
  // How often the worker took its accelerator, alone or beside another job.
  int Takes(const std::string& name) {
    return Count(ReadText(Path(name + ".log")), " take ");
  }

  std::unique_ptr<Process> local_;
  std::string endpoint_;

 private:
  // The rows of these jobs; null for one that is not there.
  std::vector<Json> Look(const std::vector<std::string>& names) {
    const Json all =
        Json::parse(Do({"queue", "--json"}).output, nullptr, false);
    std::vector<Json> rows;
    for (const std::string& name : names) {
      rows.emplace_back();
      for (const Json& row : all.is_array() ? all : Json::array()) {
        if (row["name"] == name) rows.back() = row;
      }
    }
    return rows;
  }
};

TEST_F(IntrospectionEndToEnd, APairThatTurnsBeatIsPartedAndWhyTellsIt) {
  WriteServers({{"here", 1}}, /*round_duration_s=*/4);
  ASSERT_NO_FATAL_FAILURE(StartLocalWith(
      {WriteKnown("a", "900", "60"), WriteKnown("b", "900", "60")},
      "max_min_fairness"));
  ASSERT_TRUE(WhySays("a", "tried to run beside job 2: undone at 0."))
      << Why("a") << local_->output();
  EXPECT_THAT(Why("b"), HasSubstr("tried to run beside job 1: undone at 0."));
  EXPECT_EQ(local_->Wait(kPatience_s), 0) << local_->errors();
  for (const auto& [job, name] : {std::pair(1, "a"), std::pair(2, "b")}) {
    const std::string log = LogOf(job);
    // They are packed twice when one of them was late for the first round.
    EXPECT_GE(Count(log, "runs beside a job"), 1) << log;
    EXPECT_LE(Count(log, "runs beside a job"), 2) << log;
    EXPECT_GE(Count(log, "runs alone"), 1) << log;
    ExpectEachStepOnce(name, 900);
  }
}

// On a slot that serves one step at a time, two trainings are slower together
// than by turns.
TEST_F(IntrospectionEndToEnd, TrainingsOfAPairThatIsUndoneEndWithTheSameBits) {
  constexpr int kEpochs = 225;
  WriteServers({{"here", 1}}, /*round_duration_s=*/4);
  const auto write = [&](const std::string& name) {
    return WriteTraining(name, kEpochs, /*step_ms=*/10,
                         "[throughputs]\ncpu = 80\n",
                         StrCat("TURNS_FILE = \"", Path("turns"), "\"\n"));
  };
  ASSERT_NO_FATAL_FAILURE(
      StartLocalWith({write("a"), write("b")}, "max_min_fairness"));
  ASSERT_TRUE(WhySays("a", "tried to run beside job 2: undone at 0."))
      << Why("a") << local_->output();
  EXPECT_THAT(Why("b"), HasSubstr("tried to run beside job 1: undone at 0."));
  EXPECT_EQ(local_->Wait(kPatience_s), 0) << local_->errors();
  // The journal has the trial, too.
  const Ended journal = Run({"replay", state()});
  EXPECT_THAT(journal.output,
              ContainsRegex("TrialsNoted: job [12] beside job [12] tried"));
  EXPECT_THAT(journal.output,
              ContainsRegex("TrialsNoted: job [12] beside job [12] undone"));
  const std::string alone = TrainAlone(kEpochs);
  ASSERT_THAT(alone, Not(IsEmpty()));
  EXPECT_EQ(ReadText(Path("weights.a")), alone);
  EXPECT_EQ(ReadText(Path("weights.b")), alone);
}

TEST_F(IntrospectionEndToEnd, SwitchedOnLiveItPacksAndSwitchedOffItParts) {
  WriteServers({{"here", 1}}, /*round_duration_s=*/4, /*keys=*/"");
  ASSERT_NO_FATAL_FAILURE(StartLocalWith(
      {WriteKnown("a", kForever, "10"), WriteKnown("b", kForever, "10")},
      "max_min_fairness"));
  // They take turns.
  ASSERT_TRUE(
      Eventually([&] { return Takes("a") > 0 && Takes("b") > 0; }, kPatience_s))
      << local_->output();
  EXPECT_THAT(Why("a"), Not(HasSubstr("tried to run beside")));

  const Ended on = Do({"policy", "--introspection", "on"});
  ASSERT_EQ(on.exit_code, 0) << on.errors;
  ASSERT_TRUE(WhySays("a", "tried to run beside job 2: kept at ")) << Why("a");
  EXPECT_TRUE(Eventually([&] { return RunTogether("a", "b"); }, kPatience_s));

  const Ended off = Do({"policy", "--introspection", "off"});
  ASSERT_EQ(off.exit_code, 0) << off.errors;
  EXPECT_TRUE(Eventually([&] { return !RunTogether("a", "b"); }, kPatience_s));
  // From now on they take turns again.
  const int a = Takes("a");
  const int b = Takes("b");
  EXPECT_TRUE(
      Eventually([&] { return Takes("a") > a && Takes("b") > b; }, kPatience_s))
      << LogOf(1) << LogOf(2);
  EXPECT_FALSE(RunTogether("a", "b"));

  EXPECT_EQ(Do({"cancel", "a", "b"}).exit_code, 0);
  local_->Wait(kPatience_s);
  for (const char* name : {"a", "b"}) {
    const FakeState found = CheckpointOf(name);
    EXPECT_GT(found.steps, 0) << name;
    EXPECT_EQ(found.sum, found.steps * (found.steps + 1) / 2) << name;
  }
}

// The gang shares a server with a job of so much weight that it always has its
// turn, so the gang waits. The accelerators of the other server are in use
// until one of its jobs is cancelled.
TEST_F(IntrospectionEndToEnd, AJobMovesToMakeRoomForAGangThatWaits) {
  WriteServers({{"here", 2}, {"there", 2}}, /*round_duration_s=*/3);
  const auto write = [&](const std::string& name, const std::string& keys) {
    return WriteJob(name, {"--steps", kForever, "--step-ms", "10"}, keys);
  };
  ASSERT_NO_FATAL_FAILURE(StartLocalWith({write("gang", "scale_factor = 2\n")},
                                         "gandiva_reactive"));
  ASSERT_TRUE(Eventually([&] { return AllRun({"gang"}); }, kPatience_s))
      << local_->output();
  Submit(write("stays", ""));
  ASSERT_TRUE(Eventually([&] { return AllRun({"stays"}); }, kPatience_s));
  Submit(write("leaves", ""));
  ASSERT_TRUE(Eventually([&] { return AllRun({"leaves"}); }, kPatience_s));
  ASSERT_EQ(ServersOf("leaves"), ServersOf("stays"));
  Submit(write("heavy", "weight = 1000\n"));
  ASSERT_TRUE(
      Eventually([&] { return AllRun({"heavy"}) && ServersOf("gang").empty(); },
                 kPatience_s))
      << Why("heavy") << Why("gang");
  ASSERT_NE(ServersOf("heavy"), ServersOf("stays"));

  EXPECT_EQ(Do({"cancel", "leaves"}).exit_code, 0);
  EXPECT_TRUE(Eventually(
      [&] {
        return AllRun({"gang", "heavy", "stays"});
      },
      kPatience_s))
      << Why("gang") << Why("heavy");
  EXPECT_EQ(ServersOf("heavy"), ServersOf("stays"));
  EXPECT_EQ(ServersOf("gang").size(), 1);
  EXPECT_NE(ServersOf("gang"), ServersOf("stays"));
  // One of the two made room; on each server one would do.
  EXPECT_THAT(Why("heavy") + Why("stays"),
              HasSubstr("tried a move to make room for job 1"));

  EXPECT_EQ(Do({"cancel", "gang", "heavy", "stays"}).exit_code, 0);
  local_->Wait(kPatience_s);
  for (const char* name : {"gang", "heavy", "stays"}) {
    const FakeState found = CheckpointOf(name);
    EXPECT_GT(found.steps, 0) << name;
    EXPECT_EQ(found.sum, found.steps * (found.steps + 1) / 2) << name;
  }
}

// Each server has one job and one slot that is idle. A gang of two that may run
// on "here" alone waits, until introspection moves the training there.
TEST_F(IntrospectionEndToEnd, ATrainingMovesSoThatAGangThatNeverRanStarts) {
  constexpr int kEpochs = 250;
  constexpr int kEpochsOfGang = 50;
  constexpr double kRound_s = 2;
  WriteServers({{"here", 2}, {"there", 2}}, kRound_s, /*keys=*/"");
  const auto write = [&](const std::string& name) {
    return WriteJob(name, {"--steps", kForever, "--step-ms", "10"},
                    "servers = [\"there\"]\n");
  };
  ASSERT_NO_FATAL_FAILURE(
      StartLocalWith({write("stays"), write("leaves")}, "max_min_fairness"));
  ASSERT_TRUE(Eventually(
      [&] {
        return AllRun({"stays", "leaves"});
      },
      kPatience_s))
      << local_->output();
  Submit(WriteTraining("moves", kEpochs, /*step_ms=*/25, ""));
  ASSERT_TRUE(Eventually([&] { return AllRun({"moves"}); }, kPatience_s));
  ASSERT_EQ(ServersOf("moves"), std::set<std::string>{"here"});
  EXPECT_EQ(Do({"cancel", "leaves"}).exit_code, 0);
  Submit(WriteTraining("gang", kEpochsOfGang, /*step_ms=*/25,
                       "scale_factor = 2\nservers = [\"here\"]\n",
                       StrCat("READ_FILE = \"", Path("reads"), "\"\n")));
  EXPECT_FALSE(Eventually([&] { return AllRun({"gang"}); }, 2 * kRound_s));

  const Ended on = Do({"policy", "--introspection", "on"});
  ASSERT_EQ(on.exit_code, 0) << on.errors;
  EXPECT_TRUE(Eventually(
      [&] {
        return AllRun({"gang", "moves", "stays"});
      },
      kPatience_s))
      << Why("gang") << Why("moves");
  EXPECT_EQ(ServersOf("gang"), std::set<std::string>{"here"});
  EXPECT_EQ(ServersOf("moves"), std::set<std::string>{"there"});
  EXPECT_THAT(Why("moves"), HasSubstr("tried a move to make room for job 4"));
  EXPECT_TRUE(ReachesState(endpoint_, "gang", "CD")) << LogOf(4);
  EXPECT_TRUE(ReachesState(endpoint_, "moves", "CD")) << LogOf(3);
  EXPECT_EQ(Do({"cancel", "stays"}).exit_code, 0);
  local_->Wait(kPatience_s);

  const std::string alone = TrainAlone(kEpochs);
  ASSERT_THAT(alone, Not(IsEmpty()));
  EXPECT_EQ(ReadText(Path("weights.moves")), alone);
  Reads reads_alone = ReadsOf(Path("reads.alone"));
  reads_alone.erase(reads_alone.upper_bound(kStepsOfEpoch * kEpochsOfGang),
                    reads_alone.end());
  ExpectSameReads(ReadsOf(Path("reads")), reads_alone);
}

TEST_F(IntrospectionEndToEnd, AnElasticJobIsResizedAndLosesNoSample) {
  constexpr int kEpochs = 34;
  WriteServers({{"here", 2}}, /*round_duration_s=*/5);
  const auto has_size = [&](int size) {
    return Eventually(
        [&] {
          const Json row = QueueRow(endpoint_, "elastic");
          return row.is_object() && row["scale_factor"] == size &&
                 row["accelerators"].size() == static_cast<size_t>(size);
        },
        kPatience_s);
  };
  ASSERT_NO_FATAL_FAILURE(StartLocalWith(
      {WriteCommand(
          "elastic", {GAVEL_GANG_WORKER, Path("weights")},
          StrCat("scale_factor = 1\nscale_factor_max = 2\n[environment]\n"
                 "READ_FILE = \"",
                 Path("reads"),
                 "\"\nGAVEL_DEVICE = \"cpu\"\nSAMPLE_MS = "
                 "\"20\"\nEPOCHS = \"",
                 kEpochs, "\"\n"))},
      "max_min_fairness"));
  ASSERT_TRUE(has_size(2)) << local_->output();
  Submit(WriteJob("second", {"--steps", "100", "--step-ms", "20"}));
  ASSERT_TRUE(has_size(1)) << Why("elastic");
  EXPECT_TRUE(ReachesState(endpoint_, "second", "CD"));
  EXPECT_TRUE(has_size(2)) << Why("elastic");
  // It may run beside no other job.
  EXPECT_THAT(Why("elastic"), Not(HasSubstr("tried to run beside")));
  EXPECT_EQ(local_->Wait(kPatience_s), 0) << local_->errors();

  TrainAlone(kEpochs);
  ExpectSameReads(ReadsOf(Path("reads")), ReadsOf(Path("reads.alone")));
}

}  // namespace
}  // namespace gavel::testing
