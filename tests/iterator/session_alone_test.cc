// Sessions without a coordinator.
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gavel/session.h"
#include "runtime/files/files.h"
#include "tests/iterator/session_fixture.h"
#include "tests/iterator/training.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

class SessionAlone : public SessionTest {
 protected:
  // Ends after so many steps as if killed there: only the files of periodic
  // checkpoints are left.
  Outcome TrainUpTo(int64_t step, SessionOptions options) {
    TrainingOptions training;
    training.after_step = [step](Session& session) {
      if (session.steps_done() + 1 == step) throw std::runtime_error("killed");
    };
    try {
      return Train(std::move(options), training);
    } catch (const std::runtime_error&) {
      return Outcome();
    }
  }
};

TEST_F(SessionAlone, RunsToItsEnd) {
  const Outcome& outcome = Uninterrupted();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.status.message();
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.steps_done, 24);
  EXPECT_EQ(outcome.losses.size(), 24u);
  EXPECT_LT(outcome.losses.back(), outcome.losses.front());
}

TEST_F(SessionAlone, SaysOnceThatThereAreNoCheckpoints) {
  SessionOptions options = Alone();
  options.checkpoint_directory.clear();
  EXPECT_EQ(Train(options).exit_code, 0);
  EXPECT_EQ(log_.Count("GAVEL_CHECKPOINT_DIRECTORY"), 1);
}

TEST_F(SessionAlone, SaysWhenTheFirstCheckpointComes) {
  struct Case {
    double interval_s;
    int64_t interval_steps;
    const char* text;
  };
  const Case cases[] = {
      {-1, 0,
       "first checkpoint after 10 s "
       "(GAVEL_CHECKPOINT_INTERVAL_S)"},
      {2.5, 0,
       "first checkpoint after 2.5 s "
       "(GAVEL_CHECKPOINT_INTERVAL_S)"},
      {0, 500,
       "first checkpoint after 500 steps "
       "(GAVEL_CHECKPOINT_INTERVAL_STEPS)"},
      {60, 1,
       "first checkpoint after 60 s (GAVEL_CHECKPOINT_INTERVAL_S) or "
       "1 step (GAVEL_CHECKPOINT_INTERVAL_STEPS)"},
      {0, 0, "no checkpoint before the end (GAVEL_CHECKPOINT_INTERVAL_S=0)"}};
  for (const Case& one : cases) {
    TemporaryFolder folder;
    Lines log;
    SessionOptions options = Alone();
    options.checkpoint_directory = folder.path();
    options.log = log.Sink();
    options.checkpoint_interval_s = one.interval_s;
    options.checkpoint_interval_steps = one.interval_steps;
    options.steps_total = 2;
    EXPECT_EQ(Train(options).exit_code, 0) << log.Text();
    EXPECT_EQ(log.Count(one.text), 1) << log.Text();
  }
}

TEST_F(SessionAlone, CheckpointsDoNotChangeTheResult) {
  SessionOptions options = Alone();
  options.checkpoint_interval_steps = 1;
  const Outcome outcome = Train(options);
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_EQ(outcome.weights, Uninterrupted().weights);
}

TEST_F(SessionAlone, TwoProgramsDoNotSaveInOneDirectory) {
  const std::string directory = Alone().checkpoint_directory;
  std::filesystem::create_directories(directory);
  const FileLock other = *FileLock::Take(directory + "/.in-use");
  const Outcome outcome = Train(Alone());
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(log_.Contain("another program saves its checkpoints in "))
      << log_.Text();
  EXPECT_TRUE(log_.Contain("is held by process " + std::to_string(getpid())));
}

TEST_F(SessionAlone, AForkedHelperThatOutlivesItsProgramDoesNotKeepTheLock) {
  const std::string directory = Alone().checkpoint_directory;
  std::filesystem::create_directories(directory);
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  std::optional<FileLock> killed(*FileLock::Take(directory + "/.in-use"));
  const pid_t helper = fork();
  if (helper == 0) {
    [[maybe_unused]] const auto written = write(pipe_ends[1], "!", 1);
    pause();
    _exit(0);
  }
  char byte = 0;
  EXPECT_EQ(read(pipe_ends[0], &byte, 1), 1);
  killed.reset();
  EXPECT_EQ(Train(Alone()).exit_code, 0) << log_.Text();
  EXPECT_EQ(kill(helper, 0), 0);
  kill(helper, SIGKILL);
  waitpid(helper, nullptr, 0);
  for (const int end : pipe_ends) close(end);
}

// It is killed in the first epoch, at the end of one, just after it, and later.
class SessionAloneKilledAt : public SessionAlone,
                             public ::testing::WithParamInterface<int> {};

TEST_P(SessionAloneKilledAt, GoesOnToTheSameResult) {
  SessionOptions options = Alone();
  options.checkpoint_interval_steps = 1;
  TrainUpTo(GetParam(), options);
  const Outcome outcome = Train(options);
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_EQ(outcome.steps_done, 24);
  EXPECT_EQ(outcome.losses.size(), 24u - (GetParam() - 1)) << log_.Text();
  EXPECT_EQ(outcome.losses.back(), Uninterrupted().losses.back());
  EXPECT_EQ(outcome.weights, Uninterrupted().weights);
  EXPECT_TRUE(log_.Contain("going on from generation-"));
}

INSTANTIATE_TEST_SUITE_P(Steps, SessionAloneKilledAt,
                         Values(2, 3, 6, 7, 8, 13, 20, 24));

TEST_F(SessionAlone, RepeatsWhatWasAfterTheLastCheckpoint) {
  SessionOptions options = Alone();
  options.checkpoint_interval_steps = 5;
  TrainUpTo(9, options);
  const Outcome outcome = Train(options);
  EXPECT_EQ(outcome.losses.size(), 19u);
  EXPECT_EQ(outcome.weights, Uninterrupted().weights);
}

TEST_F(SessionAlone, EndsAtItsStepBudgetAndGoesOnWithALargerOne) {
  SessionOptions options = Alone();
  options.steps_total = 10;
  const Outcome first = Train(options);
  EXPECT_EQ(first.exit_code, 0);
  EXPECT_TRUE(first.finished);
  EXPECT_EQ(first.steps_done, 10);

  const Outcome again = Train(options);
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_EQ(again.losses.size(), 0u);
  EXPECT_TRUE(again.finished);

  options.steps_total = 0;
  const Outcome rest = Train(options);
  EXPECT_EQ(rest.losses.size(), 14u);
  EXPECT_EQ(rest.weights, Uninterrupted().weights);
}

TEST_F(SessionAlone, AFinishedJobThatIsStartedAgainSaysSo) {
  EXPECT_EQ(Train(Alone()).exit_code, 0);
  EXPECT_FALSE(log_.Contain("finished before"));
  const Outcome again = Train(Alone());
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_TRUE(again.losses.empty());
  EXPECT_EQ(log_.Count("this job was finished before"), 1) << log_.Text();
  EXPECT_TRUE(log_.Contain("has its end at step 24"));
  TrainingOptions longer;
  longer.epochs = 5;
  EXPECT_EQ(Train(Alone(), longer).steps_done, 30);
  EXPECT_EQ(log_.Count("this job was finished before"), 1);
}

TEST_F(SessionAlone, KeepsMilestonesAndTheBestByWhatItReports) {
  SessionOptions options = Alone();
  options.checkpoint_interval_steps = 1;
  options.checkpoints_kept_every_steps = 10;
  options.checkpoints_kept_best = "min:error";
  TrainingOptions training;
  training.after_step = [](Session& session) {
    session.Report("error",
                   std::abs(static_cast<double>(session.steps_done() - 5)));
  };
  ASSERT_EQ(Train(options, training).exit_code, 0) << log_.Text();
  std::set<std::string> steps;
  for (const auto& entry :
       std::filesystem::directory_iterator(options.checkpoint_directory)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.')) continue;
    steps.insert(name.substr(name.rfind('-') + 1));
  }
  // The best error was reported in step 6, when five were done; 10 and 20 are
  // milestones, 23 and 24 the newest. Finish() wrote the checkpoint of step 24
  // again.
  EXPECT_THAT(steps, ElementsAre("000000000006", "000000000010", "000000000020",
                                 "000000000023", "000000000024.1"));
}

TEST_F(SessionAlone, ASignalEndsTheLoopWithItsStateSaved) {
  TrainingOptions training;
  training.after_step = [](Session& session) {
    if (session.steps_done() == 7) raise(SIGTERM);
  };
  const Outcome first = Train(Alone(), training);
  EXPECT_EQ(first.exit_code, 75);
  EXPECT_FALSE(first.finished);
  EXPECT_EQ(first.steps_done, 8);
  EXPECT_EQ(first.status.code(), StatusCode::kCancelled);

  const Outcome rest = Train(Alone());
  EXPECT_EQ(rest.losses.size(), 16u);
  EXPECT_EQ(rest.weights, Uninterrupted().weights);
}

TEST_F(SessionAlone, ASignalThatComesAgainIsTheSameRequest) {
  for (const int signal_number : {SIGTERM, SIGINT, SIGHUP}) {
    SCOPED_TRACE(signal_number);
    TrainingOptions training;
    training.after_step = [=](Session& session) {
      if (session.steps_done() % 5 != 4) return;
      raise(signal_number);
      raise(signal_number);
    };
    EXPECT_EQ(Train(Alone(), training).exit_code, 75);
  }
  // Each training continued where the one before had saved.
  EXPECT_EQ(Train(Alone()).losses.size(), 24u - 3 * 5);
}

// The steps of the generations in a checkpoint directory, ascending.
std::vector<int> SavedSteps(const std::string& directory) {
  std::vector<int> steps;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("generation-")) continue;
    steps.push_back(std::stoi(name.substr(name.rfind('-') + 1)));
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

TEST_F(SessionAlone,
       ASignalOfTheUserHasACheckpointWrittenAndTrainingContinues) {
  for (const int signal_number : {SIGUSR1, SIGUSR2}) {
    SCOPED_TRACE(signal_number);
    SessionOptions options = Alone();
    options.checkpoint_directory += std::to_string(signal_number);
    options.checkpoint_interval_s = 0;
    TrainingOptions training;
    // While the writer is busy, the request waits for it. Slow steps give it
    // its turn before the end of the training.
    training.after_step = [&](Session& session) {
      if (session.steps_done() == 7) raise(signal_number);
      if (session.steps_done() > 7 &&
          SavedSteps(options.checkpoint_directory).empty()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    };
    EXPECT_EQ(Train(options, training).exit_code, 0);
    EXPECT_THAT(SavedSteps(options.checkpoint_directory),
                ElementsAre(AllOf(Ge(8), Lt(24)), 24));
  }
}

TEST_F(SessionAlone, LeavesAHandlerOfTheHostAlone) {
  static volatile sig_atomic_t host_saw_it = 0;
  struct sigaction host = {};
  struct sigaction before = {};
  host.sa_handler = [](int) { host_saw_it = 1; };
  sigaction(SIGTERM, &host, &before);
  TrainingOptions training;
  training.after_step = [](Session& session) {
    if (session.steps_done() == 3) raise(SIGTERM);
  };
  EXPECT_EQ(Train(Alone(), training).exit_code, 0);
  EXPECT_EQ(host_saw_it, 1);
  sigaction(SIGTERM, &before, nullptr);
}

TEST_F(SessionAlone, FinishRestoresTheDefaultHandler) {
  Train(Alone());
  struct sigaction now = {};
  sigaction(SIGTERM, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

TEST_F(SessionAlone, AnOptimizerThatIsNotTrackedIsAnError) {
  TrainingOptions training;
  training.track_optimizer = false;
  const Outcome outcome = Train(Alone(), training);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.steps_done, 1);
  EXPECT_EQ(outcome.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(outcome.status.message(), HasSubstr("'model/"));
  EXPECT_THAT(outcome.status.message(), HasSubstr("Track(\"optimizer\""));
}

TEST_F(SessionAlone, ThatErrorCanBeTurnedOff) {
  TrainingOptions training;
  training.track_optimizer = false;
  SessionOptions options = Alone();
  options.require_tracked_optimizer = false;
  EXPECT_EQ(Train(options, training).exit_code, 0);
}

TEST_F(SessionAlone, FallsBackFromADamagedGeneration) {
  SessionOptions options = Alone();
  options.checkpoint_interval_steps = 4;
  TrainUpTo(9, options);
  std::string latest;
  for (const auto& entry :
       std::filesystem::directory_iterator(options.checkpoint_directory)) {
    latest = std::max(latest, entry.path().string());
  }
  for (const auto& entry : std::filesystem::directory_iterator(latest)) {
    if (entry.path().extension() != ".safetensors") continue;
    std::fstream shard(entry.path(), std::ios::in | std::ios::out);
    shard.seekp(-3, std::ios::end);
    shard.put('!');
  }
  const Outcome outcome = Train(options);
  EXPECT_EQ(outcome.losses.size(), 20u) << log_.Text();
  EXPECT_EQ(outcome.weights, Uninterrupted().weights);
  EXPECT_TRUE(log_.Contain("fell back to an earlier checkpoint"));
}

TEST_F(SessionAlone, AnUnusableDirectoryEndsTheLoopAtOnce) {
  std::ofstream(folder_.path() + "/checkpoints") << "a file";
  const Outcome outcome = Train(Alone());
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.losses.size(), 0u);
  EXPECT_THAT(outcome.status.message(), HasSubstr("checkpoints"));
}

TEST_F(SessionAlone, AFullDiskDoesNotEndTheTraining) {
  SessionOptions options = Alone();
  options.checkpoint_interval_steps = 2;
  TrainingOptions training;
  training.after_step = [&](Session& session) {
    // A file replaces the directory, because root may write into any directory.
    const std::string& directory = options.checkpoint_directory;
    if (session.steps_done() == 5) {
      std::filesystem::rename(directory, directory + ".away");
      std::ofstream(directory) << "in the way";
    } else if (session.steps_done() == 9) {
      EXPECT_FALSE(session.status().ok());
      std::filesystem::remove(directory);
      std::filesystem::rename(directory + ".away", directory);
    }
  };
  const Outcome outcome = Train(options, training);
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_TRUE(outcome.status.ok());
  EXPECT_TRUE(log_.Contain("no checkpoint this time"));
  EXPECT_EQ(outcome.weights, Uninterrupted().weights);
}

TEST_F(SessionAlone, AReadOnlyDirectoryEndsTheLoopAtOnce) {
  if (geteuid() != 0) GTEST_SKIP() << "only root mounts a file system";
  const std::string disk = folder_.path() + "/disk";
  std::filesystem::create_directory(disk);
  if (mount("none", disk.c_str(), "tmpfs", MS_RDONLY, nullptr) != 0) {
    GTEST_SKIP() << "no file system may be mounted here";
  }
  SessionOptions options = Alone();
  options.checkpoint_directory = disk;
  const Outcome outcome = Train(options);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.losses.size(), 0u);
  EXPECT_TRUE(log_.Contain("checkpoints can't be written to " + disk))
      << log_.Text();
  umount(disk.c_str());
}

TEST_F(SessionAlone, ADiskThatIsFullKeepsTheGenerationsBefore) {
  if (geteuid() != 0) GTEST_SKIP() << "only root mounts a small disk";
  const std::string disk = folder_.path() + "/disk";
  std::filesystem::create_directory(disk);
  if (mount("none", disk.c_str(), "tmpfs", 0, "size=4m") != 0) {
    GTEST_SKIP() << "no file system may be mounted here";
  }
  SessionOptions options = Alone();
  options.checkpoint_directory = disk + "/checkpoints";
  options.checkpoint_interval_steps = 2;
  TrainingOptions training;
  training.after_step = [&](Session& session) {
    if (session.steps_done() == 5) {
      std::ofstream ballast(disk + "/ballast");
      while (ballast << std::string(4096, 'x') && ballast.flush()) {
      }
    } else if (session.steps_done() == 9) {
      EXPECT_EQ(session.status().code(), StatusCode::kResourceExhausted)
          << session.status().message();
      throw std::runtime_error("killed");
    }
  };
  EXPECT_THROW(Train(options, training), std::runtime_error);
  EXPECT_TRUE(log_.Contain("No space left on device"));
  std::filesystem::remove(disk + "/ballast");
  const Outcome outcome = Train(options);
  EXPECT_EQ(outcome.exit_code, 0) << log_.Text();
  EXPECT_EQ(outcome.weights, Uninterrupted().weights);
  // It continues from a checkpoint that was complete before the disk was full:
  // the second, or the first where the second was still being written.
  EXPECT_THAT(outcome.losses.size(), AnyOf(20u, 22u));
  EXPECT_EQ(umount2(disk.c_str(), MNT_DETACH), 0);
}

TEST_F(SessionAlone, ReportsAreWrittenInFull) {
  SessionOptions options = Alone();
  options.report_file = folder_.path() + "/report";
  const Outcome outcome = Train(options);
  std::ifstream report(options.report_file);
  int64_t step = 0;
  std::string name;
  std::string value;
  for (const double loss : outcome.losses) {
    report >> step >> name >> value;
    // The learning rate stands there once, as it does not change.
    if (name == "lr") report >> step >> name >> value;
    EXPECT_EQ(name, "loss");
    EXPECT_EQ(std::stod(value), loss);
  }
  EXPECT_EQ(step, 23);
}

}  // namespace
}  // namespace gavel::testing
