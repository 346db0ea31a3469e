#include "core/status.h"
#include "runtime/generation/manifest.h"
#include "tests/checkpoint/simulated_disk.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

TEST(GenerationDirectory, NamesAndAttemptsAreInverse) {
  for (const Attempt& attempt :
       {Attempt{{1, 2}, 0}, Attempt{{1, 2}, 1}, Attempt{{7, 1200}, 23}}) {
    EXPECT_EQ(ParseAttemptName(AttemptName(attempt)), attempt);
  }
}

TEST(GenerationDirectory, OtherNamesAreNotAttempts) {
  std::string name = GenerationName({1, 2});
  for (const std::string& bad :
       {std::string(), std::string("."), std::string("generation-1-2"),
        name + ".", name + ".0", name + ".01", name + ".-1", name + ". 1",
        name + ".1.2", name + ".99999999999", name + "/..", " " + name}) {
    EXPECT_EQ(ParseAttemptName(bad), std::nullopt) << bad;
  }
}

TEST(GenerationDirectory, LaterAttemptsCountMore) {
  EXPECT_LT((Attempt{{1, 2}, 9}), (Attempt{{1, 3}, 0}));
  EXPECT_LT((Attempt{{1, 2}, 9}), (Attempt{{1, 2}, 10}));
}

TEST(GenerationDirectory, ParentsOfPaths) {
  EXPECT_EQ(ParentOf("/a/b"), "/a");
  EXPECT_EQ(ParentOf("/a/b/"), "/a");
  EXPECT_EQ(ParentOf("/a//b"), "/a");
  EXPECT_EQ(ParentOf("/a"), "/");
  EXPECT_EQ(ParentOf("/"), "/");
  EXPECT_EQ(ParentOf("a"), ".");
  EXPECT_EQ(ParentOf("."), ".");
  EXPECT_EQ(ParentOf("a/b"), "a");
}

TEST(GenerationDirectory, MissingParentsAreCreatedDurably) {
  SimulatedDisk disk;
  ASSERT_OK(CreateDirectories(disk, "/a/b/c"));
  std::mt19937 random(3);
  for (int i = 0; i < 20; ++i) disk.Crash(random);
  EXPECT_OK(disk.List("/a/b/c"));
  EXPECT_OK(CreateDirectories(disk, "/a/b/c"));
}

TEST(DirectoryOwner, TheFirstJobHasTheDirectoryAndAnotherIsToldBothNames) {
  SimulatedDisk disk;
  ASSERT_OK(ClaimDirectory(disk, "/a", {"5eed", 1, "lm"}));
  std::mt19937 random(3);
  disk.Crash(random);
  const absl::Status other = ClaimDirectory(disk, "/a", {"5eed", 2, "digits"});
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(other.message(),
              AllOf(HasSubstr("job 'lm' (1 of cluster 5eed), not of job "
                              "'digits' (2 of cluster 5eed)"),
                    HasSubstr("gavel checkpoint adopt /a digits")));
  EXPECT_FALSE(ClaimDirectory(disk, "/a", {"cafe", 1, "lm"}).ok());
  // Restarted, or submitted again once it had ended.
  EXPECT_OK(ClaimDirectory(disk, "/a", {"5eed", 1, "lm"}));
  EXPECT_OK(ClaimDirectory(disk, "/a", {"5eed", 9, "lm"}));
}

// Another job claims the directory once this one has seen that it is nobody's.
class ClaimedMeanwhile : public SimulatedDisk {
 public:
  absl::Status Link(const std::string& from, const std::string& to) override {
    GAVEL_RETURN_IF_ERROR(WriteOwner(*this, "/a", {"5eed", 2, "digits"}));
    return SimulatedDisk::Link(from, to);
  }
};

TEST(DirectoryOwner, OneOfTwoThatClaimItAtOnceHasIt) {
  ClaimedMeanwhile disk;
  ASSERT_OK(CreateDirectories(disk, "/a"));
  EXPECT_THAT(ClaimDirectory(disk, "/a", {"5eed", 1, "lm"}).message(),
              HasSubstr("they are of job 'digits'"));
  EXPECT_OK(ClaimDirectory(disk, "/a", {"5eed", 2, "digits"}));
}

TEST(DirectoryOwner, AJobThatIsGivenTheDirectoryByNameKeepsIt) {
  SimulatedDisk disk;
  ASSERT_OK(CreateDirectories(disk, "/a"));
  ASSERT_OK(ClaimDirectory(disk, "/a", {"5eed", 1, "lm"}));
  ASSERT_OK(WriteOwner(disk, "/a", {"", 0, "digits"}));
  EXPECT_FALSE(ClaimDirectory(disk, "/a", {"5eed", 1, "lm"}).ok());
  EXPECT_OK(ClaimDirectory(disk, "/a", {"5eed", 2, "digits"}));
  EXPECT_FALSE(ClaimDirectory(disk, "/a", {"cafe", 2, "digits"}).ok());
}

TEST(DirectoryOwner, AFileThatNamesNoJobIsAnErrorWithTheRemedy) {
  SimulatedDisk disk;
  ASSERT_OK(CreateDirectories(disk, "/a"));
  ASSERT_OK(WriteTextFile(disk, "/a/.job", "nonsense"));
  EXPECT_THAT(ClaimDirectory(disk, "/a", {"5eed", 1, "lm"}).message(),
              HasSubstr("gavel checkpoint adopt /a JOB"));
}

TEST(GenerationDirectory, FolderWithForeignFilesStays) {
  SimulatedDisk disk;
  Attempt attempt{{1, 2}, 0};
  std::string folder = "/a/" + AttemptName(attempt);
  ASSERT_OK(CreateDirectories(disk, folder));
  for (const char* name :
       {"manifest.json", "shard-00000.safetensors", "mine"}) {
    ASSERT_OK(disk.CreateFile(folder + "/" + name, FileAccess::kBuffered));
  }
  EXPECT_THAT(RemoveAttempt(disk, "/a", attempt),
              StatusIs(kFailedPrecondition, "not empty"));
  ASSERT_OK_AND_ASSIGN(auto left, disk.List(folder));
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].name, "mine");
}

}  // namespace
}  // namespace gavel::testing
