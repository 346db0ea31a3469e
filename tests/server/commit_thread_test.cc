#include <atomic>

#include "coordinator/server/journal_writer.h"
#include "tests/server/faulty_disk.h"
#include "tests/server/journal_fixture.h"

namespace gavel::testing {
namespace {

class CommitThreadTest : public JournalFixture {
 protected:
  // Waits until the state satisfies `done`, and returns the state.
  template <class Done>
  CommitThread::State WaitUntil(const CommitThread& thread, Done done) {
    EXPECT_TRUE(Eventually([&] { return done(thread.state()); }));
    return thread.state();
  }
  std::function<void()> Notify() {
    return [this] { ++notices_; };
  }

  std::atomic<int> notices_{0};
};

TEST_F(CommitThreadTest, CommitsInOrderAndInGroups) {
  constexpr uint64_t kRows = 5000;
  {
    CommitThread thread(MustOpen(), Notify());
    for (uint64_t seq = 1; seq <= kRows; ++seq) thread.Append(RowAt(seq));
    const CommitThread::State state = WaitUntil(
        thread, [](const auto& s) { return s.persisted_seq == kRows; });
    EXPECT_OK(state.status);
  }
  EXPECT_LT(notices_, static_cast<int>(kRows) / 4);  // one fsync for many
  const ReadBack back = ReadJournal(path());
  ASSERT_OK(back.status);
  ASSERT_EQ(back.rows.size(), kRows);
  EXPECT_TRUE(SameRow(back.rows.back(), RowAt(kRows)));
}

TEST_F(CommitThreadTest, StartsWhereTheJournalEnded) {
  AppendRows(*MustOpen(), 1, 7);
  CommitThread thread(MustOpen(), Notify());
  EXPECT_EQ(thread.state().persisted_seq, 7u);
}

TEST_F(CommitThreadTest, WhatIsQueuedIsCommittedAtTheEnd) {
  {
    CommitThread thread(MustOpen(), [] {});
    for (uint64_t seq = 1; seq <= 300; ++seq) thread.Append(RowAt(seq));
  }
  EXPECT_EQ(ReadJournal(path()).rows.size(), 300u);
}

TEST_F(CommitThreadTest, SaysThatARowIsDurableOnlyWhenItIs) {
  CommitThread thread(MustOpen(), Notify());
  for (uint64_t seq = 1; seq <= 40; ++seq) {
    thread.Append(RowAt(seq));
    WaitUntil(thread, [&](const auto& s) { return s.persisted_seq == seq; });
    // The copy has the bytes that a crash at this moment would leave.
    const std::string copy = StrCat(folder_.path(), "/copy", seq, ".db");
    WriteFile(copy, ReadText(path()));
    WriteFile(copy + "-wal", ReadText(path() + "-wal"));
    ASSERT_EQ(ReadJournal(copy).rows.size(), seq);
  }
}

TEST_F(CommitThreadTest, AFailureIsToldOnceAndForAll) {
  FaultyDisk disk;
  CommitThread thread(MustOpen(), Notify());
  thread.Append(RowAt(1));
  WaitUntil(thread, [](const auto& s) { return s.persisted_seq == 1; });
  disk.FailFsyncAfter(0);
  thread.Append(RowAt(2));
  const CommitThread::State state =
      WaitUntil(thread, [](const auto& s) { return !s.status.ok(); });
  EXPECT_THAT(state.status, StatusIs(absl::StatusCode::kInternal, path()));
  EXPECT_EQ(state.persisted_seq, 1u);
  disk.FailFsyncAfter(1000);
  thread.Append(RowAt(2));  // dropped
  EXPECT_EQ(thread.state().persisted_seq, 1u);
}

}  // namespace
}  // namespace gavel::testing
