// The workers of an agent, as its event loop sees them.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_AGENT_WORKERS_H_
#define GAVEL_COORDINATOR_AGENT_HOST_AGENT_WORKERS_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/agent/agent_machine.h"
#include "coordinator/agent_host/agent_checkpoints.h"
#include "coordinator/agent_host/agent_environment.h"
#include "coordinator/agent_host/agent_log.h"
#include "coordinator/agent_host/agent_process.h"
#include "coordinator/agent_host/agent_record.h"
#include "coordinator/agent_host/worker_outputs.h"
#include "runtime/files/worker_thread.h"

namespace gavel {

struct AgentWorkersOptions {
  std::string server;
  WorkerPlace place;  // what is the same for all
  std::string logs_directory;
  std::string ends_directory;  // see GAVEL_END_FILE; it is there
  LogLimits log_limits;
  double exec_limit_s = 10;
  std::function<void()> notify;
  std::shared_ptr<spdlog::logger> log;
  // Borrowed; must outlive this.
  AgentRecord* record = nullptr;
  WorkerKeys* keys = nullptr;               // null: connections have none
  AgentCheckpoints* checkpoints = nullptr;  // null: all servers share them
};

// The worker's process and all processes that it started are gone, and their
// output has been read.
struct WorkerEnded {
  ChildExit exit;
  std::string error_line;            // of its output; see WorkerExited
  std::optional<int> finished_code;  // see WorkerExited
};
using WorkerEvent = std::variant<ChildStarted, ChildNotStarted, WorkerEnded,
                                 LogReply, TerminalReply, TerminalWasUsed>;

// The workers of an agent, for its loop. Work that may wait for a disk, the
// user database or a program's file system runs on three threads: one prepares
// launches and keeps records, one owns the processes (Children), one
// their output (worker_outputs.h).
//
// Belongs to the agent's thread; only the destructor blocks. `notify` is called
// on other threads when TakeEvents has something; it must not block, nor call
// back.
class AgentWorkers {
 public:
  // The wait for a worker's last output. A log disk that hangs must not keep an
  // accelerator occupied.
  static constexpr double kOutputWait_s = 2;

  explicit AgentWorkers(AgentWorkersOptions options);
  // Kills what still runs, and waits for it.
  ~AgentWorkers();
  AgentWorkers(const AgentWorkers&) = delete;
  AgentWorkers& operator=(const AgentWorkers&) = delete;

  // One ChildStarted and WorkerEnded follow, or one ChildNotStarted. `cluster`:
  // whose job it is.
  void Launch(const LaunchWorker& launch, const std::string& cluster);
  void Signal(const WorkerKey& worker, int signal);
  void SignalAll(int signal);
  // All get the signal, and none is started any more.
  void End(int signal);

  // `running` is all that runs.
  void Record(std::vector<RunningWorker> running);
  // In this order, and after the launches before it.
  template <class Action>
  void DoCheckpoints(Action action) {
    if (options_.checkpoints == nullptr) return;
    tasks_.Post([this, action = std::move(action)] {
      options_.checkpoints->Do(action);
    });
  }

  // A LogReply follows.
  void ReadLog(const std::string& cluster, const LogRequest& request);
  // A TerminalReply follows.
  void Ask(const TerminalRequest& request) {
    outputs_.Ask(request, live_.contains(request.worker));
  }
  void Tell(const TerminalNotice& notice) {
    outputs_.TellTerminal(notice.worker, notice.text);
  }

  std::vector<WorkerEvent> TakeEvents(Time now);
  // TakeEvents is due then, whether notified or not.
  Time NextDeadline() const;

  // No worker runs or is being started.
  bool empty() const { return live_.empty(); }

 private:
  struct Draining {
    ChildExit exit;
    Time ends_at = 0;
  };

  void Prepare(const LaunchWorker& launch, const std::string& cluster);
  absl::Status TryPrepare(const LaunchWorker& launch,
                          const std::string& cluster);
  void Take(Time now, ChildEvent event, std::vector<WorkerEvent>* events);
  void Take(OutputEvent event, std::vector<WorkerEvent>* events);
  void ForgetKey(const WorkerKey& worker);
  std::string EndFileOf(const WorkerKey& worker) const;
  void FinishDrained(std::map<WorkerKey, Draining>::iterator it,
                     OutputEnded output, std::vector<WorkerEvent>* events);

  const AgentWorkersOptions options_;
  const std::map<std::string, std::string> own_environment_;
  std::set<WorkerKey> live_;
  std::map<WorkerKey, Draining> draining_;  // of live_
  std::mutex mutex_;                        // guards the two below
  std::vector<ChildEvent> not_prepared_;
  bool ending_ = false;
  // In the order in which they feed each other, the first feeder last.
  WorkerOutputs outputs_;
  Children children_;
  TaskThread tasks_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_AGENT_WORKERS_H_
