#include "coordinator/agent_host/agent_process.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "core/text.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

class AgentProcess : public Test {
 protected:
  ProcessSpec Spec(std::vector<std::string> argv) const {
    ProcessSpec spec;
    spec.argv = std::move(argv);
    spec.working_directory = folder_.path();
    spec.environment = {"PATH=/usr/bin:/bin"};
    spec.output_path = folder_.path() + "/output";
    return spec;
  }
  ProcessSpec Shell(const std::string& script) const {
    return Spec({"sh", "-c", script});
  }
  // Runs `spec` to its end and returns the status from waitpid.
  int RunToEnd(const ProcessSpec& spec) {
    const absl::StatusOr<pid_t> pid = SpawnProcess(spec);
    EXPECT_OK(pid);
    int status = -1;
    if (!pid.ok()) return status;
    EXPECT_EQ(waitpid(*pid, &status, 0), *pid);
    return status;
  }
  std::string Output() const { return ReadText(folder_.path() + "/output"); }
  void Write(const std::string& name, const std::string& text, mode_t mode) {
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path) << text;
    std::filesystem::permissions(path, std::filesystem::perms(mode));
  }

  TemporaryFolder folder_;
};

TEST_F(AgentProcess, BothOutputsAreAppendedToTheFile) {
  EXPECT_EQ(RunToEnd(Shell("echo out; echo err >&2")), 0);
  EXPECT_EQ(RunToEnd(Shell("echo again")), 0);
  EXPECT_EQ(Output(), "out\nerr\nagain\n");
}

TEST_F(AgentProcess, ArgumentsAreNotReadByAShell) {
  RunToEnd(Spec({"printf", "%s|", "$HOME", "a b", "`id`", "*"}));
  EXPECT_EQ(Output(), "$HOME|a b|`id`|*|");
}

TEST_F(AgentProcess, SeesItsEnvironmentAndDirectoryAndNothingElse) {
  setenv("AGENT_SECRET", "1", 1);
  ProcessSpec spec = Spec({"env"});
  spec.environment.push_back("GAVEL_JOB=7");
  RunToEnd(spec);
  unsetenv("AGENT_SECRET");
  EXPECT_EQ(Output(), "PATH=/usr/bin:/bin\nGAVEL_JOB=7\n");
  RunToEnd(Spec({"pwd", "-P"}));
  EXPECT_THAT(Output(), HasSubstr("gavel-test-"));
}

TEST_F(AgentProcess, ReadsItsFileOfVariables) {
  Write("env",
        "# keys\n\nTOKEN=a b=\"c\"\r\nPATH=/elsewhere\nTWICE=1\nTWICE=2\n"
        "EMPTY=\nLAST=no newline",
        0600);
  ProcessSpec spec = Spec({"env"});
  spec.env_file = folder_.path() + "/env";
  EXPECT_EQ(RunToEnd(spec), 0);
  EXPECT_EQ(Output(),
            "PATH=/usr/bin:/bin\nTOKEN=a b=\"c\"\nTWICE=2\nEMPTY=\n"
            "LAST=no newline\n");
}

TEST_F(AgentProcess, SaysWhatIsWrongWithItsFileOfVariablesAndQuotesNothing) {
  ProcessSpec spec = Spec({"env"});
  const auto error = [&](const std::string& text) {
    Write("env", text, 0600);
    spec.env_file = folder_.path() + "/env";
    return std::string(SpawnProcess(spec).status().message());
  };
  EXPECT_THAT(error("A=1\nhunter2\n"),
              AllOf(HasSubstr("/env: line 2 is not NAME=VALUE"),
                    Not(HasSubstr("hunter2"))));
  EXPECT_THAT(error("2A=1\n"), HasSubstr("line 1 is not NAME=VALUE"));
  EXPECT_THAT(error("=1\n"), HasSubstr("line 1 is not NAME=VALUE"));
  EXPECT_THAT(error(std::string("A=1\0x\n", 7)), HasSubstr("line 1"));
  EXPECT_THAT(error("A=" + std::string(kEnvFileBytesMax, 'x')),
              HasSubstr("has more than 65536 bytes"));
  std::string many;
  for (size_t i = 0; i < kEnvFileVariablesMax; ++i) {
    StrAppend(&many, "V", i, "=1\n");
  }
  Write("env", many, 0600);
  EXPECT_EQ(RunToEnd(spec), 0);
  EXPECT_THAT(error(many + "ONE_MORE=1\n"), HasSubstr("or 1024 variables"));
  spec.env_file = folder_.path() + "/fifo";
  ASSERT_EQ(mkfifo(spec.env_file.c_str(), 0600), 0);
  EXPECT_THAT(SpawnProcess(spec).status().message(),
              HasSubstr("/fifo is not a regular file"));
  spec.env_file = folder_.path() + "/nothing";
  EXPECT_THAT(SpawnProcess(spec).status().message(),
              HasSubstr("/nothing: No such file or directory; put it there"));
  spec.env_file = folder_.path();
  EXPECT_THAT(SpawnProcess(spec).status().message(),
              HasSubstr("Is a directory"));
}

TEST_F(AgentProcess, LeadsItsOwnGroupAndDiesWithTheThreadThatStartedIt) {
  const absl::StatusOr<pid_t> pid = SpawnProcess(Spec({"sleep", "1000"}));
  ASSERT_OK(pid);
  EXPECT_EQ(getpgid(*pid), *pid);
  EXPECT_EQ(kill(-*pid, SIGTERM), 0);
  int status = 0;
  EXPECT_EQ(waitpid(*pid, &status, 0), *pid);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST_F(AgentProcess, HasDefaultSignalsAndNoDescriptorOfOurs) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);  // without O_CLOEXEC, as hosts do
  signal(SIGUSR1, SIG_IGN);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
  RunToEnd(Spec({"sh", "-c",
                 "ls /proc/self/fd | wc -l; grep -E 'SigBlk|SigIgn' "
                 "/proc/self/status; readlink /proc/self/fd/0"}));
  sigprocmask(SIG_UNBLOCK, &blocked, nullptr);
  signal(SIGUSR1, SIG_DFL);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  // The list is 0, 1, 2 and the descriptor with which ls reads the folder.
  EXPECT_EQ(Output(),
            "4\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
            "/dev/null\n");
}

TEST_F(AgentProcess, AProgramIsFoundByPathFromTheWorkingDirectory) {
  Write("train", "#!/bin/sh\necho trained\n", 0700);
  EXPECT_EQ(RunToEnd(Spec({"./train"})), 0);
  ProcessSpec spec = Spec({"train"});
  spec.environment = {StrCat("PATH=/nonexistent:", folder_.path())};
  EXPECT_EQ(RunToEnd(spec), 0);
  EXPECT_EQ(Output(), "trained\ntrained\n");
}

TEST_F(AgentProcess, WhatCannotBeStartedIsSaidWithTheRemedy) {
  const auto start = [&](const ProcessSpec& spec) {
    return SpawnProcess(spec);
  };
  EXPECT_THAT(
      start(Spec({"./train"})),
      StatusIs(kNotFound, StrCat("./train: no such file or directory; give an "
                                 "absolute path or one relative to ",
                                 folder_.path())));
  EXPECT_THAT(start(Spec({"/no/train"})),
              StatusIs(kNotFound, "build it, or correct the path"));
  EXPECT_THAT(start(Spec({"no-such-program"})),
              StatusIs(kNotFound,
                       "no-such-program: not found in PATH (/usr/bin:/bin); "
                       "give a path"));
  Write("data", "no program", 0600);
  EXPECT_THAT(start(Spec({"./data"})), StatusIs(kPermissionDenied, "chmod +x"));
  Write("nothing", "no program", 0700);
  EXPECT_THAT(start(Spec({"./nothing"})),
              StatusIs(kFailedPrecondition, "not a program"));
  Write("script", "#!/no/interpreter\n", 0700);
  EXPECT_THAT(start(Spec({"./script"})), StatusIs(kNotFound, "interpreter"));
  EXPECT_THAT(start(Spec({})), IsInvalid("empty"));
  ProcessSpec spec = Spec({"true"});
  spec.working_directory = "/no/directory";
  EXPECT_THAT(
      start(spec),
      StatusIs(kNotFound, "working directory /no/directory: No such file"));
  // Nothing is left behind.
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

}  // namespace
}  // namespace gavel
