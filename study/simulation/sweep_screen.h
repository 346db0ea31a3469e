// The output of a sweep while it runs, and at its end. Not thread-safe.
#ifndef GAVEL_STUDY_SIMULATION_SWEEP_SCREEN_H_
#define GAVEL_STUDY_SIMULATION_SWEEP_SCREEN_H_

#include <cstddef>
#include <string>
#include <utility>

#include "coordinator/cli/terminal.h"
#include "runtime/stopwatch.h"
#include "study/simulation/sweep_run.h"

namespace gavel::study {

inline constexpr size_t kUncutWidth = 1000;

// On a terminal a bar with the time that is left and the runs that go on; else
// a line for each run that has ended.
class SweepScreen {
 public:
  // `quiet`: no lines; standard output is for something else.
  explicit SweepScreen(std::string label, bool quiet = false)
      : label_(std::move(label)), quiet_(quiet) {}
  void Show(const SweepProgress& progress);
  void Clear();
  // Of tables: what the terminal has; a file or pipe takes lines of any length.
  size_t width() const {
    return terminal_.is_terminal() ? terminal_.width() : kUncutWidth;
  }

 private:
  void ShowLines(const SweepProgress& progress);

  const std::string label_;
  const bool quiet_;
  Terminal terminal_;
  Stopwatch clock_;
  size_t told_ = 0;
};

// A table of the runs, seeds pooled, or of the rates that a search found.
std::string RenderOutcome(const SweepOutcome& outcome, size_t width);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_SIMULATION_SWEEP_SCREEN_H_
