// The audit log, and the parts that it shares with the logs of daemons: a
// thread that writes lines (LineThread), and a file of bounded size that is
// only appended to (RotatingFile).
#ifndef GAVEL_COORDINATOR_SERVER_AUDIT_LOG_H_
#define GAVEL_COORDINATOR_SERVER_AUDIT_LOG_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/units.h"
#include "runtime/files/files.h"
#include "runtime/files/worker_thread.h"

namespace gavel {

// Writes lines on a thread of its own, so that no event loop waits for a
// stopped terminal, a full pipe or a disk. The daemons' logs and the audit log
// each own one.
//
// Thread-safe; Append never waits.
class LineThread {
 public:
  // Lines that wait to be written; beyond, the newest are lost, and counted.
  static constexpr size_t kQueuedBytesMax = size_t{4} << 20;
  // At the end, for those that still wait.
  static constexpr double kFarewell_s = 1;

  // Called on the thread, a line at a time. It may wait until it is asked to
  // stop. False: the line is lost.
  using Write =
      std::function<bool(std::string_view line, const std::stop_token& stop)>;

  explicit LineThread(Write write);
  ~LineThread();
  LineThread(const LineThread&) = delete;
  LineThread& operator=(const LineThread&) = delete;

  // False: it is lost, for too many wait.
  bool Append(std::string line);
  // Lines lost since the last call.
  uint64_t TakeLost() { return lost_.exchange(0); }

 private:
  void Work(const std::vector<std::string>& lines, const std::stop_token& stop);

  const Write write_;
  std::atomic<size_t> bytes_ = 0;  // of lines that are not written
  std::atomic<uint64_t> lost_ = 0;
  WorkerThread<std::string> thread_;
};

// A Write to a descriptor, which outlives the thread: waits until there is
// room, as for a pipe or a terminal.
LineThread::Write WriteTo(int descriptor);

struct RotationLimits {
  uint64_t file_bytes = uint64_t{16} << 20;
  int old_files = 15;  // beside the one that is written
};

// A file of lines that is only ever appended to, of bounded size: PATH is
// written; when it is full it becomes PATH.1, that one PATH.2, and so on, and
// the last goes. Not thread-safe.
class RotatingFile {
 public:
  // Creates the file, mode 0600; follows no link.
  static absl::StatusOr<RotatingFile> Open(const std::string& path,
                                           const RotationLimits& limits = {});

  // `line` ends with a newline. One call writes it, so that lines stay whole
  // when others append too. Returns false if it could not be written.
  bool Append(std::string_view line);

 private:
  RotatingFile(std::string path, const RotationLimits& limits, Descriptor file,
               uint64_t size)
      : path_(std::move(path)),
        limits_(limits),
        file_(std::move(file)),
        size_(size) {}
  void Rotate();

  std::string path_;
  RotationLimits limits_;
  Descriptor file_;
  uint64_t size_;
};

// PATH and the older ones of it that are there, the oldest first.
std::vector<std::string> RotatedFiles(const std::string& path);

struct AuditEntry {
  std::string who;     // principal; empty: connections have no keys
  std::string role;    // empty: the same
  std::string from;    // address
  std::string action;  // "submit", "cancel", "AgentHello", ...
  std::string object;  // "job 12", or empty
  std::string result;  // "done", or why not
};

// One line of JSON for each action of a user or operator and for each refusal
// or failure: who, what, from where, and the result. Append-only, in files of
// bounded size (RotatingFile). Names and codes, never the content of a
// request. A thread inside writes the lines; `gavel audit` reads them. Not
// thread-safe.
class AuditLog {
 public:
  // Refusals and failures that are written within a minute, of one key and of
  // all keys, so that no key hides another's. Beyond the latter each key still
  // gets its first. The number of lines left out follows.
  static constexpr int kRefusalsPerMinuteMax = 60;
  static constexpr int kRefusalsPerMinuteOfAllMax = 1200;
  static constexpr size_t kKeysPerMinuteMax = 4096;

  // Creates the file, mode 0600; follows no link.
  static absl::StatusOr<AuditLog> Open(const std::string& path);

  // Lines that can't be written are counted in the next entry: a full or stuck
  // disk does not stop the cluster. `now`: the time of the event loop.
  void Action(const AuditEntry& entry) { Write(entry); }
  void Refusal(Time now, const AuditEntry& entry);

 private:
  explicit AuditLog(RotatingFile file);
  void Write(const AuditEntry& entry);

  std::unique_ptr<LineThread> lines_;
  Time minute_started_ = -60;
  std::map<std::string, int> refusals_;  // of this minute, by who
  int refusals_written_ = 0;             // in this minute
  uint64_t left_out_ = 0;                // since the last line
};

inline constexpr char kAuditFile[] = "audit.log";  // in the state directory

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_AUDIT_LOG_H_
