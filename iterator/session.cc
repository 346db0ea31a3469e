#include "gavel/session.h"

#include <utility>

#include "core/text.h"
#include "iterator/session_state.h"
#include "iterator/status_conversion.h"
#include "iterator/tracked_item.h"
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
    : state_(std::move(state)) {}
Session::~Session() = default;

Status Session::Track(const std::string& name,
                      std::shared_ptr<torch::nn::Module> module) {
  if (module == nullptr) {
    absl::Status status = absl::InvalidArgumentError(
        StrCat("module '", name, "' is null; make it before it is tracked"));
    state_->Fail(status);
    return ToPublic(status);
  }
  return ToPublic(
      state_->Track(internal::TrackModule(name, std::move(module))));
}

Status Session::Track(const std::string& name,
                      torch::optim::Optimizer& optimizer) {
  return ToPublic(state_->Track(internal::TrackOptimizer(name, optimizer)));
}

Status Session::Track(const std::string& name, at::Tensor& tensor) {
  return ToPublic(state_->Track(internal::TrackTensor(name, tensor)));
}

Status Session::Track(const std::string& name, std::string& text) {
  return ToPublic(state_->Track(internal::TrackText(name, text)));
}

Status Session::Track(const std::string& name,
                      std::function<std::string()> save,
                      std::function<void(const std::string&)> load) {
  return ToPublic(state_->Track(
      internal::TrackBytes(name, std::move(save), std::move(load))));
}

Status Session::TrackNumber(const std::string& name, void* number,
                            size_t size) {
  return ToPublic(state_->Track(internal::TrackNumber(name, number, size)));
}

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
int64_t Session::steps_done() const { return state_->steps_done(); }
bool Session::stopped() const { return state_->stopped(); }
bool Session::finished() const { return state_->finished(); }
Status Session::status() const { return ToPublic(state_->status()); }

internal::LoopPlan Session::EnterLoop(internal::RangePosition* range) {
  return state_->EnterLoop(range);
}
void Session::LoopForwarded() { state_->LoopForwarded(); }
bool Session::Boundary(bool after_step) { return state_->Boundary(after_step); }
void Session::LeaveLoop() { state_->LeaveLoop(); }

void Session::Fail() noexcept {
  state_->Fail(internal::CatchAsStatus("reading a batch",
                                       []() -> absl::Status { throw; }));
}

}  // namespace gavel
