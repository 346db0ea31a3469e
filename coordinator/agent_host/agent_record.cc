#include "coordinator/agent_host/agent_record.h"

#include <signal.h>
#include <sys/random.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <thread>

#include "absl/strings/numbers.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/files.h"

namespace gavel {
namespace {

// `environment` is the kernel's text: each entry ends with a zero byte. It is
// empty for a zombie.
bool HasEntry(std::string_view environment, std::string_view entry) {
  const std::string whole = StrCat(entry, std::string_view("\0", 1));
  for (size_t at = environment.find(whole); at != std::string_view::npos;
       at = environment.find(whole, at + 1)) {
    if (at == 0 || environment[at - 1] == '\0') return true;
  }
  return false;
}

constexpr std::chrono::milliseconds kSweepInterval(5);

uint64_t Random() {
  uint64_t value = 0;
  // The pool is initialised, so this never fails and is never short.
  [[maybe_unused]] const ssize_t got = getrandom(&value, sizeof value, 0);
  return value;
}

// Once the leader is gone its pid can't be given to a new process while the
// group has members.
FamilyRest KillRestOf(const RecordedWorker& worker, const std::string& mark) {
  const auto pid = static_cast<pid_t>(worker.running.pid);
  const std::optional<ProcessInfo> leader = ReadProcessInfo(pid);
  const bool anothers = leader && leader->start_time != worker.start_time;
  return KillRest({anothers ? 0 : pid, mark, worker.start_time, worker.user});
}

// Whether anything of it still ran.
absl::StatusOr<bool> SeeGone(const RecordedWorker& worker,
                             const std::string& mark) {
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::duration<double>(AgentRecord::kSweepTimeout_s);
  bool ran = false;
  while (true) {
    const FamilyRest rest = KillRestOf(worker, mark);
    if (!rest.any()) break;
    ran = true;
    if (std::chrono::steady_clock::now() > end) {
      if (!rest.in_group) break;  // see kMarkedWait_s
      return absl::DeadlineExceededError(
          StrCat("process ", worker.running.pid, " of job ",
                 worker.running.worker.job.value(),
                 ", left by an earlier agent, does not die; its accelerator "
                 "can't be given to others. End it, or restart the machine"));
    }
    std::this_thread::sleep_for(kSweepInterval);
  }
  return ran;
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

std::string FormatRecord(const std::vector<RecordedWorker>& workers,
                         std::string_view boot_id) {
  std::string text = StrCat("boot ", boot_id, "\n");
  for (const RecordedWorker& worker : workers) {
    const WorkerKey& key = worker.running.worker;
    StrAppend(&text, key.job.value(), " ", key.rank, " ", key.incarnation, " ",
              worker.running.pid, " ", worker.start_time, " ", worker.user,
              "\n");
  }
  return text;
}

std::vector<RecordedWorker> ParseRecord(std::string_view text,
                                        std::string_view boot_id) {
  std::istringstream lines{std::string(text)};
  std::string word;
  std::string boot;
  std::vector<RecordedWorker> workers;
  if (!(lines >> word >> boot) || word != "boot" || boot != boot_id) return {};
  lines >> std::ws;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    uint64_t job = 0;
    RecordedWorker worker;
    if (!(fields >> job >> worker.running.worker.rank >>
          worker.running.worker.incarnation >> worker.running.pid >>
          worker.start_time)) {
      break;
    }
    // Records of before there was the user end here.
    if (!(fields >> worker.user)) worker.user = geteuid();
    worker.running.worker.job = JobId(job);
    // kill(-1) and kill(0) are for others than one group.
    if (worker.running.pid > 1) workers.push_back(worker);
  }
  return workers;
}

absl::StatusOr<AgentRecord> AgentRecord::Open(
    const std::string& state_directory, const std::string& server) {
  const std::string prefix = StrCat(state_directory, "/agent-", server);
  absl::StatusOr<FileLock> lock = FileLock::Take(prefix + ".lock");
  if (absl::IsAlreadyExists(lock.status())) {
    return absl::AlreadyExistsError(
        StrCat("an agent of server \"", server,
               "\" already runs here: ", lock.status().message(),
               "; stop that one, or give this one another --server or "
               "--state"));
  }
  GAVEL_RETURN_IF_ERROR(lock.status());
  AgentRecord record(*std::move(lock), prefix);
  GAVEL_RETURN_IF_ERROR(record.CountUp());
  return record;
}

absl::Status AgentRecord::CountUp() {
  const std::string path = prefix_ + ".incarnation";
  uint64_t starts = 0;
  std::istringstream(ReadAll(path)) >> starts >> state_id_;
  ++starts;
  if (state_id_.empty())
    state_id_ = StrCat(absl::Hex(Random(), absl::kZeroPad16));
  // Two directories may count alike; their agents are to be told apart.
  incarnation_ = (starts << 32) | (Random() >> 32);
  return ReplaceFile(path, StrCat(starts, " ", state_id_, "\n"));
}

std::string AgentRecord::MarkOf(const WorkerKey& worker) const {
  return StrCat("GAVEL_PROCESS=", state_id_, "-", worker.job.value(), "-",
                worker.rank, "-", worker.incarnation);
}

absl::StatusOr<AgentRecord::Swept> AgentRecord::Sweep() {
  const std::vector<RecordedWorker> recorded =
      ParseRecord(ReadAll(prefix_ + ".running"), BootId());
  Swept swept;
  for (const RecordedWorker& worker : recorded) {
    GAVEL_ASSIGN_OR_RETURN(const bool ran,
                           SeeGone(worker, MarkOf(worker.running.worker)));
    swept.workers.push_back(worker.running);
    if (ran) swept.ended.push_back(worker.running);
  }
  return swept;
}

absl::Status AgentRecord::Write(const std::vector<RunningWorker>& running) {
  std::vector<RecordedWorker> workers;
  for (const RunningWorker& worker : running) {
    const auto pid = static_cast<pid_t>(worker.pid);
    const std::optional<ProcessInfo> info = ReadProcessInfo(pid);
    workers.push_back({worker, info ? info->start_time : 0,
                       UserOfProcess(pid).value_or(geteuid())});
  }
  return ReplaceFile(prefix_ + ".running", FormatRecord(workers, BootId()));
}

}  // namespace gavel
