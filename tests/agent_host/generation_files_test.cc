// Tests generations that come and go over a disk that fails. Only complete data
// becomes a generation, whatever happens.
#include <random>

#include "coordinator/agent_host/agent_checkpoints.h"
#include "core/text.h"
#include "tests/agent_host/generation_samples.h"
#include "tests/checkpoint/fault_injecting_file_system.h"
#include "tests/checkpoint/simulated_disk.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

using Fault = FaultInjectingFileSystem::Fault;

constexpr char kSource[] = "/source/job";
constexpr char kHere[] = "/here/job";
constexpr Generation kOld{1, 100};
constexpr Generation kNew{2, 200};

// There are three shards, and only the last differs between kOld and kNew.
class GenerationFiles : public Test {
 protected:
  void SetUp() override {
    ASSERT_OK(CreateDirectories(disk_, kSource));
    const std::vector<std::string> old = {MakeShard("a", 3000, 1),
                                          MakeShard("b", 70'000, 2),
                                          MakeShard("c", 2'500'000, 3)};
    std::vector<std::string> next = old;
    next[2] = MakeShard("c", 2'500'000, 4);
    ASSERT_OK(WriteGeneration(disk_, kSource, kOld, old));
    ASSERT_OK(WriteGeneration(disk_, kSource, kNew, next));
  }

  // Moves the latest generation below `below`, as the stream does. Returns the
  // number of bytes that were read.
  absl::StatusOr<uint64_t> Move(FileSystem& to, GenerationInbox& inbox,
                                Generation below = {},
                                uint64_t stop_after = ~uint64_t{0}) {
    GenerationOutbox outbox(disk_);
    GAVEL_ASSIGN_OR_RETURN(const auto opened, outbox.Open(1, kSource, below));
    GAVEL_ASSIGN_OR_RETURN(const auto need,
                           inbox.Prepare(opened.generation, opened.manifest));
    uint64_t bytes = 0;
    if (need.already_here) return bytes;
    for (StreamFile file : need.files) {
      while (file.have_bytes < file.size_bytes) {
        const uint64_t size = std::min<uint64_t>(
            kStreamChunkBytesMax / 4, file.size_bytes - file.have_bytes);
        GAVEL_ASSIGN_OR_RETURN(
            const StreamChunk chunk,
            outbox.Read({1, file.file, file.have_bytes, size}));
        if (bytes + size > stop_after) return bytes;
        GAVEL_RETURN_IF_ERROR(
            inbox.Write(file.file, file.have_bytes, chunk.data));
        bytes += size;
        file.have_bytes += size;
      }
      GAVEL_ASSIGN_OR_RETURN(const bool whole, inbox.Finish(file.file));
      if (!whole) return absl::DataLossError("not whole");
    }
    (void)to;
    GAVEL_RETURN_IF_ERROR(inbox.Commit());
    return bytes;
  }

  // Expects that every committed generation on `disk` is whole. Returns the
  // latest.
  static std::optional<Generation> LatestWhole(FileSystem& disk) {
    const auto attempts = ListAttempts(disk, kHere);
    if (!attempts.ok() || attempts->committed.empty()) return std::nullopt;
    for (const Attempt& attempt : attempts->committed) {
      EXPECT_OK(testing::VerifyGeneration(disk, kHere, attempt));
    }
    return attempts->committed.back().generation;
  }

  SimulatedDisk disk_;
};

TEST_F(GenerationFiles, ArriveWholeAndOnlyOnce) {
  GenerationInbox inbox(disk_, kHere);
  ASSERT_OK_AND_ASSIGN(const uint64_t bytes, Move(disk_, inbox));
  EXPECT_GT(bytes, 2'570'000);
  EXPECT_EQ(LatestWhole(disk_), kNew);
  EXPECT_EQ(*Move(disk_, inbox), 0);
}

TEST_F(GenerationFiles, AfterAnEarlierOneOnlyWhatHasChangedComes) {
  GenerationInbox inbox(disk_, kHere);
  ASSERT_OK(Move(disk_, inbox, kNew).status());
  EXPECT_EQ(LatestWhole(disk_), kOld);
  ASSERT_OK_AND_ASSIGN(const uint64_t bytes, Move(disk_, inbox));
  EXPECT_GT(bytes, 2'490'000);
  EXPECT_LT(bytes, 2'510'000);
  EXPECT_EQ(LatestWhole(disk_), kNew);
}

TEST_F(GenerationFiles, ACutOneIsGoneOnWithByTheNextAgent) {
  {
    GenerationInbox inbox(disk_, kHere);
    ASSERT_OK(Move(disk_, inbox, {}, 1'000'000).status());
    EXPECT_EQ(LatestWhole(disk_), std::nullopt);
  }
  GenerationInbox next(disk_, kHere);
  ASSERT_OK_AND_ASSIGN(const uint64_t bytes, Move(disk_, next));
  EXPECT_LT(bytes, 1'900'000);
  EXPECT_EQ(LatestWhole(disk_), kNew);
}

TEST_F(GenerationFiles, AnAttemptAtAnOlderOneServesTheNewer) {
  GenerationInbox inbox(disk_, kHere);
  ASSERT_OK(Move(disk_, inbox, kNew, 1'000'000).status());  // a and b are here
  ASSERT_OK_AND_ASSIGN(const uint64_t bytes, Move(disk_, inbox));
  EXPECT_LT(bytes, 2'510'000);
  EXPECT_EQ(LatestWhole(disk_), kNew);
  EXPECT_TRUE(ListAttempts(disk_, kHere)->uncommitted.empty());
}

TEST_F(GenerationFiles, EveryCallThatFailsLeavesWhatWasThere) {
  for (const Fault fault :
       {Fault::kError, Fault::kDoneAndError, Fault::kShortWrite}) {
    for (const absl::Status& error :
         {absl::ResourceExhaustedError("no space left"),
          absl::UnknownError("input/output error")}) {
      for (int call = 1;; ++call) {
        SCOPED_TRACE(StrCat("call ", call));
        SimulatedDisk disk;
        {
          GenerationInbox first(disk, kHere);
          ASSERT_OK(Move(disk, first, kNew).status());
        }
        FaultInjectingFileSystem faulty(disk);
        GenerationInbox inbox(faulty, kHere);
        faulty.FailAt(call, fault, error);
        const auto moved = Move(faulty, inbox);
        const bool reached = faulty.calls() >= call;
        faulty.FailAt(0, fault, error);
        if (!moved.ok()) inbox.Discard();
        const std::optional<Generation> latest = LatestWhole(disk);
        ASSERT_TRUE(latest.has_value());
        if (moved.ok()) {
          EXPECT_EQ(latest, kNew);
        }
        GenerationInbox again(disk, kHere);
        EXPECT_OK(Move(disk, again).status());
        EXPECT_EQ(LatestWhole(disk), kNew);
        if (!reached) break;
      }
    }
  }
}

TEST_F(GenerationFiles, ACrashAtEveryCallLeavesOnlyWholeGenerations) {
  for (uint32_t seed = 0; seed < 3; ++seed) {
    for (int call = 1;; ++call) {
      SCOPED_TRACE(StrCat("seed ", seed, " call ", call));
      SimulatedDisk disk;
      {
        GenerationInbox first(disk, kHere);
        ASSERT_OK(Move(disk, first, kNew).status());
      }
      FaultInjectingFileSystem faulty(disk);
      GenerationInbox inbox(faulty, kHere);
      faulty.FailAt(call, Fault::kCrash, absl::UnknownError("crash"));
      const auto moved = Move(faulty, inbox);
      std::mt19937 random(seed);
      disk.Crash(random);
      const std::optional<Generation> latest = LatestWhole(disk);
      ASSERT_TRUE(latest.has_value());
      if (moved.ok()) {
        EXPECT_EQ(latest, kNew);
      }
      GenerationInbox again(disk, kHere);
      auto next = Move(disk, again);
      // A shard that the crash left torn is found, and fetched again.
      for (int i = 0; i < 3 && absl::IsDataLoss(next.status()); ++i) {
        next = Move(disk, again);
      }
      EXPECT_OK(next.status());
      EXPECT_EQ(LatestWhole(disk), kNew);
      if (moved.ok()) break;
    }
  }
}

TEST_F(GenerationFiles, BytesThatAreNotTheManifestsAreThrownAway) {
  GenerationInbox inbox(disk_, kHere);
  GenerationOutbox outbox(disk_);
  ASSERT_OK_AND_ASSIGN(const auto opened, outbox.Open(1, kSource, {}));
  ASSERT_OK_AND_ASSIGN(const auto need,
                       inbox.Prepare(opened.generation, opened.manifest));
  ASSERT_OK(inbox.Write(0, 0, std::string(need.files[0].size_bytes, 'x')));
  EXPECT_FALSE(*inbox.Finish(0));
  ASSERT_OK_AND_ASSIGN(const auto again,
                       inbox.Prepare(opened.generation, opened.manifest));
  EXPECT_EQ(again.files[0].have_bytes, 0);
}

TEST_F(GenerationFiles, AManifestThatIsNoneIsRefused) {
  GenerationInbox inbox(disk_, kHere);
  EXPECT_THAT(inbox.Prepare(kNew, "{}").status(),
              StatusIs(kDataLoss, "manifest"));
  GenerationOutbox outbox(disk_);
  ASSERT_OK_AND_ASSIGN(const auto opened, outbox.Open(1, kSource, {}));
  EXPECT_THAT(inbox.Prepare(kOld, opened.manifest).status(),
              StatusIs(kDataLoss, "another generation"));
}

TEST_F(GenerationFiles, WhatIsServedStaysReadableWhenItIsDeleted) {
  GenerationOutbox outbox(disk_);
  ASSERT_OK_AND_ASSIGN(const auto opened, outbox.Open(1, kSource, {}));
  ASSERT_OK(RemoveAttempt(disk_, kSource, {kNew, 0}));
  EXPECT_OK(outbox.Read({1, 2, 0, 1000}).status());
  EXPECT_EQ(outbox.Open(2, kSource, {})->generation, kOld);
  outbox.Close(1);
  EXPECT_THAT(outbox.Read({1, 2, 0, 1000}).status(),
              StatusIs(kNotFound, "closed"));
}

TEST_F(GenerationFiles, ATornOneIsNotServed) {
  ASSERT_OK(disk_.RemoveFile(
      StrCat(kSource, "/", AttemptName({kNew, 0}), "/", ShardFileName(1))));
  GenerationOutbox outbox(disk_);
  EXPECT_EQ(outbox.Open(1, kSource, {})->generation, kOld);
  EXPECT_THAT(outbox.Open(1, kSource, kOld).status(),
              StatusIs(kNotFound, "no whole checkpoint"));
}

}  // namespace
}  // namespace gavel
