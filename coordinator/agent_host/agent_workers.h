// The workers of an agent, as its event loop sees them (AgentWorkers); their
// output: the channel from a worker to its agent (OutputChannel), and the
// thread that drains the channels into logs and serves the logs
// (WorkerOutputs); and the terminals of interactive jobs (WorkerTerminal).
#ifndef GAVEL_COORDINATOR_AGENT_HOST_AGENT_WORKERS_H_
#define GAVEL_COORDINATOR_AGENT_HOST_AGENT_WORKERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/agent/agent_machine.h"
#include "coordinator/agent_host/agent_checkpoints.h"
#include "coordinator/agent_host/agent_environment.h"
#include "coordinator/agent_host/agent_log.h"
#include "coordinator/agent_host/agent_process.h"
#include "coordinator/agent_host/agent_record.h"
#include "core/messages.h"
#include "core/units.h"
#include "runtime/files/files.h"
#include "runtime/files/worker_thread.h"

namespace spdlog {
class logger;
}

namespace gavel {

// The terminal of an interactive job, between the process and the attached
// client. Each request from the client gives credit for one answer, so a slow
// client holds up the program, and not the agent. Without a client output
// goes on, and its end is kept for the next one.
//
// Used by the thread of WorkerOutputs. `now` comes from one clock, and never
// falls; `terminal` is the non-blocking descriptor of the agent's end.
class WorkerTerminal {
 public:
  // Output that a client has not read: beyond, the program has to wait.
  static constexpr size_t kUnreadBytesMax = 32 * 1024;
  // Output that is kept, with a client and without one.
  static constexpr size_t kKeptBytesMax = 128 * 1024;
  static constexpr size_t kKeptAloneBytesMax = 16 * 1024;
  // A request is answered after this long, output or not.
  static constexpr double kAnswer_s = 1;
  // A client that has not asked for this long is gone.
  static constexpr double kClientGone_s = 5;
  static constexpr double kActiveInterval_s = 5;
  // The first client comes within this time, or there is none.
  static constexpr double kFirstClient_s = 5;

  // The process starts at `now`.
  WorkerTerminal(const WorkerKey& worker, Time now)
      : worker_(worker), began_at_(now) {}

  // False: the client is behind, or is yet to come, so the program has to wait.
  bool MayRead(Time now) const;
  // The program has written this.
  void Add(Time now, std::string_view output);
  // Shows a line of the coordinator's.
  void Tell(std::string_view text);
  // The process is gone, and all that it wrote was added.
  void End() { ended_ = true; }

  // Takes a request, and writes its input. The answers are to this or an
  // earlier one; that to this one may come later, through Answer.
  std::vector<TerminalReply> Ask(Time now, int terminal,
                                 TerminalRequest request);
  std::optional<TerminalReply> Answer(Time now);
  // Writes input that did not fit before. False: some is left.
  bool WriteInput(int terminal);

  // It was used since the last call that returned true, which was at least
  // kActiveInterval_s ago.
  bool TakeActive(Time now);
  // When Answer or TakeActive has something without a further event.
  Time NextDeadline() const;

 private:
  // There is one, or one may still come for the beginning of the output.
  bool HasClient(Time now) const {
    return client_ != 0 ? now < asked_at_ + kClientGone_s
                        : now < began_at_ + kFirstClient_s;
  }
  uint64_t end() const { return begin_ + kept_.size(); }
  void SetWindow(int terminal, int rows, int columns);
  TerminalReply ReplyTo(const TerminalRequest& request) const;

  const WorkerKey worker_;
  const Time began_at_;
  std::string kept_;
  uint64_t begin_ = 0;  // bytes of output before `kept_`
  uint64_t read_ = 0;   // bytes that the client has
  std::string input_;   // that the terminal has yet to take
  uint64_t input_end_ = 0;
  uint64_t client_ = 0;  // 0: none yet
  Time asked_at_ = 0;    // by the client
  std::optional<TerminalRequest> waiting_;
  int rows_ = 0, columns_ = 0;
  bool used_ = false;
  Time told_active_at_ = -kNever;
  bool ended_ = false;
};

// The channel between a worker's stdout and stderr and its agent. It is a
// pseudo-terminal, since C libraries, Python and others write to a terminal
// line by line, and to a file or pipe in blocks that a reader of the log would
// see minutes later. Stateless, thread-safe.
struct OutputChannel {
  Descriptor reader;  // non-blocking; EIO or 0 bytes: all writers are gone
  Descriptor writer;
};

// Bytes arrive unchanged. The terminal is not a controlling one, so no signal
// comes from it. Where there is no free pseudo-terminal it is a pipe. The
// writer belongs to `account`, which can open /dev/stdout that way.
absl::StatusOr<OutputChannel> OpenOutputChannel(
    const std::optional<UnixAccount>& account);
// The same for a process with a terminal (ProcessSpec::terminal), which is as
// people expect one: it echoes input, and has lines and signals.
// RESOURCE_EXHAUSTED: no pseudo-terminal is free.
absl::StatusOr<OutputChannel> OpenTerminalChannel(
    const std::optional<UnixAccount>& account);

struct WorkerOutputsOptions {
  std::string logs_directory;  // it is there
  LogLimits limits;
  std::function<void()> notify;
  std::shared_ptr<spdlog::logger> log;  // null: none
};

// All that a worker wrote is in its log.
struct OutputEnded {
  WorkerKey worker;
  std::string error_line = {};            // see WorkerExited
  std::optional<int> finished_code = {};  // see WorkerExited
};
// The terminal of a worker had input or output.
struct TerminalWasUsed {
  WorkerKey worker;
};
using OutputEvent =
    std::variant<OutputEnded, LogReply, TerminalReply, TerminalWasUsed>;

// The file in which the session of a process of `account`, or of this user,
// leaves its WorkerFinished::exit_code for the agent.
absl::Status MakeEndFile(const std::string& path,
                         const std::optional<UnixAccount>& account);

// Drains the output of a server's workers from their channels into their logs,
// and serves the logs. It has a thread of its own, so that a hung disk delays
// only the workers that write.
//
// Thread-safe. `notify` is called on the thread when TakeEvents has something;
// it must not block, nor call back.
class WorkerOutputs {
 public:
  // This much of the end of a worker's output is searched for an error.
  static constexpr size_t kTailBytes = 16 * 1024;
  // After the end of a worker's processes, the remaining output is read for
  // this long. Another process may keep the channel open.
  static constexpr double kDrain_s = 0.5;
  // Terminals whose process is gone, and whose end a client may yet read.
  static constexpr size_t kEndedTerminalsMax = 16;
  // Requests that wait; more get an error at once.
  static constexpr size_t kReadsMax = 256;
  static constexpr double kPruneInterval_s = 600;
  // Pruned also when this part of LogLimits::total_bytes was written since.
  static constexpr uint64_t kPruneShare = 16;

  explicit WorkerOutputs(WorkerOutputsOptions options);
  ~WorkerOutputs();
  WorkerOutputs(const WorkerOutputs&) = delete;
  WorkerOutputs& operator=(const WorkerOutputs&) = delete;

  // For stdout and stderr of a process that is about to start.
  // `terminal`: for stdin too.
  absl::StatusOr<Descriptor> Open(const LogOwner& owner,
                                  const std::optional<UnixAccount>& account,
                                  bool terminal = false);
  // The worker's processes are gone, or were never started. OutputEnded
  // follows, with the content of `end_file`, which is removed.
  void Finish(const WorkerKey& worker, std::string end_file);

  // A LogReply follows. `runs`: its process may write more.
  void Read(const std::string& cluster, const LogRequest& request, bool runs);
  // A TerminalReply follows. `runs`: the process has not ended, or is yet to
  // start.
  void Ask(TerminalRequest request, bool runs);
  // Shows a line on the terminal of the worker, if it has one.
  void TellTerminal(const WorkerKey& worker, std::string text);

  std::vector<OutputEvent> TakeEvents() { return mailbox_.TakeEvents(); }

 private:
  struct Output {
    Descriptor reader;
    std::optional<WorkerLog> log;  // nothing: it can't be written
    bool loss_told = false;
    std::string tail;
    double ends_at = kNever;    // set by Finish
    std::string end_file = {};  // set by Finish
    std::optional<WorkerTerminal> terminal = std::nullopt;
    bool is_watched = true;  // false: the terminal's client is behind
  };
  struct OpenRequest {
    LogOwner owner;
    Descriptor reader;
    bool terminal = false;
  };
  struct FinishRequest {
    WorkerKey worker;
    std::string end_file;
  };
  struct ReadRequest {
    std::string cluster;
    LogRequest request;
    bool runs = false;
  };
  struct NoticeRequest {
    WorkerKey worker;
    std::string text;
  };
  struct AskRequest {
    TerminalRequest request;
    bool runs = false;
  };
  using Request = std::variant<OpenRequest, FinishRequest, ReadRequest,
                               AskRequest, NoticeRequest>;

  void Work();
  double WaitTime() const;
  void CarryOut(OpenRequest&& request);
  void CarryOut(FinishRequest&& request);
  void CarryOut(ReadRequest&& request);
  void CarryOut(AskRequest&& asked);
  void CarryOut(NoticeRequest&& request);
  void ServeTerminals();
  bool MayDrain(Output& output);
  void EndTerminal(const WorkerKey& worker, WorkerTerminal&& terminal);
  void DrainAll();
  bool Drain(const WorkerKey& worker, Output& output);
  void Take(const WorkerKey& worker, Output& output, std::string_view data);
  void TellLoss(const WorkerKey& worker, const absl::Status& why) const;
  void Prune();

  const WorkerOutputsOptions options_;
  // Used by the thread alone.
  std::map<WorkerKey, Output> outputs_;
  std::map<WorkerKey, WorkerTerminal> ended_terminals_;
  double prune_at_ = 0;
  uint64_t unpruned_bytes_ = 0;  // written since the last time

  std::atomic<size_t> reads_ = 0;  // that wait
  Mailbox<Request, OutputEvent> mailbox_;
  std::thread thread_;
};

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
// their output (WorkerOutputs).
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
