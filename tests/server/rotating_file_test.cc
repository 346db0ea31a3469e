#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "coordinator/server/audit_log.h"
#include "core/text.h"
#include "runtime/files/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

TEST(RotatingFile, KeepsTheNewestLinesInBoundedFiles) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/audit.log";
  const RotationLimits limits{20, 2};
  {
    ASSERT_OK_AND_ASSIGN(RotatingFile file, RotatingFile::Open(path, limits));
    for (int i = 0; i < 5; ++i)
      EXPECT_TRUE(file.Append(StrCat("line", i, "\n")));
  }
  // It goes on where the last one ended.
  ASSERT_OK_AND_ASSIGN(RotatingFile file, RotatingFile::Open(path, limits));
  for (int i = 5; i < 8; ++i) EXPECT_TRUE(file.Append(StrCat("line", i, "\n")));
  EXPECT_THAT(RotatedFiles(path), ElementsAre(path + ".2", path + ".1", path));
  EXPECT_EQ(ReadAll(path + ".2"), "line0\nline1\nline2\n");
  EXPECT_EQ(ReadAll(path + ".1"), "line3\nline4\nline5\n");
  EXPECT_EQ(ReadAll(path), "line6\nline7\n");
  EXPECT_TRUE(file.Append("line8\n"));
  EXPECT_TRUE(file.Append("line9\n"));
  EXPECT_EQ(ReadAll(path + ".2"), "line3\nline4\nline5\n");
  EXPECT_FALSE(std::filesystem::exists(path + ".3"));
}

TEST(RotatingFile, ALineLongerThanAFileIsWrittenWhole) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/audit.log";
  ASSERT_OK_AND_ASSIGN(RotatingFile file, RotatingFile::Open(path, {20, 1}));
  EXPECT_TRUE(file.Append(std::string(100, 'x') + "\n"));
  EXPECT_EQ(ReadAll(path).size(), 101U);
  EXPECT_THAT(RotatedFiles(path), ElementsAre(path));
}

TEST(RotatingFile, FollowsNoLink) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/audit.log";
  std::ofstream(folder.path() + "/victim") << "precious";
  ASSERT_EQ(symlink((folder.path() + "/victim").c_str(), path.c_str()), 0);
  EXPECT_FALSE(RotatingFile::Open(path).ok());
}

}  // namespace
}  // namespace gavel
