#include "gavel/session.h"

#include <exception>
#include <utility>

#include "gavel/profile.h"
#include "iterator/session/session_state.h"
#include "iterator/status_conversion.h"
#include "runtime/torch_errors.h"

namespace gavel {

using internal::ToPublic;

std::unique_ptr<Session> Session::FromEnvironment() {
  SessionOptions options;
  const Status read = ReadEnvironment(&options);
  absl::Status problem = absl::OkStatus();
  if (!read.ok()) problem = absl::InvalidArgumentError(read.message());
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

}  // namespace gavel
