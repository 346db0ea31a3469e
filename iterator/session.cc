// The public classes of gavel/session.h, gavel/tracking.h and
// gavel/data_parallel.h, which forward to SessionState.
#include "gavel/session.h"

#include <exception>
#include <utility>

#include "core/text.h"
#include "gavel/data_parallel.h"
#include "gavel/profile.h"
#include "gavel/tracking.h"
#include "iterator/environment.h"
#include "iterator/optimizers.h"
#include "iterator/session_state.h"
#include "iterator/tracked_state.h"
#include "runtime/device/torch_errors.h"

namespace gavel {
namespace {

constexpr char kSharded[] = "sharded";  // in messages

}  // namespace

using internal::ToPublic;

std::unique_ptr<Session> Session::FromEnvironment() {
  SessionOptions options;
  const Status read = ReadEnvironment(&options);
  absl::Status problem = absl::OkStatus();
  if (!read.ok()) problem = internal::FromPublic(read);
  return std::unique_ptr<Session>(
      new Session(std::make_unique<internal::SessionState>(
          std::move(options), std::move(problem))));
}

std::unique_ptr<Session> Session::Create(SessionOptions options) {
  return std::unique_ptr<Session>(
      new Session(std::make_unique<internal::SessionState>(std::move(options),
                                                           absl::OkStatus())));
}

Session::Session(std::unique_ptr<internal::SessionState> state)
    : Tracking(std::move(state)) {}
Session::~Session() = default;

bool Session::Boundary() { return state_->Boundary(); }
void Session::StepDone() { state_->StepDone(); }

void Session::OnRelease(std::function<void()> call) {
  state_->OnRelease(std::move(call));
}
void Session::OnAcquire(std::function<void(at::Device)> call) {
  state_->OnAcquire(std::move(call));
}

Status Session::AllReduce(const at::Tensor& tensor, ReduceOp op) {
  return ToPublic(state_->AllReduce(tensor, op));
}
Status Session::Broadcast(const at::Tensor& tensor) {
  return ToPublic(state_->Broadcast(tensor));
}
Status Session::Barrier() { return ToPublic(state_->Barrier()); }

Status Session::Accumulate(int64_t batches) {
  return ToPublic(state_->Accumulate(batches));
}
void Session::OnEpoch(std::function<void()> call) {
  state_->OnEpoch(std::move(call));
}
Status Session::OnEvaluate(int64_t every_steps, std::function<void()> call) {
  return ToPublic(state_->OnEvaluate(every_steps, std::move(call)));
}
Status Session::RestoreBest() { return ToPublic(state_->RestoreBest()); }

void Session::Report(std::string_view name, double value) {
  state_->Report(name, value);
}

void Session::Report(std::string_view name, const at::Tensor& scalar) {
  state_->ReportTensor(name, scalar);
}

int Session::Finish() { return state_->Finish(); }

at::Device Session::device() const { return state_->device(); }
int Session::rank() const { return state_->rank(); }
int Session::world_size() const { return state_->world_size(); }
bool Session::last_micro_batch() const { return state_->last_micro_batch(); }
double Session::loss_scale() const { return state_->loss_scale(); }
int64_t Session::steps_done() const { return state_->steps_done(); }
bool Session::stopped() const { return state_->stopped(); }
bool Session::finished() const { return state_->finished(); }
Status Session::status() const { return ToPublic(state_->status()); }
Profile Session::profile() const { return state_->profile(); }

internal::LoopPlan Session::EnterLoop(internal::RangePosition* range,
                                      internal::BatchOwner* batch) {
  return state_->EnterLoop(range, batch);
}
bool Session::LoopForwarded() { return state_->LoopForwarded(); }
void Session::FirstBatch(uint64_t fingerprint) {
  state_->FirstBatch(fingerprint);
}
bool Session::StepBoundary(bool after_step) {
  return state_->StepBoundary(after_step);
}
void Session::BatchReady() { state_->BatchReady(); }
void Session::EndSpan(const char* name,
                      std::chrono::steady_clock::time_point begin,
                      std::chrono::steady_clock::time_point end) {
  state_->EndSpan(name, internal::ToNanoseconds(begin),
                  internal::ToNanoseconds(end));
}
void Session::LeaveLoop(bool at_step_end) { state_->LeaveLoop(at_step_end); }

void Session::Fail(std::string_view what) noexcept {
  if (std::current_exception() == nullptr) return;
  state_->Fail(internal::CatchAsStatus(what, []() -> absl::Status { throw; }));
}

// ---- Tracking: each kind of thing as a TrackedItem.

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

Status Tracking::FailUnlessOk(Status status) {
  if (!status.ok()) state_->Fail(internal::FromPublic(status));
  return status;
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

DataParallel::DataParallel(Session& session,
                           std::shared_ptr<torch::nn::Module> module,
                           DataParallelOptions options)
    : state_(*session.state_), module_(std::move(module)) {
  state_.AddToGang(module_, options.broadcast_buffers);
}

DataParallel::~DataParallel() { state_.RemoveFromGang(module_.get()); }

}  // namespace gavel
