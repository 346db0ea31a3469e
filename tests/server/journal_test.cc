#include "coordinator/server/journal.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/server/journal_fixture.h"

namespace gavel::testing {
namespace {

class JournalTest : public JournalFixture {
 protected:
  // Changes the database with SQLite itself, behind the journal's back.
  void ChangeBehindItsBack(const std::string& sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path().c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr),
              SQLITE_OK)
        << sqlite3_errmsg(database);
    sqlite3_close(database);
  }
};

TEST_F(JournalTest, ANewOneIsEmptyAndPrivate) {
  const auto journal = MustOpen();
  EXPECT_EQ(journal->position(), JournalPosition{});
  EXPECT_EQ(journal->last_time(), 0);
  struct stat info {};
  ASSERT_EQ(stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);  // environments may hold secrets
  ASSERT_EQ(stat((path() + "-wal").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(JournalTest, ReadsBackWhatWasAppended) {
  AppendRows(*MustOpen(), 1, 25);
  const ReadBack back = ReadJournal(path());
  ASSERT_OK(back.status);
  ASSERT_EQ(back.rows.size(), 25u);
  for (uint64_t seq = 1; seq <= 25; ++seq) {
    EXPECT_TRUE(SameRow(back.rows[seq - 1], RowAt(seq))) << seq;
  }
}

TEST_F(JournalTest, GoesOnAfterAReopening) {
  AppendRows(*MustOpen(), 1, 3);
  {
    const auto journal = MustOpen();
    EXPECT_EQ(journal->position(), (JournalPosition{1, 3}));
    EXPECT_EQ(journal->last_time(), 0.75);
    AppendRows(*journal, 4, 6);
  }
  const ReadBack back = ReadJournal(path());
  EXPECT_OK(back.status);
  EXPECT_EQ(back.rows.size(), 6u);
}

TEST_F(JournalTest, KeepsAnyBytesAndTheBitsOfTheTime) {
  std::string bytes("\0\xff'\n", 4);
  const std::vector<JournalRow> rows = {
      {1, 1, 0.1 + 0.2, bytes}, {2, 1, 1e15, ""}, {3, 2, 1e300, "z"}};
  ASSERT_OK(MustOpen()->Append(rows));
  const ReadBack back = ReadJournal(path());
  ASSERT_OK(back.status);
  ASSERT_EQ(back.rows.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(SameRow(back.rows[i], rows[i]));
}

TEST_F(JournalTest, LongOnesAreCopiedOutOfTheWal) {
  const auto journal = MustOpen();
  AppendRows(*journal, 1, 200, /*padding=*/60'000);  // 12 MB
  EXPECT_LT(std::filesystem::file_size(path() + "-wal"), 6u << 20);
  EXPECT_GT(std::filesystem::file_size(path()), 5u << 20);
}

TEST_F(JournalTest, AReservedWalIsWrittenOverAndNotMadeLonger) {
  const std::string wal = path() + "-wal";
  AppendRows(*MustOpen(), 1, 3);
  auto journal = MustOpen();
  ASSERT_OK(journal->ReserveWal());
  const auto length = std::filesystem::file_size(wal);
  EXPECT_GE(length, 4u << 20);
  // The copy holds the files that a crash would leave now.
  const std::string copy = path() + ".copy";
  WriteFile(copy, ReadText(path()));
  WriteFile(copy + "-wal", ReadText(wal));
  EXPECT_EQ(ReadJournal(copy).rows.size(), 3u);
  AppendRows(*journal, 4, 200);
  EXPECT_EQ(std::filesystem::file_size(wal), length);
  journal.reset();
  const ReadBack back = ReadJournal(path());
  ASSERT_OK(back.status);
  EXPECT_EQ(back.rows.size(), 200u);
}

TEST_F(JournalTest, EveryColumnIsUnderTheHash) {
  for (const char* change : {"term = term + 1", "time = time + 1",
                             "hash = zeroblob(16)", "hash = x'00'"}) {
    AppendRows(*MustOpen(), 1, 3);
    ChangeBehindItsBack(
        StrCat("UPDATE journal SET ", change, " WHERE seq = 2"));
    EXPECT_THAT(ReadJournal(path()).status,
                StatusIs(absl::StatusCode::kDataLoss, "row 2 is damaged"))
        << change;
    ASSERT_TRUE(std::filesystem::remove(path()));
  }
}

TEST_F(JournalTest, RowsThatAreTakenOutOrSwappedAreMissed) {
  const std::pair<const char*, const char*> cases[] = {
      {"DELETE FROM journal WHERE seq = 4", "row 4 is missing"},
      {"DELETE FROM journal WHERE seq = 9", "row 9 is missing"},
      {"UPDATE journal SET seq = 99 WHERE seq = 4;"
       "UPDATE journal SET seq = 4 WHERE seq = 5;"
       "UPDATE journal SET seq = 5 WHERE seq = 99;",
       "row 4 is damaged"}};
  for (const auto& [change, error] : cases) {
    AppendRows(*MustOpen(), 1, 9);
    ChangeBehindItsBack(change);
    EXPECT_THAT(ReadJournal(path()).status, StatusIs(kDataLoss, error));
    ASSERT_TRUE(std::filesystem::remove(path()));
  }
}

TEST_F(JournalTest, AnErrorOfTheReaderNamesTheRow) {
  AppendRows(*MustOpen(), 1, 3);
  auto journal = Journal::Open(path());
  ASSERT_OK(journal);
  RecoverInto all;
  all.take = [](const JournalRow& row) {
    return row.seq == 2 ? absl::DataLossError("no event") : absl::OkStatus();
  };
  const absl::Status status = (*journal)->Recover(all);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, "row 2: no event"));
}

TEST_F(JournalTest, ATermIsBegunOnceAlsoWhereItsRowsAreLost) {
  uint64_t last = 0;
  for (int start = 0; start < 3; ++start) {
    auto journal = MustOpen();
    const absl::StatusOr<uint64_t> term = journal->BeginTerm();
    ASSERT_OK(term);
    EXPECT_EQ(*term, last + 1);
    last = *term;
  }
  std::filesystem::remove(
      path());  // with the WAL, which a clean end has taken away
  EXPECT_EQ(*MustOpen()->BeginTerm(), last + 1);
}

TEST_F(JournalTest, ATermIsAboveThatOfTheRows) {
  auto journal = MustOpen();
  const JournalRow row{1, 7, 0, "event"};
  ASSERT_OK(journal->Append({&row, 1}));
  EXPECT_EQ(*journal->BeginTerm(), 8u);
}

TEST_F(JournalTest, ATermFileThatSaysNoneIsNamed) {
  for (const char* text : {"seven\n", ""}) {
    WriteFile(path() + ".term", text);
    EXPECT_THAT(MustOpen()->BeginTerm().status(),
                StatusIs(absl::StatusCode::kDataLoss,
                         "journal.db.term is damaged: it says no term"));
  }
}

TEST_F(JournalTest, ASecondOpenerIsToldWhoHasIt) {
  const auto journal = MustOpen();
  const absl::StatusOr<std::unique_ptr<Journal>> second = Journal::Open(path());
  EXPECT_THAT(second, StatusIs(absl::StatusCode::kAlreadyExists,
                               StrCat("process ", getpid())));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(path()));
}

TEST_F(JournalTest, TheLockGoesWithItsProcess) {
  const pid_t child = fork();
  if (child == 0) {
    const auto journal = Journal::Open(path());
    _exit(journal.ok() ? 0 : 1);  // as a SIGKILL would: nothing is closed
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_OK(Journal::Open(path()));
}

TEST_F(JournalTest, OfANewerFormatIsRefused) {
  MustOpen();
  ChangeBehindItsBack(
      "UPDATE metadata SET value = '4' WHERE key = 'format_version'");
  EXPECT_THAT(Journal::Open(path()),
              StatusIs(kFailedPrecondition, "has format 4"));
}

TEST_F(JournalTest, AFileThatIsNoJournalIsRefusedAndLeftAlone) {
  const std::string text(5000, 'a');
  WriteFile(path(), text);
  EXPECT_THAT(Journal::Open(path()),
              StatusIs(absl::StatusCode::kDataLoss, "not a database"));
  EXPECT_EQ(ReadText(path()), text);
}

TEST_F(JournalTest, WithoutItsDirectorySaysSo) {
  EXPECT_THAT(Journal::Open(folder_.path() + "/none/journal.db"),
              StatusIs(kNotFound, "/none/journal.db"));
}

TEST_F(JournalTest, HasAClusterIdOfItsOwnAlsoWhereItIsOld) {
  const std::string id = MustOpen()->cluster_id();
  EXPECT_THAT(id, MatchesRegex("[0-9a-f]{16}"));
  EXPECT_EQ(MustOpen()->cluster_id(), id);
  ChangeBehindItsBack("DELETE FROM metadata WHERE key = 'cluster_id'");
  const std::string given = MustOpen()->cluster_id();
  EXPECT_THAT(given, MatchesRegex("[0-9a-f]{16}"));
  EXPECT_NE(given, id);
  EXPECT_EQ(MustOpen()->cluster_id(), given);
}

}  // namespace
}  // namespace gavel::testing
