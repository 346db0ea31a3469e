// Tests the journal after a crash and after damage, as "The journal, byte by
// byte" in docs/measurements/faults.md reports.

#include <cstdlib>
#include <random>

#include "tests/server/faulty_disk.h"
#include "tests/server/journal_fixture.h"

namespace gavel::testing {
namespace {

// GAVEL_EVERY_BYTE=1 tests every byte of the files, otherwise only some.
size_t StepOf(size_t usual) {
  return std::getenv("GAVEL_EVERY_BYTE") != nullptr ? 1 : usual;
}

class JournalDamage : public JournalFixture {
 protected:
  // Leaves a snapshot of three parts, and the rows behind it, in the WAL, and
  // an older snapshot in the main file.
  void MakeCrashedWithSnapshot() {
    const auto add = [this](uint64_t first, uint64_t last, char fill) {
      auto journal = MustOpen();
      AppendRows(*journal, first, last);
      journal->StartSnapshot(
          StrCat("snapshot ", last, " ",
                 std::string(2 * kSnapshotPartBytes + 10, fill)));
      for (absl::StatusOr<bool> more = true; more.ok() && *more;) {
        more = journal->Maintain();
        EXPECT_OK(more);
      }
      return journal;
    };
    add(1, 4, 'a');
    const auto journal = add(5, 8, 'b');
    AppendRows(*journal, 9, 10);
    main_file_ = ReadText(path());
    wal_file_ = ReadText(path() + "-wal");
  }

  // Recovers as a coordinator does. Returns the last row of the snapshot (0:
  // none) and the number of rows behind it, and expects that both belong to a
  // committed prefix.
  std::pair<uint64_t, uint64_t> RestoreWithSnapshots(
      const std::string& main_file, const std::string& wal_file) {
    std::filesystem::remove(path() + "-shm");
    WriteFile(path(), main_file);
    WriteFile(path() + "-wal", wal_file);
    std::pair<uint64_t, uint64_t> found{0, 0};
    auto journal = Journal::Open(path());
    EXPECT_OK(journal);
    if (!journal.ok()) return found;
    RecoverInto into;
    into.begin = [&](const JournalSnapshot* snapshot) {
      found = {0, 0};
      if (snapshot == nullptr) return absl::OkStatus();
      const bool old = snapshot->bytes.starts_with("snapshot 4 a");
      EXPECT_TRUE(old || snapshot->bytes.starts_with("snapshot 8 b"));
      EXPECT_GT(snapshot->bytes.size(), 2 * kSnapshotPartBytes);
      found.first = old ? 4 : 8;
      return absl::OkStatus();
    };
    into.take = [&](const JournalRow& row) {
      ++found.second;
      EXPECT_TRUE(SameRow(row, RowAt(found.first + found.second)));
      return absl::OkStatus();
    };
    EXPECT_OK((*journal)->Recover(into));
    return found;
  }

  std::string main_file_;
  std::string wal_file_;
};

TEST_F(JournalDamage, AWalWithASnapshotInItIsCutAnywhere) {
  MakeCrashedWithSnapshot();
  uint64_t before = 4;
  std::set<uint64_t> began;
  for (size_t length = 0; length <= wal_file_.size();
       length += StepOf(wal_file_.size() / 300)) {
    const auto [snapshot, rows] =
        RestoreWithSnapshots(main_file_, wal_file_.substr(0, length));
    began.insert(snapshot);
    ASSERT_GE(snapshot + rows, before) << length;
    before = snapshot + rows;
  }
  EXPECT_EQ(RestoreWithSnapshots(main_file_, wal_file_), std::pair(8ul, 2ul));
  EXPECT_EQ(began, (std::set<uint64_t>{4, 8}));
}

TEST_F(JournalDamage, AFlipInAWalWithASnapshotLeavesACommittedPrefix) {
  MakeCrashedWithSnapshot();
  std::mt19937_64 random(1);
  for (size_t at = 0; at < wal_file_.size();
       at += StepOf(wal_file_.size() / 200)) {
    std::string flipped = wal_file_;
    flipped[at] ^= static_cast<char>(1 << random() % 8);
    const auto [snapshot, rows] = RestoreWithSnapshots(main_file_, flipped);
    ASSERT_GE(snapshot + rows, 4u) << at;
  }
}

// The file holds the bytes of a snapshot in several pieces. After a flip in one
// snapshot the other is used; a flip in a row is refused.
TEST_F(JournalDamage, AFlipInAMainFileWithSnapshotsIsNeverBelieved) {
  MakeCrashedWithSnapshot();
  ASSERT_EQ(RestoreWithSnapshots(main_file_, wal_file_), std::pair(8ul, 2ul));
  const std::string good = ReadText(path());  // all of it, by now
  std::mt19937_64 random(1);
  for (size_t at = 0; at < good.size(); at += StepOf(good.size() / 300)) {
    std::string bad = good;
    bad[at] ^= static_cast<char>(1 << random() % 8);
    std::filesystem::remove(path() + "-shm");
    WriteFile(path(), bad);
    WriteFile(path() + "-wal", "");
    auto journal = Journal::Open(path());
    if (!journal.ok()) continue;
    uint64_t next = 1;
    RecoverInto into;
    into.begin = [&](const JournalSnapshot* snapshot) {
      next = 1;
      if (snapshot == nullptr) return absl::OkStatus();
      const char fill = snapshot->bytes.back();
      next = fill == 'a' ? 5 : 9;
      EXPECT_EQ(snapshot->bytes,
                StrCat("snapshot ", next - 1, " ",
                       std::string(2 * kSnapshotPartBytes + 10, fill)));
      return absl::OkStatus();
    };
    into.take = [&](const JournalRow& row) {
      EXPECT_TRUE(SameRow(row, RowAt(next++)));
      return absl::OkStatus();
    };
    if ((*journal)->Recover(into).ok()) {
      EXPECT_EQ(next, 11u) << at;
    }
  }
}

TEST_F(JournalDamage, AFlippedBitInTheMainFileNamesTheRow) {
  AppendRows(*MustOpen(), 1, 40);
  const std::string good = ReadText(path());
  for (uint64_t seq = 1; seq <= 40; ++seq) {
    std::string bad = good;
    bad[bad.find(StrCat("event-", seq, ".")) + 2] ^= 0x10;
    WriteFile(path(), bad);
    const ReadBack back = ReadJournal(path());
    EXPECT_THAT(back.status, StatusIs(absl::StatusCode::kDataLoss,
                                      StrCat("row ", seq, " is damaged")));
    EXPECT_EQ(back.rows.size(), seq - 1);
  }
}

// The row of the failed commit may be there or not: nobody has been promised
// it.
TEST_F(JournalDamage, AFailedFsyncIsNotRetriedAndTheRowsBeforeItAreThere) {
  {
    FaultyDisk disk;
    const auto journal = MustOpen();
    AppendRows(*journal, 1, 3);
    disk.FailFsyncAfter(0);
    const JournalRow row = RowAt(4);
    const absl::Status failed = journal->Append({&row, 1});
    EXPECT_THAT(failed, StatusIs(kInternal, path()));
    const int fsyncs = disk.fsyncs();
    disk.FailFsyncAfter(1000);  // the disk seems to be well again
    EXPECT_EQ(journal->Append({&row, 1}), failed);
    EXPECT_EQ(disk.fsyncs(), fsyncs);
  }
  const ReadBack back = ReadJournal(path());
  EXPECT_OK(back.status);
  EXPECT_GE(back.rows.size(), 3u);
}

TEST_F(JournalDamage, AnFsyncThatFailsForTheReserveIsNotRetriedEither) {
  FaultyDisk disk;
  const auto journal = MustOpen();
  AppendRows(*journal, 1, 3);
  disk.FailFsyncAfter(0);
  const absl::Status failed = journal->ReserveWal();
  EXPECT_THAT(failed, StatusIs(absl::StatusCode::kInternal, path()));
  disk.FailFsyncAfter(1000);
  const JournalRow row = RowAt(4);
  EXPECT_EQ(journal->Append({&row, 1}), failed);
}

TEST_F(JournalDamage, AFullDiskStopsItBetweenTwoRows) {
  uint64_t committed = 0;
  absl::Status failed;
  {
    const auto journal = MustOpen();
    const FullDisk full(300'000);
    while (failed.ok() && committed < 1000) {
      const JournalRow row = RowAt(committed + 1, 3000);
      failed = journal->Append({&row, 1});
      committed += failed.ok();
    }
  }
  EXPECT_THAT(failed, StatusIs(failed.code(), path()));
  EXPECT_GT(committed, 10u);
  EXPECT_LT(committed, 1000u);
  const ReadBack back = ReadJournal(path());
  EXPECT_OK(back.status);
  EXPECT_EQ(back.rows.size(), committed);
}

// The snapshot fails with an error. The one before it stays, and rows are still
// appended where they fit.
TEST_F(JournalDamage, AFullDiskInASnapshotLeavesTheOneBefore) {
  absl::Status failed;
  {
    const auto journal = MustOpen();
    AppendRows(*journal, 1, 4);
    journal->StartSnapshot("small");
    while (*journal->Maintain()) {
    }
    AppendRows(*journal, 5, 6);
    {
      const FullDisk full(2'000'000);
      journal->StartSnapshot(std::string(20 * kSnapshotPartBytes, 'x'));
      for (int parts = 0; failed.ok() && parts < 100; ++parts) {
        failed = journal->Maintain().status();
      }
    }
    EXPECT_FALSE(failed.ok());
    EXPECT_THAT(failed, StatusIs(failed.code(), path()));
    if (absl::IsResourceExhausted(failed)) AppendRows(*journal, 7, 7);
  }
  std::string began;
  uint64_t rows = 0;
  RecoverInto into;
  into.begin = [&](const JournalSnapshot* snapshot) {
    began = snapshot == nullptr ? "nothing" : snapshot->bytes.substr(0, 5);
    return absl::OkStatus();
  };
  into.take = [&](const JournalRow&) {
    ++rows;
    return absl::OkStatus();
  };
  auto journal = Journal::Open(path());
  ASSERT_OK(journal);
  ASSERT_OK((*journal)->Recover(into));
  EXPECT_EQ(began, "small");
  EXPECT_GE(rows, 2u);
}

}  // namespace
}  // namespace gavel::testing
