#include "coordinator/server/notifier.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "coordinator/server/rows.h"
#include "core/error_line.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/database/sqlite.h"
#include "runtime/files/files.h"
#include "runtime/files/stopwatch.h"

namespace gavel {

// ---- One delivery ----

namespace {

constexpr char kCurl[] = "curl";
constexpr char kSearchPath[] = "/usr/local/bin:/usr/bin:/bin";
// Between two looks at whether the program has ended.
constexpr int kPoll_ms = 20;
// Only the end of its stderr is kept.
constexpr size_t kErrorBytesKept = 4096;

// `text` between double quotes, as curl's configuration has it.
std::string CurlQuoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

absl::Status SpawnError(const std::string& program, int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(
          StrCat(program,
                 ": there is no such program, or its first line (#!) "
                 "names none; install it, or correct the path"));
    case EACCES:
      return absl::PermissionDeniedError(
          StrCat(program,
                 ": it can't be executed; chmod +x it, and see that the "
                 "coordinator's user may enter its directories"));
    case ENOEXEC:
      return absl::FailedPreconditionError(
          StrCat(program,
                 ": it is no program of this machine; a script needs "
                 "a first line such as #!/bin/sh"));
    default:
      return absl::ErrnoToStatus(error, ToAbsl(program));
  }
}

// A file without a name, to be read from its beginning. Unlike a pipe it takes
// all of the text at once.
absl::StatusOr<Descriptor> InputFile(const std::string& text) {
  Descriptor file(memfd_create("notice", MFD_CLOEXEC));
  const auto size = static_cast<ssize_t>(text.size());
  if (file.get() < 0 || write(file.get(), text.data(), text.size()) != size ||
      lseek(file.get(), 0, SEEK_SET) != 0) {
    return absl::ErrnoToStatus(errno, "no memory for a notice");
  }
  return file;
}

// In a session, and so a group, of its own.
absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& argv, int input,
                            int errors) {
  std::vector<char*> words;
  for (const std::string& word : argv) {
    words.push_back(const_cast<char*>(word.c_str()));
  }
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null",
                                   O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK |
                                            POSIX_SPAWN_SETSIGDEF |
                                            POSIX_SPAWN_SETSID);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, words.front(), &actions, &attributes,
                                 words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return SpawnError(argv.front(), error);
  return pid;
}

// Reads what there is, and keeps the end of it. False: there will be no more.
bool ReadErrors(int from, std::string* end) {
  std::array<char, 16384> some;
  constexpr int kReadsMax = 64;  // the program may write without an end
  for (int reads = 0; reads < kReadsMax; ++reads) {
    const ssize_t bytes = read(from, some.data(), some.size());
    if (bytes < 0) return errno == EAGAIN || errno == EINTR;
    if (bytes == 0) return false;
    end->append(some.data(), static_cast<size_t>(bytes));
    if (end->size() > kErrorBytesKept) {
      end->erase(0, end->size() - kErrorBytesKept);
    }
  }
  return true;
}

// It stays a zombie, so that nobody else gets its number.
bool HasEnded(pid_t pid) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid), &info,
                WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

}  // namespace

absl::Status CheckProgram(const NotifySpec& spec) {
  if (!spec.command.empty()) {
    const std::string& program = spec.command.front();
    if (std::filesystem::is_directory(program)) {
      return SpawnError(program, EISDIR);
    }
    if (access(program.c_str(), X_OK) == 0) return absl::OkStatus();
    return SpawnError(program, errno);
  }
  const char* const set = std::getenv("PATH");
  const std::string path = set == nullptr ? kSearchPath : set;
  const std::vector<std::string> folders = absl::StrSplit(path, ':');
  for (const std::string& folder : folders) {
    const std::string program = StrCat(folder, "/", kCurl);
    if (access(program.c_str(), X_OK) == 0) return absl::OkStatus();
  }
  return absl::NotFoundError(
      StrCat(kCurl, ": there is no such program in PATH (", path,
             "), and webhooks need it; install it"));
}

// The address may contain a password: so curl does not get it as an argument,
// which all users of the machine could see.
Delivery DeliveryOf(const NotifySpec& spec, const std::string& text) {
  if (!spec.command.empty()) return {spec.command, text + "\n"};
  return {
      {kCurl, "--disable", "--silent", "--show-error", "--fail", "--globoff",
       "--location", "--post301", "--post302", "--max-redirs", "3", "--proto",
       "=http,https", "--header", "Content-Type: application/json", "--output",
       "/dev/null", "--config", "-"},
      StrCat("url = ", CurlQuoted(spec.webhook),
             "\ndata-binary = ", CurlQuoted(text), "\n")};
}

absl::Status Deliver(const Delivery& delivery, const std::stop_token& stop) {
  GAVEL_ASSIGN_OR_RETURN(const Descriptor input, InputFile(delivery.input));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "no pipe for a notice's program");
  }
  Descriptor errors(ends[0]);
  Descriptor its_errors(ends[1]);
  fcntl(errors.get(), F_SETFL, O_NONBLOCK);
  GAVEL_ASSIGN_OR_RETURN(const pid_t pid,
                         Spawn(delivery.argv, input.get(), its_errors.get()));
  its_errors.Close();
  const Stopwatch clock;
  std::string said;
  bool timed_out = false;
  while (!HasEnded(pid)) {
    timed_out = clock.elapsed_s() >= delivery.limit_s;
    if (timed_out || stop.stop_requested()) break;
    pollfd item{errors.get(), POLLIN, 0};
    poll(&item, 1, kPoll_ms);
    if (item.revents != 0 && !ReadErrors(errors.get(), &said)) errors.Close();
  }
  const bool stopped = !timed_out && !HasEnded(pid);
  kill(-pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (stopped) return absl::CancelledError("the coordinator ends");
  if (errors.get() >= 0) ReadErrors(errors.get(), &said);
  if (!timed_out && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    return absl::OkStatus();
  }
  const std::string line = LastErrorLine(said);
  return absl::UnknownError(StrCat(
      timed_out ? StrCat("it was killed after ", delivery.limit_s, " s")
      : WIFSIGNALED(status) ? StrCat("killed by signal ", WTERMSIG(status))
                            : StrCat("exit code ", WEXITSTATUS(status)),
      line.empty() ? "" : ": ", line));
}

// ---- Notices ----

namespace {

// "2026-01-31T12:00:00Z"
std::string UtcText(double wall_s) {
  const auto seconds = static_cast<std::time_t>(wall_s);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

// "notify command /usr/local/bin/mail". It shows only the host of an address,
// behind which a password may stand.
std::string TargetText(const NotifySpec& spec) {
  if (!spec.command.empty()) {
    return StrCat("notify command ", spec.command.front());
  }
  const std::vector<std::string> parts =
      absl::StrSplit(spec.webhook, absl::MaxSplits('/', 3));
  const std::string& host = parts.at(2);
  const size_t at = host.rfind('@');
  return StrCat("notify webhook ", parts.at(0), "//",
                at == std::string::npos ? host : host.substr(at + 1));
}

// 0: nothing can be read there.
uint64_t ReadPosition(const std::string& path) {
  uint64_t position = 0;
  const std::string text = ReadAll(path);
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &position)) return 0;
  return position;
}

absl::Status WritePosition(const std::string& path, uint64_t position) {
  return ReplaceFile(path, StrCat(position, "\n"));
}

}  // namespace

std::string NoticeJson(const HistoryNotice& notice,
                       const std::string& coordinator) {
  nlohmann::ordered_json json = {{"event", notice.event}};
  json["job"] = notice.job;
  if (notice.job == 0) json["job"] = nullptr;
  json["name"] = notice.name;
  json["user"] = notice.user;
  json["app"] = notice.app;
  json["time"] = UtcText(notice.at_s);
  json["text"] = notice.text;
  json["reason"] = notice.reason;
  json["coordinator"] = coordinator;
  return DumpJson(json);
}

absl::StatusOr<std::unique_ptr<Notifier>> Notifier::Start(
    Options options, uint64_t last_seq, std::function<void()> wake) {
  // A journal that was restored from a backup may end before the position.
  const uint64_t end = (last_seq + 1) * HistoryNotice::kPerRowMax - 1;
  const uint64_t told = ReadPosition(options.position);
  const uint64_t position = told == 0 ? end : std::min(told, end);
  GAVEL_RETURN_IF_ERROR(
      Annotate(WritePosition(options.position, position),
               "the position of the notices can't be written"));
  return std::unique_ptr<Notifier>(
      new Notifier(std::move(options), position, std::move(wake)));
}

Notifier::Notifier(Options options, uint64_t position,
                   std::function<void()> wake)
    : options_(std::move(options)),
      wake_(std::move(wake)),
      position_(position),
      thread_(AtEnd::kDrop, [this](auto tests, const std::stop_token& stop) {
        return Work(tests, stop);
      }) {
  const absl::Status program = CheckProgram(options_.spec);
  if (!program.ok()) SetTrouble(kDelivery, std::string(program.message()));
  thread_.Post({});
}

bool Notifier::Test(uint64_t handle) {
  {
    const std::lock_guard lock(mutex_);
    if (tests_ >= kTestsMax) return false;
    ++tests_;
  }
  thread_.Post({handle});
  return true;
}

std::optional<std::pair<uint64_t, std::string>> Notifier::TakeTested() {
  const std::lock_guard lock(mutex_);
  if (tested_.empty()) return std::nullopt;
  std::pair<uint64_t, std::string> first = std::move(tested_.front());
  tested_.erase(tested_.begin());
  --tests_;
  return first;
}

std::vector<std::string> Notifier::Troubles() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> troubles;
  const std::string target = TargetText(options_.spec);
  for (const std::string& trouble : troubles_) {
    if (!trouble.empty()) troubles.push_back(StrCat(target, ": ", trouble));
  }
  if (given_up_ + dropped_ > 0) {
    troubles.push_back(StrCat(
        target, ": ", given_up_ + dropped_,
        " notices are lost since the coordinator was started: ", given_up_,
        " after ", options_.waits_s.size() + 1, " tries, ", dropped_,
        " as more than ", kWaitingMax, " waited"));
  }
  return troubles;
}

void Notifier::SetTrouble(Part part, std::string trouble) {
  {
    const std::lock_guard lock(mutex_);
    if (troubles_[part] == trouble) return;
    troubles_[part] = std::move(trouble);
  }
  wake_();
}

Time Notifier::Work(const std::vector<TestItem>& tests,
                    const std::stop_token& stop) {
  for (const TestItem& test : tests) {
    if (test.handle != 0) RunTest(test.handle, stop);
  }
  if (stop.stop_requested()) return kNever;
  const Time wait_s = retry_at_ - MonotonicNow();
  return wait_s > 0 ? wait_s : DeliverNext(stop);
}

void Notifier::RunTest(uint64_t handle, const std::stop_token& stop) {
  HistoryNotice notice;
  notice.event = "test";
  notice.at_s = WallClockNow();
  notice.text = "This is a test: notices of this coordinator arrive.";
  const absl::Status status = Try(notice, stop);
  if (status.ok()) {
    retry_at_ = 0;
    SetTrouble(kDelivery, "");
  }
  {
    const std::lock_guard lock(mutex_);
    tested_.emplace_back(handle, status.ok() ? ""
                                             : StrCat(TargetText(options_.spec),
                                                      ": ", status.message()));
  }
  wake_();
}

Time Notifier::DeliverNext(const std::stop_token& stop) {
  const absl::StatusOr<WaitingNotices> waiting = Look();
  if (!waiting.ok()) {
    SetTrouble(kReading, StrCat("the notices can't be read: ",
                                waiting.status().message()));
    return options_.limit_s;
  }
  SetTrouble(kReading, "");
  if (!waiting->first) {
    if (waiting->last > position_) MoveTo(waiting->last);
    return kLookInterval_s;
  }
  const HistoryNotice& notice = *waiting->first;
  if (waiting->dropped > 0) {
    MoveTo(notice.id - 1);
    const std::lock_guard lock(mutex_);
    dropped_ += waiting->dropped;
  }
  if (std::exchange(trying_, notice.id) != notice.id) tries_ = 0;
  const absl::Status status = Try(notice, stop);
  if (absl::IsCancelled(status)) return kNever;
  if (status.ok()) {
    SetTrouble(kDelivery, "");
  } else if (const Time wait_s = NoteFailure(notice, status); wait_s > 0) {
    retry_at_ = MonotonicNow() + wait_s;
    return wait_s;
  }
  MoveTo(notice.id);
  return 0;
}

// Opened each time: no transaction stays open between two.
absl::StatusOr<WaitingNotices> Notifier::Look() const {
  GAVEL_ASSIGN_OR_RETURN(SqliteDatabase database,
                         SqliteDatabase::OpenReadOnly(options_.journal));
  return ReadNotices(database, options_.spec.events, position_, kWaitingMax);
}

absl::Status Notifier::Try(const HistoryNotice& notice,
                           const std::stop_token& stop) const {
  Delivery delivery =
      DeliveryOf(options_.spec, NoticeJson(notice, options_.coordinator));
  delivery.limit_s = options_.limit_s;
  return Deliver(delivery, stop);
}

Time Notifier::NoteFailure(const HistoryNotice& notice,
                           const absl::Status& why) {
  ++tries_;
  const bool again = tries_ <= options_.waits_s.size();
  SetTrouble(kDelivery,
             StrCat(why.message(), " (try ", tries_, " of ",
                    options_.waits_s.size() + 1, ": ", notice.text, ")"));
  if (again) return options_.waits_s[tries_ - 1];
  const std::lock_guard lock(mutex_);
  ++given_up_;
  return 0;
}

// If the position can't be written, a restart delivers the notice again.
void Notifier::MoveTo(uint64_t position) {
  position_ = position;
  const absl::Status status = WritePosition(options_.position, position);
  SetTrouble(kPosition,
             status.ok()
                 ? ""
                 : StrCat("its position can't be written, and after a restart "
                          "the same is told again: ",
                          status.message()));
}

}  // namespace gavel
