// What /proc says of processes. The start time tells a process from a later one
// with the same pid. Agents use it. Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_AGENT_PROCESS_INFO_H_
#define GAVEL_COORDINATOR_AGENT_HOST_AGENT_PROCESS_INFO_H_

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

// Of the text of /proc/PID/stat; nothing when it is malformed.
std::optional<ProcessInfo> ParseProcessInfo(std::string_view stat);

// Nothing when there is no such process.
std::optional<ProcessInfo> ReadProcessInfo(pid_t pid);
// Its real user.
std::optional<uid_t> UserOfProcess(pid_t pid);

// A worker's process, and what was started by it.
struct ProcessFamily {
  pid_t group = 0;  // that it led; 0: the pid is another's by now
  // An entry "NAME=value" of their environment, which finds those that left the
  // group. Empty: none are found.
  std::string mark;
  uint64_t start_time = 0;  // of the first; nobody older is looked at
  uid_t user = 0;           // whose processes may have the mark
};

// What KillRest killed, and may not yet be gone.
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

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_AGENT_PROCESS_INFO_H_
