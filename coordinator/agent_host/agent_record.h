// Processes as an agent finds them in /proc (ProcessInfo), and its record of
// workers, which survives its own restart (AgentRecord).
#ifndef GAVEL_COORDINATOR_AGENT_HOST_AGENT_RECORD_H_
#define GAVEL_COORDINATOR_AGENT_HOST_AGENT_RECORD_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/messages.h"
#include "runtime/files/files.h"

namespace gavel {

// Reads the state of processes from /proc. The start time distinguishes a
// process from a later one with the same pid. Stateless, thread-safe.

struct ProcessInfo {
  char state = '?';         // 'Z', 'X': gone, only not yet waited for
  pid_t group = 0;          // its process group
  uint64_t start_time = 0;  // clock ticks since the machine started
  bool gone() const { return state == 'Z' || state == 'X'; }
};

// Parses the text of /proc/PID/stat. Returns nothing when it is malformed.
std::optional<ProcessInfo> ParseProcessInfo(std::string_view stat);

// Nothing when there is no such process.
std::optional<ProcessInfo> ReadProcessInfo(pid_t pid);
// Its real user.
std::optional<uid_t> UserOfProcess(pid_t pid);

// A worker's process and the processes that it started.
struct ProcessFamily {
  pid_t group = 0;  // that it led; 0: the pid is another's by now
  // An entry "NAME=value" of their environment, which finds those that left the
  // group. Empty: none are found.
  std::string mark;
  uint64_t start_time = 0;  // of the first; nobody older is looked at
  uid_t user = 0;           // whose processes may have the mark
};

// The processes that KillRest killed and that may not be gone yet.
struct FamilyRest {
  bool in_group = false;
  bool marked = false;  // outside the group
  bool any() const { return in_group || marked; }
};

// How long marked processes outside the group are waited for. A user can put
// the mark into any process; such processes must not keep an accelerator
// occupied for ever.
inline constexpr double kMarkedWait_s = 10;

// Kills the processes that still run; call it until there are none. The mark
// counts only in processes of the family's user, since anybody can copy it.
// Processes whose environment is not readable are not found by the mark, nor
// those in disk sleep, which would block the reader as well.
FamilyRest KillRest(const ProcessFamily& family);

// The id of this boot of the machine. Pids and start times begin anew with it.
std::string BootId();

// A worker as it was recorded. The start time tells it from a later process
// with the same pid.
struct RecordedWorker {
  RunningWorker running;
  uint64_t start_time = 0;  // see ProcessInfo
  uid_t user = 0;           // that it runs as
  friend bool operator==(const RecordedWorker&,
                         const RecordedWorker&) = default;
};

// The state that an agent keeps across restarts in its state directory: a lock
// against a second agent of the same name, its incarnation, and the workers
// that run. Owned by the agent's thread; not thread-safe.
class AgentRecord {
 public:
  // Sweep waits at most this long for a killed process to end.
  static constexpr double kSweepTimeout_s = 10;

  // Files: STATE/agent-SERVER.lock, .incarnation and .running; the directory is
  // there. Counts up in the higher half of the incarnation, the lower one is
  // drawn at random. ALREADY_EXISTS: another agent of this
  // name runs on this directory; the message names its pid.
  static absl::StatusOr<AgentRecord> Open(const std::string& state_directory,
                                          const std::string& server);

  uint64_t incarnation() const { return incarnation_; }
  // The id of this state directory, drawn at random when it was first used.
  const std::string& state_id() const { return state_id_; }

  // "GAVEL_PROCESS=...", unique to the worker's process: an environment entry
  // that identifies the processes it starts.
  std::string MarkOf(const WorkerKey& worker) const;

  struct Swept {
    std::vector<RunningWorker> workers;  // all that were recorded
    std::vector<RunningWorker> ended;    // of those, who still ran
  };
  // Kills the processes that the last agent of this name recorded, and their
  // descendants, and waits for their end. DEADLINE_EXCEEDED: one does not die.
  absl::StatusOr<Swept> Sweep();

  // `running` is all that runs.
  absl::Status Write(const std::vector<RunningWorker>& running);

 private:
  AgentRecord(FileLock lock, std::string prefix)
      : lock_(std::move(lock)), prefix_(std::move(prefix)) {}
  absl::Status CountUp();

  FileLock lock_;
  std::string prefix_;  // STATE/agent-SERVER
  uint64_t incarnation_ = 0;
  std::string state_id_;
};

// The text of the .running file. Parsing gives nothing for a file of another
// boot of the machine (its processes are gone) or one that is no record.
std::string FormatRecord(const std::vector<RecordedWorker>& workers,
                         std::string_view boot_id);
std::vector<RecordedWorker> ParseRecord(std::string_view text,
                                        std::string_view boot_id);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_AGENT_RECORD_H_
