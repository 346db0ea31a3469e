#include "coordinator/agent_host/agent_children.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <iterator>
#include <utility>

#include "core/messages.h"
#include "core/text.h"
#include "runtime/stopwatch.h"

namespace gavel {
namespace {

// Where no pidfd can be had, and while what it started dies.
constexpr double kPollInterval_s = 0.05;
constexpr double kLingerInterval_s = 0.005;
// A descriptor stays readable until its process is waited for.
constexpr uint32_t kOnce = EPOLLIN | EPOLLONESHOT;

std::string UserOfSpec(const ProcessSpec& spec) {
  return spec.account.has_value() ? spec.account->name : "";
}

std::string HungText(const ProcessSpec& spec, double limit_s) {
  // A program by its name alone is looked for in PATH.
  const std::string& program = spec.argv.front();
  const std::string directory =
      spec.working_directory.empty()
          ? ""
          : StrCat(" or of ", spec.working_directory, " (working_directory)");
  return StrCat(program, ": did not come to run within ", limit_s,
                " s; does the file system of the program", directory,
                " hang? See that ",
                directory.empty() ? "it answers" : "both answer",
                " on this server, or correct the job file");
}

std::string TooManyHangText(const ProcessSpec& spec) {
  return StrCat(
      spec.argv.front(), ": not started: ", Children::kHungOfOneUserMax,
      " processes of the same user hang on this server before they run; see "
      "that their working directories and programs are on file systems that "
      "answer");
}

}  // namespace

std::string ExitText(const ChildExit& exit) {
  if (exit.signal != 0) return StrCat("killed by signal ", exit.signal);
  if (exit.exit_code == kExitEvicted) {
    return StrCat("left with its state saved (", exit.exit_code, ")");
  }
  return StrCat("exit code ", exit.exit_code);
}

Children::Children(std::function<void()> notify, double exec_limit_s)
    : exec_limit_s_(exec_limit_s),
      mailbox_(std::move(notify)),
      thread_([this] { Work(); }) {}

Children::~Children() {
  SignalAll(SIGKILL);
  mailbox_.Stop();
  thread_.join();
}

void Children::Start(const WorkerKey& worker, ProcessSpec spec,
                     Descriptor output) {
  mailbox_.Post(StartRequest{worker, std::move(spec), std::move(output)});
}

void Children::Signal(const WorkerKey& worker, int signal) {
  mailbox_.Post(SignalRequest{worker, signal});
}

void Children::SignalAll(int signal) {
  mailbox_.Post(SignalRequest{std::nullopt, signal});
}

void Children::Work() {
  // Whatever happens wakes it; all processes are looked at then, a server's
  // few.
  while (!mailbox_.IsOver() || !processes_.empty()) {
    for (Request& request : mailbox_.Wait(WaitTime())) {
      std::visit([this](auto& r) { CarryOut(std::move(r)); }, request);
    }
    for (auto it = processes_.begin(); it != processes_.end();) {
      it = Look(it->first, it->second) ? processes_.erase(it) : std::next(it);
    }
    // What hangs dies with this thread, should it ever get to.
    std::erase_if(abandoned_, [](const Abandoned& process) {
      return waitpid(process.pid, nullptr, WNOHANG) != 0;
    });
  }
}

double Children::WaitTime() const {
  double wait_s = kNever;
  for (const auto& [worker, process] : processes_) {
    if (process.on_its_way.has_value()) {
      wait_s =
          std::min(wait_s, std::max(0.0, process.exec_by - MonotonicNow()));
    }
    if (process.descriptor.get() < 0)
      wait_s = std::min(wait_s, kPollInterval_s);
    if (process.ended_at != kNever)
      wait_s = std::min(wait_s, kLingerInterval_s);
  }
  for (const Abandoned& process : abandoned_) {
    if (process.descriptor.get() < 0)
      wait_s = std::min(wait_s, kPollInterval_s);
  }
  return wait_s;
}

Descriptor Children::WatchProcess(pid_t pid) const {
  // Not by <sys/pidfd.h>: that of glibc 2.36 is not made for C++.
  Descriptor descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!mailbox_.Watch(descriptor.get(), kOnce)) descriptor.Close();
  return descriptor;
}

bool Children::HangTooMany(const std::string& user) const {
  return std::ranges::count_if(abandoned_, [&](const Abandoned& process) {
           return process.user == user;
         }) >= kHungOfOneUserMax;
}

void Children::CarryOut(StartRequest request) {
  ProcessSpec& spec = request.spec;
  if (HangTooMany(UserOfSpec(spec))) {
    return mailbox_.Tell(
        ChildNotStarted{request.worker, TooManyHangText(spec), true});
  }
  absl::StatusOr<ForkedProcess> forked = ForkProcess(spec);
  if (!forked.ok()) {
    return mailbox_.Tell(ChildNotStarted{
        request.worker, std::string(forked.status().message())});
  }
  Process process;
  process.pid = forked->pid;
  process.exec_by = MonotonicNow() + exec_limit_s_;
  process.descriptor = WatchProcess(process.pid);
  const std::optional<ProcessInfo> info = ReadProcessInfo(process.pid);
  process.family = {process.pid, spec.mark, info ? info->start_time : 0,
                    spec.account.has_value() ? spec.account->uid : geteuid()};
  process.spec = std::move(spec);
  process.on_its_way.emplace(*std::move(forked));
  mailbox_.Watch(process.on_its_way->news.get(), kOnce);
  processes_.emplace(request.worker, std::move(process));
}

// None is waited for before it is forgotten, so neither pid nor group is
// another's. One that has not yet made its group gets the signal itself.
void Children::CarryOut(const SignalRequest& request) {
  for (auto& [worker, process] : processes_) {
    if (request.worker.has_value() && worker != *request.worker) continue;
    // Nobody waits for it to come to exec any more.
    if (request.signal == SIGKILL) process.exec_by = 0;
    if (kill(-process.pid, request.signal) != 0) {
      kill(process.pid, request.signal);
    }
  }
}

bool Children::Look(const WorkerKey& worker, Process& process) {
  if (process.on_its_way.has_value() && LookForExec(worker, process)) {
    abandoned_.push_back({process.pid, std::move(process.descriptor),
                          process.hung ? std::optional(UserOfSpec(process.spec))
                                       : std::nullopt});
    return true;
  }
  return !process.on_its_way.has_value() && LookForEnd(worker, process);
}

// True: it will not run. That it was killed first and found still on its way
// afterwards is what makes sure of it.
bool Children::LookForExec(const WorkerKey& worker, Process& process) {
  std::optional<absl::Status> result =
      ExecResult(process.spec, *process.on_its_way);
  // Not one that ran long ago, where it is this thread that stood still.
  if (!result.has_value() && !process.hung &&
      MonotonicNow() >= process.exec_by) {
    process.hung = true;
    if (kill(-process.pid, SIGKILL) != 0) kill(process.pid, SIGKILL);
    result = ExecResult(process.spec, *process.on_its_way);
  }
  if (!result.has_value()) {
    if (!process.hung) return false;
    mailbox_.Tell(
        ChildNotStarted{worker, HungText(process.spec, exec_limit_s_), true});
    return true;
  }
  if (!result->ok()) {
    mailbox_.Tell(ChildNotStarted{worker, std::string(result->message())});
    return true;
  }
  process.on_its_way.reset();
  if (!process.hung) mailbox_.Tell(ChildStarted{worker, process.pid});
  return false;
}

bool Children::LookForEnd(const WorkerKey& worker, Process& process) {
  siginfo_t info{};
  const int result = waitid(P_PID, static_cast<id_t>(process.pid), &info,
                            WEXITED | WNOHANG | WNOWAIT);
  if (result == 0 && info.si_pid == 0) return false;
  // The zombie keeps the group's id until it is waited for.
  process.ended_at = std::min(process.ended_at, MonotonicNow());
  const FamilyRest rest = KillRest(process.family);
  const bool marked_count = MonotonicNow() < process.ended_at + kMarkedWait_s;
  if (rest.in_group || (rest.marked && marked_count)) return false;
  TellEnd(worker, process);
  return true;
}

void Children::TellEnd(const WorkerKey& worker, const Process& process) {
  int status = 0;
  waitpid(process.pid, &status, WNOHANG);
  if (process.hung) {
    return mailbox_.Tell(
        ChildNotStarted{worker, HungText(process.spec, exec_limit_s_), true});
  }
  ChildExit exit{worker, 0, 0};
  if (WIFSIGNALED(status)) {
    exit.signal = WTERMSIG(status);
  } else {
    exit.exit_code = WEXITSTATUS(status);
  }
  mailbox_.Tell(exit);
}

}  // namespace gavel
