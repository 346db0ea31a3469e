// What /proc says of processes, so that a pid that has gone to another process
// is not taken for the old one. Agents use it. Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_AGENT_PROCESS_INFO_H_
#define GAVEL_COORDINATOR_SERVER_AGENT_PROCESS_INFO_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gavel {

struct ProcessInfo {
  char state = '?';         // 'Z', 'X': gone, only not yet waited for
  pid_t group = 0;          // its process group
  uint64_t start_time = 0;  // clock ticks since the machine started
  bool gone() const { return state == 'Z' || state == 'X'; }
};

// The text of /proc/PID/stat; nothing when it is none.
std::optional<ProcessInfo> ParseProcessInfo(std::string_view stat);

// Nothing when there is no such process.
std::optional<ProcessInfo> ReadProcessInfo(pid_t pid);

// True when a process of that group still runs.
bool GroupRuns(pid_t group);

// Differs after each start of the machine: pids and start times begin anew.
std::string BootId();

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_AGENT_PROCESS_INFO_H_
