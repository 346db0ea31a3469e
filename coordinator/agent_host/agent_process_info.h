// What /proc says of processes, so that a pid that has gone to another process
// is not taken for the old one. Agents use it. Stateless, thread-safe.
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

// The text of /proc/PID/stat; nothing when it is none.
std::optional<ProcessInfo> ParseProcessInfo(std::string_view stat);

// Nothing when there is no such process.
std::optional<ProcessInfo> ReadProcessInfo(pid_t pid);
// Its real user.
std::optional<uid_t> UserOfProcess(pid_t pid);

// A worker's process, and what was started by it.
struct ProcessFamily {
  pid_t group = 0;  // that it led; 0: the pid is another's by now
  // An entry "NAME=value" of the environment that they were started with, by
  // which those are found that left the group. Empty: none are.
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

// How long marked processes outside the group are waited for. Its user may have
// put the mark into processes of other origin, which come again for ever: they
// keep no accelerator from counting as free.
inline constexpr double kMarkedWait_s = 10;

// Kills what still runs of it: call again until there is nothing. A mark counts
// in processes of the family's user alone, since anybody can copy it.
// Processes whose environment this process may not read are not found by it,
// nor those that wait for a disk at this moment: to read of one that a lost
// file system holds would take as long.
FamilyRest KillRest(const ProcessFamily& family);

// Differs after each start of the machine: pids and start times begin anew.
std::string BootId();

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_AGENT_PROCESS_INFO_H_
