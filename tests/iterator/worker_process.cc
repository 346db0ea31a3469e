#include "tests/iterator/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

extern char** environ;

namespace gavel::testing {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The worker program lies where it was built, or, in a bundle on another
// machine, in the parent folder of this program's folder.
std::string WorkerProgram() {
  const std::filesystem::path built = GAVEL_ITERATOR_WORKER;
  std::error_code none;
  if (std::filesystem::exists(built, none)) return built;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", none);
  return here.parent_path().parent_path() / built.filename();
}

}  // namespace

WorkerProcess::WorkerProcess(const std::string& folder,
                             const Variables& variables)
    : folder_(folder) {
  // The given variables come first, so that they override inherited ones.
  std::vector<std::string> environment;
  for (const auto& [name, value] : variables) {
    environment.push_back(name + "=" + value);
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment.emplace_back(*entry);
  }
  std::vector<char*> pointers;
  for (std::string& entry : environment) pointers.push_back(entry.data());
  pointers.push_back(nullptr);

  std::string program = WorkerProgram();
  std::string weights = folder_ + "/weights";
  char* arguments[] = {program.data(), weights.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO,
                                   (folder_ + "/output").c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments,
              pointers.data());
  posix_spawn_file_actions_destroy(&actions);
}

WorkerProcess::~WorkerProcess() {
  if (pid_ < 0) return;
  Signal(SIGKILL);
  Wait();
}

void WorkerProcess::Signal(int signal_number) const {
  kill(pid_, signal_number);
}

int WorkerProcess::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  return End(status);
}

std::optional<int> WorkerProcess::Poll() {
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == 0) return std::nullopt;
  return End(status);
}

int WorkerProcess::End(int status) {
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string WorkerProcess::Output() const { return Read(folder_ + "/output"); }
std::string WorkerProcess::Weights() const {
  return Read(folder_ + "/weights");
}

}  // namespace gavel::testing
