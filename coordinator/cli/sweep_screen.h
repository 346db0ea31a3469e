// What a sweep of simulations shows while it runs. Called by the commands that
// run one: `gavel sweep` and `gavel reproduce`.
#ifndef GAVEL_COORDINATOR_CLI_SWEEP_SCREEN_H_
#define GAVEL_COORDINATOR_CLI_SWEEP_SCREEN_H_

#include <cstddef>
#include <string>
#include <utility>

#include "coordinator/cli/terminal.h"
#include "runtime/files/stopwatch.h"
#include "study/sweep.h"

namespace gavel {

inline constexpr size_t kUncutWidth = 1000;

// On a terminal a bar with the time that is left and the runs that go on; else
// a line for each run that has ended. Not thread-safe.
class SweepScreen {
 public:
  // `quiet`: no lines; standard output is for something else.
  explicit SweepScreen(std::string label, bool quiet = false)
      : label_(std::move(label)), quiet_(quiet) {}
  void Show(const study::SweepProgress& progress);
  void Clear();
  // The width of tables: the terminal's; a file or pipe takes lines of any
  // length.
  size_t width() const {
    return terminal_.is_terminal() ? terminal_.width() : kUncutWidth;
  }

 private:
  void ShowLines(const study::SweepProgress& progress);

  const std::string label_;
  const bool quiet_;
  Terminal terminal_;
  Stopwatch clock_;
  size_t told_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_SWEEP_SCREEN_H_
