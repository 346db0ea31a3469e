// Watches over the places where a checkpoint can be taken: whether gradients
// are summed up over several steps, and whether the state of the last boundary
// still holds outside of a step. Training thread only.
#ifndef GAVEL_ITERATOR_ACCUMULATION_WATCH_H_
#define GAVEL_ITERATOR_ACCUMULATION_WATCH_H_

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "gavel/session_options.h"
#include "iterator/optimizers.h"
#include "iterator/tracked_state.h"
#include "runtime/checkpoint/snapshot.h"

namespace gavel::internal {

// Which gradients belong to the state of a step's end. They do unless the
// program resets them before it adds to them again; a restart without them
// would train another model. LibTorch tells nobody, so it is seen per optimizer
// (and for the parameters that no optimizer has):
//
//   - Whether the optimizer made a step in the training step that has ended, by
//     its own counters, or by some bits of its smallest parameter. If it made
//     none, its gradients are the beginning of a sum.
//   - Whether the program then resets them. A hook on some parameters looks at
//     the first gradient that arrives in the next step: is there something that
//     it will be added to? It is asked in the first steps, and behind each
//     checkpoint that left gradients out, as long as the run lasts.
//
// What is not known is saved: gradients that are then reset do no harm. A
// program that adds to them after a step of the optimizer is found one
// step after a checkpoint without them; from then on all have them.
//
// Training thread only; the hooks run where LibTorch runs them.
class AccumulationWatch {
 public:
  AccumulationWatch() = default;
  ~AccumulationWatch();
  AccumulationWatch(const AccumulationWatch&) = delete;
  AccumulationWatch& operator=(const AccumulationWatch&) = delete;

  // Before the first step. Borrows the tracked optimizers.
  void Begin(const TrackedState& tracked, Gradients mode);
  // Each step's end. Reads a few numbers of each optimizer. True: the boundary
  // should look at TakeNews() and decided().
  bool StepDone() { return !groups_.empty() && LookAtStep(); }
  // Whether a checkpoint of the last step's end has the parameter's gradient.
  bool Saves(const at::Tensor& parameter);
  // A checkpoint of the end of `step` was taken.
  void Saved(uint64_t step);
  // Checkpoints will be of the same size from here on, as far as is known.
  bool decided() const { return decided_; }

  struct News {
    std::string text;
    // A checkpoint was written without gradients that were then added to.
    bool left_out = false;
  };
  std::vector<News> TakeNews();

  // Before the state leaves a device, where nothing of this object remains, and
  // when it is on a device again. In between the tensors may have no memory:
  // the ranks of a parked gang keep a part each.
  void Leave();
  void Arrive();

 private:
  // One parameter, and what its hook sees.
  struct Sample {
    at::Tensor parameter;
    unsigned hook = 0;
    struct Seen {
      std::atomic<bool> armed = false;  // for the next gradient that arrives
      std::atomic<bool> fired = false;
      std::atomic<bool> added = false;  // to something that is not zero
    };
    std::shared_ptr<Seen> seen = std::make_shared<Seen>();
  };
  // The parameters of an optimizer, or those that no tracked one has.
  struct Group {
    std::string name;
    torch::optim::Optimizer* optimizer = nullptr;
    StepCounter counter = nullptr;
    std::vector<Sample> samples;  // by size, smallest first
    std::optional<uint64_t> mark;
    at::Tensor before, now;  // of the first sample, on an accelerator
    std::optional<bool> stepped;
    bool looks = false;
    bool resets = false;  // gradients before it adds to them
    bool adds = false;
    std::optional<uint64_t> left_out;  // by the checkpoint of this step
  };

  void AddGroup(Group group, std::vector<at::Tensor> parameters);
  bool LookAtStep();
  static std::optional<uint64_t> MarkOf(const Group& group);
  static bool Stepped(Group& group);
  static bool HasGradient(const Group& group);
  static void Arm(Group& group);
  void TakeLook(Group& group);

  Gradients mode_ = Gradients::kDetect;
  std::vector<Group> groups_;
  std::unordered_map<const void*, std::vector<size_t>> groups_of_;
  std::vector<News> news_;
  int looks_ = 0;
  bool decided_ = true;
};

// The state at the last step boundary, kept while code outside of a step runs
// (an evaluation at the end of an epoch), so that it can be checkpointed from
// there: numbers and bytes as copies, tensors as they are, for as long as
// nobody has written to them. That is known from where they are and LibTorch's
// version counters: writes through Tensor::data() or a raw pointer are not
// seen.
// Training thread only.
class StepMark {
 public:
  // `snapshot`: of `tracked`, at this boundary.
  absl::Status Set(uint64_t steps_done, const Snapshot& snapshot,
                   const TrackedState& tracked);
  // The runtime itself moved the tensors of a mark that held.
  absl::Status Rebase(const TrackedState& tracked) {
    return ReadVersions(tracked, &versions_);
  }

  // Whether the tensors are unchanged and no step was done since.
  bool Holds(uint64_t steps_done, const TrackedState& tracked) const;
  // Turns a snapshot of the present state into that of the boundary. Call it
  // only while the mark holds.
  void Restore(Snapshot* snapshot) const;

 private:
  struct Version {
    const void* tensor = nullptr;  // c10::TensorImpl, for comparison
    const void* memory = nullptr;
    int64_t version = 0;
    bool operator==(const Version&) const = default;
  };
  static absl::Status ReadVersions(const TrackedState& tracked,
                                   std::vector<Version>* versions);

  bool is_set_ = false;
  uint64_t steps_done_ = 0;
  std::map<std::string, std::string> bytes_;
  std::vector<Version> versions_;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_ACCUMULATION_WATCH_H_
