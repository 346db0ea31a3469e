// The output of workers, on its way from their channels to their logs and from
// there to readers.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include "coordinator/agent_host/agent_workers.h"
#include "core/text.h"
#include "runtime/files/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;

constexpr char kCluster[] = "00ff";

LogOwner Owner(uint64_t incarnation = 1) {
  return {kCluster, {JobId(7), 1, incarnation}, "lm", "ann"};
}

LogRequest Request(uint64_t offset) { return {5, {JobId(7), 1}, offset}; }

class WorkerLogTest : public Test {
 protected:
  void Write(const LogOwner& owner, const std::string& text,
             LogLimits limits = {}) {
    ASSERT_OK_AND_ASSIGN(WorkerLog log,
                         WorkerLog::Open(folder_.path(), owner, limits));
    ASSERT_OK(log.Append(text));
  }
  LogReply Read(uint64_t offset, bool runs = false) const {
    return ReadWorkerLog(folder_.path(), kCluster, Request(offset), runs);
  }
  std::string Folder() const {
    return LogFolder(folder_.path(), kCluster, {JobId(7), 1});
  }
  TemporaryFolder folder_;
};

TEST_F(WorkerLogTest, IsReadInPiecesUntilTheProcessIsGone) {
  EXPECT_EQ(Folder(), folder_.path() + "/00ff/7.1");
  EXPECT_THAT(Read(0).error, HasSubstr("no output"));
  Write(Owner(), std::string(kLogChunkBytesMax, 'a') + "end");
  LogReply reply = Read(0, true);
  EXPECT_EQ(reply.request, 5U);
  EXPECT_EQ(reply.data.size(), kLogChunkBytesMax);
  reply = Read(reply.next_offset);
  EXPECT_EQ(reply.data, "end");
  EXPECT_FALSE(reply.ended);
  EXPECT_FALSE(Read(reply.next_offset, true).ended);
  EXPECT_TRUE(Read(reply.next_offset).ended);
}

TEST_F(WorkerLogTest, GoesOnInTheNextIncarnation) {
  Write(Owner(1), "one\n");
  Write(Owner(2), "two\n");
  EXPECT_EQ(Read(0).data, "one\n") << "a piece is of one incarnation";
  EXPECT_EQ(Read(0).incarnation, 1u);
  EXPECT_EQ(Read(4).data, "two\n");
  EXPECT_EQ(Read(4).incarnation, 2u);
  EXPECT_TRUE(Read(8).ended);
}

TEST_F(WorkerLogTest, IsReadSinceATime) {
  {
    ASSERT_OK_AND_ASSIGN(WorkerLog log,
                         WorkerLog::Open(folder_.path(), Owner(1), {}, 1000));
    ASSERT_OK(log.Append("one\n", 1001));
    ASSERT_OK(log.Append("two\n", 1100));
    ASSERT_OK(log.Append("three\n", 1110));
    ASSERT_OK(log.Append("four\n", 1300));
  }
  const auto since = [this](double time_s) {
    LogRequest request = Request(0);
    request.since_s = time_s;
    return ReadWorkerLog(folder_.path(), kCluster, request, false);
  };
  EXPECT_EQ(since(900).data, "one\ntwo\nthree\nfour\n");
  EXPECT_EQ(since(1109).data, "two\nthree\nfour\n") << "a minute at most";
  EXPECT_EQ(since(1300).data, "four\n");
  EXPECT_EQ(since(1300).written_s, 1300);
  EXPECT_EQ(since(1300).next_offset, 19u);
  const double now_s = WallClockNow();
  EXPECT_EQ(since(now_s + 100).data, "") << "nothing was written since";
  EXPECT_EQ(since(now_s + 100).next_offset, 19u);
  // With another offset the time has been minded already.
  LogRequest next = Request(8);
  next.since_s = 1300;
  EXPECT_EQ(ReadWorkerLog(folder_.path(), kCluster, next, false).data,
            "three\nfour\n");
}

TEST_F(WorkerLogTest, IsReadFromItsEnd) {
  Write(Owner(1), "one\ntwo\n");
  Write(Owner(2), "three\n");
  LogRequest request = Request(0);
  request.tail_bytes = 10;
  LogReply reply = ReadWorkerLog(folder_.path(), kCluster, request, false);
  EXPECT_EQ(reply.data, "two\n");
  EXPECT_EQ(reply.next_offset, 8u);
  request.tail_bytes = 1000;
  reply = ReadWorkerLog(folder_.path(), kCluster, request, false);
  EXPECT_EQ(reply.data, "one\ntwo\n");
  // With another offset the end has been minded already.
  request.offset = 8;
  request.tail_bytes = 1;
  reply = ReadWorkerLog(folder_.path(), kCluster, request, false);
  EXPECT_EQ(reply.data, "three\n");
}

TEST_F(WorkerLogTest, OfAnEarlierVersionIsReadWithoutAnIndex) {
  Write(Owner(1), "one\n");
  fs::remove(Folder() + "/index");
  EXPECT_EQ(Read(0).data, "one\n");
  EXPECT_EQ(Read(0).incarnation, 0u);
  Write(Owner(2), "two\n");
  EXPECT_EQ(Read(0).data, "one\n");
  EXPECT_EQ(Read(4).incarnation, 2u);
  // An entry of which a full disk took only a part.
  std::ofstream(Folder() + "/index", std::ios::app) << "part";
  Write(Owner(3), "three\n");
  EXPECT_EQ(Read(8).data, "three\n");
  EXPECT_EQ(Read(8).incarnation, 3u);
}

// A coordinator whose journal was restored from an older copy gives out ids a
// second time.
TEST_F(WorkerLogTest, IsNeverAppendedForAnotherJobOfTheNumber) {
  Write(Owner(1), "secret\n");
  LogOwner other = Owner(2);
  other.unix_user = "bob";
  Write(other, "bob's\n");
  EXPECT_EQ(Read(0).data, "bob's\n");
  other = Owner(3);
  other.job_name = "another";
  Write(other, "another's\n");
  EXPECT_EQ(Read(0).data, "another's\n");
  other.worker.incarnation = 1;  // began again
  Write(other, "again\n");
  EXPECT_EQ(Read(0).data, "again\n");
}

TEST_F(WorkerLogTest, FollowsNoLinkAndMakesItsFilesItself) {
  const std::string victim = folder_.path() + "/victim";
  std::ofstream(victim) << "precious";
  fs::create_directories(Folder());
  std::ofstream(Folder() + "/owner") << "lm ann 0\n";
  fs::create_symlink(victim, Folder() + "/0.log");
  EXPECT_FALSE(WorkerLog::Open(folder_.path(), Owner(), {}).ok());
  EXPECT_EQ(ReadAll(victim), "precious");
}

TEST_F(WorkerLogTest, KeepsTheNewestSegmentsAndSaysWhatIsGone) {
  LogLimits limits;
  limits.worker_bytes = 2 * kLogSegmentBytes;
  ASSERT_OK_AND_ASSIGN(WorkerLog log,
                       WorkerLog::Open(folder_.path(), Owner(), limits));
  const std::string block(kLogSegmentBytes / 2, 'x');
  for (int i = 0; i < 7; ++i) ASSERT_OK(log.Append(block));
  ASSERT_OK(log.Append("end\n"));
  uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(Folder())) {
    bytes += file.file_size();
  }
  EXPECT_LE(bytes, limits.worker_bytes + 100);
  const LogReply reply = Read(10);
  EXPECT_THAT(reply.data,
              StartsWith(StrCat("[gavel: ", 2 * kLogSegmentBytes - 10,
                                " bytes of output are no longer")));
  EXPECT_GT(reply.next_offset, 2 * kLogSegmentBytes);
  EXPECT_EQ(Read(7 * block.size()).data, "end\n");
  // A restart of the agent does not change the offsets. Each reply belongs to
  // one incarnation.
  Write(Owner(2), "more\n");
  EXPECT_EQ(Read(7 * block.size()).data, "end\n");
  EXPECT_EQ(Read(7 * block.size() + 4).data, "more\n");
}

TEST_F(WorkerLogTest, WhoWritesMostLosesTheOldestFirst) {
  const auto write = [&](uint64_t job, const std::string& user, size_t bytes,
                         std::time_t age_s) {
    LogOwner owner = Owner();
    owner.worker.job = JobId(job);
    owner.unix_user = user;
    Write(owner, std::string(bytes, 'x'));
    const std::string folder =
        LogFolder(folder_.path(), kCluster, owner.worker.worker());
    const timespec old{std::time(nullptr) - age_s, 0};
    const std::array<timespec, 2> times{old, old};
    for (const auto& file : fs::directory_iterator(folder)) {
      utimensat(AT_FDCWD, file.path().c_str(), times.data(), 0);
    }
    return folder;
  };
  std::ofstream(folder_.path() + "/1-old.0.log") << "of an older version";
  const std::string ann = write(1, "ann", 1000, 900);
  const std::string first = write(2, "bob", 5000, 800);
  const std::string used = write(3, "bob", 5000, 700);
  const std::string last = write(4, "bob", 5000, 10);
  const std::string old = write(5, "ann", 10, 5000);
  LogLimits limits;
  limits.total_bytes = 12'000;
  limits.age_s = 3600;
  LogOwner user = Owner(2);
  user.worker.job = JobId(3);
  user.unix_user = "bob";
  ASSERT_OK_AND_ASSIGN(const WorkerLog open,
                       WorkerLog::Open(folder_.path(), user, limits));
  PruneLogs(folder_.path(), limits);
  EXPECT_TRUE(fs::exists(ann));
  EXPECT_FALSE(fs::exists(first));
  EXPECT_TRUE(fs::exists(used));
  EXPECT_TRUE(fs::exists(last));
  EXPECT_FALSE(fs::exists(old));
  limits.total_bytes = 2'000;
  PruneLogs(folder_.path(), limits);
  EXPECT_FALSE(fs::exists(last));
  EXPECT_TRUE(fs::exists(used));
}

TEST(OutputChannel, IsATerminalThatChangesNothing) {
  ASSERT_OK_AND_ASSIGN(OutputChannel channel, OpenOutputChannel(std::nullopt));
  if (isatty(channel.writer.get()) == 0) GTEST_SKIP() << "none to be had";
  const std::string text("a\nb\tc\r\n\x03\x04\x1a\0d", 11);
  ASSERT_EQ(write(channel.writer.get(), text.data(), text.size()),
            static_cast<ssize_t>(text.size()));
  channel.writer.Close();
  std::string got(100, ' ');
  ssize_t bytes = -1;
  while (bytes < 0) {
    bytes = read(channel.reader.get(), got.data(), got.size());
  }
  EXPECT_EQ(got.substr(0, static_cast<size_t>(bytes)), text);
}

class WorkerOutputsTest : public Test {
 protected:
  explicit WorkerOutputsTest(const LogLimits& limits = {})
      : outputs_({folder_.path(), limits, [] {}, nullptr}) {}
  Descriptor Open() { return *outputs_.Open(Owner(), std::nullopt); }
  static void Put(const Descriptor& output, const std::string& text) {
    EXPECT_EQ(write(output.get(), text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
  }
  // Waits without a limit; the test has its own time limit.
  template <class T>
  T Next() {
    while (true) {
      for (OutputEvent& event : outputs_.TakeEvents()) {
        if (auto* found = std::get_if<T>(&event)) return std::move(*found);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  LogReply Read(uint64_t offset) {
    outputs_.Read(kCluster, Request(offset), false);
    return Next<LogReply>();
  }
  TemporaryFolder folder_;
  WorkerOutputs outputs_;
};

TEST_F(WorkerOutputsTest, AllIsInTheLogWhenTheEndIsTold) {
  Descriptor output = Open();
  std::string text;
  // The text is longer than the buffer of a terminal.
  for (int i = 0; i < 500; ++i) StrAppend(&text, "line ", i, "\n");
  Put(output, text);
  Put(output, "error: it broke\n");
  EXPECT_FALSE(Read(0).ended);
  output.Close();
  outputs_.Finish(Owner().worker, "");
  EXPECT_EQ(Next<OutputEnded>().error_line, "error: it broke");
  EXPECT_EQ(Read(0).data, text + "error: it broke\n");
  EXPECT_TRUE(Read(text.size() + 16).ended);
}

// A process that escaped its agent may hold the channel open for ever.
TEST_F(WorkerOutputsTest, AChannelThatStaysOpenDelaysNoEnd) {
  const Descriptor output = Open();
  Put(output, "last words\n");
  outputs_.Finish(Owner().worker, "");
  EXPECT_EQ(Next<OutputEnded>().error_line, "last words");
}

TEST_F(WorkerOutputsTest, WithoutALogTheProgramStillGoesOn) {
  fs::remove_all(folder_.path());
  std::ofstream(folder_.path()) << "in the way";
  Descriptor output = Open();
  Put(output, std::string(100'000, 'x'));
  Put(output, "\nfatal: no room\n");
  output.Close();
  outputs_.Finish(Owner().worker, "");
  EXPECT_EQ(Next<OutputEnded>().error_line, "fatal: no room");
}

class CrowdedOutputsTest : public WorkerOutputsTest {
 protected:
  CrowdedOutputsTest() : WorkerOutputsTest({.total_bytes = 1 << 20}) {}
};

// One job after the other writes as fast as it can. The limit of all logs is
// enforced as output arrives, not only at the next periodic check.
TEST_F(CrowdedOutputsTest, WhatIsWrittenIsPrunedAsItComes) {
  const std::string text(64 * 1024, 'x');
  for (uint64_t job = 100; job < 150; ++job) {
    LogOwner owner = Owner();
    owner.worker.job = JobId(job);
    Descriptor output = *outputs_.Open(owner, std::nullopt);
    Put(output, text);
    output.Close();
    outputs_.Finish(owner.worker, "");
    Next<OutputEnded>();
  }
  uint64_t bytes = 0;
  for (const auto& file : fs::recursive_directory_iterator(folder_.path())) {
    if (file.is_regular_file()) bytes += file.file_size();
  }
  EXPECT_LE(bytes, (1U << 20) + 4 * text.size());
  EXPECT_GT(bytes, 1U << 19);
}

}  // namespace
}  // namespace gavel
