// The processes of an agent: each leads a process group of its own. Waits for
// those alone, so that a host program's other children are left in peace.
//
// Thread-safe: forks, waits and looks for what a process left behind are done
// on a thread inside, which a program's file system can't stop either, since
// only the new process touches it. `notify` is called there when TakeEvents has
// something; it must not block, nor call back.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_AGENT_CHILDREN_H_
#define GAVEL_COORDINATOR_AGENT_HOST_AGENT_CHILDREN_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/agent_host/agent_process.h"
#include "coordinator/agent_host/agent_process_info.h"
#include "coordinator/agent_host/mailbox.h"
#include "core/ids.h"
#include "core/units.h"
#include "runtime/descriptor.h"

namespace gavel {

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
// It and what it started have ended.
struct ChildExit {
  WorkerKey worker;
  int exit_code = 0;  // 0 when a signal ended it
  int signal = 0;     // 0: it ended by itself
};
// "exit code 1", "killed by signal 9", "left with its state saved (75)".
std::string ExitText(const ChildExit& exit);
using ChildEvent = std::variant<ChildStarted, ChildNotStarted, ChildExit>;

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
  // Of the thread inside.
  std::map<WorkerKey, Process> processes_;
  std::vector<Abandoned> abandoned_;

  Mailbox<Request, ChildEvent> mailbox_;
  std::thread thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_AGENT_CHILDREN_H_
