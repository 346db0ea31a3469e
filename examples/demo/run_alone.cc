#include "examples/demo/run_alone.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <string_view>
#include <vector>

#include "core/text.h"

namespace gavel::demo {
namespace {

// Ours without GAVEL_*, and what an agent would set for a slot of the CPU.
std::vector<std::string> Environment(const JobSpec& job,
                                     const AloneOptions& options) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (text.starts_with("GAVEL_") || equals == text.npos) continue;
    variables[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : job.environment) variables[name] = value;
  variables["CUDA_VISIBLE_DEVICES"] = "";
  variables["GAVEL_CHECKPOINT_DIRECTORY"] = options.checkpoint_directory;
  variables["GAVEL_DEVICE"] = "cpu";
  variables["OMP_NUM_THREADS"] = std::to_string(options.threads);
  variables["OMP_WAIT_POLICY"] = "PASSIVE";
  std::vector<std::string> lines;
  for (const auto& [name, value] : variables) {
    lines.push_back(StrCat(name, "=", value));
  }
  return lines;
}

std::vector<char*> Pointers(std::vector<std::string>& lines) {
  std::vector<char*> pointers;
  for (std::string& line : lines) pointers.push_back(line.data());
  pointers.push_back(nullptr);
  return pointers;
}

absl::Status Wait(pid_t pid, const std::string& program,
                  const std::string& output) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::InternalError(
      StrCat(program, " alone did not end well; look at ", output));
}

}  // namespace

absl::Status RunAlone(const JobSpec& job, const AloneOptions& options) {
  std::vector<std::string> arguments = job.argv;
  std::vector<std::string> environment = Environment(job, options);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO,
                                   options.output.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t pid = 0;
  const int error =
      posix_spawnp(&pid, arguments[0].c_str(), &actions, nullptr,
                   Pointers(arguments).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return absl::NotFoundError(
        StrCat(arguments[0], ": ", std::strerror(error),
               "; run the demo by ./gavel-dev demo, which builds it"));
  }
  return Wait(pid, arguments[0], options.output);
}

}  // namespace gavel::demo
