#include "coordinator/agent_host/agent_process_info.h"

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/numbers.h"
#include "core/text.h"
#include "runtime/files/text_file.h"

namespace gavel {
namespace {

// `environment`: as the kernel tells it, each entry with a zero behind it. That
// of a zombie is empty.
bool HasEntry(std::string_view environment, std::string_view entry) {
  const std::string whole = StrCat(entry, std::string_view("\0", 1));
  for (size_t at = environment.find(whole); at != std::string_view::npos;
       at = environment.find(whole, at + 1)) {
    if (at == 0 || environment[at - 1] == '\0') return true;
  }
  return false;
}

}  // namespace

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

std::optional<uid_t> UserOfProcess(pid_t pid) {
  constexpr std::string_view kField = "\nUid:\t";
  const std::string status = ReadAll(StrCat("/proc/", pid, "/status"));
  const size_t at = status.find(kField);
  uid_t user = 0;
  if (at == std::string::npos) return std::nullopt;
  std::istringstream rest(status.substr(at + kField.size()));
  if (!(rest >> user)) return std::nullopt;
  return user;
}

FamilyRest KillRest(const ProcessFamily& family) {
  const auto is_marked = [&](pid_t pid, const ProcessInfo& info) {
    return !family.mark.empty() && info.start_time >= family.start_time &&
           info.state != 'D' && UserOfProcess(pid) == family.user &&
           HasEntry(ReadAll(StrCat("/proc/", pid, "/environ")), family.mark);
  };
  FamilyRest rest;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end;
       !error && it != end; it.increment(error)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(it->path().filename().string(), &pid)) continue;
    const std::optional<ProcessInfo> info = ReadProcessInfo(pid);
    if (!info || info->gone()) continue;
    const bool in_group = family.group > 0 && info->group == family.group;
    if (!in_group && !is_marked(pid, *info)) continue;
    kill(in_group ? -family.group : pid, SIGKILL);
    (in_group ? rest.in_group : rest.marked) = true;
  }
  return rest;
}

std::string BootId() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, id);
  return id;
}

}  // namespace gavel
