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
  // What moves with the lease; none for most kinds.
  virtual absl::StatusOr<std::vector<at::Tensor>> Tensors();
  // Those that an optimizer may train, each under its name in the snapshot.
  virtual std::vector<NamedTensor> Parameters() { return {}; }
  // After all tensors moved.
  virtual absl::Status Moved(at::Device device);

 private:
  std::string name_;
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

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_TRACKED_ITEM_H_
