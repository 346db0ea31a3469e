// How many workers elastic jobs get: they grow into idle accelerators, and
// shrink before anybody has to wait (Gandiva, section 3.4, "grow-shrink"). The
// engine asks at each round, and at once for jobs that wait. Pure.
//
// Any number between a job's bounds is allowed: a data loader with a global
// batch size cuts each step for any number of workers to within one sample.
#ifndef GAVEL_COORDINATOR_ENGINE_ELASTIC_H_
#define GAVEL_COORDINATOR_ENGINE_ELASTIC_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/engine/job.h"
#include "coordinator/engine/throughput_matrix.h"
#include "core/ids.h"

namespace gavel {

// A job that runs in the round that was planned, or waits.
struct SizedJob {
  JobId id;
  int size = 1;  // workers that it is planned with, or waits with
  int size_min = 1, size_asked = 1, size_max = 1;  // equal: not elastic
  std::optional<size_t> type;  // where the plan has it; none: it waits
  std::vector<bool> usable;    // by type
  // It was resized so recently that it may only shrink for others.
  bool rests = false;
  // It waits, and starts where the plan has it: with any size, at no cost.
  bool starts = false;
  double resize_cost_s = 0;  // in which it does nothing
  std::function<Throughput(size_t type, int size)> speed;
};

// A change, and why: the reason is what `gavel why` renders.
struct Resize {
  JobId job;
  int scale_factor = 1;
  Reason reason;
};

struct ElasticOptions {
  double horizon_s = 0;  // a larger size must pay off within this time
  // In the middle of a round: those that run stay as they are, and those that
  // wait may take what is free, up to the size that they can use.
  bool keep_running = false;
};

// `free`: accelerators of each type that the plan leaves idle; `capacity`: all
// that are usable. `jobs` in the order in which they are served when they wait.
// Ties go by job id.
//
// 1. Who waits and fits somewhere, if need be with fewer workers than it asked
//    for, gets room: of what is free, else of what elastic jobs there have
//    beyond what they asked for, else of what they have beyond their minimum;
//    whoever loses least gives first.
// 2. Who is not faster by enough with more workers gives them back: of a
//    quarter of the speed-up that as many more would give ideally.
// 3. What is left idle goes, one by one, to the largest gain in throughput by
//    what the job's asked size gives: first up to what was asked for, then up
//    to the maximum. Not on a type where somebody waits whom it could serve,
//    and only where the gain over the horizon exceeds what resizing costs.
std::vector<Resize> ChooseSizes(std::vector<SizedJob> jobs,
                                std::vector<int> free,
                                const std::vector<int>& capacity,
                                const std::vector<std::string>& types,
                                const ElasticOptions& options);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_ELASTIC_H_
