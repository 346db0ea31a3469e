#include "runtime/generation/file_system.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "tests/checkpoint/snapshot_samples.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

class PosixFileSystemTest : public Test {
 protected:
  std::string Path(const std::string& name) {
    return folder_.path() + "/" + name;
  }
  FileSystem& file_system_ = FileSystem::Posix();
  CheckpointFolder folder_;
};

TEST_F(PosixFileSystemTest, WritesAndReadsBack) {
  ASSERT_OK_AND_ASSIGN(
      auto file, file_system_.CreateFile(Path("a"), FileAccess::kBuffered));
  ASSERT_OK(file->Append("hello "));
  ASSERT_OK(file->Append("world"));
  ASSERT_OK(file->Sync());
  ASSERT_OK(file->Close());
  ASSERT_OK(file_system_.SyncDirectory(folder_.path()));
  EXPECT_EQ(*ReadWholeFile(file_system_, Path("a"), 11), "hello world");
  EXPECT_THAT(ReadWholeFile(file_system_, Path("a"), 10),
              StatusIs(kOutOfRange, "the limit 10"));
}

TEST_F(PosixFileSystemTest, ReadsParts) {
  WriteBytes(Path("a"), "0123456789");
  ASSERT_OK_AND_ASSIGN(auto file,
                       file_system_.OpenFile(Path("a"), FileAccess::kBuffered));
  char data[4];
  ASSERT_OK(file->Read(3, data, 4));
  EXPECT_EQ(std::string(data, 4), "3456");
  EXPECT_THAT(file->Read(8, data, 4), StatusIs(kOutOfRange, "ends at byte 10"));
}

TEST_F(PosixFileSystemTest, ErrorsNameThePath) {
  EXPECT_THAT(file_system_.OpenFile(Path("none"), FileAccess::kBuffered),
              StatusIs(kNotFound, Path("none")));
  EXPECT_THAT(file_system_.List(Path("none")),
              StatusIs(kNotFound, Path("none")));
  EXPECT_THAT(file_system_.RemoveFile(Path("none")),
              StatusIs(kNotFound, Path("none")));
  EXPECT_THAT(file_system_.RemoveDirectory(Path("none")),
              StatusIs(kNotFound, Path("none")));
  EXPECT_THAT(file_system_.Rename(Path("none"), Path("b")),
              StatusIs(kNotFound, Path("none")));
  EXPECT_THAT(file_system_.SyncDirectory(Path("none")),
              StatusIs(kNotFound, Path("none")));
  EXPECT_THAT(file_system_.CreateDirectory(folder_.path()),
              StatusIs(kAlreadyExists, folder_.path()));
}

TEST_F(PosixFileSystemTest, NeverOverwritesAFile) {
  WriteBytes(Path("a"), "old");
  EXPECT_THAT(file_system_.CreateFile(Path("a"), FileAccess::kBuffered),
              StatusIs(kAlreadyExists, Path("a")));
  EXPECT_EQ(ReadBytes(Path("a")), "old");
}

TEST_F(PosixFileSystemTest, ListsSortedAndTellsDirectoriesFromLinks) {
  WriteBytes(Path("b"), "");
  ASSERT_OK(file_system_.CreateDirectory(Path("c")));
  std::filesystem::create_directory_symlink(Path("c"), Path("a"));
  ASSERT_OK_AND_ASSIGN(auto entries, file_system_.List(folder_.path()));
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_FALSE(entries[0].is_directory);
  EXPECT_FALSE(entries[1].is_directory);
  EXPECT_TRUE(entries[2].is_directory);
}

TEST_F(PosixFileSystemTest, OpensRegularFilesOnlyAndNeverHangs) {
  ASSERT_EQ(::mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_FALSE(file_system_.OpenFile(Path("fifo"), FileAccess::kBuffered).ok());
  EXPECT_FALSE(
      file_system_.OpenFile(folder_.path(), FileAccess::kBuffered).ok());
  WriteBytes(Path("a"), "x");
  std::filesystem::create_symlink(Path("a"), Path("link"));
  EXPECT_FALSE(file_system_.OpenFile(Path("link"), FileAccess::kBuffered).ok());
}

// RLIMIT_FSIZE stands for a full disk: the write is cut short, then fails.
TEST_F(PosixFileSystemTest, ShortWritesAreContinuedAndFailuresReported) {
  ASSERT_OK_AND_ASSIGN(
      auto file, file_system_.CreateFile(Path("a"), FileAccess::kBuffered));
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = {1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  absl::Status status = file->Append(std::string(4000, 'x'));
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(std::filesystem::file_size(Path("a")), 1000u);
}

}  // namespace
}  // namespace gavel::testing
