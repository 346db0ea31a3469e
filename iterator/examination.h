// The record of a run that `gavel doctor` reads (Examination), and the observer
// of LibTorch's operators that helps to write it (OperatorWatch).
#ifndef GAVEL_ITERATOR_EXAMINATION_H_
#define GAVEL_ITERATOR_EXAMINATION_H_

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "iterator/tracked_state.h"

namespace gavel::internal {

// State that the program uses and that is in no generation.
struct UntrackedState {
  // "average": a tensor that follows tracked tensors; "tensor": one that is
  // written in several steps; "generator".
  std::string kind;
  std::string text;
};

// Observes the operators that a training program calls while `gavel doctor`
// examines it. It finds out whether the program evaluates, and which tensors
// and generators outlive steps without being tracked. LibTorch calls back for
// each operator (RecordFunction) in the thread that made the watch. Training
// thread only.
class OperatorWatch {
 public:
  // Borrows `tracked`. There may be one watch at a time.
  explicit OperatorWatch(const TrackedState& tracked);
  ~OperatorWatch();
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;

  // While quiet, the watch ignores operators. The session calls operators
  // itself, which say nothing about the program.
  void SetQuiet(bool quiet) { quiet_ = quiet; }
  // Ends a step. Returns the untracked state found in it, each piece only once
  // in a run.
  std::vector<UntrackedState> EndStep();
  // Returns whether there was an evaluation since the last call: a forward pass
  // without gradients or with the tracked modules in evaluation mode.
  bool TakeEvaluated();
  // Called by LibTorch before each operator.
  void Look(const at::RecordFunction& call);

 private:
  struct Written {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::string text = {};  // its shape, and by what
    uint64_t last_step = 0;
    int steps = 0;
    bool follows = false;  // from what is tracked
    bool told = false;
  };
  void LookAtWrite(std::string_view name, const std::vector<at::Tensor>& to,
                   const std::vector<at::Tensor>& from);
  void LookAtGenerator(const at::Generator& generator);
  void FindTracked();
  bool IsEvaluating() const;

  const TrackedState& tracked_;
  const std::thread::id thread_ = std::this_thread::get_id();
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;
  std::set<const void*> tracked_storages_;
  std::set<const void*> gradient_storages_;  // of tracked tensors
  std::map<const void*, Written> written_;
  std::set<const void*> generators_;
  std::vector<UntrackedState> found_;
  uint64_t step_ = 1;
  bool evaluated_ = false;
  bool quiet_ = false;
};

// The record of a run that `gavel doctor` reads beside its reports
// (GAVEL_EXAMINATION_FILE). It lists the tracked objects, the loops and
// evaluations, and the state that the program uses without tracking it. Lines
// have the form "WORD STEP TEXT":
//
//   tracked      NAME, a blank and its kind
//   loop-begin   a gavel::Iterator begins
//   loop-end     its range was used up: the end of an epoch
//   loop-break   it was left by `break`
//   evaluation   the tracked modules were used without training them
//   untracked    "module", "average", "tensor", "schedule", "generator" or
//                "device" (memory there during a pause), a blank and the thing
//
// The examination is off until Begin(). From then on it examines each boundary
// closely. Training thread only.
class Examination {
 public:
  Examination() = default;
  ~Examination();
  Examination(const Examination&) = delete;
  Examination& operator=(const Examination&) = delete;

  // Begins the examination; call it when everything is tracked. Borrows
  // `tracked`. INVALID_ARGUMENT: `path` can't be written.
  absl::Status Begin(const std::string& path, const TrackedState& tracked);
  bool on() const { return file_ != nullptr; }

  // Operators that the session itself calls are ignored until the next call.
  void SetQuiet(bool quiet);
  void LoopBegan(uint64_t steps_done);
  // `used_up`: the range of the loop ended; otherwise `break` left the loop.
  void LoopEnded(uint64_t steps_done, bool used_up);
  void StepDone(uint64_t steps_done);
  // `left_bytes` stayed on the accelerator during the last pause.
  void Paused(uint64_t steps_done, uint64_t left_bytes);
  // Ends the examination, at the end of the program.
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
