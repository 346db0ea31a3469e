// Tests a coordinator's journal with real processes: restarts that no job
// notices, failing disks, and the commands that read the journal.
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "coordinator/cli/command_line.h"
#include "core/text.h"
#include "gavel_paths.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

using nlohmann::json;

class DurabilityTest : public GavelClusterTest {
 protected:
  nlohmann::json OfFile(std::vector<std::string> arguments) {
    Append({"--file", journal(), "--json"}, &arguments);
    const Ended ended = Run(arguments);
    EXPECT_EQ(ended.exit_code, 0) << ended.errors;
    return json::parse(ended.output, nullptr, false);
  }
  std::string journal() const { return state() + "/journal.db"; }
};

class KilledCoordinatorTest : public DurabilityTest,
                              public ::testing::WithParamInterface<bool> {};

TEST_P(KilledCoordinatorTest, AgainAndAgainInterruptsNothing) {
  constexpr double kLease_s = 20;
  if (GetParam()) UseKeys({"here"});
  WriteCluster(2, 30, kLease_s);
  StartCoordinator();
  const auto agent = StartAgent();
  Submit(WriteJob("a", {"--steps", "2000"}));
  Submit(WriteJob("b", {"--steps", "2000"}));
  for (uint64_t step : {30, 200, 1600}) {
    ASSERT_TRUE(ReachesStep(endpoint_, "a", step));
    KillCoordinator();
    // The coordinator stays away once, for half a lease. Meanwhile workers
    // train under the lease that they hold; the other half is left for
    // reconnecting.
    if (step == 200) Eventually([] { return false; }, kLease_s / 2);
    StartCoordinator();
  }
  EXPECT_EQ(Json({"status"})["term"], 4);
  EXPECT_TRUE(ReachesState(endpoint_, "a", "CD"));
  EXPECT_TRUE(ReachesState(endpoint_, "b", "CD"));
  for (const auto& [id, name] : {std::pair(1, "a"), std::pair(2, "b")}) {
    ExpectEachStepOnce(name, 2000);
    EXPECT_EQ(Count(LogOf(id), "pauses at step"), 0) << LogOf(id);
    EXPECT_EQ(Count(LogOf(id), "starts at step"), 1);
  }
  // The history shows one lease although the coordinator was killed three
  // times.
  const json leases = Json({"history", "--show", "leases", "--job", "a"});
  EXPECT_EQ(leases.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Keys, KilledCoordinatorTest, ::testing::Bool(),
                         [](const auto& run) {
                           return run.param ? "With" : "Without";
                         });

TEST_F(DurabilityTest, ASecondCoordinatorOnOneStateDirectoryIsRefused) {
  WriteCluster(1, 10, 5);
  StartCoordinator();
  listen_ = "tcp://127.0.0.1:0";
  const auto second = Start(CoordinatorArguments(state()));
  EXPECT_EQ(second->Wait(), kExitAlreadyRuns);
  EXPECT_THAT(second->errors(), HasSubstr("another coordinator runs on it"));
  EXPECT_THAT(second->errors(), HasSubstr(std::to_string(coordinator_->pid())));
  EXPECT_EQ(Json({"status"})["term"], 1);
}

// The lock file was removed and a successor took over while the first
// coordinator was stopped. When it wakes, it must not grant the requests that
// wait for it.
TEST_F(DurabilityTest, OneThatWakesBehindItsSuccessorEnds) {
  WriteCluster(1, 10, 5);
  StartCoordinator();
  auto agent = StartAgent();
  Submit(WriteJob("job", {"--steps", "600"}));
  ASSERT_TRUE(ReachesStep(endpoint_, "job", 20));
  const auto first = std::move(coordinator_);
  first->Signal(SIGSTOP);
  std::filesystem::remove(journal() + ".lock");
  listen_ = "tcp://127.0.0.1:0";
  StartCoordinator();
  first->Signal(SIGCONT);
  EXPECT_EQ(first->Wait(), kExitFenced);
  EXPECT_THAT(first->errors(), HasSubstr("taken over"));
  agent.reset();
  agent = StartAgent();
  EXPECT_TRUE(ReachesState(endpoint_, "job", "CD"));
  EXPECT_EQ(Json({"status"})["term"], 2);
}

// A coordinator that recovers from an old copy of its journal knows less than
// its workers have seen.
TEST_F(DurabilityTest, AnOlderCopyOfTheJournalIsNotGoneOnFrom) {
  WriteCluster(1, 30, 20);
  StartCoordinator();
  const auto agent = StartAgent();
  ASSERT_TRUE(HasIdleAccelerators(endpoint_));
  KillCoordinator();
  std::filesystem::create_directory(Path("backup"));
  for (const char* file : {"journal.db", "journal.db-wal"}) {
    std::filesystem::copy_file(state() + "/" + file, Path("backup/") + file);
  }
  StartCoordinator();
  Submit(WriteJob("job", {"--steps", "100000"}));
  ASSERT_TRUE(ReachesStep(endpoint_, "job", 20));
  KillCoordinator();
  std::filesystem::remove(journal() + "-shm");
  for (const char* file : {"journal.db", "journal.db-wal"}) {
    std::filesystem::copy_file(
        Path("backup/") + file, state() + "/" + file,
        std::filesystem::copy_options::overwrite_existing);
  }
  StartCoordinator();
  EXPECT_EQ(coordinator_->Wait(), kExitFenced);
  EXPECT_THAT(coordinator_->errors(), HasSubstr("of the journal"));
  EXPECT_THAT(coordinator_->errors(),
              HasSubstr("nothing more is granted from here"));
}

// SQLite takes damage in the WAL as its end, and all rows before it are whole.
// The parameter is the part of the WAL that is left.
class LostWal : public DurabilityTest,
                public ::testing::WithParamInterface<double> {};

// With 0, all rows are lost, and with them the start of the term, which must
// not be begun again.
INSTANTIATE_TEST_SUITE_P(Durability, LostWal, ::testing::Values(0.5, 0));

TEST_P(LostWal, IsNotGoneOnFrom) {
  WriteCluster(1, 30, 20);
  StartCoordinator();
  const auto agent = StartAgent();
  ASSERT_TRUE(HasIdleAccelerators(endpoint_));
  for (int i = 0; i < 5; ++i) {
    Submit(WriteJob(StrCat("job-", i), {"--steps", "100000"}));
  }
  ASSERT_TRUE(ReachesStep(endpoint_, "job-0", 20));
  KillCoordinator();
  const std::string wal = journal() + "-wal";
  // Behind the committed rows there are zeros.
  const auto bytes = ReadText(wal).find_last_not_of('\0');
  ASSERT_LT(std::filesystem::file_size(journal()), bytes);
  const auto left = static_cast<double>(bytes) * GetParam();
  std::filesystem::resize_file(wal, static_cast<uintmax_t>(left));
  std::filesystem::remove(journal() + "-shm");
  StartCoordinator();
  EXPECT_EQ(coordinator_->Wait(), kExitFenced);
  EXPECT_THAT(coordinator_->errors(), HasSubstr("term 2 begins at seq"));
  EXPECT_THAT(coordinator_->errors(),
              HasSubstr("nothing more is granted from here"));
}

TEST_F(DurabilityTest, ThePastIsToldReplayedAndSimulated) {
  WriteCluster(1, 2, 1);
  StartCoordinator();
  const auto agent = StartAgent();
  Submit(WriteJob("first", {"--steps", "300"}, "steps_total = 300\n"));
  Submit(WriteJob("second", {"--steps", "300"}, "steps_total = 300\n"));
  Submit(
      WriteCommand("broken", {"/bin/sh", "-c", "exit 3"}, "retries_max = 0\n"));
  ASSERT_TRUE(ReachesState(endpoint_, "first", "CD"));
  ASSERT_TRUE(ReachesState(endpoint_, "second", "CD"));
  ASSERT_TRUE(ReachesState(endpoint_, "broken", "F"));

  // The history is the same over the wire and from the file, which is in use.
  const json live = Json({"history"});
  const json file = OfFile({"history"});
  EXPECT_EQ(live, file);
  ASSERT_EQ(live.size(), 3u);
  EXPECT_EQ(live[0]["name"], "first");
  EXPECT_EQ(live[0]["state"], "CD");
  EXPECT_EQ(live[0]["steps_done"], 300);
  EXPECT_GT(live[0]["accelerator_s"]["cpu"], 0);
  EXPECT_GT(live[0]["submitted_s"], 1.7e9);
  EXPECT_GE(live[0]["ended_s"], live[0]["started_s"]);
  EXPECT_EQ(live[2]["exit_code"], 3);
  const Ended table = Do({"history"});
  EXPECT_THAT(table.output, HasSubstr("JOBID"));
  EXPECT_THAT(table.output, HasSubstr("second"));
  EXPECT_THAT(table.output, HasSubstr("3:0"));
  EXPECT_EQ(OfFile({"history", "--state", "F"}).size(), 1u);
  EXPECT_EQ(OfFile({"history", "--state", "held"}).size(), 1u);
  EXPECT_EQ(OfFile({"history", "--state", "R,finished"}).size(), 2u);
  EXPECT_EQ(OfFile({"history", "--since", "1h", "--until", "30m"}).size(), 0u);
  for (const std::vector<std::string>& bad :
       {std::vector<std::string>{"history", "--state", "QQ"},
        {"history", "--since", "30m", "--until", "1h"},
        {"usage", "--since", "30m", "--until", "1h"}}) {
    EXPECT_NE(Do(bad).exit_code, 0) << bad[1];
  }
  EXPECT_GE(OfFile({"history", "--job", "first", "--show", "leases"}).size(),
            1u);

  const std::string before = ReadText(journal());
  const Ended replay = Run({"replay", journal()});
  EXPECT_EQ(replay.exit_code, 0) << replay.errors;
  EXPECT_THAT(replay.output, HasSubstr("JobSubmitted: \"first\""));
  EXPECT_THAT(replay.output, HasSubstr("LeaseStarted: job 1 rank 0"));
  EXPECT_THAT(replay.output, HasSubstr(", 0 otherwise today")) << replay.output;
  const Ended one = Run({"replay", journal(), "--job", "3"});
  EXPECT_THAT(one.output, HasSubstr("\"broken\""));
  EXPECT_THAT(one.output, Not(HasSubstr("\"first\"")));
  const Ended named = Run({"replay", state(), "--job", "broken"});
  // The last line counts rows, and the coordinator has perhaps written another.
  const auto but_last = [](const std::string& text) {
    return text.substr(0, text.rfind('\n', text.size() - 2));
  };
  EXPECT_EQ(but_last(named.output), but_last(one.output)) << named.errors;
  EXPECT_EQ(Run({"replay", state(), "--job", "nobody"}).exit_code, 1);
  EXPECT_EQ(ReadText(journal()), before);

  const Ended elsewhere =
      Run({"simulate", "--replay", journal(), "--cluster", "v100:1"});
  EXPECT_EQ(elsewhere.exit_code, 1);
  EXPECT_THAT(elsewhere.errors,
              HasSubstr("no job has a throughput on v100; the journal has "));
  const Ended simulated =
      Run({"simulate", "--replay", journal(), "--policy", "fifo"});
  EXPECT_EQ(simulated.exit_code, 0) << simulated.errors;
  EXPECT_THAT(simulated.output, HasSubstr("as it happened"));
  EXPECT_THAT(simulated.output, HasSubstr("simulated: fifo"));
  EXPECT_THAT(simulated.output, HasSubstr("average JCT"));
}

TEST_F(DurabilityTest, WhatIfPredictsAndSubmitsNothing) {
  WriteCluster(1, 2, 1);
  StartCoordinator();
  const auto agent = StartAgent();
  Submit(WriteJob("running", {"--steps", "100000"},
                  "steps_total = 100000\n[throughputs]\ncpu = 100\n"));
  ASSERT_TRUE(ReachesStep(endpoint_, "running", 20));
  const std::string job =
      WriteJob("asked", {}, "steps_total = 1000\n[throughputs]\ncpu = 50\n");
  const json answer = Json({"what-if", job});
  EXPECT_EQ(answer["job"]["name"], "asked");
  // Alone the job would take 20 s, but it shares the one accelerator.
  EXPECT_GE(answer["job"]["finish_in_s"], 20);
  EXPECT_LE(answer["job"]["finish_in_s"], 60);
  ASSERT_EQ(answer["others"].size(), 1u);
  EXPECT_GT(answer["others"][0]["finish_in_s"],
            answer["others"][0]["finish_without_in_s"]);
  EXPECT_EQ(Json({"queue"}).size(), 1u);
  const Ended text = Do({"what-if", job});
  EXPECT_THAT(text.output, HasSubstr("finishes  in "));

  const Ended unknown =
      Do({"what-if", WriteJob("unknown", {}, "steps_total = 1000\n")});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.errors, HasSubstr("[throughputs]"));
  const Ended array = Do({"what-if", WriteJob("lm", {}, "array = \"0-3\"\n")});
  EXPECT_EQ(array.exit_code, 1);
  EXPECT_THAT(array.errors,
              HasSubstr("no forecast: none is made of an array of 4 jobs"));
}

TEST_F(DurabilityTest, BadFilesAreRefusedWithAReason) {
  const std::string text = Write("text.db", "no database at all\n");
  for (const std::string& path : {text, Path("none.db"), folder()}) {
    for (const std::vector<std::string>& command :
         std::vector<std::vector<std::string>>{
             {"history", "--file"}, {"replay"}, {"simulate", "--replay"}}) {
      std::vector<std::string> arguments = command;
      arguments.push_back(path);
      const Ended ended = Run(arguments);
      EXPECT_EQ(ended.exit_code, 1) << command[0] << " " << path;
      EXPECT_THAT(ended.errors, HasSubstr("gavel: " + path)) << command[0];
      EXPECT_THAT(ended.errors, Not(HasSubstr(path + ": " + path)))
          << command[0];
    }
  }
}

// ---- disks that fail

class FailingDiskTest : public DurabilityTest {
 protected:
  // The path of strace; empty where there is none, or where it may not trace.
  std::string Strace() const {
    for (const char* path : {"/usr/bin/strace", "/bin/strace"}) {
      if (access(path, X_OK) != 0) continue;
      Process tried({path, "-qq", "-o", "/dev/null", path, "--version"},
                    Path("tried"));
      if (tried.Wait() == 0) return path;
    }
    return "";
  }

  // Starts a coordinator whose system call `fault` (strace's inject=) fails
  // from the `when`-th call on. With -D the tracer is not the parent, so the
  // coordinator is waited for and ended like any other.
  std::unique_ptr<Process> StartFaulty(const std::string& fault, int when,
                                       const std::string& state_directory) {
    std::vector<std::string> argv = {
        Strace(),
        "-D",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        StrCat("trace=", fault.substr(0, fault.find(':'))),
        "-e",
        StrCat("inject=", fault, ":when=", when, "+"),
        std::string(GAVEL_BINARY_DIR) + "/gavel"};
    listen_ = "tcp://127.0.0.1:0";
    for (const std::string& argument : CoordinatorArguments(state_directory)) {
      argv.push_back(argument);
    }
    auto faulty =
        std::make_unique<Process>(argv, StrCat(state_directory, "-output"));
    Eventually([&] {
      return faulty->output().find("listening") != std::string::npos ||
             faulty->Wait(0).has_value();
    });
    return faulty;
  }

  // Submits jobs until the coordinator is gone, at most `most`. Returns how
  // many were accepted.
  int SubmitUntilItEnds(Process& coordinator, int most) {
    if (coordinator.Wait(0)) return 0;
    endpoint_ = EndpointOf(coordinator);
    for (int accepted = 0; accepted < most; ++accepted) {
      const auto submit =
          Start({"submit", "--coordinator", endpoint_,
                 WriteCommand(StrCat("job-", accepted), {"./train"}, "")});
      // Without a coordinator, submit would wait long for the answer.
      Eventually([&] { return submit->Wait(0) || coordinator.Wait(0); });
      if (submit->Wait(0.1) != 0) return accepted;
    }
    return most;
  }

  // Expects that all accepted jobs are there again, and that the coordinator
  // accepts more.
  void ExpectAllThere(const std::string& state_directory, int accepted) {
    listen_ = "tcp://127.0.0.1:0";
    const auto again = Start(CoordinatorArguments(state_directory));
    endpoint_ = EndpointOf(*again);
    ASSERT_NE(endpoint_, "") << again->errors();
    const json queue = Json({"queue"});
    EXPECT_GE(queue.size(), static_cast<size_t>(accepted));
    EXPECT_LE(queue.size(), static_cast<size_t>(accepted) + 1);
    Submit(WriteCommand("more", {"./train"}, ""));
  }
};

TEST_F(FailingDiskTest, AnErrorAtAnyWriteHaltsItAndLosesNothing) {
  if (Strace().empty()) GTEST_SKIP() << "strace is not there, or may not trace";
  WriteCluster(1, 10, 5);
  int runs = 0;
  int accepted_in_all = 0;
  // These calls come where the file is made, where room for the WAL is reserved
  // (64 writes, one fsync), and where jobs are submitted.
  const std::vector<int> writes = {2, 20, 40, 110};
  const std::vector<std::pair<std::string, std::vector<int>>> faults = {
      {"pwrite64:error=ENOSPC", writes},
      {"pwrite64:error=EIO", writes},
      {"fdatasync:error=EIO", {2, 20, 40}}};
  for (const auto& [fault, whens] : faults) {
    for (const int when : whens) {
      SCOPED_TRACE(StrCat(fault, " at ", when));
      const std::string place = StrCat(folder(), "/run-", runs++);
      const auto faulty = StartFaulty(fault, when, place);
      const int accepted = SubmitUntilItEnds(*faulty, 60);
      EXPECT_EQ(faulty->Wait(2),
                fault.ends_with("ENOSPC") ? kExitDiskFull : kExitFailed);
      EXPECT_THAT(faulty->errors(), HasSubstr("journal"));
      if (!faulty->Wait(0)) faulty->Signal(SIGKILL);
      faulty->Wait();
      ExpectAllThere(place, accepted);
      accepted_in_all += accepted;
    }
  }
  EXPECT_GT(accepted_in_all, 40);
}

TEST_F(FailingDiskTest, AFullDiskHaltsItAndLosesNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "only root mounts a small disk";
  const std::string disk = Path("disk");
  std::filesystem::create_directory(disk);
  if (mount("none", disk.c_str(), "tmpfs", 0, "size=400k") != 0) {
    GTEST_SKIP() << "no file system may be mounted here";
  }
  WriteCluster(1, 10, 5);
  auto coordinator = Start(CoordinatorArguments(disk + "/state"));
  endpoint_ = EndpointOf(*coordinator);
  int accepted = 0;
  for (int i = 0; i < 200 && !coordinator->Wait(0.001); ++i) {
    const std::string job =
        WriteCommand(StrCat("job-", i), {"./train", std::string(9000, 'x')});
    accepted += Run({"submit", "--coordinator", endpoint_, job}).exit_code == 0;
  }
  EXPECT_EQ(coordinator->Wait(5), kExitDiskFull);
  EXPECT_THAT(coordinator->errors(), HasSubstr("make room"));
  EXPECT_GT(accepted, 5);
  EXPECT_EQ(mount("none", disk.c_str(), "tmpfs", MS_REMOUNT, "size=40m"), 0);
  ExpectAllThere(disk + "/state", accepted);
  EXPECT_EQ(umount2(disk.c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace gavel::testing
