#include "runtime/device/accelerator_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/test.h"

namespace gavel::testing {
namespace {

namespace fs = std::filesystem;
constexpr char kUuid[] = "GPU-1b2c_3";

// A second process that tries to take the lock.
class Holder {
 public:
  Holder(const std::string& run_directory, const std::string& slots) {
    int input[2], output[2];
    EXPECT_EQ(::pipe2(input, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(output, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    std::string program = GAVEL_LOCK_HOLDER, directory = run_directory,
                uuid = kUuid, slots_text = slots;
    char* arguments[] = {program.data(), directory.data(), uuid.data(),
                         slots_text.data(), nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, program.c_str(), &actions, nullptr,
                            arguments, environ),
              0);
    posix_spawn_file_actions_destroy(&actions);
    ::close(input[0]);
    ::close(output[1]);
    input_ = input[1];
    ReadLine(output[0]);
    ::close(output[0]);
  }
  ~Holder() { Kill(); }

  // Ends it as a crash would.
  void Kill() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(input_);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }
  const std::string& answer() const { return answer_; }

 private:
  void ReadLine(int fd) {
    for (char c; ::read(fd, &c, 1) == 1 && c != '\n';) answer_ += c;
  }

  pid_t pid_ = 0;
  int input_ = -1;
  std::string answer_;
};

class AcceleratorLockTest : public Test {
 protected:
  AcceleratorLockTest() {
    std::string path =
        (fs::temp_directory_path() / "gavel-lock-XXXXXX").string();
    base_ = ::mkdtemp(path.data());
    run_directory_ = base_ + "/run";
  }
  ~AcceleratorLockTest() override { fs::remove_all(base_); }

  absl::StatusOr<AcceleratorLock> Acquire(LockSlots slots, double wait_s) {
    return AcceleratorLock::Acquire(run_directory_, kUuid, slots, wait_s);
  }
  absl::StatusOr<AcceleratorLock> Try(LockSlots slots) {
    return Acquire(slots, 0);
  }

  std::string base_, run_directory_;
};

TEST_F(AcceleratorLockTest, OtherProcessIsRefusedAndToldWhoHoldsIt) {
  ASSERT_OK_AND_ASSIGN(AcceleratorLock lock, Try(LockSlots::kBoth));
  std::string pid = "process " + std::to_string(::getpid());
  EXPECT_NE(Holder(run_directory_, "both").answer().find(pid),
            std::string::npos);
  EXPECT_NE(Holder(run_directory_, "one").answer().find(pid),
            std::string::npos);
  lock.Release();
  EXPECT_FALSE(lock.held());
  EXPECT_EQ(Holder(run_directory_, "both").answer(), "held");
}

TEST_F(AcceleratorLockTest, HolderIsNamedWithItsRemedy) {
  Holder holder(run_directory_, "both");
  ASSERT_EQ(holder.answer(), "held");
  EXPECT_THAT(Try(LockSlots::kBoth),
              StatusIs(kUnavailable,
                       "in use by process " + std::to_string(holder.pid())));
  EXPECT_THAT(Try(LockSlots::kOne), StatusIs(kUnavailable, "stop it"));
}

TEST_F(AcceleratorLockTest, KilledHolderLeavesNoLock) {
  Holder holder(run_directory_, "both");
  EXPECT_THAT(Try(LockSlots::kBoth), StatusIs(kUnavailable, kUuid));
  holder.Kill();
  EXPECT_OK(Try(LockSlots::kBoth));
}

TEST_F(AcceleratorLockTest, PackedPairTakesOneEachAndNoThirdFits) {
  Holder first(run_directory_, "one");
  ASSERT_EQ(first.answer(), "held");
  ASSERT_OK_AND_ASSIGN(AcceleratorLock second, Try(LockSlots::kOne));
  EXPECT_NE(Holder(run_directory_, "one").answer(), "held");
  EXPECT_NE(Holder(run_directory_, "both").answer(), "held");
}

TEST_F(AcceleratorLockTest, RefusedWholeGivesTheFirstSlotBack) {
  ASSERT_OK_AND_ASSIGN(AcceleratorLock first, Try(LockSlots::kOne));
  ASSERT_OK_AND_ASSIGN(AcceleratorLock second, Try(LockSlots::kOne));
  first.Release();  // .0 is free, .1 is not
  EXPECT_THAT(Try(LockSlots::kBoth), StatusIs(kUnavailable, ".1"));
  EXPECT_EQ(Holder(run_directory_, "one").answer(), "held");
}

TEST_F(AcceleratorLockTest, MovedLockIsHeldOnce) {
  ASSERT_OK_AND_ASSIGN(AcceleratorLock lock, Try(LockSlots::kBoth));
  AcceleratorLock other = std::move(lock);
  EXPECT_FALSE(lock.held());  // NOLINT: that is what is tested
  EXPECT_TRUE(other.held());
  lock.Release();
  EXPECT_THAT(Try(LockSlots::kOne), StatusIs(kUnavailable, kUuid));
  other = std::move(lock);
  EXPECT_OK(Try(LockSlots::kBoth));
}

TEST_F(AcceleratorLockTest, ChildrenDoNotInheritIt) {
  ASSERT_OK_AND_ASSIGN(AcceleratorLock lock, Try(LockSlots::kBoth));
  Holder child(run_directory_, "both");  // refused, but still running
  lock.Release();
  EXPECT_OK(Try(LockSlots::kBoth));
}

TEST_F(AcceleratorLockTest, WhoWaitsIsWokenByTheRelease) {
  // The least of several times, as other programs may keep the cores.
  std::chrono::duration<double> waited{1};
  for (int round = 0; round < 10; ++round) {
    ASSERT_OK_AND_ASSIGN(AcceleratorLock lock, Try(LockSlots::kBoth));
    std::chrono::steady_clock::time_point released;
    std::thread holder([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(11));
      released = std::chrono::steady_clock::now();
      lock.Release();
    });
    ASSERT_OK(Acquire(LockSlots::kBoth, 10));
    waited = std::min<std::chrono::duration<double>>(
        waited, std::chrono::steady_clock::now() - released);
    holder.join();
  }
  // If it were only tried again and again, about 9 ms.
  EXPECT_LT(waited.count(), 0.005);
}

TEST_F(AcceleratorLockTest, WhoWaitsTakesOverFromAKilledHolder) {
  Holder holder(run_directory_, "both");
  ASSERT_EQ(holder.answer(), "held");
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    holder.Kill();
  });
  EXPECT_OK(Acquire(LockSlots::kBoth, 10));
  killer.join();
}

TEST_F(AcceleratorLockTest, WaitingEndsWithTheHolderNamed) {
  ASSERT_OK_AND_ASSIGN(AcceleratorLock lock, Try(LockSlots::kOne));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(Acquire(LockSlots::kBoth, 0.1),
              StatusIs(kUnavailable,
                       "in use by process " + std::to_string(::getpid())));
  EXPECT_GE(std::chrono::steady_clock::now() - begin,
            std::chrono::milliseconds(100));
  // The slot that was free is so again.
  EXPECT_OK(Try(LockSlots::kOne));
}

TEST_F(AcceleratorLockTest, FilesStayAndHoldThePid) {
  Try(LockSlots::kBoth)->Release();
  for (const char* slot : {".0", ".1"}) {
    std::ifstream file(run_directory_ + "/" + kUuid + slot);
    long pid = 0;
    EXPECT_TRUE(file >> pid);
    EXPECT_EQ(pid, ::getpid());
  }
  EXPECT_EQ(fs::status(run_directory_).permissions(), fs::perms::owner_all);
}

TEST_F(AcceleratorLockTest, IdsThatCouldBePathsAreRefused) {
  for (const std::string& bad :
       {std::string(), std::string(".."), std::string("../x"),
        std::string("a/b"), std::string("a.0"), std::string("a b"),
        std::string("a\0b", 3), std::string(65, 'a')}) {
    EXPECT_THAT(
        AcceleratorLock::Acquire(run_directory_, bad, LockSlots::kOne, 0),
        IsInvalid("accelerator id"));
  }
  EXPECT_OK(AcceleratorLock::Acquire(run_directory_, std::string(64, 'a'),
                                     LockSlots::kOne, 0));
}

TEST_F(AcceleratorLockTest, RunDirectoryThatOthersCanWriteToIsRefused) {
  fs::create_directory(run_directory_);
  ASSERT_EQ(::chmod(run_directory_.c_str(), 0777), 0);
  EXPECT_THAT(Try(LockSlots::kOne), StatusIs(kFailedPrecondition, "1777"));
  ASSERT_EQ(::chmod(run_directory_.c_str(), 01777), 0);
  EXPECT_OK(Try(LockSlots::kOne));
}

TEST_F(AcceleratorLockTest, LinksAreNotFollowed) {
  fs::create_directory(base_ + "/elsewhere");
  fs::create_directory_symlink(base_ + "/elsewhere", run_directory_);
  EXPECT_THAT(Try(LockSlots::kOne), StatusIs(kFailedPrecondition, "directory"));
  fs::remove(run_directory_);
  fs::create_directory(run_directory_);
  ASSERT_EQ(::chmod(run_directory_.c_str(), 0700), 0);
  std::ofstream(base_ + "/target") << "precious";
  fs::create_symlink(base_ + "/target", run_directory_ + "/" + kUuid + ".0");
  EXPECT_FALSE(Try(LockSlots::kBoth).ok());
  std::string text;
  std::ifstream(base_ + "/target") >> text;
  EXPECT_EQ(text, "precious");
}

TEST_F(AcceleratorLockTest, MissingParentIsReported) {
  EXPECT_THAT(
      AcceleratorLock::Acquire(base_ + "/a/b", kUuid, LockSlots::kOne, 0),
      StatusIs(kNotFound, base_ + "/a/b"));
}

}  // namespace
}  // namespace gavel::testing
