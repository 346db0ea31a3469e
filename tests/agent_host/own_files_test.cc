// Tests the files that the daemons keep on disk for themselves, and for the
// owners of jobs.
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "coordinator/agent_host/agent_checkpoints.h"
#include "coordinator/agent_host/agent_environment.h"
#include "runtime/files/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace {
int synced_files = 0;
int synced_directories = 0;
}  // namespace

// Replaces libc's fsync() in the whole program.
extern "C" int fsync(int descriptor) {
  struct stat info {};
  if (fstat(descriptor, &info) == 0) {
    ++(S_ISDIR(info.st_mode) ? synced_directories : synced_files);
  }
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

namespace gavel {
namespace {

constexpr auto kNotAllowed = absl::StatusCode::kPermissionDenied;
constexpr char kOwner[] = "nobody";

mode_t ModeOf(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

class OwnFiles : public Test {
 protected:
  std::string Path(const std::string& name) const {
    return folder_.path() + "/" + name;
  }

  TemporaryFolder folder_;
};

TEST_F(OwnFiles, AreReplacedWholeAndOnDiskUnderTheirNames) {
  const std::string path = Path("file");
  ASSERT_OK(ReplaceFile(path, "first, and longer"));
  synced_files = synced_directories = 0;
  ASSERT_OK(ReplaceFile(path, "second"));
  EXPECT_EQ(synced_files, 1);
  EXPECT_EQ(synced_directories, 1);
  EXPECT_EQ(ReadAll(path), "second");
  EXPECT_EQ(ModeOf(path), 0600U);
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
  EXPECT_THAT(ReplaceFile(Path("none/file"), "x"),
              StatusIs(kNotFound, "none/file"));
}

TEST_F(OwnFiles, ADirectoryIsMadeForThisUserAlone) {
  ASSERT_OK_AND_ASSIGN(const PrivateDirectory made,
                       PrivateDirectory::Make(Path("a/b/"), "--state"));
  EXPECT_EQ(made.path(), Path("a/b"));
  EXPECT_EQ(ModeOf(made.path()), 0700U);
  ASSERT_OK(made.MakeFile("lock.0", 0644));
  ASSERT_OK(made.MakeFile("lock.0", 0644));
  EXPECT_TRUE(std::filesystem::exists(Path("a/b/lock.0")));
  ASSERT_OK(made.SetMode(0711));
  ASSERT_OK(PrivateDirectory::Make(Path("a/b"), "--state").status());
  EXPECT_EQ(ModeOf(made.path()), 0711U);
}

TEST_F(OwnFiles, ADirectoryThatOthersMayWriteIsRefused) {
  const std::string path = Path("open");
  ASSERT_OK(PrivateDirectory::Make(path, "--state").status());
  for (const mode_t mode : {0720, 0702, 01777}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_THAT(PrivateDirectory::Make(path, "--run-directory").status(),
                StatusIs(kNotAllowed,
                         "open may be written by others: chmod "
                         "go-w it, or name another with "
                         "--run-directory"));
  }
}

TEST_F(OwnFiles, AFileInADirectorysPlaceIsRefused) {
  std::ofstream(Path("file")) << "x";
  EXPECT_THAT(PrivateDirectory::Make(Path("file"), "--state").status(),
              StatusIs(kNotAllowed, "Not a directory"));
}

TEST_F(OwnFiles, OurOwnLinkIsFollowed) {
  ASSERT_OK(PrivateDirectory::Make(Path("real"), "--state").status());
  std::filesystem::create_symlink(Path("real"), Path("link"));
  ASSERT_OK_AND_ASSIGN(const PrivateDirectory linked,
                       PrivateDirectory::Make(Path("link"), "--state"));
  ASSERT_OK(linked.MakeFile("file", 0600));
  EXPECT_TRUE(std::filesystem::exists(Path("real/file")));
}

// Files on a machine with several users.
class OthersFiles : public OwnFiles {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    ASSERT_OK_AND_ASSIGN(other_, AccountOfJob(kOwner));
    ASSERT_TRUE(other_.has_value());
  }
  void Give(const std::string& path) const {
    ASSERT_EQ(lchown(path.c_str(), other_->uid, other_->gid), 0);
  }
  uid_t OwnerOf(const std::string& path) const {
    struct stat info {};
    return lstat(path.c_str(), &info) == 0 ? info.st_uid : ~uid_t{0};
  }
  std::unique_ptr<AgentCheckpoints> Checkpoints() const {
    return *AgentCheckpoints::Open(folder_.path(), "127.0.0.1", [] {});
  }

  std::optional<UnixAccount> other_;
};

TEST_F(OthersFiles, ADirectoryOfAnotherUserIsRefused) {
  ASSERT_OK(PrivateDirectory::Make(Path("planted"), "--state").status());
  Give(Path("planted"));
  EXPECT_THAT(PrivateDirectory::Make(Path("planted"), "--state").status(),
              StatusIs(kNotAllowed, "belongs to user"));
  ASSERT_OK(PrivateDirectory::Make(Path("real"), "--state").status());
  std::filesystem::create_symlink(Path("real"), Path("link"));
  Give(Path("link"));
  EXPECT_THAT(PrivateDirectory::Make(Path("link"), "--state").status(),
              StatusIs(kNotAllowed, "another user's symbolic link"));
}

TEST_F(OthersFiles, CheckpointsThatWereLeftHalfMadeBecomeTheJobs) {
  const auto checkpoints = Checkpoints();
  // The agent died before it gave the directory to the job's owner.
  ASSERT_OK_AND_ASSIGN(const std::string path,
                       checkpoints->DirectoryFor("/job", std::nullopt));
  EXPECT_EQ(OwnerOf(path), geteuid());
  ASSERT_OK_AND_ASSIGN(const std::string again,
                       checkpoints->DirectoryFor("/job", other_));
  EXPECT_EQ(again, path);
  EXPECT_EQ(OwnerOf(path), other_->uid);
  ASSERT_OK(checkpoints->DirectoryFor("/job", other_).status());
}

TEST_F(OthersFiles, CheckpointsOfAnotherUserAreRefusedWithBothNames) {
  const auto checkpoints = Checkpoints();
  ASSERT_OK_AND_ASSIGN(const std::string path,
                       checkpoints->DirectoryFor("/job", other_));
  UnixAccount third = *other_;
  third.name = "third";
  third.uid = other_->uid - 1;
  EXPECT_THAT(checkpoints->DirectoryFor("/job", third).status(),
              StatusIs(kNotAllowed, "the job runs as third"));
  EXPECT_EQ(OwnerOf(path), other_->uid);
  // A job with an owner does not get what a job without one has written,
  // either.
  ASSERT_OK_AND_ASSIGN(const std::string of_root,
                       checkpoints->DirectoryFor("/root", std::nullopt));
  std::ofstream(of_root + "/file") << "x";
  EXPECT_THAT(checkpoints->DirectoryFor("/root", other_).status(),
              StatusIs(kNotAllowed, "belong to user 0"));
}

}  // namespace
}  // namespace gavel
