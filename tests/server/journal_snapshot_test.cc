// Snapshots in the journal: recovery begins at the newest complete one, and old
// rows are pruned without breaking the chain.

#include "tests/server/journal_fixture.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

class JournalSnapshotTest : public JournalFixture {
 protected:
  struct Recovered {
    absl::Status status;
    std::string snapshot;  // "none": recovery began without a snapshot
    std::vector<uint64_t> rows;
    std::vector<std::string> notes;
  };

  // Accepts only snapshots that begin with "good".
  std::unique_ptr<Journal> Recover(Recovered* recovered,
                                   JournalOptions options = {}) {
    auto journal = Journal::Open(path(), options);
    recovered->status = journal.status();
    if (!journal.ok()) return nullptr;
    RecoverInto into;
    into.begin = [recovered](const JournalSnapshot* snapshot) {
      recovered->rows.clear();
      recovered->snapshot = snapshot == nullptr ? "none" : snapshot->bytes;
      if (snapshot == nullptr || snapshot->bytes.starts_with("good")) {
        return absl::OkStatus();
      }
      return absl::DataLossError("no engine");
    };
    into.take = [recovered](const JournalRow& row) {
      EXPECT_TRUE(SameRow(row, RowAt(row.seq)));
      recovered->rows.push_back(row.seq);
      return absl::OkStatus();
    };
    into.note = [recovered](const std::string& note) {
      recovered->notes.push_back(note);
    };
    recovered->status = (*journal)->Recover(into);
    return *std::move(journal);
  }
  Recovered Recover() {
    Recovered recovered;
    Recover(&recovered);
    return recovered;
  }

  // Does all steps of Maintain and returns their number.
  static int MaintainAll(Journal& journal) {
    for (int steps = 0; steps < 10'000; ++steps) {
      const absl::StatusOr<bool> more = journal.Maintain();
      EXPECT_OK(more);
      if (!more.ok() || !*more) return steps;
    }
    ADD_FAILURE() << "it never ends";
    return 0;
  }

  // Writes rows up to `last`, with a snapshot after each `every` rows.
  void WriteWithSnapshots(uint64_t last, uint64_t every,
                          JournalOptions options = {}) {
    Recovered ignored;
    const auto journal = Recover(&ignored, options);
    ASSERT_OK(ignored.status);
    for (uint64_t seq = journal->position().seq + 1; seq <= last; ++seq) {
      const JournalRow row = RowAt(seq);
      ASSERT_OK(journal->Append({&row, 1}));
      if (seq % every != 0) continue;
      journal->StartSnapshot(StrCat("good ", seq));
      MaintainAll(*journal);
    }
  }

  static bool MustVerifySome(Journal& journal) {
    const absl::StatusOr<bool> more = journal.VerifySome();
    EXPECT_OK(more);
    return more.ok() && *more;
  }

  // Changes every appearance of `text` in the file.
  void Damage(const std::string& text) {
    std::string bytes = ReadText(path());
    size_t found = 0;
    for (size_t at = bytes.find(text); at != std::string::npos;
         at = bytes.find(text, at + 1)) {
      bytes[at + text.size() - 1] ^= 0x40;
      ++found;
    }
    ASSERT_GT(found, 0u) << text;
    WriteFile(path(), bytes);
  }
};

TEST_F(JournalSnapshotTest, RecoveryBeginsAtTheNewest) {
  WriteWithSnapshots(25, 10);
  const Recovered recovered = Recover();
  ASSERT_OK(recovered.status);
  EXPECT_EQ(recovered.snapshot, "good 20");
  EXPECT_EQ(recovered.rows, (std::vector<uint64_t>{21, 22, 23, 24, 25}));
  EXPECT_THAT(recovered.notes, IsEmpty());
}

TEST_F(JournalSnapshotTest, ItGoesOnAfterARecovery) {
  WriteWithSnapshots(25, 10);
  WriteWithSnapshots(37, 10);
  const Recovered recovered = Recover();
  EXPECT_EQ(recovered.snapshot, "good 30");
  EXPECT_EQ(recovered.rows.size(), 7u);
  EXPECT_EQ(ReadJournal(path()).rows.size(),
            37u);  // no row is missing, and the chain is unbroken
}

TEST_F(JournalSnapshotTest, ADamagedOneFallsBackToTheOneBefore) {
  WriteWithSnapshots(25, 10);
  Damage("good 20");
  const Recovered recovered = Recover();
  ASSERT_OK(recovered.status);
  EXPECT_EQ(recovered.snapshot, "good 10");
  EXPECT_EQ(recovered.rows.size(), 15u);
  ASSERT_EQ(recovered.notes.size(), 1u);
  EXPECT_THAT(recovered.notes[0],
              HasSubstr("the snapshot after row 20 is damaged"));
}

TEST_F(JournalSnapshotTest, WithoutAnyTheWholeJournalIsReplayed) {
  WriteWithSnapshots(25, 10);
  Damage("good 20");
  Damage("good 10");
  const Recovered recovered = Recover();
  ASSERT_OK(recovered.status);
  EXPECT_EQ(recovered.snapshot, "none");
  EXPECT_EQ(recovered.rows.size(), 25u);
  EXPECT_EQ(recovered.notes.size(), 2u);
}

TEST_F(JournalSnapshotTest, OneThatTheEngineCanNotReadIsPassedOver) {
  WriteWithSnapshots(10, 10);
  {
    Recovered ignored;
    const auto journal = Recover(&ignored);
    const JournalRow row = RowAt(11);
    ASSERT_OK(journal->Append({&row, 1}));
    journal->StartSnapshot("bad");
    MaintainAll(*journal);
  }
  const Recovered recovered = Recover();
  EXPECT_EQ(recovered.snapshot, "good 10");
  EXPECT_EQ(recovered.rows, (std::vector<uint64_t>{11}));
  EXPECT_THAT(recovered.notes.at(0), HasSubstr("no engine"));
}

TEST_F(JournalSnapshotTest, OneThatWasNotFinishedDoesNotCount) {
  WriteWithSnapshots(10, 10);
  {
    Recovered ignored;
    const auto journal = Recover(&ignored);
    AppendRows(*journal, 11, 12);
    journal->StartSnapshot("good " + std::string(3 * kSnapshotPartBytes, 'x'));
    ASSERT_OK(journal->Maintain());
    ASSERT_OK(journal->Maintain());
  }
  const Recovered recovered = Recover();
  EXPECT_EQ(recovered.snapshot, "good 10");
  // The next maintenance removes the parts of the unfinished snapshot.
  Recovered ignored;
  const auto journal = Recover(&ignored);
  EXPECT_EQ(MaintainAll(*journal), 2);
}

TEST_F(JournalSnapshotTest, RowsGoInBetweenTheParts) {
  const std::string big = "good " + std::string(5 * kSnapshotPartBytes, 'y');
  {
    Recovered ignored;
    const auto journal = Recover(&ignored);
    AppendRows(*journal, 1, 3);
    journal->StartSnapshot(big);
    uint64_t seq = 3;
    while (*journal->Maintain() && seq < 20) {
      const JournalRow row = RowAt(++seq);
      ASSERT_OK(journal->Append({&row, 1}));
    }
    EXPECT_GE(seq, 8u);
  }
  const Recovered recovered = Recover();
  EXPECT_EQ(recovered.snapshot, big);
  EXPECT_EQ(recovered.rows.front(), 4u);
}

TEST_F(JournalSnapshotTest, OnlyTheNewestTwoAreKept) {
  WriteWithSnapshots(60, 10);
  auto database = SqliteDatabase::OpenReadOnly(path());
  ASSERT_OK(database);
  EXPECT_EQ(*ListSnapshots(*database), (std::vector<uint64_t>{60, 50}));
}

// Rows are 0.25 s apart.
TEST_F(JournalSnapshotTest, OldRowsArePrunedAndTheRestStaysAChain) {
  WriteWithSnapshots(5000, 1000, {.keep_s = 250});
  auto database = SqliteDatabase::OpenReadOnly(path());
  ASSERT_OK(database);
  const absl::StatusOr<ChainEnd> base = ReadChainBase(*database);
  ASSERT_OK(base);
  EXPECT_EQ(base->position.seq, 3000u);
  const ReadBack back = ReadJournal(path());
  ASSERT_OK(back.status);
  EXPECT_EQ(back.rows.size(), 2000u);
  EXPECT_EQ(Recover().snapshot, "good 5000");
}

TEST_F(JournalSnapshotTest, NothingIsPrunedThatASnapshotNeeds) {
  WriteWithSnapshots(5000, 2500, {.keep_s = 0});
  // The older snapshot and all rows after it still exist.
  Damage("good 5000");
  const Recovered recovered = Recover();
  ASSERT_OK(recovered.status);
  EXPECT_EQ(recovered.snapshot, "good 2500");
  EXPECT_EQ(recovered.rows.size(), 2500u);
}

TEST_F(JournalSnapshotTest, PrunedAndWithoutASnapshotItIsRefused) {
  WriteWithSnapshots(5000, 1000, {.keep_s = 0});
  Damage("good 5000");
  Damage("good 4000");
  EXPECT_THAT(Recover().status, StatusIs(kDataLoss, "have been pruned"));
}

TEST_F(JournalSnapshotTest, AJournalOfVersionOneIsTakenOver) {
  AppendRows(*MustOpen(), 1, 12);
  auto database = SqliteDatabase::Open(path());
  ASSERT_OK(database);
  ASSERT_OK(database->Execute(
      "DROP TABLE snapshot; DROP TABLE snapshot_part; DROP TABLE "
      "journal_base; DROP TABLE history_jobs;"
      "UPDATE metadata SET value = '1' WHERE key = 'format_version'"));
  WriteWithSnapshots(30, 10);
  EXPECT_EQ(Recover().snapshot, "good 30");
  EXPECT_EQ(ReadJournal(path()).rows.size(), 30u);
}

// An older snapshot would recover too, but would lose what the newer version
// has recorded.
TEST_F(JournalSnapshotTest, ASnapshotOfANewerVersionIsRefusedNotPassedOver) {
  WriteWithSnapshots(30, 10);
  RecoverInto into;
  into.begin = [](const JournalSnapshot*) {
    return absl::FailedPreconditionError("has fields that are not known");
  };
  into.take = [](const JournalRow&) { return absl::OkStatus(); };
  ASSERT_OK_AND_ASSIGN(const auto journal, Journal::Open(path()));
  EXPECT_THAT(journal->Recover(into),
              StatusIs(kFailedPrecondition, "not known"));
}

TEST_F(JournalSnapshotTest, AReaderSeesALiveJournalAndLeavesItAlone) {
  const auto journal = MustOpen();
  AppendRows(*journal, 1, 5);
  const std::string before = ReadText(path()) + ReadText(path() + "-wal");
  auto database = SqliteDatabase::OpenReadOnly(path());
  ASSERT_OK(database);
  uint64_t rows = 0;
  RecoverInto into;
  into.take = [&rows](const JournalRow&) {
    ++rows;
    return absl::OkStatus();
  };
  EXPECT_OK(RecoverChain(*database, into));
  EXPECT_EQ(rows, 5u);
  EXPECT_FALSE(database->Execute("DELETE FROM journal").ok());
  EXPECT_EQ(ReadText(path()) + ReadText(path() + "-wal"), before);
  AppendRows(*journal, 6, 7);  // the reader does not block the writer
}

TEST_F(JournalSnapshotTest, ACopyIsReadWithoutSideFiles) {
  AppendRows(*MustOpen(), 1, 5);
  const std::string copy = folder_.path() + "/a%20copy?#.db";
  WriteFile(copy, ReadText(path()));
  auto database = SqliteDatabase::OpenReadOnly(copy);
  ASSERT_OK(database);
  EXPECT_EQ(*ReadMetadata(*database, "last_seq"), "5");
  EXPECT_FALSE(std::filesystem::exists(copy + "-wal"));
  EXPECT_FALSE(std::filesystem::exists(copy + "-shm"));
  EXPECT_THAT(SqliteDatabase::OpenReadOnly(folder_.path() + "/none.db"),
              StatusIs(kNotFound, "No such file"));
}

TEST_F(JournalSnapshotTest, RowsThatTheyStandForAreVerifiedSomeAtATime) {
  constexpr uint64_t kRows = 2 * Journal::kVerifiedAtOnce + 10;
  WriteWithSnapshots(kRows, kRows);
  Recovered recovered;
  const auto journal = Recover(&recovered);
  EXPECT_THAT(recovered.rows, IsEmpty());
  for (const bool more : {true, true, false, false}) {
    EXPECT_EQ(MustVerifySome(*journal), more);
  }
}

TEST_F(JournalSnapshotTest, ADamagedRowBehindOneIsNamedAndAllGoesOn) {
  WriteWithSnapshots(25, 10);
  Damage("event-7.");
  Recovered recovered;
  const auto journal = Recover(&recovered);
  ASSERT_OK(recovered.status);
  EXPECT_EQ(recovered.snapshot, "good 20");
  EXPECT_THAT(journal->VerifySome(), StatusIs(kDataLoss, "row 7 is damaged"));
  EXPECT_FALSE(MustVerifySome(*journal));
  AppendRows(*journal, 26, 27);
}

TEST_F(JournalSnapshotTest, RowsThatArePrunedNeedNotBeVerified) {
  WriteWithSnapshots(25, 10);
  Damage("event-7.");
  Recovered recovered;
  const auto journal = Recover(&recovered);
  auto database = SqliteDatabase::Open(path());
  ASSERT_OK(database);
  ASSERT_OK(database->Execute(
      "INSERT INTO journal_base SELECT seq, term, time, hash FROM journal "
      "WHERE seq = 9; DELETE FROM journal WHERE seq <= 9"));
  EXPECT_FALSE(MustVerifySome(*journal));
}

}  // namespace
}  // namespace gavel::testing
