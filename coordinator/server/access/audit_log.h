// Who did what, from where, and what came of it: one line of JSON for each
// action of a user or operator, and for what was refused or failed; only ever
// appended to, in files of bounded size (rotating_file.h). Names and codes,
// never what a request contains. The coordinator's event loop hands it lines,
// which a thread inside writes; `gavel audit` reads them. Not thread-safe.
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
  // Refusals and failures of one key that are written within a minute, so that
  // nobody hides another's behind its own; and of all, beyond which each key
  // still has its first. The number of the others follows.
  static constexpr int kRefusalsPerMinuteMax = 60;
  static constexpr int kRefusalsPerMinuteOfAllMax = 1200;
  static constexpr size_t kKeysPerMinuteMax = 4096;

  // Creates the file, mode 0600; follows no link.
  static absl::StatusOr<AuditLog> Open(const std::string& path);

  // What can't be written is counted and told with the next entry: an audit
  // log on a full or stuck disk does not stop a cluster. `now`: as of the event
  // loop.
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
