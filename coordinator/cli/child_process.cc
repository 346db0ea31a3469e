#include "coordinator/cli/child_process.h"

#include <sys/wait.h>

#include <cerrno>
#include <csignal>

namespace gavel {

ChildProcess::~ChildProcess() {
  Kill();
  Collect();
}

bool ChildProcess::Ended() const {
  siginfo_t info{};
  return ended_ || (waitid(P_PID, static_cast<id_t>(pid_), &info,
                           WEXITED | WNOHANG | WNOWAIT) == 0 &&
                    info.si_pid == pid_);
}

void ChildProcess::Kill() const {
  if (!ended_) kill(-pid_, SIGKILL);
}

int ChildProcess::Collect() {
  if (ended_) return exit_code_;
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) !=
             0 &&
         errno == EINTR) {
  }
  Kill();  // before its pid, and with it the group's number, is free again
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  ended_ = true;
  exit_code_ = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  return exit_code_;
}

}  // namespace gavel
