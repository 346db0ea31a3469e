// The output of workers: the channel from a worker to its agent
// (OutputChannel), and the thread that drains the channels into logs and serves
// the logs (WorkerOutputs).
#ifndef GAVEL_COORDINATOR_AGENT_HOST_WORKER_OUTPUTS_H_
#define GAVEL_COORDINATOR_AGENT_HOST_WORKER_OUTPUTS_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/agent_host/agent_environment.h"
#include "coordinator/agent_host/agent_log.h"
#include "coordinator/agent_host/agent_process.h"
#include "coordinator/agent_host/worker_terminal.h"
#include "core/messages.h"
#include "core/units.h"
#include "runtime/files/descriptor.h"

namespace spdlog {
class logger;
}

namespace gavel {

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

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_WORKER_OUTPUTS_H_
