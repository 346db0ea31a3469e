#include "coordinator/cli/processes.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "coordinator/cli/command_line.h"

namespace gavel {
namespace {

constexpr int kSignalsMax = 3;

sigset_t BlockSignals(bool reloads) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  if (reloads) sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

int OpenSignals(bool reloads) {
  const sigset_t signals = BlockSignals(reloads);
  return signalfd(-1, &signals, SFD_CLOEXEC);
}

}  // namespace

StopSignals::StopSignals(bool reloads)
    : signals_(OpenSignals(reloads)), thread_([this] { Wait(); }) {}

StopSignals::~StopSignals() {
  end_.Wake();
  thread_.join();
}

void StopSignals::Attach(std::function<void()> stop,
                         std::function<void()> reload) {
  const std::lock_guard lock(mutex_);
  stop_ = std::move(stop);
  reload_ = std::move(reload);
  if (count_ > 0 && stop_) stop_();
}

void StopSignals::Count() {
  const std::lock_guard lock(mutex_);
  if (++count_ == kSignalsMax) _exit(kExitInterrupted);
  if (stop_) stop_();
}

void StopSignals::Reload() {
  const std::lock_guard lock(mutex_);
  if (reload_) reload_();
}

void StopSignals::Wait() {
  while (true) {
    pollfd items[] = {{signals_.get(), POLLIN, 0},
                      {end_.descriptor(), POLLIN, 0}};
    if (poll(items, 2, -1) < 0) continue;
    if (items[1].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signals_.get(), &info, sizeof info) != sizeof info) continue;
    info.ssi_signo == SIGHUP ? Reload() : Count();
  }
}

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
