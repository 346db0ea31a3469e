#include "coordinator/server/agent_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "coordinator/server/descriptor.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// exec of a program on a file system that hangs.
constexpr int kExecTimeout_ms = 10'000;
constexpr char kDefaultPath[] = "/usr/local/bin:/usr/bin:/bin";

// What the child tells when it does not get to exec.
enum class Stage : int { kChangeUser, kChangeDirectory, kRedirect, kExec };
struct Failure {
  Stage stage = Stage::kExec;
  int error = 0;
};

// All that the child needs, made before the fork: between fork and exec of a
// process with threads nothing may allocate.
struct ChildPlan {
  pid_t parent = 0;
  const UnixAccount* account = nullptr;     // null: stays
  const char* working_directory = nullptr;  // null: stays
  int output = -1;
  int null_input = -1;
  int failure_pipe = -1;
  std::vector<const char*> candidates;  // of argv[0]
  std::vector<char*> argv;              // ends with null
  std::vector<char*> environment;       // ends with null
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

[[noreturn]] void FailChild(const ChildPlan& plan, Stage stage, int error) {
  const Failure failure{stage, error};
  [[maybe_unused]] const ssize_t written =
      write(plan.failure_pipe, &failure, sizeof failure);
  _exit(127);
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

// As execvp: what is not there is passed over, what may not be run is
// remembered.
int ExecFirst(const ChildPlan& plan) {
  int error = ENOENT;
  for (const char* candidate : plan.candidates) {
    execve(candidate, plan.argv.data(), plan.environment.data());
    if (errno == EACCES) error = EACCES;
    if (errno != EACCES && errno != ENOENT && errno != ENOTDIR) return errno;
  }
  return error;
}

// Only async-signal-safe calls from here on.
[[noreturn]] void RunChild(const ChildPlan& plan) {
  setpgid(0, 0);
  umask(022);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  if (plan.account != nullptr && !ChangeUser(*plan.account)) {
    FailChild(plan, Stage::kChangeUser, errno);
  }
  // After the change, which clears it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The agent may have died before the line above: then no signal comes.
  if (getppid() != plan.parent) _exit(127);
  ResetSignals();
  if (plan.working_directory != nullptr && chdir(plan.working_directory) != 0) {
    FailChild(plan, Stage::kChangeDirectory, errno);
  }
  if (dup2(plan.null_input, STDIN_FILENO) < 0 ||
      dup2(plan.output, STDOUT_FILENO) < 0 ||
      dup2(plan.output, STDERR_FILENO) < 0) {
    FailChild(plan, Stage::kRedirect, errno);
  }
  // Ours are close-on-exec anyway; those of a host program may not be.
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  FailChild(plan, Stage::kExec, ExecFirst(plan));
}

// Forks with all signals blocked, so that no handler of the host runs in the
// child.
pid_t ForkChild(const ChildPlan& plan) {
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

bool Exists(const ProcessSpec& spec, const std::string& path) {
  const Descriptor directory(open(
      spec.working_directory.empty() ? "." : spec.working_directory.c_str(),
      O_PATH | O_CLOEXEC));
  return faccessat(directory.get(), path.c_str(), F_OK, 0) == 0;
}

absl::Status NotFound(const ProcessSpec& spec) {
  const std::string& program = spec.argv.front();
  if (program.find('/') == std::string::npos) {
    return absl::NotFoundError(
        StrCat(program, ": not found in PATH (", PathOf(spec.environment),
               "); give a path, ./", program,
               " for one beside the job file, or set PATH in [environment]"));
  }
  // Not looked for as root, which would tell what that user may not see.
  if (!spec.account.has_value() && Exists(spec, program)) {
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

absl::Status ExecError(const ProcessSpec& spec, int error) {
  const std::string& program = spec.argv.front();
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return NotFound(spec);
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
      return absl::ErrnoToStatus(error, ToAbsl(program));
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
    case Stage::kExec:
      break;
  }
  return ExecError(spec, failure.error);
}

// The end of file means that exec has closed the pipe: the program runs.
absl::Status WaitForExec(const ProcessSpec& spec, int failure_pipe) {
  pollfd item{failure_pipe, POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&item, 1, kExecTimeout_ms);
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) {
    return absl::DeadlineExceededError(
        StrCat(spec.argv.front(), ": could not be started within ",
               kExecTimeout_ms / 1000, " s; does its file system hang?"));
  }
  Failure failure;
  ssize_t bytes = 0;
  do {
    bytes = read(failure_pipe, &failure, sizeof failure);
  } while (bytes < 0 && errno == EINTR);
  if (bytes != sizeof failure) return absl::OkStatus();
  return SpawnError(spec, failure);
}

absl::StatusOr<Descriptor> Open(const std::string& path, int flags) {
  Descriptor descriptor(open(path.c_str(), flags | O_CLOEXEC, 0600));
  if (descriptor.get() < 0) return absl::ErrnoToStatus(errno, ToAbsl(path));
  return descriptor;
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

absl::StatusOr<pid_t> SpawnProcess(const ProcessSpec& spec) {
  if (spec.argv.empty() || spec.argv.front().empty()) {
    return absl::InvalidArgumentError(
        "the command is empty; name a program in the job file");
  }
  GAVEL_ASSIGN_OR_RETURN(
      const Descriptor output,
      Open(spec.output_path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW));
  if (spec.account.has_value() &&
      fchown(output.get(), spec.account->uid, spec.account->gid) != 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(spec.output_path));
  }
  GAVEL_ASSIGN_OR_RETURN(const Descriptor null_input,
                         Open("/dev/null", O_RDONLY));
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "pipe");
  }
  const Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);

  const std::vector<std::string> candidates = ProgramCandidates(spec);
  ChildPlan plan;
  plan.parent = getpid();
  if (spec.account.has_value()) plan.account = &*spec.account;
  if (!spec.working_directory.empty()) {
    plan.working_directory = spec.working_directory.c_str();
  }
  plan.output = output.get();
  plan.null_input = null_input.get();
  plan.failure_pipe = write_end.get();
  for (const std::string& path : candidates) {
    plan.candidates.push_back(path.c_str());
  }
  plan.argv = Pointers(spec.argv);
  plan.environment = Pointers(spec.environment);

  const pid_t pid = ForkChild(plan);
  if (pid < 0) return absl::ErrnoToStatus(errno, ToAbsl(spec.argv.front()));
  write_end.Close();
  const absl::Status started = WaitForExec(spec, read_end.get());
  if (started.ok()) return pid;
  kill(pid, SIGKILL);
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return started;
}

}  // namespace gavel
