// Real processes, killed with SIGKILL in the middle of their commits.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/checkpoint/generation_store.h"
#include "tests/checkpoint/snapshot_samples.h"
#include "tests/support/status_matchers.h"

namespace gavel::testing {
namespace {

constexpr int kKills = 20;
constexpr int kKillsPerCall = 5;
constexpr int64_t kElements = 20000;

struct Writer {
  pid_t pid = 0;
  int output = -1;
};

// By posix_spawn: a process that has used LibTorch must not fork. `before`: a
// command that runs the writer.
Writer Start(const std::string& directory, int epoch,
             std::vector<std::string> before = {}) {
  int pipe_ends[2];
  EXPECT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  std::vector<std::string> words = std::move(before);
  words.insert(words.end(), {GAVEL_CHECKPOINT_WRITER, directory,
                             std::to_string(epoch), std::to_string(kElements)});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  Writer writer;
  EXPECT_EQ(::posix_spawnp(&writer.pid, arguments[0], &actions, nullptr,
                           arguments.data(), environ),
            0);
  posix_spawn_file_actions_destroy(&actions);
  ::close(pipe_ends[1]);
  writer.output = pipe_ends[0];
  return writer;
}

// All that it printed until the end.
std::string ReadToEnd(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::read(fd, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

// Kills it a moment after its first acknowledged step; gives back the last one.
uint64_t RunAndKill(const std::string& directory, int epoch,
                    std::chrono::microseconds delay) {
  Writer writer = Start(directory, epoch);
  char first;
  EXPECT_EQ(::read(writer.output, &first, 1), 1) << "the writer ended early";
  std::this_thread::sleep_for(delay);
  ::kill(writer.pid, SIGKILL);
  int wait_status = 0;
  ::waitpid(writer.pid, &wait_status, 0);
  EXPECT_TRUE(WIFSIGNALED(wait_status));
  std::istringstream lines(first + ReadToEnd(writer.output));
  ::close(writer.output);
  uint64_t last = 0;
  for (uint64_t step; lines >> step;) last = step;
  return last;
}

// Kills it as it enters its `count`-th call of `syscall` (on one thread); gives
// back the last acknowledged step, 0 if none.
uint64_t RunAndKillAt(const std::string& directory, int epoch,
                      const std::string& syscall, int count) {
  Writer writer = Start(
      directory, epoch,
      {"strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=" + syscall, "-e",
       "inject=" + syscall + ":signal=SIGKILL:when=" + std::to_string(count)});
  std::istringstream lines(ReadToEnd(writer.output));
  ::close(writer.output);
  int wait_status = 0;
  ::waitpid(writer.pid, &wait_status, 0);
  EXPECT_TRUE(WIFSIGNALED(wait_status)) << "strace: " << wait_status;
  uint64_t last = 0;
  for (uint64_t step; lines >> step;) last = step;
  return last;
}

// All calls with which a save changes a disk, each the first few times.
TEST(GenerationKill, KilledAtEverySystemCallOfASave) {
  if (std::system("strace -qq -o /dev/null true 2>/dev/null") != 0) {
    GTEST_SKIP() << "no strace, or it may not trace here";
  }
  TemporaryFolder folder;
  int epoch = 0;
  uint64_t acknowledged = 0;
  for (const char* syscall : {"mkdir", "write", "ftruncate", "fdatasync",
                              "fsync", "rename", "unlink", "rmdir"}) {
    for (int count = 1; count <= kKillsPerCall; ++count) {
      SCOPED_TRACE(std::string(syscall) + " " + std::to_string(count));
      acknowledged = std::max(
          acknowledged, RunAndKillAt(folder.path(), ++epoch, syscall, count));
      ASSERT_OK_AND_ASSIGN(GenerationStore store,
                           GenerationStore::Open(folder.path()));
      absl::StatusOr<Restored> restored = store.Restore();
      if (acknowledged == 0 && absl::IsNotFound(restored.status())) continue;
      ASSERT_OK(restored.status());
      const uint64_t step = restored->generation.step;
      ASSERT_GE(step, acknowledged);
      ASSERT_LE(step, acknowledged + 1);
      ASSERT_TRUE(IsSnapshotOfStep(restored->snapshot, step, kElements));
      EXPECT_TRUE(restored->notes.empty()) << restored->notes[0];
      acknowledged = step;  // the next writer goes on from it
    }
  }
  EXPECT_GT(acknowledged, 5u);
}

TEST(GenerationKill, AcknowledgedStepsSurviveKilledWriters) {
  TemporaryFolder folder;
  std::mt19937 random(7);
  uint64_t unacknowledged = 0;
  for (int epoch = 1; epoch <= kKills; ++epoch) {
    SCOPED_TRACE(epoch);
    std::chrono::microseconds delay(random() % 30000);
    uint64_t acknowledged = RunAndKill(folder.path(), epoch, delay);
    ASSERT_OK_AND_ASSIGN(GenerationStore store,
                         GenerationStore::Open(folder.path()));
    ASSERT_OK_AND_ASSIGN(Restored restored, store.Restore());
    uint64_t step = restored.generation.step;
    ASSERT_TRUE(step == acknowledged || step == acknowledged + 1)
        << step << " restored, " << acknowledged << " acknowledged";
    ASSERT_TRUE(IsSnapshotOfStep(restored.snapshot, step, kElements));
    EXPECT_TRUE(restored.notes.empty()) << restored.notes[0];
    unacknowledged += step - acknowledged;
  }
  RecordProperty("renamed_but_not_acknowledged",
                 std::to_string(unacknowledged));
}

}  // namespace
}  // namespace gavel::testing
