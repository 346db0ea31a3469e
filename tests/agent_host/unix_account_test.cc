// Jobs run as their owner: what such a process is, has and can't do.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "coordinator/agent_host/agent_environment.h"
#include "coordinator/agent_host/agent_process.h"
#include "core/text.h"
#include "runtime/transport/curve.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr auto kRefused = absl::StatusCode::kPermissionDenied;
constexpr char kUser[] = "nobody";

TEST(UnixAccount, RootIsNobodysAccount) {
  EXPECT_THAT(AccountOfJob("root"), StatusIs(kRefused, "root"));
}

TEST(UnixAccount, AnUnknownUserIsNamed) {
  EXPECT_THAT(AccountOfJob("no-such-user-here"),
              StatusIs(kNotFound, "no-such-user-here"));
  EXPECT_THAT(AccountOfJob("../etc"), StatusIs(kNotFound, "../etc"));
}

TEST(UnixAccount, WithoutAnOwnerThereIsNothingToChange) {
  ASSERT_OK_AND_ASSIGN(const auto account, AccountOfJob(""));
  EXPECT_FALSE(account.has_value());
}

TEST(UnixAccount, AnAgentThatIsNotRootRunsItsOwnUsersJobsOnly) {
  if (geteuid() != 0) {
    EXPECT_THAT(AccountOfJob(kUser), StatusIs(kRefused, "not root"));
    return;
  }
  const pid_t child = fork();
  if (child == 0) {
    const bool changed = setresuid(12345, 12345, 12345) == 0;
    const absl::Status status = AccountOfJob(kUser).status();
    _exit(changed && absl::IsPermissionDenied(status) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

class RunsAsOwner : public Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can run as another user";
    auto account = AccountOfJob(kUser);
    ASSERT_OK(account);
    account_ = *account;
    ASSERT_TRUE(account_.has_value());
    ASSERT_EQ(chmod(folder_.path().c_str(), 0711), 0);
    work_ = folder_.path() + "/work";
    ASSERT_EQ(mkdir(work_.c_str(), 0755), 0);
    ASSERT_EQ(chown(work_.c_str(), account_->uid, account_->gid), 0);
  }
  absl::StatusOr<pid_t> Start(const std::string& script) {
    ProcessSpec spec;
    spec.argv = {"sh", "-c", script};
    spec.working_directory = work_;
    spec.environment = {"PATH=/usr/bin:/bin"};
    spec.output_path = folder_.path() + "/output";
    spec.account = account_;
    return SpawnProcess(spec);
  }
  std::string Run(const std::string& script) {
    const absl::StatusOr<pid_t> pid = Start(script);
    EXPECT_OK(pid);
    int status = 0;
    if (pid.ok()) waitpid(*pid, &status, 0);
    return ReadText(folder_.path() + "/output");
  }

  TemporaryFolder folder_;
  std::string work_;
  std::optional<UnixAccount> account_;
};

TEST_F(RunsAsOwner, AllIdsAreTheOwnersAndThereIsNoWayBack) {
  const std::string output =
      Run("grep -E '^(Uid|Gid|Groups):' /proc/self/status");
  const std::string uid = StrCat(account_->uid);
  const std::string gid = StrCat(account_->gid);
  EXPECT_THAT(output, HasSubstr(StrCat("Uid:\t", uid, "\t", uid, "\t", uid,
                                       "\t", uid)));
  EXPECT_THAT(output, HasSubstr(StrCat("Gid:\t", gid, "\t", gid, "\t", gid,
                                       "\t", gid)));
  EXPECT_THAT(output, HasSubstr(StrCat("Groups:\t", gid)));
  EXPECT_THAT(Run("grep CapEff /proc/self/status"),
              HasSubstr("0000000000000000"));
}

TEST_F(RunsAsOwner, ItDiesWithItsAgentStill) {
  // The change of user clears the signal; it is asked for after that.
  const pid_t agent = fork();
  if (agent == 0) {
    const absl::StatusOr<pid_t> pid = Start("sleep 100");
    if (pid.ok()) std::ofstream(folder_.path() + "/pid") << *pid;
    _exit(pid.ok() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(agent, &status, 0), agent);
  ASSERT_EQ(status, 0);
  pid_t pid = 0;
  std::ifstream(folder_.path() + "/pid") >> pid;
  ASSERT_GT(pid, 1);
  EXPECT_TRUE(Eventually([&] {
    // A zombie of init's counts as gone.
    return kill(pid, 0) != 0 ||
           ReadText(StrCat("/proc/", pid, "/stat")).find(") Z ") !=
               std::string::npos;
  }));
}

TEST_F(RunsAsOwner, ItCanNeitherReadRootsFilesNorWriteElsewhere) {
  std::ofstream(folder_.path() + "/secret") << "treasure";
  chmod((folder_.path() + "/secret").c_str(), 0600);
  const std::string output =
      Run(StrCat("cat ", folder_.path(), "/secret; touch ", folder_.path(),
                 "/x; touch y && echo own"));
  EXPECT_THAT(output, Not(HasSubstr("treasure")));
  EXPECT_THAT(output, HasSubstr("own"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/x"));
}

TEST_F(RunsAsOwner, ItInheritsNoDescriptorAndNoCoreDump) {
  const int leaked = open("/etc/shadow", O_RDONLY);  // not close-on-exec
  const std::string output = Run("ls /proc/self/fd; ulimit -c; umask");
  if (leaked >= 0) close(leaked);
  // 3 is the one that ls reads the directory by.
  EXPECT_EQ(output, "0\n1\n2\n3\n0\n0022\n");
}

TEST_F(RunsAsOwner, ItsDirectoryIsEnteredAsTheOwner) {
  ASSERT_EQ(chmod(work_.c_str(), 0700), 0);
  ASSERT_EQ(chown(work_.c_str(), 0, 0), 0);
  EXPECT_THAT(Start("true"), StatusIs(kRefused, work_));
}

TEST_F(RunsAsOwner, ItsOutputIsItsOwnAndNoLinkIsFollowed) {
  Run("true");
  struct stat info {};
  ASSERT_EQ(stat((folder_.path() + "/output").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, account_->uid);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  std::filesystem::remove(folder_.path() + "/output");
  std::ofstream(folder_.path() + "/victim") << "whole";
  std::filesystem::create_symlink(folder_.path() + "/victim",
                                  folder_.path() + "/output");
  EXPECT_FALSE(Start("echo broken").ok());
  ASSERT_EQ(stat((folder_.path() + "/victim").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 0U);
}

TEST_F(RunsAsOwner, ItsKeyIsItsOwnAndGoneWithIt) {
  ASSERT_OK_AND_ASSIGN(const auto keys,
                       WorkerKeys::Open(folder_.path() + "/keys"));
  const WorkerKey worker{JobId(3), 0, 2};
  ASSERT_OK_AND_ASSIGN(const std::string path, keys->Mint(worker, account_));
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, account_->uid);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_THAT(Run(StrCat("cat ", path)), HasSubstr("secret_key"));
  Message message = WorkerLaunched{"here", worker, 5};
  keys->FillIn(&message);
  EXPECT_TRUE(IsCurveKey(std::get<WorkerLaunched>(message).public_key));
  keys->Forget(worker);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace gavel
