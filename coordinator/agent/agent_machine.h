// The decisions of a server's agent: which processes to start, which signals to
// send, and what to report to the coordinator. coordinator/agent_host is the
// shell that forks, waits and speaks ZeroMQ; tests/simulation drives this
// machine with virtual processes. Not thread-safe.
#ifndef GAVEL_COORDINATOR_AGENT_AGENT_MACHINE_H_
#define GAVEL_COORDINATOR_AGENT_AGENT_MACHINE_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel {

namespace agent_event {
// First event. `swept`: workers recorded by an earlier agent of this server;
// the shell has killed each of them and seen it gone before this event.
struct Started {
  std::vector<RunningWorker> swept;
};
struct MessageReceived {
  Message message;  // AgentWelcome, AgentRejected, LaunchWorker, StopWorker,
                    // ExitAcknowledged, PrefetchCheckpoint, ServeCheckpoint;
                    // others are ignored
};
struct ProcessStarted {
  WorkerKey worker;
  int64_t pid = 0;
};
struct ProcessNotStarted {
  WorkerKey worker;
  std::string error;
  bool hung = false;  // see WorkerExited::launch_hung
};
struct ProcessExited {
  WorkerKey worker;
  int exit_code = 0;
  int signal = 0;
  std::string error_line = {};            // see WorkerExited
  std::optional<int> finished_code = {};  // see WorkerExited
};
// A fetch is over. `error` empty: the checkpoint is here.
struct CheckpointFetched {
  JobId job;
  std::string error;
};
// The progress of a stream; about once a second.
struct CheckpointComing {
  JobId job;
  std::string source;
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;  // 0: not known yet
  std::string waits_for;     // why nothing comes at present
};
// The agent is to end: its workers are to leave first. `gone`: they have.
struct Leaving {
  bool gone = false;
};
// A new reading of the accelerators' health. The next heartbeat reports it.
struct HealthRead {
  std::vector<AcceleratorHealth> health;
};
// The terminal of a worker had input or output.
struct TerminalUsed {
  WorkerKey worker;
};
struct Tick {};
}  // namespace agent_event

using AgentEvent =
    std::variant<agent_event::Started, agent_event::MessageReceived,
                 agent_event::ProcessStarted, agent_event::ProcessNotStarted,
                 agent_event::ProcessExited, agent_event::CheckpointFetched,
                 agent_event::CheckpointComing, agent_event::Leaving,
                 agent_event::HealthRead, agent_event::TerminalUsed,
                 agent_event::Tick>;

namespace agent_action {
struct Send {
  Message message;
};
// Spawn and answer with ProcessStarted or ProcessNotStarted.
struct Spawn {
  LaunchWorker launch;
};
// To the process and its whole group.
struct SignalProcess {
  WorkerKey worker;
  int64_t pid = 0;
  int signal = 0;
};
// Write down who runs, so that a restarted agent can sweep.
struct RecordRunning {
  std::vector<RunningWorker> running;
};
// Get the job's latest checkpoint, and answer with CheckpointFetched. Again for
// the same job: go on, from that source, with the latest that it has now.
struct FetchCheckpoint {
  JobId job;
  std::string directory;
  CheckpointSource source;
  std::string unix_user;
};
struct CancelFetch {
  JobId job;
};
// Another agent may read the job's checkpoints.
struct OfferCheckpoint {
  JobId job;
  std::string directory;
  std::string reader_public_key;
  std::string unix_user;
};
// The coordinator does not want this agent (duplicate name, version): kill all
// workers, print the reason, end.
struct Quit {
  std::string reason;
};
}  // namespace agent_action

using AgentAction =
    std::variant<agent_action::Send, agent_action::Spawn,
                 agent_action::SignalProcess, agent_action::RecordRunning,
                 agent_action::FetchCheckpoint, agent_action::CancelFetch,
                 agent_action::OfferCheckpoint, agent_action::Quit>;
using AgentActions = std::vector<AgentAction>;

struct AgentOptions {
  std::string server;        // [A-Za-z0-9_-]{1,64}
  uint64_t incarnation = 0;  // rises with each start of the agent
  std::string address = "127.0.0.1";
  std::vector<AcceleratorInfo> accelerators;
  uint64_t host_memory_bytes = 0;  // for parked jobs; 0: no budget
  std::string state_id = "";       // see AgentHello
  // See AgentHello.
  bool own_checkpoints = false;
  std::string stream_endpoint = "";
  std::string stream_public_key = "";
  std::string rack = "";
};

class AgentMachine {
 public:
  explicit AgentMachine(AgentOptions options);

  // `now` never falls. Actions are to be carried out in order. Messages for
  // another server or of a lower term do nothing.
  AgentActions Step(Time now, const AgentEvent& event);
  // When Step(Tick) is due: then it does something, and the next deadline is
  // later. A Tick before it is harmless.
  Time NextDeadline() const;

  // The workers that run here now, in the order of their keys.
  std::vector<RunningWorker> Running() const;
  // The cluster id of the coordinator that last welcomed this agent. It is
  // empty when there was none, or when that coordinator sends no id.
  const std::string& cluster_id() const { return cluster_id_; }
  // The coordinator knows of it, as far as it can tell.
  bool welcomed() const { return welcomed_; }
  // True when every process is gone (for an orderly end).
  bool Idle() const { return processes_.empty() && waiting_.empty(); }

 private:
  struct Process {
    int64_t pid = 0;        // 0: spawn asked for, not yet answered
    bool stopping = false;  // SIGTERM was sent, or is due when it has started
    bool killed = false;    // SIGKILL was sent
    double grace_s = 0;     // of the stop, while not yet started
    Time kill_at = kNever;
  };

  void On(const agent_event::Started& e);
  void On(const agent_event::MessageReceived& e);
  void On(const agent_event::ProcessStarted& e);
  void On(const agent_event::ProcessNotStarted& e);
  void On(const agent_event::ProcessExited& e);
  void On(const agent_event::CheckpointFetched& e);
  void On(const agent_event::CheckpointComing& e);
  void On(const agent_event::Leaving& e);
  void On(const agent_event::HealthRead& e);
  void On(const agent_event::TerminalUsed& e);
  void On(const agent_event::Tick& e);

  // `message` is for this server and not of a lower term.
  void Take(const AgentWelcome& welcome);
  void Take(const AgentRejected& rejected);
  void Take(const LaunchWorker& launch);
  void Take(const StopWorker& stop);
  void Take(const PrefetchCheckpoint& prefetch);
  void Take(const ServeCheckpoint& serve);

  void TellWhatIsDue();
  bool Listens(const std::string& server, const JournalPosition& position,
               bool is_welcome);
  bool MayStart(const WorkerKey& worker) const;
  void NoteIncarnation(const WorkerKey& worker);
  bool KillOlder(const WorkerId& worker);
  void Start(const LaunchWorker& launch);
  void Fetch(const LaunchWorker& launch);
  void StopFetching(const WorkerKey& worker);
  void StartWaiting(const WorkerId& worker);
  void Stop(const WorkerKey& worker, Process& process, double grace_s);
  void Kill(const WorkerKey& worker, Process& process);
  WorkerExited ExitOf(const WorkerKey& worker) const;
  // The report of a worker that never ran, which is no failure of the worker.
  WorkerExited NotStarted(const WorkerKey& worker, std::string_view why) const;
  bool TellWhatIsKnown(const WorkerKey& worker);
  void TellExit(WorkerExited exit);
  void SayHello();
  void SayLeaving(bool gone);
  void Record();
  void Send(Message message);

  AgentOptions options_;
  // The time and the actions of the current step.
  Time now_ = 0;
  AgentActions actions_;
  JournalPosition highest_seen_;
  double heartbeat_interval_s_ = 1;
  bool started_ = false;
  bool quitting_ = false;
  bool welcomed_ = false;
  bool leaving_ = false;
  bool known_ = false;        // was welcomed at least once
  JournalPosition known_at_;  // of the first welcome
  std::string cluster_id_;
  Time next_hello_ = 0;
  Time next_heartbeat_ = 0;
  Time next_exit_report_ = 0;
  Time next_leaving_ = 0;
  std::vector<AcceleratorHealth> health_;  // yet to be told
  std::map<WorkerKey, Process> processes_;
  // Launches in processes_ that wait for their checkpoint.
  std::map<WorkerKey, LaunchWorker> fetching_;
  // Launches that wait for an older incarnation to be gone.
  std::map<WorkerId, LaunchWorker> waiting_;
  std::map<WorkerKey, WorkerExited> unacknowledged_;
  // Highest incarnation launched or stopped: none at or below it starts again.
  std::map<WorkerId, uint64_t> highest_incarnation_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_AGENT_MACHINE_H_
