// One thing that the user tracks: how it gets into a Snapshot, out of it, and
// which tensors of it live on the accelerator. Made by session.cc, kept by
// TrackedState, used by the training thread only. What is tracked is borrowed,
// but for modules and generators, of which the handle is shared.
#ifndef GAVEL_ITERATOR_TRACKED_ITEM_H_
#define GAVEL_ITERATOR_TRACKED_ITEM_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "iterator/partitions.h"
#include "runtime/checkpoint/snapshot.h"

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}
namespace torch::optim {
class LRScheduler;
class Optimizer;
class ReduceLROnPlateauScheduler;
}  // namespace torch::optim

namespace gavel {
struct OptimizerKind;
}  // namespace gavel

namespace gavel::internal {

// How a checkpoint is taken that is not of this program in all.
struct RestoreRules {
  bool partial = false;               // see SessionOptions::partial_restore
  bool keep_program_options = false;  // see there
};

class TrackedItem {
 public:
  explicit TrackedItem(std::string name) : name_(std::move(name)) {}
  virtual ~TrackedItem() = default;

  const std::string& name() const { return name_; }
  // Before all else. `sharded`: of its tensors, also of those that take the
  // place of the present ones. Borrows `partitions`.
  void SetPartitions(const Partitions& partitions,
                     std::optional<Sharded> sharded) {
    partitions_ = &partitions;
    sharded_ = sharded;
  }
  // Before Restore().
  void SetRules(const RestoreRules& rules) { rules_ = rules; }
  // Warnings of Restore(), a line each.
  std::vector<std::string> TakeNotes() { return std::exchange(notes_, {}); }
  // What this rank has of one of its tensors; nullopt: all of it.
  std::optional<OwnPart> PartOf(const at::Tensor& tensor) const;
  // Written next to the state, so that another kind under the same name is
  // told from damage.
  virtual std::string kind() const = 0;
  // Where the object is that it tracks: the same one can't be tracked under two
  // names. Null: it is not known.
  virtual const void* object() const { return nullptr; }
  // All names in the snapshot are name() or begin with name() and a slash.
  virtual absl::Status Collect(Snapshot* snapshot) = 0;
  // FAILED_PRECONDITION: of another shape or type; the message names it.
  virtual absl::Status Restore(const Snapshot& snapshot) = 0;
  // Of a module: whether it is in training mode.
  virtual std::optional<bool> training() const { return std::nullopt; }
  // Whether Collect() may add tensors.
  virtual bool has_tensors() const { return false; }
  // The tensors that Restore() writes in place, each under its name in the
  // snapshot; undefined ones are made. nullopt: any are taken.
  virtual absl::StatusOr<std::optional<std::vector<NamedTensor>>> Places();
  // After the first step: notes what looks as if it would be lost.
  virtual void LookForLosses() {}
  // What moves with the lease; none for most kinds.
  virtual absl::StatusOr<std::vector<at::Tensor>> Tensors();
  // Those that an optimizer may train, each under its name in the snapshot.
  virtual std::vector<NamedTensor> Parameters() { return {}; }
  // After all tensors moved.
  virtual absl::Status Moved(at::Device device);

 protected:
  const RestoreRules& rules() const { return rules_; }
  void AddNote(std::string note) { notes_.push_back(std::move(note)); }
  // As of tensor_entry.h. Under the rule `partial` what the snapshot does not
  // have stays as it is.
  absl::Status RestoreAt(const Snapshot& snapshot, const std::string& entry,
                         at::Tensor& tensor);

 private:
  std::string name_;
  RestoreRules rules_;
  std::vector<std::string> notes_;
  const Partitions* partitions_ = nullptr;
  std::optional<Sharded> sharded_;
};

std::unique_ptr<TrackedItem> TrackModule(
    std::string name, std::shared_ptr<torch::nn::Module> module);
std::unique_ptr<TrackedItem> TrackScriptModule(
    std::string name, const torch::jit::Module& module);
// `kind` has passed CheckOptimizerKind.
std::unique_ptr<TrackedItem> TrackOptimizer(std::string name,
                                            torch::optim::Optimizer& optimizer,
                                            OptimizerKind kind);
std::unique_ptr<TrackedItem> TrackTensor(std::string name, at::Tensor& tensor);
std::unique_ptr<TrackedItem> TrackTensors(std::string name,
                                          std::vector<at::Tensor>& tensors);
std::unique_ptr<TrackedItem> TrackScheduler(
    std::string name, torch::optim::LRScheduler& scheduler);
std::unique_ptr<TrackedItem> TrackScheduler(
    std::string name, torch::optim::ReduceLROnPlateauScheduler& scheduler);
std::unique_ptr<TrackedItem> TrackGenerator(std::string name,
                                            const at::Generator& generator);
std::unique_ptr<TrackedItem> TrackText(std::string name, std::string& text);
std::unique_ptr<TrackedItem> TrackNumber(std::string name,
                                         std::string_view kind, void* number,
                                         size_t size);
std::unique_ptr<TrackedItem> TrackBytes(
    std::string name, std::function<std::string()> save,
    std::function<void(const std::string&)> load);
// `load` is false for the text of another type of engine.
std::unique_ptr<TrackedItem> TrackEngine(
    std::string name, std::function<std::string()> save,
    std::function<bool(const std::string&)> load);

// Null when `item` is of another kind.
torch::optim::Optimizer* OptimizerOf(TrackedItem& item);
// Whether `item` is a scheduler; then, whether it is one of `optimizer`.
bool IsScheduler(const TrackedItem& item);
bool IsSchedulerOf(const TrackedItem& item,
                   const torch::optim::Optimizer& optimizer);

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_TRACKED_ITEM_H_
