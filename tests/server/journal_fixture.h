// A journal in a folder of its own, with rows that are easy to recognise.
#ifndef GAVEL_TESTS_SERVER_JOURNAL_FIXTURE_H_
#define GAVEL_TESTS_SERVER_JOURNAL_FIXTURE_H_

#include <fstream>

#include "coordinator/server/journal.h"
#include "core/text.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::testing {

inline JournalRow RowAt(uint64_t seq, size_t padding = 0) {
  return {seq, 1 + seq / 10, 0.25 * static_cast<double>(seq),
          StrCat("event-", seq, ".", std::string(padding, 'x'))};
}

inline bool SameRow(const JournalRow& a, const JournalRow& b) {
  return a.seq == b.seq && a.term == b.term && a.time == b.time &&
         a.row == b.row;
}

inline void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// All rows that verify, and then the status.
struct ReadBack {
  std::vector<JournalRow> rows;
  absl::Status status;
};

inline ReadBack ReadJournal(const std::string& path) {
  ReadBack back;
  auto journal = Journal::Open(path);
  back.status = journal.status();
  if (!journal.ok()) return back;
  RecoverInto all;  // no snapshots: each row is verified
  all.take = [&](const JournalRow& row) {
    back.rows.push_back(row);
    return absl::OkStatus();
  };
  back.status = (*journal)->Recover(all);
  return back;
}

class JournalFixture : public Test {
 protected:
  std::string path() const { return folder_.path() + "/journal.db"; }

  // Open, read, and ready to append.
  std::unique_ptr<Journal> MustOpen() {
    auto journal = Journal::Open(path());
    EXPECT_OK(journal);
    if (!journal.ok()) return nullptr;
    RecoverInto all;
    all.take = [](const JournalRow&) { return absl::OkStatus(); };
    EXPECT_OK((*journal)->Recover(all));
    return *std::move(journal);
  }

  // Rows [first, last], each in a transaction of its own.
  void AppendRows(Journal& journal, uint64_t first, uint64_t last,
                  size_t padding = 0) {
    for (uint64_t seq = first; seq <= last; ++seq) {
      const JournalRow row = RowAt(seq, padding);
      ASSERT_OK(journal.Append({&row, 1}));
    }
  }

  TemporaryFolder folder_;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SERVER_JOURNAL_FIXTURE_H_
