// Real processes for tests of the command line: started, watched, killed. Each
// dies with the test. Not thread-safe.
#ifndef GAVEL_TESTS_SUPPORT_PROCESS_H_
#define GAVEL_TESTS_SUPPORT_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/files.h"

namespace gavel::testing {

// Not gone, and not a zombie.
bool IsAlive(pid_t pid);

class Process {
 public:
  // stdout goes to `output_path`, stderr to `output_path`.err.
  Process(const std::vector<std::string>& argv, std::string output_path);
  // Kills it, if it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // The exit code, or minus the signal that ended it; nothing when it still
  // runs after `timeout_s`.
  std::optional<int> Wait(double timeout_s = kPatience_s);
  std::string output() const { return ReadText(output_path_); }
  std::string errors() const { return ReadText(output_path_ + ".err"); }

 private:
  std::string output_path_;
  pid_t pid_ = 0;
  std::optional<int> ended_;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_PROCESS_H_
