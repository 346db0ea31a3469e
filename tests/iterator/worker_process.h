// Starts iterator_worker as a process of its own, with an agent's environment.
#ifndef GAVEL_TESTS_ITERATOR_WORKER_PROCESS_H_
#define GAVEL_TESTS_ITERATOR_WORKER_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gavel::testing {

class WorkerProcess {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;
  // Output and weights go to files in `folder`.
  WorkerProcess(const std::string& folder, const Variables& variables);
  ~WorkerProcess();

  void Signal(int signal_number) const;
  // As a shell says it: the exit code, or 128 + the signal.
  int Wait();
  // The same, or nullopt while it runs.
  std::optional<int> Poll();
  std::string Output() const;  // both streams, so far
  std::string Weights() const;

 private:
  int End(int status);

  std::string folder_;
  pid_t pid_ = -1;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_ITERATOR_WORKER_PROCESS_H_
