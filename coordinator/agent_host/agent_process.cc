#include "coordinator/agent_host/agent_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "core/messages.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/files.h"
#include "runtime/files/stopwatch.h"

namespace gavel {
namespace {

// exec of a program on a file system that hangs.
constexpr int kExecTimeout_ms = 10'000;
constexpr char kDefaultPath[] = "/usr/local/bin:/usr/bin:/bin";

// The child reports the stage at which it failed if it does not get to exec.
enum class Stage : int {
  kChangeUser,
  kChangeDirectory,
  kRedirect,
  kEnvFile,
  kExec
};
struct Failure {
  Stage stage = Stage::kExec;
  int error = 0;  // 0: of env_file, whose line `line` is wrong
  int line = 0;
  bool is_there = false;  // the program, so what lacks is its interpreter
};

// Descriptors of the child: of its three own ones this is the next.
constexpr int kNewsDescriptor = STDERR_FILENO + 1;
// Out of the way of all of them.
constexpr int kSpareDescriptor = 10;

// All that the child needs, made before the fork: between fork and exec of a
// process with threads nothing may allocate.
struct ChildPlan {
  pid_t parent = 0;
  const UnixAccount* account = nullptr;     // null: stays
  const char* working_directory = nullptr;  // null: stays
  int output = -1;
  int input = -1;
  int news = -1;
  bool terminal = false;
  std::vector<const char*> candidates;  // of argv[0]
  std::vector<char*> argv;              // ends with null
  // Ends with null, and with room for the variables of env_file behind it.
  std::vector<char*> environment;
  size_t given = 0;                // of these, that are not of env_file
  const char* env_file = nullptr;  // null: none
  std::vector<char> env_text;      // room for it
};

// exec takes char* const[] for reasons of history; it changes nothing.
std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) {
    pointers.push_back(const_cast<char*>(text.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

[[noreturn]] void FailChild(Stage stage, int error, bool is_there = false,
                            int line = 0) {
  const Failure failure{stage, error, line, is_there};
  [[maybe_unused]] const ssize_t written =
      write(kNewsDescriptor, &failure, sizeof failure);
  _exit(127);
}

// Only these four stay. A child that hangs before exec must not hold our locks
// and sockets, nor the ends of others' pipes.
bool ArrangeDescriptors(const ChildPlan& plan) {
  const int news = fcntl(plan.news, F_DUPFD, kSpareDescriptor);
  const int output = fcntl(plan.output, F_DUPFD, kSpareDescriptor);
  const int input = fcntl(plan.input, F_DUPFD, kSpareDescriptor);
  return dup3(news, kNewsDescriptor, O_CLOEXEC) >= 0 &&
         dup2(input, STDIN_FILENO) >= 0 && dup2(output, STDOUT_FILENO) >= 0 &&
         dup2(output, STDERR_FILENO) >= 0 &&
         close_range(kNewsDescriptor + 1, ~0U, 0) == 0;
}

void ResetSignals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) {
    sigaction(signal, &action, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// By bare system calls: glibc's wrappers want the other threads to follow.
// False with errno.
bool ChangeUser(const UnixAccount& account) {
  if (syscall(SYS_setgroups, account.groups.size(), account.groups.data()) !=
          0 ||
      syscall(SYS_setresgid, account.gid, account.gid, account.gid) != 0 ||
      syscall(SYS_setresuid, account.uid, account.uid, account.uid) != 0) {
    return false;
  }
  // There must be no way back.
  errno = EPERM;
  return syscall(SYS_setresuid, 0, 0, 0) != 0;
}

// The length of the name in "NAME=VALUE"; 0: it is none.
size_t NameLength(const char* text) {
  size_t length = 0;
  while (true) {
    const char c = text[length];
    const bool letter =
        (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
    const bool digit = c >= '0' && c <= '9';
    if (!letter && !(digit && length > 0)) break;
    ++length;
  }
  return text[length] == '=' ? length : 0;
}

// Adds a variable, in place of one of that name that the file had before.
// False: there are too many.
bool AddVariable(char* entry, size_t name_length, ChildPlan& plan) {
  size_t at = 0;
  for (; plan.environment[at] != nullptr; ++at) {
    if (strncmp(plan.environment[at], entry, name_length + 1) != 0) continue;
    if (at >= plan.given) plan.environment[at] = entry;
    return true;
  }
  // The last pointer stays null.
  if (at + 1 >= plan.environment.size()) return false;
  plan.environment[at] = entry;
  return true;
}

void ReadEnvFile(ChildPlan& plan) {
  // Nobody may write to a FIFO, for which a read would wait.
  const int file =
      open(plan.env_file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  struct stat info {};
  if (file < 0 || fstat(file, &info) != 0) FailChild(Stage::kEnvFile, errno);
  if (S_ISFIFO(info.st_mode)) FailChild(Stage::kEnvFile, EINVAL);
  size_t size = 0;
  while (true) {
    const ssize_t bytes =
        read(file, plan.env_text.data() + size, plan.env_text.size() - size);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) FailChild(Stage::kEnvFile, errno);
    if (bytes == 0) break;
    size += static_cast<size_t>(bytes);
    if (size == plan.env_text.size()) FailChild(Stage::kEnvFile, EFBIG);
  }
  close(file);
  char* const text = plan.env_text.data();
  text[size] = '\n';
  int line = 0;
  for (size_t from = 0; from < size;) {
    ++line;
    size_t end = from;
    while (text[end] != '\n') ++end;
    const bool is_text = memchr(text + from, '\0', end - from) == nullptr;
    size_t last = end;
    if (last > from && text[last - 1] == '\r') --last;
    text[last] = '\0';
    char* const entry = text + from;
    from = end + 1;
    if (*entry == '#' || (is_text && *entry == '\0')) continue;
    const size_t length = NameLength(entry);
    if (!is_text || length == 0) FailChild(Stage::kEnvFile, 0, false, line);
    if (!AddVariable(entry, length, plan)) FailChild(Stage::kEnvFile, E2BIG);
  }
}

// As execvp: what is not there is passed over, what may not be run is
// remembered.
[[noreturn]] void ExecFirst(const ChildPlan& plan) {
  int error = ENOENT;
  bool is_there = false;
  for (const char* candidate : plan.candidates) {
    execve(candidate, plan.argv.data(), plan.environment.data());
    const int exec_error = errno;
    if (exec_error == EACCES) error = EACCES;
    if (exec_error != EACCES && exec_error != ENOENT && exec_error != ENOTDIR) {
      FailChild(Stage::kExec, exec_error);
    }
    is_there |= access(candidate, F_OK) == 0;
  }
  FailChild(Stage::kExec, error, is_there);
}

// Only async-signal-safe calls from here on.
[[noreturn]] void RunChild(ChildPlan& plan) {
  if (!ArrangeDescriptors(plan)) FailChild(Stage::kRedirect, errno);
  // No process of another session can join the new group, so all processes in
  // it are this worker's.
  setsid();
  if (plan.terminal && ioctl(STDIN_FILENO, TIOCSCTTY, 0) != 0) {
    FailChild(Stage::kRedirect, errno);
  }
  umask(022);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  if (plan.account != nullptr && !ChangeUser(*plan.account)) {
    FailChild(Stage::kChangeUser, errno);
  }
  // After the change, which clears it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The agent may have died before the line above: then no signal comes.
  if (getppid() != plan.parent) _exit(127);
  ResetSignals();
  if (plan.working_directory != nullptr && chdir(plan.working_directory) != 0) {
    FailChild(Stage::kChangeDirectory, errno);
  }
  if (plan.env_file != nullptr) ReadEnvFile(plan);
  ExecFirst(plan);
}

// Forks with all signals blocked, so that no handler of the host runs in the
// child.
pid_t ForkChild(ChildPlan& plan) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork();
  if (pid == 0) RunChild(plan);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

std::string PathOf(const std::vector<std::string>& environment) {
  constexpr std::string_view kName = "PATH=";
  for (const std::string& entry : environment) {
    if (entry.starts_with(kName)) return entry.substr(kName.size());
  }
  return kDefaultPath;
}

absl::Status NotFound(const ProcessSpec& spec, bool is_there) {
  const std::string& program = spec.argv.front();
  if (program.find('/') == std::string::npos) {
    return absl::NotFoundError(
        StrCat(program, ": not found in PATH (", PathOf(spec.environment),
               "); give a path, ./", program,
               " for one beside the job file, or set PATH in [environment]"));
  }
  if (is_there) {
    return absl::NotFoundError(
        StrCat(program,
               ": it is there, but its interpreter is not; correct its "
               "first line (#!)"));
  }
  const std::string remedy =
      program.starts_with('/')
          ? "build it, or correct the path"
          : StrCat("give an absolute path or one relative to ",
                   spec.working_directory.empty() ? "the agent's directory"
                                                  : spec.working_directory);
  return absl::NotFoundError(
      StrCat(program, ": no such file or directory; ", remedy));
}

absl::Status ExecError(const ProcessSpec& spec, const Failure& failure) {
  const std::string& program = spec.argv.front();
  switch (failure.error) {
    case ENOENT:
    case ENOTDIR:
      return NotFound(spec, failure.is_there);
    case EACCES:
      return absl::PermissionDeniedError(
          StrCat(program,
                 ": not executable; chmod +x it, and see that its "
                 "directories may be entered"));
    case ENOEXEC:
      return absl::FailedPreconditionError(
          StrCat(program,
                 ": not a program for this machine; a script needs "
                 "a first line such as #!/usr/bin/env python3"));
    default:
      return absl::ErrnoToStatus(failure.error, ToAbsl(program));
  }
}

absl::Status EnvFileError(const ProcessSpec& spec, const Failure& failure) {
  switch (failure.error) {
    case 0:
      return absl::FailedPreconditionError(
          StrCat("env_file ", spec.env_file, ": line ", failure.line,
                 " is not NAME=VALUE, with a name of letters, digits and _, "
                 "no digit first; correct it, or begin it with #"));
    case EINVAL:
      return absl::FailedPreconditionError(
          StrCat("env_file ", spec.env_file,
                 " is not a regular file; give one of NAME=VALUE lines"));
    case EFBIG:
    case E2BIG:
      return absl::FailedPreconditionError(StrCat(
          "env_file ", spec.env_file, " has more than ", kEnvFileBytesMax,
          " bytes or ", kEnvFileVariablesMax, " variables; shorten it"));
    default:
      return absl::Status(
          absl::ErrnoToStatusCode(failure.error),
          StrCat("env_file ", spec.env_file, ": ", std::strerror(failure.error),
                 "; put it there on this server, readable for the job's user, "
                 "or correct env_file in the job file"));
  }
}

absl::Status SpawnError(const ProcessSpec& spec, const Failure& failure) {
  switch (failure.stage) {
    case Stage::kChangeUser:
      return absl::ErrnoToStatus(
          failure.error,
          ToAbsl(StrCat("change to user ", spec.account->name,
                        ": the agent must be root with CAP_SETUID")));
    case Stage::kChangeDirectory:
      return absl::Status(
          absl::ErrnoToStatusCode(failure.error),
          StrCat("working directory ", spec.working_directory, ": ",
                 std::strerror(failure.error),
                 "; create it or correct working_directory in the job file"));
    case Stage::kRedirect:
      return absl::ErrnoToStatus(failure.error, ToAbsl(spec.output_path));
    case Stage::kEnvFile:
      return EnvFileError(spec, failure);
    case Stage::kExec:
      break;
  }
  return ExecError(spec, failure);
}

absl::Status WaitForExec(const ProcessSpec& spec,
                         const ForkedProcess& process) {
  pollfd item{process.news.get(), POLLIN, 0};
  while (poll(&item, 1, kExecTimeout_ms) < 0 && errno == EINTR) {
  }
  const std::optional<absl::Status> result = ExecResult(spec, process);
  if (result.has_value()) return *result;
  return absl::DeadlineExceededError(
      StrCat(spec.argv.front(), ": could not be started within ",
             kExecTimeout_ms / 1000, " s; does its file system hang?"));
}

absl::StatusOr<Descriptor> Open(const std::string& path, int flags) {
  Descriptor descriptor(open(path.c_str(), flags | O_CLOEXEC, 0600));
  if (descriptor.get() < 0) return absl::ErrnoToStatus(errno, ToAbsl(path));
  return descriptor;
}

// Not open: `spec` has one that is.
absl::StatusOr<Descriptor> OpenOutput(const ProcessSpec& spec) {
  if (spec.output >= 0) return Descriptor(-1);
  absl::StatusOr<Descriptor> output =
      Open(spec.output_path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW);
  if (output.ok() && spec.account.has_value() &&
      fchown(output->get(), spec.account->uid, spec.account->gid) != 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(spec.output_path));
  }
  return output;
}

// Intervals of polling: where no pidfd is available, and while processes that
// the worker started die.
constexpr double kPollInterval_s = 0.05;
constexpr double kLingerInterval_s = 0.005;
// A descriptor stays readable until its process is waited for.
constexpr uint32_t kOnce = EPOLLIN | EPOLLONESHOT;

std::string UserOfSpec(const ProcessSpec& spec) {
  return spec.account.has_value() ? spec.account->name : "";
}

std::string HungText(const ProcessSpec& spec, double limit_s) {
  // A program by its name alone is looked for in PATH.
  const std::string& program = spec.argv.front();
  const std::string directory =
      spec.working_directory.empty()
          ? ""
          : StrCat(" or of ", spec.working_directory, " (working_directory)");
  return StrCat(program, ": did not come to run within ", limit_s,
                " s; does the file system of the program", directory,
                " hang? See that ",
                directory.empty() ? "it answers" : "both answer",
                " on this server, or correct the job file");
}

std::string TooManyHangText(const ProcessSpec& spec) {
  return StrCat(
      spec.argv.front(), ": not started: ", Children::kHungOfOneUserMax,
      " processes of the same user hang on this server before they run; see "
      "that their working directories and programs are on file systems that "
      "answer");
}

}  // namespace

std::vector<std::string> ProgramCandidates(const ProcessSpec& spec) {
  const std::string& program = spec.argv.front();
  if (program.find('/') != std::string::npos) return {program};
  std::vector<std::string> candidates;
  const std::string path = PathOf(spec.environment);
  for (size_t from = 0; from <= path.size();) {
    const size_t colon = std::min(path.find(':', from), path.size());
    const std::string folder = path.substr(from, colon - from);
    candidates.push_back(StrCat(folder.empty() ? "." : folder, "/", program));
    from = colon + 1;
  }
  return candidates;
}

absl::StatusOr<ForkedProcess> ForkProcess(const ProcessSpec& spec) {
  if (spec.argv.empty() || spec.argv.front().empty()) {
    return absl::InvalidArgumentError(
        "the command is empty; name a program in the job file");
  }
  GAVEL_ASSIGN_OR_RETURN(const Descriptor opened, OpenOutput(spec));
  GAVEL_ASSIGN_OR_RETURN(const Descriptor null_input,
                         Open("/dev/null", O_RDONLY));
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return absl::ErrnoToStatus(errno, "pipe");
  }
  ForkedProcess process{0, Descriptor(ends[0])};
  const Descriptor write_end(ends[1]);

  const std::vector<std::string> candidates = ProgramCandidates(spec);
  ChildPlan plan;
  plan.parent = getpid();
  if (spec.account.has_value()) plan.account = &*spec.account;
  if (!spec.working_directory.empty()) {
    plan.working_directory = spec.working_directory.c_str();
  }
  plan.output = spec.output < 0 ? opened.get() : spec.output;
  plan.input = spec.terminal ? plan.output : null_input.get();
  plan.terminal = spec.terminal;
  plan.news = write_end.get();
  for (const std::string& path : candidates) {
    plan.candidates.push_back(path.c_str());
  }
  plan.argv = Pointers(spec.argv);
  plan.environment = Pointers(spec.environment);
  plan.given = spec.environment.size();
  if (!spec.env_file.empty()) {
    plan.env_file = spec.env_file.c_str();
    plan.env_text.resize(kEnvFileBytesMax + 1);
    plan.environment.resize(plan.given + kEnvFileVariablesMax + 1, nullptr);
  }

  process.pid = ForkChild(plan);
  if (process.pid < 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(spec.argv.front()));
  }
  return process;
}

std::optional<absl::Status> ExecResult(const ProcessSpec& spec,
                                       const ForkedProcess& process) {
  Failure failure;
  ssize_t bytes = 0;
  do {
    bytes = read(process.news.get(), &failure, sizeof failure);
  } while (bytes < 0 && errno == EINTR);
  if (bytes == sizeof failure) return SpawnError(spec, failure);
  if (bytes < 0 && errno == EAGAIN) return std::nullopt;
  // The end of file: exec, or the end, has closed the pipe.
  return absl::OkStatus();
}

absl::StatusOr<pid_t> SpawnProcess(const ProcessSpec& spec) {
  GAVEL_ASSIGN_OR_RETURN(const ForkedProcess process, ForkProcess(spec));
  const absl::Status started = WaitForExec(spec, process);
  if (started.ok()) return process.pid;
  kill(process.pid, SIGKILL);
  while (waitpid(process.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return started;
}

std::string ExitText(const ChildExit& exit) {
  if (exit.signal != 0) return StrCat("killed by signal ", exit.signal);
  if (exit.exit_code == kExitEvicted) {
    return StrCat("left with its state saved (", exit.exit_code, ")");
  }
  return StrCat("exit code ", exit.exit_code);
}

Children::Children(std::function<void()> notify, double exec_limit_s)
    : exec_limit_s_(exec_limit_s),
      mailbox_(std::move(notify)),
      thread_([this] { Work(); }) {}

Children::~Children() {
  SignalAll(SIGKILL);
  mailbox_.Stop();
  thread_.join();
}

void Children::Start(const WorkerKey& worker, ProcessSpec spec,
                     Descriptor output) {
  mailbox_.Post(StartRequest{worker, std::move(spec), std::move(output)});
}

void Children::Signal(const WorkerKey& worker, int signal) {
  mailbox_.Post(SignalRequest{worker, signal});
}

void Children::SignalAll(int signal) {
  mailbox_.Post(SignalRequest{std::nullopt, signal});
}

void Children::Work() {
  // Whatever happens wakes it; all processes are looked at then, a server's
  // few.
  while (!mailbox_.IsOver() || !processes_.empty()) {
    for (Request& request : mailbox_.Wait(WaitTime())) {
      std::visit([this](auto& r) { CarryOut(std::move(r)); }, request);
    }
    for (auto it = processes_.begin(); it != processes_.end();) {
      it = Look(it->first, it->second) ? processes_.erase(it) : std::next(it);
    }
    // A hung process dies with this thread at the latest, if it can die at all.
    std::erase_if(abandoned_, [](const Abandoned& process) {
      return waitpid(process.pid, nullptr, WNOHANG) != 0;
    });
  }
}

double Children::WaitTime() const {
  double wait_s = kNever;
  for (const auto& [worker, process] : processes_) {
    if (process.on_its_way.has_value()) {
      wait_s =
          std::min(wait_s, std::max(0.0, process.exec_by - MonotonicNow()));
    }
    if (process.descriptor.get() < 0)
      wait_s = std::min(wait_s, kPollInterval_s);
    if (process.ended_at != kNever)
      wait_s = std::min(wait_s, kLingerInterval_s);
  }
  for (const Abandoned& process : abandoned_) {
    if (process.descriptor.get() < 0)
      wait_s = std::min(wait_s, kPollInterval_s);
  }
  return wait_s;
}

Descriptor Children::WatchProcess(pid_t pid) const {
  // Not by <sys/pidfd.h>: that of glibc 2.36 is not made for C++.
  Descriptor descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!mailbox_.Watch(descriptor.get(), kOnce)) descriptor.Close();
  return descriptor;
}

bool Children::HangTooMany(const std::string& user) const {
  return std::ranges::count_if(abandoned_, [&](const Abandoned& process) {
           return process.user == user;
         }) >= kHungOfOneUserMax;
}

void Children::CarryOut(StartRequest request) {
  ProcessSpec& spec = request.spec;
  if (HangTooMany(UserOfSpec(spec))) {
    return mailbox_.Tell(
        ChildNotStarted{request.worker, TooManyHangText(spec), true});
  }
  absl::StatusOr<ForkedProcess> forked = ForkProcess(spec);
  if (!forked.ok()) {
    return mailbox_.Tell(ChildNotStarted{
        request.worker, std::string(forked.status().message())});
  }
  Process process;
  process.pid = forked->pid;
  process.exec_by = MonotonicNow() + exec_limit_s_;
  process.descriptor = WatchProcess(process.pid);
  const std::optional<ProcessInfo> info = ReadProcessInfo(process.pid);
  process.family = {process.pid, spec.mark, info ? info->start_time : 0,
                    spec.account.has_value() ? spec.account->uid : geteuid()};
  process.spec = std::move(spec);
  process.on_its_way.emplace(*std::move(forked));
  mailbox_.Watch(process.on_its_way->news.get(), kOnce);
  processes_.emplace(request.worker, std::move(process));
}

// None is waited for before it is forgotten, so neither pid nor group is
// another's. One that has not yet made its group gets the signal itself.
void Children::CarryOut(const SignalRequest& request) {
  for (auto& [worker, process] : processes_) {
    if (request.worker.has_value() && worker != *request.worker) continue;
    // The time limit to reach exec no longer applies.
    if (request.signal == SIGKILL) process.exec_by = 0;
    if (kill(-process.pid, request.signal) != 0) {
      kill(process.pid, request.signal);
    }
    if (process.spec.terminal && request.signal == SIGTERM) {
      kill(process.pid, SIGHUP);
    }
  }
}

bool Children::Look(const WorkerKey& worker, Process& process) {
  if (process.on_its_way.has_value() && LookForExec(worker, process)) {
    abandoned_.push_back({process.pid, std::move(process.descriptor),
                          process.hung ? std::optional(UserOfSpec(process.spec))
                                       : std::nullopt});
    return true;
  }
  return !process.on_its_way.has_value() && LookForEnd(worker, process);
}

// True: it will not run. That it was killed first and found still on its way
// afterwards is what makes sure of it.
bool Children::LookForExec(const WorkerKey& worker, Process& process) {
  std::optional<absl::Status> result =
      ExecResult(process.spec, *process.on_its_way);
  // Not one that ran long ago, where it is this thread that stood still.
  if (!result.has_value() && !process.hung &&
      MonotonicNow() >= process.exec_by) {
    process.hung = true;
    if (kill(-process.pid, SIGKILL) != 0) kill(process.pid, SIGKILL);
    result = ExecResult(process.spec, *process.on_its_way);
  }
  if (!result.has_value()) {
    if (!process.hung) return false;
    mailbox_.Tell(
        ChildNotStarted{worker, HungText(process.spec, exec_limit_s_), true});
    return true;
  }
  if (!result->ok()) {
    mailbox_.Tell(ChildNotStarted{worker, std::string(result->message())});
    return true;
  }
  process.on_its_way.reset();
  if (!process.hung) mailbox_.Tell(ChildStarted{worker, process.pid});
  return false;
}

bool Children::LookForEnd(const WorkerKey& worker, Process& process) {
  siginfo_t info{};
  const int result = waitid(P_PID, static_cast<id_t>(process.pid), &info,
                            WEXITED | WNOHANG | WNOWAIT);
  if (result == 0 && info.si_pid == 0) return false;
  // The zombie keeps the group's id until it is waited for.
  process.ended_at = std::min(process.ended_at, MonotonicNow());
  const FamilyRest rest = KillRest(process.family);
  const bool marked_count = MonotonicNow() < process.ended_at + kMarkedWait_s;
  if (rest.in_group || (rest.marked && marked_count)) return false;
  TellEnd(worker, process);
  return true;
}

void Children::TellEnd(const WorkerKey& worker, const Process& process) {
  int status = 0;
  waitpid(process.pid, &status, WNOHANG);
  if (process.hung) {
    return mailbox_.Tell(
        ChildNotStarted{worker, HungText(process.spec, exec_limit_s_), true});
  }
  ChildExit exit{worker, 0, 0};
  if (WIFSIGNALED(status)) {
    exit.signal = WTERMSIG(status);
  } else {
    exit.exit_code = WEXITSTATUS(status);
  }
  mailbox_.Tell(exit);
}

}  // namespace gavel
