// gavel/tracking.h: each kind of thing as a TrackedItem.
#include "gavel/tracking.h"

#include <utility>

#include "core/text.h"
#include "iterator/optimizer_kinds.h"
#include "iterator/optimizer_state.h"
#include "iterator/session/session_state.h"
#include "iterator/status_conversion.h"
#include "iterator/tracked_item.h"

namespace gavel {

using internal::ToPublic;

namespace {

constexpr char kSharded[] = "sharded";  // in messages

}  // namespace

Tracking::Tracking(std::unique_ptr<internal::SessionState> state)
    : state_(std::move(state)) {}
Tracking::~Tracking() = default;

Status Tracking::Track(const std::string& name,
                       std::shared_ptr<torch::nn::Module> module) {
  if (module == nullptr) return FailForNull(name);
  return ToPublic(
      state_->Track(internal::TrackModule(name, std::move(module))));
}

Status Tracking::Track(const std::string& name, torch::jit::Module& module) {
  return ToPublic(state_->Track(internal::TrackScriptModule(name, module)));
}

Status Tracking::Track(const std::string& name,
                       torch::optim::Optimizer& optimizer) {
  const absl::StatusOr<OptimizerKind> kind = internal::KindOf(optimizer, name);
  if (kind.ok()) return Track(name, optimizer, *kind);
  state_->Fail(kind.status());
  return ToPublic(kind.status());
}

Status Tracking::Track(const std::string& name,
                       torch::optim::Optimizer& optimizer,
                       const OptimizerKind& kind) {
  const absl::Status status =
      internal::CheckOptimizerKind(optimizer, kind, name);
  if (status.ok()) {
    return ToPublic(
        state_->Track(internal::TrackOptimizer(name, optimizer, kind)));
  }
  state_->Fail(status);
  return ToPublic(status);
}

Status Tracking::Track(const std::string& name,
                       torch::optim::LRScheduler& scheduler) {
  return ToPublic(state_->Track(internal::TrackScheduler(name, scheduler)));
}

Status Tracking::Track(const std::string& name,
                       torch::optim::ReduceLROnPlateauScheduler& scheduler) {
  return ToPublic(state_->Track(internal::TrackScheduler(name, scheduler)));
}

Status Tracking::Track(const std::string& name, at::Tensor& tensor) {
  return ToPublic(state_->Track(internal::TrackTensor(name, tensor)));
}

Status Tracking::Track(const std::string& name,
                       std::vector<at::Tensor>& tensors) {
  return ToPublic(state_->Track(internal::TrackTensors(name, tensors)));
}

Status Tracking::Track(const std::string& name, at::Tensor& tensor,
                       Sharded sharded) {
  return ToPublic(state_->Track(internal::TrackTensor(name, tensor), sharded));
}

Status Tracking::Track(const std::string& name,
                       std::shared_ptr<torch::nn::Module> module,
                       Sharded sharded) {
  if (module == nullptr) return FailForNull(name);
  return ToPublic(
      state_->Track(internal::TrackModule(name, std::move(module)), sharded));
}

Status Tracking::Shard(std::shared_ptr<torch::nn::Module> module,
                       Sharded sharded) {
  if (module == nullptr) return FailForNull(kSharded);
  return ToPublic(state_->Shard(
      *internal::TrackModule(kSharded, std::move(module)), sharded));
}

Status Tracking::Track(const std::string& name, at::Generator& generator) {
  return ToPublic(state_->Track(internal::TrackGenerator(name, generator)));
}

Status Tracking::Track(const std::string& name, std::string& text) {
  return ToPublic(state_->Track(internal::TrackText(name, text)));
}

Status Tracking::TrackBytes(const std::string& name,
                            std::function<std::string()> save,
                            std::function<void(const std::string&)> load) {
  return ToPublic(state_->Track(
      internal::TrackBytes(name, std::move(save), std::move(load))));
}

Status Tracking::FailForNull(const std::string& name) {
  absl::Status status = absl::InvalidArgumentError(
      StrCat("module '", name, "' is null; make it before it is tracked"));
  state_->Fail(status);
  return ToPublic(status);
}

Status Tracking::TrackNumber(const std::string& name, const char* kind,
                             void* number, size_t size) {
  return ToPublic(
      state_->Track(internal::TrackNumber(name, kind, number, size)));
}

Status Tracking::TrackEngine(const std::string& name,
                             std::function<std::string()> save,
                             std::function<bool(const std::string&)> load) {
  return ToPublic(state_->Track(
      internal::TrackEngine(name, std::move(save), std::move(load))));
}

}  // namespace gavel
