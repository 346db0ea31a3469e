// A program that a command runs and watches. The destructor kills it with all
// processes it started. Not thread-safe; it dies with the thread that made it.
#ifndef GAVEL_COORDINATOR_CLI_CHILD_PROCESS_H_
#define GAVEL_COORDINATOR_CLI_CHILD_PROCESS_H_

#include <sys/types.h>

namespace gavel {

class ChildProcess {
 public:
  // `pid`: of SpawnProcess, which leads a group of its own.
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  bool Ended() const;
  void Kill() const;
  // Waits for the end and kills what the program left behind. The exit code, or
  // minus the signal that ended it.
  int Collect();

 private:
  const pid_t pid_;
  bool ended_ = false;
  int exit_code_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_CHILD_PROCESS_H_
