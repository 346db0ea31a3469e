#include "tests/support/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <utility>

#include "coordinator/agent_host/agent_record.h"

namespace gavel::testing {
namespace {

[[noreturn]] void RunChild(const std::vector<std::string>& argv,
                           const std::string& output_path) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int flags = O_WRONLY | O_CREAT | O_APPEND;
  dup2(open(output_path.c_str(), flags, 0600), STDOUT_FILENO);
  dup2(open((output_path + ".err").c_str(), flags, 0600), STDERR_FILENO);
  std::vector<char*> pointers;
  for (const std::string& word : argv) {
    pointers.push_back(const_cast<char*>(word.c_str()));
  }
  pointers.push_back(nullptr);
  execv(pointers[0], pointers.data());
  _exit(127);
}

}  // namespace

bool IsAlive(pid_t pid) {
  const std::optional<ProcessInfo> info = ReadProcessInfo(pid);
  return info && !info->gone();
}

Process::Process(const std::vector<std::string>& argv, std::string output_path)
    : output_path_(std::move(output_path)) {
  pid_ = fork();
  if (pid_ < 0) std::abort();
  if (pid_ == 0) RunChild(argv, output_path_);
}

Process::~Process() {
  if (ended_) return;
  kill(pid_, SIGKILL);
  Wait();
}

void Process::Signal(int signal) const { kill(pid_, signal); }

std::optional<int> Process::Wait(double timeout_s) {
  Eventually(
      [&] {
        int status = 0;
        if (!ended_ && waitpid(pid_, &status, WNOHANG) == pid_) {
          ended_ =
              WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
        }
        return ended_.has_value();
      },
      timeout_s);
  return ended_;
}

}  // namespace gavel::testing
