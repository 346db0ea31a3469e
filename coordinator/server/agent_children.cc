#include "coordinator/server/agent_children.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <utility>

namespace gavel {
namespace {

// Where no pidfd can be had, and while what it started dies.
constexpr double kPollInterval_s = 0.05;
constexpr double kLingerInterval_s = 0.005;

}  // namespace

Children::Children(std::function<void()> notify)
    : notify_(std::move(notify)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      stop_(eventfd(0, EFD_CLOEXEC)) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = stop_;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, stop_, &event);
  watcher_ = std::thread([this] { Watch(); });
}

Children::~Children() {
  SignalAll(SIGKILL);
  for (const auto& [worker, process] : processes_) {
    Wait(worker, process);
    // Its group is nobody's any more.
    KillRest({0, process.family.mark, process.family.start_time});
    if (process.descriptor >= 0) close(process.descriptor);
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_, &one, sizeof one);
  watcher_.join();
  close(stop_);
  close(epoll_);
}

void Children::Watch() {
  while (true) {
    epoll_event event{};
    const int ready = epoll_wait(epoll_, &event, 1, -1);
    if (ready < 0 && errno != EINTR) return;
    if (ready != 1) continue;
    if (event.data.fd == stop_) return;
    notify_();
  }
}

void Children::WatchFor(Process* process) const {
  // Not by <sys/pidfd.h>: that of glibc 2.36 is not made for C++.
  process->descriptor =
      static_cast<int>(syscall(SYS_pidfd_open, process->pid, 0));
  if (process->descriptor < 0) return;
  epoll_event event{};
  // Once: it stays readable until it is waited for.
  event.events = EPOLLIN | EPOLLONESHOT;
  event.data.fd = process->descriptor;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, process->descriptor, &event) == 0) {
    return;
  }
  close(process->descriptor);
  process->descriptor = -1;
}

absl::StatusOr<pid_t> Children::Start(const WorkerKey& worker,
                                      const ProcessSpec& spec) {
  absl::StatusOr<pid_t> pid = SpawnProcess(spec);
  if (!pid.ok()) return pid;
  Process process;
  process.pid = *pid;
  const std::optional<ProcessInfo> info = ReadProcessInfo(*pid);
  process.family = {*pid, spec.mark, info ? info->start_time : 0};
  WatchFor(&process);
  processes_.emplace(worker, process);
  return pid;
}

void Children::Signal(const WorkerKey& worker, int signal) {
  const auto it = processes_.find(worker);
  // It is not yet waited for, so neither pid nor group is another's.
  if (it != processes_.end()) kill(-it->second.pid, signal);
}

void Children::SignalAll(int signal) {
  for (const auto& [worker, process] : processes_) kill(-process.pid, signal);
}

bool Children::Ended(Process& process) const {
  siginfo_t info{};
  const int result = waitid(P_PID, static_cast<id_t>(process.pid), &info,
                            WEXITED | WNOHANG | WNOWAIT);
  if (result == 0 && info.si_pid == 0) return false;
  // The zombie keeps the group's id until it is waited for.
  process.lingers = KillRest(process.family);
  return !process.lingers;
}

ChildExit Children::Wait(const WorkerKey& worker, const Process& process) {
  int status = 0;
  while (waitpid(process.pid, &status, 0) < 0 && errno == EINTR) {
  }
  ChildExit exit{worker, 0, 0};
  if (WIFSIGNALED(status)) {
    exit.signal = WTERMSIG(status);
  } else {
    exit.exit_code = WEXITSTATUS(status);
  }
  return exit;
}

std::vector<ChildExit> Children::Reap() {
  std::vector<ChildExit> exits;
  for (auto it = processes_.begin(); it != processes_.end();) {
    Process& process = it->second;
    if (!Ended(process)) {
      ++it;
      continue;
    }
    exits.push_back(Wait(it->first, process));
    if (process.descriptor >= 0) close(process.descriptor);
    it = processes_.erase(it);
  }
  return exits;
}

double Children::ReapInterval() const {
  double interval_s = kNever;
  for (const auto& [worker, process] : processes_) {
    if (process.descriptor < 0)
      interval_s = std::min(interval_s, kPollInterval_s);
    if (process.lingers) interval_s = std::min(interval_s, kLingerInterval_s);
  }
  return interval_s;
}

bool Children::Runs(const WorkerId& worker) const {
  return std::ranges::any_of(processes_, [&](const auto& entry) {
    return entry.first.worker() == worker;
  });
}

}  // namespace gavel
