#include "coordinator/server/agent_process_info.h"

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/numbers.h"
#include "coordinator/server/text_file.h"
#include "core/text.h"

namespace gavel {

std::optional<ProcessInfo> ParseProcessInfo(std::string_view stat) {
  // The second field is the program's name in parentheses, with any bytes.
  const size_t close = stat.rfind(')');
  if (close == std::string_view::npos) return std::nullopt;
  std::istringstream rest{std::string(stat.substr(close + 1))};
  ProcessInfo info;
  long skipped = 0;
  rest >> info.state >> skipped >> info.group;  // fields 3 to 5
  constexpr int kStartTimeField = 22;
  for (int field = 6; field < kStartTimeField; ++field) rest >> skipped;
  rest >> info.start_time;
  if (rest.fail()) return std::nullopt;
  return info;
}

std::optional<ProcessInfo> ReadProcessInfo(pid_t pid) {
  return ParseProcessInfo(ReadAll(StrCat("/proc/", pid, "/stat")));
}

bool GroupRuns(pid_t group) {
  // Quick and usual: nobody, not even a zombie, is in it.
  if (kill(-group, 0) != 0 && errno == ESRCH) return false;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end;
       !error && it != end; it.increment(error)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(it->path().filename().string(), &pid)) continue;
    const std::optional<ProcessInfo> info = ReadProcessInfo(pid);
    if (info && info->group == group && !info->gone()) return true;
  }
  return false;
}

std::string BootId() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, id);
  return id;
}

}  // namespace gavel
