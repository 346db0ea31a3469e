// What is left after a crash, and after damage: faults.md's rows of the
// journal.
#include <sys/resource.h>

#include <csignal>
#include <random>

#include "tests/server/faulty_disk.h"
#include "tests/server/journal_fixture.h"

namespace gavel::testing {
namespace {

class JournalDamage : public JournalFixture {
 protected:
  // The files as a SIGKILL leaves them: rows 1..`kept` in the main file, the
  // others in the WAL.
  void MakeCrashed(uint64_t kept, uint64_t last) {
    AppendRows(*MustOpen(), 1, kept);
    const auto journal = MustOpen();
    AppendRows(*journal, kept + 1, last);
    main_file_ = ReadFile(path());
    wal_file_ = ReadFile(path() + "-wal");
  }

  ReadBack Restore(const std::string& main_file, const std::string& wal_file) {
    std::filesystem::remove(path() + "-shm");
    WriteFile(path(), main_file);
    WriteFile(path() + "-wal", wal_file);
    return ReadJournal(path());
  }

  static void ExpectPrefix(const std::vector<JournalRow>& rows) {
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_TRUE(SameRow(rows[i], RowAt(i + 1))) << "row " << i + 1;
    }
  }

  std::string main_file_;
  std::string wal_file_;
};

TEST_F(JournalDamage, ATruncatedWalLeavesACommittedPrefix) {
  MakeCrashed(/*kept=*/2, /*last=*/8);
  size_t before = 2;
  for (size_t length = 0; length <= wal_file_.size(); length += 53) {
    const ReadBack back = Restore(main_file_, wal_file_.substr(0, length));
    ASSERT_OK(back.status) << length;
    ASSERT_GE(back.rows.size(), before) << length;
    ExpectPrefix(back.rows);
    before = back.rows.size();
  }
  EXPECT_EQ(Restore(main_file_, wal_file_).rows.size(), 8u);
}

TEST_F(JournalDamage, AFlipInTheWalLeavesACommittedPrefix) {
  MakeCrashed(/*kept=*/2, /*last=*/8);
  std::mt19937_64 random(1);
  size_t lost = 0;
  for (int round = 0; round < 200; ++round) {
    std::string flipped = wal_file_;
    flipped[random() % flipped.size()] ^= static_cast<char>(1 << random() % 8);
    const ReadBack back = Restore(main_file_, flipped);
    ASSERT_OK(back.status);
    ExpectPrefix(back.rows);
    lost += 8 - back.rows.size();
  }
  EXPECT_GT(lost, 0u);  // which only the positions in the messages tell
}

TEST_F(JournalDamage, AFlippedBitInTheMainFileNamesTheRow) {
  AppendRows(*MustOpen(), 1, 40);
  const std::string good = ReadFile(path());
  for (uint64_t seq = 1; seq <= 40; ++seq) {
    std::string bad = good;
    bad[bad.find(StrCat("event-", seq, ".")) + 2] ^= 0x10;
    const ReadBack back = Restore(bad, "");
    EXPECT_THAT(back.status, StatusIs(absl::StatusCode::kDataLoss,
                                      StrCat("row ", seq, " is damaged")));
    EXPECT_EQ(back.rows.size(), seq - 1);
  }
}

TEST_F(JournalDamage, AFlipAnywhereIsNeverBelieved) {
  AppendRows(*MustOpen(), 1, 150, /*padding=*/40);
  const std::string good = ReadFile(path());
  std::mt19937_64 random(1);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bad = good;
    bad[random() % bad.size()] ^= static_cast<char>(1 << random() % 8);
    const ReadBack back = Restore(bad, "");
    refused += !back.status.ok();
    // The rest of a page is no part of any row.
    if (back.status.ok()) {
      ASSERT_EQ(back.rows.size(), 150u) << round;
    }
    for (size_t i = 0; i < back.rows.size(); ++i) {
      ASSERT_TRUE(SameRow(back.rows[i], RowAt(i + 1, 40))) << round;
    }
  }
  EXPECT_GT(refused, 50);  // much of the file is room that is not used
}

TEST_F(JournalDamage, AFailedFsyncIsNotRetried) {
  FaultyDisk disk;
  const auto journal = MustOpen();
  AppendRows(*journal, 1, 3);
  disk.FailFsyncAfter(0);
  const JournalRow row = RowAt(4);
  const absl::Status failed = journal->Append({&row, 1});
  EXPECT_THAT(failed, StatusIs(absl::StatusCode::kInternal, path()));
  const int fsyncs = disk.fsyncs();
  disk.FailFsyncAfter(1000);  // the disk seems to be well again
  EXPECT_EQ(journal->Append({&row, 1}), failed);
  EXPECT_EQ(disk.fsyncs(), fsyncs);
}

// The row of the failed commit may be there or not: nobody was told that it is.
TEST_F(JournalDamage, AfterAFailedFsyncTheRowsBeforeItAreThere) {
  {
    FaultyDisk disk;
    const auto journal = MustOpen();
    AppendRows(*journal, 1, 3);
    disk.FailFsyncAfter(0);
    const JournalRow row = RowAt(4);
    EXPECT_FALSE(journal->Append({&row, 1}).ok());
  }
  const ReadBack back = ReadJournal(path());
  EXPECT_OK(back.status);
  EXPECT_GE(back.rows.size(), 3u);
  ExpectPrefix(back.rows);
}

TEST_F(JournalDamage, AFullDiskStopsItBetweenTwoRows) {
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  uint64_t committed = 0;
  absl::Status failed;
  {
    const auto journal = MustOpen();
    const rlimit limit{300'000, old_limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    while (failed.ok() && committed < 1000) {
      const JournalRow row = RowAt(committed + 1, 3000);
      failed = journal->Append({&row, 1});
      committed += failed.ok();
    }
  }
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(failed, StatusIs(failed.code(), path()));
  EXPECT_GT(committed, 10u);
  EXPECT_LT(committed, 1000u);
  const ReadBack back = ReadJournal(path());
  EXPECT_OK(back.status);
  EXPECT_EQ(back.rows.size(), committed);
}

}  // namespace
}  // namespace gavel::testing
