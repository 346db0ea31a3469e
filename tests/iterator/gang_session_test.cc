// Gangs of real processes without a coordinator, as torchrun starts them: what
// they train is what one process trains, they stop at one step, go on at any
// size, and none goes on when one is lost.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/generation.h"
#include "tests/iterator/gang_of_processes.h"
#include "tests/iterator/training.h"
#include "tests/support/eventually.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

// 100 samples in global batches of 24: four steps, the last of 28.
constexpr int kSteps = 16;

std::string Train(const std::string& folder, int world_size,
                  const Variables& variables = {}) {
  GangOfProcesses gang(folder, world_size, variables);
  EXPECT_EQ(gang.Wait(), Codes(world_size, 0)) << gang.Outputs();
  EXPECT_THAT(gang.rank(0).Output(),
              HasSubstr("steps " + std::to_string(kSteps) + " finished 1"));
  return gang.Weights();
}

const std::string& WeightsAlone() {
  static const std::string weights = [] {
    const TemporaryFolder folder;
    return Train(folder.path(), 1);
  }();
  return weights;
}

void ExpectNear(const std::string& weights, const std::string& expected) {
  std::istringstream got(weights);
  std::istringstream want(expected);
  std::string a;
  std::string b;
  int count = 0;
  while (std::getline(want, b)) {
    ASSERT_TRUE(std::getline(got, a));
    EXPECT_NEAR(std::strtod(a.c_str(), nullptr),
                std::strtod(b.c_str(), nullptr), 2e-5)
        << "number " << count;
    ++count;
  }
  EXPECT_FALSE(std::getline(got, a));
  EXPECT_EQ(count, 2 * 16 + 16 + 16 * 2 + 2 + 9 + 3);
}

int StepsIn(const std::string& output) {
  const size_t at = output.find("\nsteps ");
  return at == std::string::npos ? -1 : std::atoi(output.c_str() + at + 7);
}

TEST(GangSession, AnySizeTrainsWhatOneProcessTrains) {
  for (const int world_size : {2, 3}) {
    SCOPED_TRACE(world_size);
    const TemporaryFolder folder;
    ExpectNear(Train(folder.path(), world_size), WeightsAlone());
  }
}

class GangSessionTest : public Test {
 protected:
  const TemporaryFolder folder;
};

TEST_F(GangSessionTest, BatchStatisticsAreTheSameOnAllRanks) {
  Train(folder.path(), 2, {{"BATCH_NORM", "1"}});
}

TEST_F(GangSessionTest, BuffersAreEachRanksOwnWhereTheProgramSaysSo) {
  GangOfProcesses gang(folder.path(), 2,
                       {{"BATCH_NORM", "1"}, {"OWN_BUFFERS", "1"}});
  ASSERT_EQ(gang.Wait(), Codes(2, 0)) << gang.Outputs();
  EXPECT_FALSE(gang.rank(0).Weights().empty());
  EXPECT_NE(gang.rank(0).Weights(), gang.rank(1).Weights());
}

TEST_F(GangSessionTest, WorkersThatExchangeNothingAreWarnedOf) {
  GangOfProcesses gang(folder.path(), 2, {{"EACH_ALONE", "1"}});
  ASSERT_EQ(gang.Wait(), Codes(2, 0)) << gang.Outputs();
  EXPECT_NE(gang.rank(0).Weights(), gang.rank(1).Weights());
  EXPECT_THAT(gang.rank(0).Output(),
              HasSubstr("in 10 steps the 2 workers of this job have "
                        "exchanged nothing"));
  const TemporaryFolder other;
  GangOfProcesses usual(other.path(), 2, {});
  ASSERT_EQ(usual.Wait(), Codes(2, 0)) << usual.Outputs();
  EXPECT_THAT(usual.Outputs(), Not(HasSubstr("have exchanged nothing")));
}

TEST_F(GangSessionTest, ASignalToOneRankStopsAllAtOneStepAndAnotherSizeGoesOn) {
  const Variables slow = {{"STEP_MS", "150"}};
  int stopped_at = 0;
  {
    GangOfProcesses gang(folder.path(), 3, slow);
    ASSERT_TRUE(Eventually([&] {
      return gang.Outputs().find("of a gang of 3") != std::string::npos;
    })) << gang.Outputs();
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    gang.rank(2).Signal(SIGTERM);
    EXPECT_EQ(gang.Wait(), Codes(3, 75)) << gang.Outputs();
    stopped_at = StepsIn(gang.rank(0).Output());
    EXPECT_GT(stopped_at, 0) << gang.Outputs();
    EXPECT_LT(stopped_at, kSteps) << "too fast to be stopped";
    for (int rank = 1; rank < 3; ++rank) {
      EXPECT_EQ(StepsIn(gang.rank(rank).Output()), stopped_at);
    }
    gang.Weights();
  }
  const TemporaryFolder second;
  std::filesystem::copy(folder.path(), second.path(),
                        std::filesystem::copy_options::recursive);
  // Smaller, and alone.
  for (const int world_size : {2, 1}) {
    SCOPED_TRACE(world_size);
    const std::string where = world_size == 2 ? folder.path() : second.path();
    ExpectNear(Train(where, world_size), WeightsAlone());
  }
}

TEST_F(GangSessionTest, CheckpointsByTimeAreTakenByAllAtOneStep) {
  GangOfProcesses gang(
      folder.path(), 2,
      {{"STEP_MS", "100"}, {"GAVEL_CHECKPOINT_INTERVAL_S", "0.3"}});
  EXPECT_EQ(gang.Wait(), Codes(2, 0)) << gang.Outputs();
  EXPECT_THAT(gang.Outputs(), Not(HasSubstr("no checkpoint this time")));
  ExpectNear(gang.Weights(), WeightsAlone());
}

// Though all ranks may have begun the next step as far as each other knows.
TEST_F(GangSessionTest, RanksThatAllEvaluateStopAtTheStepThatTheyHaveDone) {
  {
    GangOfProcesses gang(folder.path(), 2, {{"EPOCH_EVALUATION_MS", "60000"}});
    ASSERT_TRUE(Eventually([&] {
      return gang.Outputs().find("of a gang of 2") != std::string::npos;
    })) << gang.Outputs();
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    const auto begin = std::chrono::steady_clock::now();
    gang.rank(1).Signal(SIGTERM);
    EXPECT_EQ(gang.Wait(), Codes(2, 75)) << gang.Outputs();
    EXPECT_LT(std::chrono::steady_clock::now() - begin,
              std::chrono::seconds(20));
    EXPECT_EQ(StepsIn(gang.rank(0).Output()), kSteps / 4) << gang.Outputs();
    EXPECT_TRUE(std::filesystem::exists(folder.path() + "/checkpoints/" +
                                        GenerationName({0, kSteps / 4}) +
                                        "/manifest.json"))
        << gang.Outputs();
  }
  ExpectNear(Train(folder.path(), 2), WeightsAlone());
}

// The others wait for its part of the last generation.
TEST(GangSession, ARankMayEvaluateForLongAfterItsLoop) {
  for (const char* rank : {"0", "1"}) {
    SCOPED_TRACE(rank);
    const TemporaryFolder folder;
    GangOfProcesses gang(folder.path(), 2,
                         {{"GANG_WAIT_S", "1"},
                          {"EVALUATION_MS", "4000"},
                          {"EVALUATION_RANK", rank}});
    EXPECT_EQ(gang.Wait(), Codes(2, 0)) << gang.Outputs();
    EXPECT_TRUE(std::filesystem::exists(folder.path() + "/checkpoints/" +
                                        GenerationName({0, kSteps}) +
                                        "/manifest.json"))
        << gang.Outputs();
  }
}

// Not for a minute for its part: the generation is given up, training goes on,
// and the next one is tried.
TEST_F(GangSessionTest, ARankWhoseDiskFailsIsNotWaitedFor) {
  const auto begin = std::chrono::steady_clock::now();
  GangOfProcesses gang(folder.path(), 3,
                       {{"STEP_MS", "20"},
                        {"GAVEL_CHECKPOINT_INTERVAL_STEPS", "3"},
                        {"DISK_FAILS_UNTIL", "8"}});
  EXPECT_EQ(gang.Wait(), Codes(3, 0)) << gang.Outputs();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(50));
  EXPECT_THAT(gang.rank(0).Output(),
              HasSubstr("earlier ones are unchanged: rank 1 can't write its "
                        "part; its log says why"));
  // Told the same, or that rank 0 gave it up.
  EXPECT_THAT(gang.rank(2).Output(), HasSubstr("no checkpoint this time"));
  EXPECT_THAT(gang.rank(1).Output(), HasSubstr("File too large"));
  const std::filesystem::path checkpoints = folder.path() + "/checkpoints";
  EXPECT_FALSE(std::filesystem::exists(checkpoints / GenerationName({0, 6})));
  EXPECT_TRUE(std::filesystem::exists(checkpoints / GenerationName({0, 15})))
      << gang.Outputs();
  ExpectNear(gang.Weights(), WeightsAlone());
}

TEST_F(GangSessionTest, ALostRankEndsTheOthersAndASmallerGangGoesOn) {
  {
    GangOfProcesses gang(
        folder.path(), 3,
        {{"STEP_MS", "150"}, {"GAVEL_CHECKPOINT_INTERVAL_STEPS", "2"}});
    ASSERT_TRUE(Eventually([&] {
      return gang.Outputs().find("of a gang of 3") != std::string::npos;
    })) << gang.Outputs();
    std::this_thread::sleep_for(std::chrono::milliseconds(800));
    gang.rank(1).Signal(SIGKILL);
    const auto killed_at = std::chrono::steady_clock::now();
    EXPECT_EQ(gang.Wait(), (std::vector<int>{75, 128 + SIGKILL, 75}))
        << gang.Outputs();
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - killed_at;
    EXPECT_LT(took.count(), 8);
    EXPECT_THAT(gang.rank(0).Output(), HasSubstr("the gang is broken in step"));
    EXPECT_THAT(gang.rank(2).Output(), HasSubstr("the gang is broken in step"));
  }
  ExpectNear(Train(folder.path(), 2), WeightsAlone());
}

TEST_F(GangSessionTest, AFrozenRankEndsTheOthersWithinSeconds) {
  GangOfProcesses gang(folder.path(), 2, {{"STEP_MS", "150"}});
  ASSERT_TRUE(Eventually([&] {
    return gang.Outputs().find("of a gang of 2") != std::string::npos;
  })) << gang.Outputs();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  gang.rank(1).Signal(SIGSTOP);
  const auto frozen_at = std::chrono::steady_clock::now();
  EXPECT_EQ(gang.rank(0).Wait(), 75) << gang.rank(0).Output();
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - frozen_at;
  EXPECT_LT(took.count(), 20);  // its collective would wait for 30 s
  EXPECT_THAT(gang.rank(0).Output(),
              HasSubstr("rank 1 of 2 is gone or does not answer"));
}

// How long the others take to end when rank 1 is killed at its next save, and
// with what.
double SecondsToEnd(GangOfProcesses& gang, const std::vector<int>& codes) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(gang.Wait(), codes) << gang.Outputs();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

TEST_F(GangSessionTest, ARankLostBetweenTheStopAndItsPartIsNotWaitedFor) {
  const std::string kill_file = folder.path() + "/kill";
  // One epoch of 20 steps, a generation after each fifth.
  const Variables variables = {{"SAMPLES", "480"},
                               {"EPOCHS", "1"},
                               {"GAVEL_CHECKPOINT_INTERVAL_STEPS", "5"}};
  Variables doomed = variables;
  doomed.insert(doomed.end(), {{"STEP_MS", "250"}, {"KILL_FILE", kill_file}});
  {
    GangOfProcesses gang(folder.path(), 3, doomed);
    ASSERT_TRUE(Eventually([&] {
      return std::filesystem::exists(folder.path() + "/checkpoints/" +
                                     GenerationName({0, 5}) + "/manifest.json");
    })) << gang.Outputs();
    std::ofstream(kill_file).put('\n');
    gang.rank(2).Signal(SIGTERM);
    EXPECT_LT(SecondsToEnd(gang, {75, 128 + SIGKILL, 75}), 20);
    EXPECT_THAT(gang.rank(0).Output(), HasSubstr("a rank of the gang is lost"));
    EXPECT_THAT(gang.rank(2).Output(), HasSubstr("no checkpoint this time"));
  }
  const auto train = [&](const std::string& where, int world_size) {
    GangOfProcesses gang(where, world_size, variables);
    EXPECT_EQ(gang.Wait(), Codes(world_size, 0)) << gang.Outputs();
    if (world_size > 1) {
      EXPECT_THAT(gang.Outputs(),
                  HasSubstr("going on from " + GenerationName({0, 5})));
    }
    return gang.Weights();
  };
  const TemporaryFolder alone;
  ExpectNear(train(folder.path(), 2), train(alone.path(), 1));
}

TEST_F(GangSessionTest, ARankLostBeforeItsPartOfTheLastGenerationIsNoFailure) {
  const std::string kill_file = folder.path() + "/kill";
  GangOfProcesses gang(folder.path(), 2,
                       {{"STEP_MS", "250"},
                        {"EPOCHS", "1"},
                        {"READ_FILE", folder.path() + "/reads"},
                        {"KILL_FILE", kill_file}});
  // The state is collected once after the first step, then at the end.
  ASSERT_TRUE(Eventually([&] {
    std::ifstream in(folder.path() + "/reads");
    std::string reads((std::istreambuf_iterator<char>(in)), {});
    return reads.find("\n3 ") != std::string::npos;
  })) << gang.Outputs();
  std::ofstream(kill_file).put('\n');
  EXPECT_LT(SecondsToEnd(gang, {75, 128 + SIGKILL}), 20);
  EXPECT_THAT(gang.rank(0).Output(),
              HasSubstr("the gang is broken at its end"));
}

TEST_F(GangSessionTest, WithoutAnAddressTheRemedyIsNamed) {
  const Variables variables = {
      {"WORLD_SIZE", "2"}, {"RANK", "0"}, {"GAVEL_DEVICE", "cpu"}};
  WorkerProcess worker(folder.path(), variables);
  EXPECT_EQ(worker.Wait(), 1);
  EXPECT_THAT(worker.Output(), HasSubstr("MASTER_ADDR and MASTER_PORT"));
}

}  // namespace
}  // namespace gavel::testing
