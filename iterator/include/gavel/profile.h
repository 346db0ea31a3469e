// Where the time of a step goes. The session measures steps, waiting for data,
// its own boundaries and pauses. The program adds the parts of a step as spans:
//
//   for (auto& batch : gavel::Iterator(*session, loader)) {
//     at::Tensor loss;
//     {
//       gavel::Span span(*session, "forward");
//       loss = Loss(model->forward(batch.data), batch.target);
//     }
//     ...
//   }
//
// GPU work is timed as it is queued; synchronize inside a span to time the work
// itself. SessionOptions::trace_file has all of it as a Chrome trace.
#ifndef GAVEL_PROFILE_H_
#define GAVEL_PROFILE_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "gavel/session.h"

namespace gavel {

// A part of the steps. "data": waiting for the next batch; "wrapper": the
// session at a boundary, pauses and checkpoints excluded; others are spans. In
// steps shorter than 20 us, data and wrapper are measured in one of 16.
struct PhaseProfile {
  std::string name;
  uint64_t count = 0;
  double mean_s = 0;
  double max_s = 0;
};

// The figures of this process so far.
struct Profile {
  uint64_t steps = 0;
  double step_mean_s = 0;  // all of a step, data and wrapper included
  double step_max_s = 0;
  std::vector<PhaseProfile> phases;  // data, wrapper, spans as they came up
  uint64_t pauses = 0;
  uint64_t checkpoints = 0;
  double pausing_s = 0;  // pauses and checkpoints, waiting excluded
  // At boundaries, between steps (where pauses are taken), and the highest
  // inside a step. On a GPU what LibTorch has allocated there, on a CPU the
  // process's resident memory; looked at a few times a second. 0: not yet.
  int64_t memory_low_bytes = 0;
  int64_t memory_high_bytes = 0;
};

// Times its own scope. Training thread only; spans may nest. `name` must live
// as long as the session, as a literal does; at most 14 names are kept apart.
// Costs two clock reads and no allocation.
class Span {
 public:
  Span(Session& session, const char* name)
      : session_(session), name_(name), begin_(Clock::now()) {}
  ~Span() { session_.EndSpan(name_, begin_, Clock::now()); }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  Session& session_;
  const char* name_;
  Clock::time_point begin_;
};

}  // namespace gavel

#endif  // GAVEL_PROFILE_H_
