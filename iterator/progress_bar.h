// The last line of a terminal while a program trains alone: how far it is, how
// fast, the loss, and the time left.
//
//   step 1200/5000 [#######                     ]  24 %  812 steps/s  loss 0.31
//   0:05 left
#ifndef GAVEL_ITERATOR_PROGRESS_BAR_H_
#define GAVEL_ITERATOR_PROGRESS_BAR_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gavel/internal/range_position.h"
#include "gavel/session_options.h"
#include "iterator/clock.h"
#include "iterator/environment.h"

namespace gavel::internal {

struct ProgressView {
  std::string_view unit;  // "step"
  uint64_t done = 0;
  uint64_t total = 0;  // 0: not known
  double steps_per_s = 0;
  std::vector<std::pair<std::string, double>> scalars;
};

// At most `columns` characters of ASCII. The scalar is the one named "loss",
// else the first that is no learning rate.
std::string ProgressLine(const ProgressView& view, size_t columns);

// Training thread only.
class ProgressBar {
 public:
  // Borrows `log`, whose last line it is, and `options`. Nothing is shown
  // unless the program runs alone, as rank 0, with a terminal at stderr.
  ProgressBar(const SessionOptions& options, Log& log);

  // When Draw() is due.
  int64_t next_ns() const { return next_ns_; }
  // Without a step budget the steps are those of the loop over `range`, if it
  // counts them.
  void BeginLoop(const RangePosition& range, uint64_t steps_done);
  // `running_ns`: of the steps, without pauses. Both counts rise.
  void Draw(int64_t now_ns, uint64_t steps_done, int64_t running_ns,
            std::vector<std::pair<std::string, double>> scalars);
  // Leaves the last state on a line of its own.
  void End();

 private:
  const SessionOptions& options_;
  Log& log_;
  uint64_t steps_before_loop_ = 0;  // of the job, before the loop's first
  uint64_t steps_of_loop_ = 0;      // 0: not known
  int64_t next_ns_ = kNever_ns;
  bool drawn_ = false;
  uint64_t last_steps_ = 0;
  int64_t last_running_ns_ = 0;
  double steps_per_s_ = 0;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_PROGRESS_BAR_H_
