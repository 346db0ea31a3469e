// The processes of an agent: starting one (ForkProcess), and the thread that
// starts processes and waits for them (Children).
#ifndef GAVEL_COORDINATOR_AGENT_HOST_AGENT_PROCESS_H_
#define GAVEL_COORDINATOR_AGENT_HOST_AGENT_PROCESS_H_

#include <sys/epoll.h>
#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/agent_host/agent_environment.h"
#include "coordinator/agent_host/agent_record.h"
#include "core/ids.h"
#include "core/units.h"
#include "runtime/files/files.h"

namespace gavel {

// Starts one process: exec of argv, never a shell. Only the new process touches
// the job's directory and program, whose file system may hang. Stateless; the
// process dies with the thread that started it (PR_SET_PDEATHSIG), so that no
// agent leaves orphans.

struct ProcessSpec {
  // argv[0] with a slash is a path, from `working_directory` if it is relative;
  // without one it is looked up in the PATH of `environment`.
  std::vector<std::string> argv;
  std::string working_directory;         // empty: the agent's own
  std::vector<std::string> environment;  // all of it, as NAME=value
  // An entry of `environment` that is unique to this process: a process that
  // has it too was started by this one. Empty: none.
  std::string mark;
  // stdout and stderr are appended to it; created 0600. Not with `output`.
  std::string output_path;
  int output = -1;  // gets them instead; borrowed until the fork
  // `output` is a terminal: also stdin, and the controlling one of the session.
  // SIGTERM comes with SIGHUP, as shells ignore the former.
  bool terminal = false;
  // The user to change to before anything of the job is touched; nothing: this
  // process's user.
  std::optional<UnixAccount> account;
  // A file of NAME=VALUE lines, which the new process reads, as that user, and
  // adds to its environment; what `environment` has stays as it is. Empty
  // lines, and those that begin with #, count for nothing. Empty: no file.
  std::string env_file = "";
};
inline constexpr size_t kEnvFileBytesMax = 64 * 1024;
inline constexpr size_t kEnvFileVariablesMax = 1024;

// A new process on its way to exec.
struct ForkedProcess {
  pid_t pid = 0;
  // Readable once it has come to exec, has failed to, or is gone.
  Descriptor news;
};

// Does not wait for exec. The process leads a session and group of its own, has
// default signal handlers, umask 022, no core dumps (its key would be in them),
// /dev/null as stdin unless it has a terminal, and no other descriptor of ours,
// also before exec.
//
// Errors: INVALID_ARGUMENT (argv is empty), RESOURCE_EXHAUSTED (no process,
// memory or descriptor left), and those of opening `output_path`.
absl::StatusOr<ForkedProcess> ForkProcess(const ProcessSpec& spec);

// Does not block. Nothing: exec is still to come. OK: exec has happened, or the
// process was killed before it (waitpid tells which). Else the process ends
// without running the program, with an error for the user and its remedy:
// NOT_FOUND (no such program or directory), PERMISSION_DENIED (not executable),
// FAILED_PRECONDITION (not a program for this machine) and others.
//
// After SIGKILL a process that has not reached exec never runs the program.
std::optional<absl::Status> ExecResult(const ProcessSpec& spec,
                                       const ForkedProcess& process);

// ForkProcess and ExecResult in one, for commands that may block: waits at most
// 10 s for exec (DEADLINE_EXCEEDED), and for the end of a process that failed.
absl::StatusOr<pid_t> SpawnProcess(const ProcessSpec& spec);

// Where exec looks for argv[0], in this order.
std::vector<std::string> ProgramCandidates(const ProcessSpec& spec);

// The exchange between an event loop and a thread that waits for descriptors:
// requests go to the thread, events come back. Children and WorkerOutputs each
// own a mailbox and its thread. Only the thread calls Watch, Unwatch, Wait and
// IsOver; the rest is thread-safe.
template <class Request, class Event>
class Mailbox {
 public:
  // `notify` is called by Tell; it must not block, nor call back.
  explicit Mailbox(std::function<void()> notify) : notify_(std::move(notify)) {
    Watch(waker_.descriptor(), EPOLLIN);
  }

  void Post(Request request) {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(std::move(request));
    }
    waker_.Wake();
  }
  // The thread ends after it has processed all posted requests.
  void Stop() {
    stopping_ = true;
    waker_.Wake();
  }

  void Tell(Event event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    notify_();
  }
  // In the order in which they were told.
  std::vector<Event> TakeEvents() {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }

  // `events`: of epoll_ctl(2). False: the descriptor can't be watched.
  bool Watch(int descriptor, uint32_t events) const {
    epoll_event event{};
    event.events = events;
    event.data.fd = descriptor;
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
  }
  void Unwatch(int descriptor) const {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
  }

  // Waits for a request, a descriptor or the time, and takes the requests.
  std::vector<Request> Wait(double wait_s) {
    epoll_event event{};
    epoll_wait(epoll_.get(), &event, 1, Milliseconds(wait_s));
    waker_.Clear();
    const std::lock_guard lock(mutex_);
    return std::exchange(requests_, {});
  }
  // It was stopped, and nothing waits.
  bool IsOver() {
    const std::lock_guard lock(mutex_);
    return stopping_ && requests_.empty();
  }

 private:
  static int Milliseconds(double wait_s) {
    const double wait_ms = std::ceil(wait_s * 1000);
    return wait_ms > std::numeric_limits<int>::max()
               ? -1
               : static_cast<int>(wait_ms);
  }

  const std::function<void()> notify_;
  const Descriptor epoll_{epoll_create1(EPOLL_CLOEXEC)};
  Waker waker_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;  // guards the two below
  std::vector<Request> requests_;
  std::vector<Event> events_;
};

struct ChildStarted {
  WorkerKey worker;
  pid_t pid = 0;
};
struct ChildNotStarted {
  WorkerKey worker;
  std::string error;  // for the user
  // It did not come to exec in time, and never will.
  bool hung = false;
};
// The worker's process and all processes that it started have ended.
struct ChildExit {
  WorkerKey worker;
  int exit_code = 0;  // 0 when a signal ended it
  int signal = 0;     // 0: it ended by itself
};
// "exit code 1", "killed by signal 9", "left with its state saved (75)".
std::string ExitText(const ChildExit& exit);
using ChildEvent = std::variant<ChildStarted, ChildNotStarted, ChildExit>;

// The processes of an agent: each leads a process group of its own. Waits for
// those alone, so that a host program's other children are left in peace.
//
// Thread-safe: forks, waits and looks for what a process left behind are done
// on a thread inside, which a program's file system can't stop either, since
// only the new process touches it. `notify` is called there when TakeEvents has
// something; it must not block, nor call back.
class Children {
 public:
  // Processes of one user that hang before exec: with so many, the next ones
  // are not started, so that their number is bounded.
  static constexpr int kHungOfOneUserMax = 16;

  // A process that has not come to exec after `exec_limit_s` is killed and
  // given up: whatever holds it, it does not run any more.
  Children(std::function<void()> notify, double exec_limit_s);
  // Kills what still runs, and waits for it.
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  // One ChildStarted and ChildExit follow, or one ChildNotStarted. `worker` has
  // no process here yet. `output` is that of `spec`.
  void Start(const WorkerKey& worker, ProcessSpec spec, Descriptor output);

  // To the whole group; nothing when it has ended.
  void Signal(const WorkerKey& worker, int signal);
  void SignalAll(int signal);

  // In the order in which they happened.
  std::vector<ChildEvent> TakeEvents() { return mailbox_.TakeEvents(); }

 private:
  struct Process {
    ProcessSpec spec;
    pid_t pid = 0;
    std::optional<ForkedProcess> on_its_way;  // until exec
    double exec_by = 0;
    bool hung = false;  // it was killed, having had its time
    ProcessFamily family;
    Descriptor descriptor;  // pidfd; not open: none could be had; it is polled
    double ended_at = kNever;  // but what it started may not have
  };
  // It will not run, and is waited for only to be forgotten.
  struct Abandoned {
    pid_t pid = 0;
    Descriptor descriptor;
    std::optional<std::string> user;  // of those that hang; else it just ends
  };

  struct StartRequest {
    WorkerKey worker;
    ProcessSpec spec;
    Descriptor output;
  };
  struct SignalRequest {
    std::optional<WorkerKey> worker;  // nothing: all
    int signal = 0;
  };
  using Request = std::variant<StartRequest, SignalRequest>;

  void Work();
  void CarryOut(StartRequest request);
  void CarryOut(const SignalRequest& request);
  double WaitTime() const;
  Descriptor WatchProcess(pid_t pid) const;
  bool HangTooMany(const std::string& user) const;
  // True when it is over and told.
  bool Look(const WorkerKey& worker, Process& process);
  bool LookForExec(const WorkerKey& worker, Process& process);
  bool LookForEnd(const WorkerKey& worker, Process& process);
  void TellEnd(const WorkerKey& worker, const Process& process);

  const double exec_limit_s_;
  // Used by the inner thread alone.
  std::map<WorkerKey, Process> processes_;
  std::vector<Abandoned> abandoned_;

  Mailbox<Request, ChildEvent> mailbox_;
  std::thread thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_AGENT_PROCESS_H_
