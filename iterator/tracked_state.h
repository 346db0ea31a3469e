// Everything that the user tracks, under unique names: one TrackedItem for each
// thing, with the entries that its tensors have in a Snapshot, and TrackedState
// which holds all of them. Training thread only.
#ifndef GAVEL_ITERATOR_TRACKED_STATE_H_
#define GAVEL_ITERATOR_TRACKED_STATE_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gavel/tracking.h"
#include "iterator/parked_tensors.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/device/device_move.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace torch::jit {
struct Module;
}  // namespace torch::jit

namespace torch::optim {
class LRScheduler;
class Optimizer;
class ReduceLROnPlateauScheduler;
}  // namespace torch::optim

namespace gavel {
struct OptimizerKind;
}  // namespace gavel

namespace gavel::internal {

// Which tensors of the job are this rank's part of a larger one, as the program
// says (gavel::Sharded). Kept by TrackedState; training thread only.
class Partitions {
 public:
  // Before the first tensor. Parts are cut for so many workers.
  void SetGang(int rank, int world_size) {
    rank_ = rank;
    world_size_ = world_size;
  }
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  bool empty() const { return marked_.empty(); }

  // One without the dimension is the same on all ranks. INVALID_ARGUMENT: not
  // dense, or not of the size that this rank's part has; `name` is for the
  // message. Does nothing for one that is marked already in the same way.
  absl::Status Mark(const std::string& name, const at::Tensor& tensor,
                    const Sharded& sharded);
  // nullopt: it is the same on all ranks.
  std::optional<OwnPart> Find(const at::Tensor& tensor) const;
  // The part that Mark() would note for it.
  std::optional<OwnPart> Of(const at::Tensor& tensor,
                            const Sharded& sharded) const;

 private:
  int rank_ = 0;
  int world_size_ = 1;
  // Keeps the tensors, so that no other gets their place.
  std::map<const c10::TensorImpl*, std::pair<at::Tensor, OwnPart>> marked_;
};

// ---- One tensor of the tracked state as entries of a Snapshot, and back. A
// dense one is one entry. A sparse one is its parts, and a line of text:
//
//   NAME/layout    bytes   "coo 4 6" or "coalesced coo 4 6" or "csr 4 6"
//   NAME/indices, NAME/values                               of a COO tensor
//   NAME/crow_indices, NAME/col_indices, NAME/values        of a CSR tensor

// Adds nothing for an undefined tensor. `part` says which part of a larger one
// the tensor is. UNIMPLEMENTED: another layout.
absl::Status CollectTensor(const std::string& name, const at::Tensor& tensor,
                           const std::optional<OwnPart>& part,
                           Snapshot* snapshot);

// Whether one of this name is there, in whichever form.
bool HasTensor(const Snapshot& snapshot, const std::string& name);

// Into the tensor that is there, so that all who share it see it; an undefined
// one is made, if the snapshot has it. FAILED_PRECONDITION: none is saved under
// this name, or one of another layout, shape or type, or a whole of which this
// is not the part. May throw what LibTorch throws.
absl::Status RestoreTensor(const Snapshot& snapshot, const std::string& name,
                           const std::optional<OwnPart>& part,
                           at::Tensor& tensor);

// LibTorch can't put a CSR tensor elsewhere in place (set_data leaves its parts
// as they were), so its handle is replaced. Nothing for other layouts.
void ReplaceCsr(at::Tensor& tensor, at::Device device);
// UNIMPLEMENTED: one of `tensors` is CSR and not on `device`; of a module,
// whose handles are not ours to replace.
absl::Status CheckNoCsr(const std::string& name,
                        const std::vector<at::Tensor>& tensors,
                        at::Device device);

// How a checkpoint is taken that is not of this program in all.
struct RestoreRules {
  bool partial = false;               // see SessionOptions::partial_restore
  bool keep_program_options = false;  // see there
};

// One thing that the user tracks: how it gets into a Snapshot, out of it, and
// which tensors of it live on the accelerator. Tracking makes it, TrackedState
// keeps it, and only the training thread uses it. The thing is borrowed, except
// for modules and generators, whose handle is shared.
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
  // The part of a tensor that this rank has; nullopt: all of it.
  std::optional<OwnPart> PartOf(const at::Tensor& tensor) const;
  // Written next to the state, so that another kind under the same name is not
  // taken for damage.
  virtual std::string kind() const = 0;
  // Where the object is that it tracks: the same one can't be tracked under two
  // names. Null: it is not known.
  virtual const void* object() const { return nullptr; }
  // All names in the snapshot are name() or begin with name() and a slash.
  virtual absl::Status Collect(Snapshot* snapshot) = 0;
  // FAILED_PRECONDITION: of another shape or type; the message names it.
  virtual absl::Status Restore(const Snapshot& snapshot) = 0;
  // Whether a module is in training mode; nullopt for other kinds.
  virtual std::optional<bool> training() const { return std::nullopt; }
  // Puts a module into evaluation mode, and returns what undoes that.
  virtual std::function<void()> Evaluate() { return nullptr; }
  // Whether Collect() may add tensors.
  virtual bool has_tensors() const { return false; }
  // The tensors that Restore() writes in place, each under its name in the
  // snapshot; undefined ones are made. nullopt: any are taken.
  virtual absl::StatusOr<std::optional<std::vector<NamedTensor>>> Places();
  // After the first step: notes what looks as if it would be lost.
  virtual void LookForLosses() {}
  // The tensors that move with the lease; none for most kinds.
  virtual absl::StatusOr<std::vector<at::Tensor>> Tensors();
  // The tensors that an optimizer may train, each under its name in the
  // snapshot.
  virtual std::vector<NamedTensor> Parameters() { return {}; }
  // After all tensors moved.
  virtual absl::Status Moved(at::Device device);

 protected:
  const RestoreRules& rules() const { return rules_; }
  void AddNote(std::string note) { notes_.push_back(std::move(note)); }
  // Like RestoreTensor(). Under the rule `partial`, what the snapshot does not
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

// Returns null when `item` has another kind.
torch::optim::Optimizer* OptimizerOf(TrackedItem& item);
// Whether `item` is a scheduler; then, whether it is one of `optimizer`.
bool IsScheduler(const TrackedItem& item);
bool IsSchedulerOf(const TrackedItem& item,
                   const torch::optim::Optimizer& optimizer);
// A gavel::Schedule that is made after its restored optimizer has set the rates
// of a beginning. Sets those of the restored step; does nothing to other items.
void ApplySchedule(TrackedItem& item);

// Whether a checkpoint was read into this tensor, which has been tracked.
// Thread-safe. A tensor at the place of an earlier one counts as that one.
bool WasRestored(const at::Tensor& tensor);

class TrackedState {
 public:
  // First of all: parts are cut for this gang.
  void SetGang(int rank, int world_size) {
    partitions_.SetGang(rank, world_size);
  }
  // Borrowed: for what moves between accelerators and host memory.
  void SetArena(Arena* arena) { arena_ = arena; }
  void SetRules(const RestoreRules& rules) { rules_ = rules; }
  // The tensors of `item` that have the dimension are this rank's parts.
  // INVALID_ARGUMENT: none has it, or Partitions::Mark returns it;
  // FAILED_PRECONDITION: one is tracked already.
  absl::Status Shard(TrackedItem& item, const Sharded& sharded);
  bool has_parts() const { return !partitions_.empty(); }
  bool IsPart(const at::Tensor& tensor) const {
    return partitions_.Find(tensor).has_value();
  }

  // Adds, and restores from `restored` unless that is null. INVALID_ARGUMENT:
  // not a name ([A-Za-z0-9_.-]{1,64}, not "gavel"); ALREADY_EXISTS: twice, by
  // name or by object; NOT_FOUND: `restored` has no such entry;
  // FAILED_PRECONDITION: it has one of another kind or shape, or a tensor that
  // `item` has no place for, or lacks one. Then it is not tracked.
  // INVALID_ARGUMENT also: it has a tensor that can't be saved. `sharded`:
  // calls Shard() first, and returns its errors, too.
  absl::Status Add(std::unique_ptr<TrackedItem> item, const Snapshot* restored,
                   std::optional<Sharded> sharded = std::nullopt);

  // Warnings of Add() and CheckRestorable(), a line each.
  std::vector<std::string> TakeNotes() { return std::exchange(notes_, {}); }
  // All is tracked. FAILED_PRECONDITION: an optimizer trains parameters that
  // nothing tracked has (where `parameters` is true), or a scheduler has an
  // optimizer that is not tracked; or `restored`, unless null, has tensors that
  // nothing took.
  absl::Status CheckWhole(const Snapshot* restored, bool parameters) const;

  absl::Status Collect(Snapshot* snapshot);
  // After a step: whether all can be saved, and then be restored by a program
  // that tracks what this one did. Names what can't.
  absl::Status CheckRestorable();
  // The gradients of parameters, which Add() restores where there are any.
  absl::Status CollectGradients(
      const std::function<bool(const at::Tensor& parameter)>& saves,
      Snapshot* snapshot) const;
  // All tensors together, so that those which share memory go on to do so. All
  // or nothing for the tensors.
  absl::Status MoveTo(at::Device device, MoveCopy copy = MoveCopy::kIfNeeded);
  // Tensors that have a copy in host memory look into that, see ParkedTensors,
  // until MoveTo().
  absl::Status Park(const std::vector<HostCopy>& copies);
  // One rank of the gang keeps the tensors that all ranks have, `gradients`
  // too, from the next MoveToHost() on until FillDivided(), see DividedTensors.
  // `copies` are those of all ranks.
  absl::Status Divide(const std::vector<HostCopy>& copies,
                      const std::vector<at::Tensor>& gradients);
  // Call it when the gang has sent the missing values.
  void FillDivided() { divided_.Forget(); }
  const DividedTensors& divided() const { return divided_; }
  // The rest goes to host memory.
  absl::Status MoveToHost();
  // The bytes of all tensors that move; shared memory counts once.
  uint64_t SizeBytes() const { return Bytes(/*with_gradients=*/false); }
  // The arena's memory that MoveToHost() takes for the state and its gradients.
  uint64_t MoveBytes() const { return Bytes(/*with_gradients=*/true); }
  // Names of state in `restored` that is not tracked: the program forgot it.
  std::vector<std::string> Untracked(const Snapshot& restored) const;

  const std::vector<std::unique_ptr<TrackedItem>>& items() const {
    return items_;
  }

 private:
  // Without those of CSR, which Moved() replaces.
  absl::StatusOr<std::vector<at::Tensor>> Movable() const;
  absl::Status MoveUnparked(at::Device device, MoveCopy copy);
  uint64_t Bytes(bool with_gradients) const;

  // A tensor as it was when it was tracked; an undefined one becomes any.
  struct Place {
    bool defined = false;
    at::ScalarType dtype = at::ScalarType::Undefined;
    std::vector<int64_t> sizes;
  };
  using Places = std::optional<std::map<std::string, Place>>;
  static absl::StatusOr<Places> PlacesOf(TrackedItem& item);
  static absl::Status CheckPlaces(TrackedItem& item, const Places& before);
  absl::Status CheckTaken(TrackedItem& item, const Snapshot& restored);
  bool IsTracked(std::string_view name) const;

  Arena* arena_ = nullptr;
  Partitions partitions_;
  RestoreRules rules_;
  std::vector<std::string> notes_;
  std::vector<Places> places_;  // of items_
  std::vector<std::unique_ptr<TrackedItem>> items_;
  ParkedTensors parked_;
  DividedTensors divided_;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_TRACKED_STATE_H_
