// The processes of an agent: each leads a process group of its own. Waits for
// those alone, so that a host program's other children are left in peace.
// Belongs to the agent's thread; one more thread sleeps inside until a process
// ends, and then calls `notify`.
#ifndef GAVEL_COORDINATOR_SERVER_AGENT_CHILDREN_H_
#define GAVEL_COORDINATOR_SERVER_AGENT_CHILDREN_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/server/agent_process.h"
#include "coordinator/server/agent_process_info.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel {

struct ChildExit {
  WorkerKey worker;
  int exit_code = 0;  // 0 when a signal ended it
  int signal = 0;     // 0: it ended by itself
};

class Children {
 public:
  // `notify` is called on the inner thread when Reap has something to do.
  explicit Children(std::function<void()> notify);
  // Kills what still runs, and waits for it.
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  // As SpawnProcess. `worker` has no process here yet.
  absl::StatusOr<pid_t> Start(const WorkerKey& worker, const ProcessSpec& spec);

  // To the whole group; nothing when it has ended.
  void Signal(const WorkerKey& worker, int signal);
  void SignalAll(int signal);

  // Those that ended since the last call. A process has ended when nothing of
  // its group or with its mark runs any more: what it leaves behind is killed.
  std::vector<ChildExit> Reap();
  // Call Reap again after this long, whether notified or not.
  double ReapInterval() const;

  bool Runs(const WorkerId& worker) const;
  bool empty() const { return processes_.empty(); }

 private:
  struct Process {
    pid_t pid = 0;
    ProcessFamily family;
    int descriptor = -1;   // pidfd; -1: none could be had, so it is polled
    bool lingers = false;  // ended, but what it started has not
  };
  void Watch();
  void WatchFor(Process* process) const;
  bool Ended(Process& process) const;
  static ChildExit Wait(const WorkerKey& worker, const Process& process);

  const std::function<void()> notify_;
  const int epoll_;
  const int stop_;  // eventfd
  std::map<WorkerKey, Process> processes_;
  std::thread watcher_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_AGENT_CHILDREN_H_
