// The account of a run that `gavel doctor` reads beside its reports
// (GAVEL_EXAMINATION_FILE): what is tracked, where loops and evaluations were,
// and which state the program uses that nobody tracks. Lines "WORD STEP TEXT":
//
//   tracked      NAME, a blank and its kind
//   loop-begin   a gavel::Iterator begins
//   loop-end     its range was used up: the end of an epoch
//   loop-break   it was left by `break`
//   evaluation   the tracked modules were used without training them
//   untracked    "module", "average", "tensor", "schedule", "generator" or
//                "device" (memory there during a pause), a blank and what it is
//
// Off unless begun; then each boundary is looked at closely. Training thread.
#ifndef GAVEL_ITERATOR_EXAMINATION_H_
#define GAVEL_ITERATOR_EXAMINATION_H_

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "iterator/operator_watch.h"
#include "iterator/tracked_state.h"

namespace gavel::internal {

class Examination {
 public:
  Examination() = default;
  ~Examination();
  Examination(const Examination&) = delete;
  Examination& operator=(const Examination&) = delete;

  // All is tracked that will be; borrows `tracked`. INVALID_ARGUMENT: `path`
  // can't be written.
  absl::Status Begin(const std::string& path, const TrackedState& tracked);
  bool on() const { return file_ != nullptr; }

  // What the session does itself, until the next call, is not looked at.
  void SetQuiet(bool quiet);
  void LoopBegan(uint64_t steps_done);
  // `used_up`: its range; else the loop was left by `break`.
  void LoopEnded(uint64_t steps_done, bool used_up);
  void StepDone(uint64_t steps_done);
  // So much stayed on the accelerator during the last pause.
  void Paused(uint64_t steps_done, uint64_t left_bytes);
  // The program has come to its end.
  void Finish(uint64_t steps_done);

 private:
  void Write(const char* word, uint64_t step, std::string_view text);
  void WriteEvaluation(uint64_t step);
  void WriteUntrackedModules();
  void WriteSchedules(uint64_t step);

  std::FILE* file_ = nullptr;
  const TrackedState* tracked_ = nullptr;
  std::unique_ptr<OperatorWatch> watch_;
  bool has_scheduler_ = false;
  bool has_left_memory_ = false;
  std::map<std::string, std::vector<double>> rates_;  // by optimizer
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_EXAMINATION_H_
