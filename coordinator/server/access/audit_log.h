// One line of JSON for each action of a user or operator and for each refusal
// or failure: who, what, from where, and the result. Append-only, in files of
// bounded size (rotating_file.h). Names and codes, never the content of a
// request. A thread inside writes the lines; `gavel audit` reads them. Not
// thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_ACCESS_AUDIT_LOG_H_
#define GAVEL_COORDINATOR_SERVER_ACCESS_AUDIT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/server/access/line_thread.h"
#include "coordinator/server/access/rotating_file.h"
#include "core/units.h"

namespace gavel {

struct AuditEntry {
  std::string who;     // principal; empty: connections have no keys
  std::string role;    // empty: the same
  std::string from;    // address
  std::string action;  // "submit", "cancel", "AgentHello", ...
  std::string object;  // "job 12", or empty
  std::string result;  // "done", or why not
};

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
  // disk does not stop the cluster. `now`: as of the event loop.
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

#endif  // GAVEL_COORDINATOR_SERVER_ACCESS_AUDIT_LOG_H_
