// Two writers have one journal open, because its lock file was removed while
// the holder lived.
#include <chrono>
#include <filesystem>
#include <thread>

#include "runtime/database/sqlite.h"
#include "runtime/files/files.h"
#include "tests/server/journal_fixture.h"

namespace gavel::testing {
namespace {

class JournalOwner : public JournalFixture {
 protected:
  std::string lock_path() const { return path() + ".lock"; }

  // The first writer appends rows 1 to 3, then the second one opens the
  // journal.
  void OpenTwo() {
    first_ = MustOpen();
    AppendRows(*first_, 1, 3);
    std::filesystem::remove(lock_path());
    second_ = MustOpen();
  }

  absl::Status Append(Journal& journal, uint64_t seq) {
    const JournalRow row = RowAt(seq);
    return journal.Append({&row, 1});
  }

  std::unique_ptr<Journal> first_;
  std::unique_ptr<Journal> second_;
};

TEST_F(JournalOwner, WritesNothingBehindALaterOnesRows) {
  OpenTwo();
  ASSERT_OK(Append(*second_, 4));
  EXPECT_THAT(Append(*first_, 4),
              StatusIs(absl::StatusCode::kAborted, "has taken over"));
  EXPECT_THAT(Append(*first_, 5),
              StatusIs(absl::StatusCode::kAborted, "seq 4"));
  // The refused writer holds no lock that the other one would wait for.
  ASSERT_OK(Append(*second_, 5));
  first_.reset();
  second_.reset();
  const ReadBack back = ReadJournal(path());
  ASSERT_OK(back.status);
  EXPECT_EQ(back.rows.size(), 5u);
}

// The first writer finds its next seq free, because the second one's row of
// that seq has been pruned.
TEST_F(JournalOwner, WritesNothingWhereTheLaterOneHasPruned) {
  OpenTwo();
  AppendRows(*second_, 4, 6);
  auto database = SqliteDatabase::Open(path());
  ASSERT_OK(database);
  ASSERT_OK(database->Execute("DELETE FROM journal WHERE seq <= 5"));
  EXPECT_THAT(Append(*first_, 4),
              StatusIs(absl::StatusCode::kAborted, "term 1 seq 6"));
  ASSERT_OK(Append(*second_, 7));
}

TEST_F(JournalOwner, LeavesTheLaterOnesSnapshotAlone) {
  OpenTwo();
  ASSERT_OK(Append(*second_, 4));
  // The snapshot has two parts. Maintain writes the first, and no head names
  // the snapshot yet.
  second_->StartSnapshot(std::string(kSnapshotPartBytes + 1, 's'));
  ASSERT_OK(second_->Maintain());
  EXPECT_THAT(first_->Maintain(),
              StatusIs(absl::StatusCode::kAborted, "seq 4"));
  ASSERT_OK(second_->Maintain());
  auto database = SqliteDatabase::OpenReadOnly(path());
  ASSERT_OK(database);
  EXPECT_OK(ReadSnapshot(*database, 4));
}

// Two writers begin from the same row: the first to write is the owner.
TEST_F(JournalOwner, IsWhoWroteFirst) {
  OpenTwo();
  ASSERT_OK(Append(*first_, 4));
  EXPECT_THAT(Append(*second_, 4),
              StatusIs(absl::StatusCode::kAborted, "has taken over"));
}

TEST_F(JournalOwner, WaitsForTheEndOfAnothersTransaction) {
  const auto journal = MustOpen();
  auto other = SqliteDatabase::Open(path());
  ASSERT_OK(other);
  ASSERT_OK(other->Execute("BEGIN IMMEDIATE"));
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_OK(other->Execute("ROLLBACK"));
  });
  EXPECT_OK(Append(*journal, 1));
  ends.join();
}

TEST_F(JournalOwner, KnowsWhetherItsLockIsTheLast) {
  first_ = MustOpen();
  EXPECT_OK(first_->CheckLock());
  EXPECT_FALSE(Journal::Open(path()).ok());
  EXPECT_OK(first_->CheckLock());  // the refused one has changed nothing
  std::filesystem::remove(lock_path());
  EXPECT_THAT(first_->CheckLock(),
              StatusIs(absl::StatusCode::kAborted, "lock"));
  second_ = MustOpen();
  EXPECT_THAT(first_->CheckLock(),
              StatusIs(absl::StatusCode::kAborted, "lock"));
  EXPECT_OK(second_->CheckLock());
}

// As on a file system that gives the same lock to two processes.
TEST_F(JournalOwner, KnowsWhenAnotherHasWrittenItsLock) {
  first_ = MustOpen();
  WriteFile(lock_path(), StrCat(getpid(), " 1-1\n"));
  EXPECT_THAT(first_->CheckLock(),
              StatusIs(absl::StatusCode::kAborted, "lock"));
}

}  // namespace
}  // namespace gavel::testing
