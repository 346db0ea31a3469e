// LibTorch is built with NDEBUG, and RecordFunction has a member less then.
// Without it, inputs() would read behind the object.
#ifndef NDEBUG
#define NDEBUG
#endif

#include "iterator/examination.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <sstream>
#include <utility>

#include "core/text.h"
#include "core/text_table.h"
#include "runtime/device/torch_errors.h"

namespace gavel::internal {
namespace {

// LibTorch's callback has no other way to reach an object.
std::atomic<OperatorWatch*> present_watch{nullptr};

std::unique_ptr<at::ObserverContext> OnOperator(
    const at::RecordFunction& call) {
  OperatorWatch* const watch = present_watch.load();
  // LibTorch would print each failure with a stack, which takes seconds.
  try {
    if (watch != nullptr) watch->Look(call);
  } catch (...) {
  }
  return nullptr;
}

// The operators of a model's forward pass. Neither optimizers nor backward
// passes call them.
constexpr std::string_view kForward[] = {
    "aten::linear", "aten::matmul", "aten::embedding",  "aten::conv1d",
    "aten::conv2d", "aten::conv3d", "aten::lstm",       "aten::gru",
    "aten::relu",   "aten::tanh",   "aten::batch_norm", "aten::layer_norm"};

// In how many steps a tensor must be written to count as state.
constexpr int kStepsOfAverage = 2;
constexpr int kStepsOfTensor = 3;

void AddTensors(const c10::IValue& value, std::vector<at::Tensor>* tensors) {
  if (value.isTensor()) tensors->push_back(value.toTensor());
  if (!value.isTensorList()) return;
  for (const at::Tensor& tensor : value.toTensorVector()) {
    tensors->push_back(tensor);
  }
}

std::string ShapeOf(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

const void* StorageOf(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  return tensor.storage().unsafeGetStorageImpl();
}

std::vector<double> RatesOf(torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) {
    rates.push_back(group.options().get_lr());
  }
  return rates;
}

std::set<const void*> ParametersOf(const TrackedState& tracked) {
  std::set<const void*> parameters;
  for (const auto& item : tracked.items()) {
    for (const auto& [name, parameter] : item->Parameters()) {
      parameters.insert(parameter.unsafeGetTensorImpl());
    }
  }
  return parameters;
}

}  // namespace

OperatorWatch::OperatorWatch(const TrackedState& tracked) : tracked_(tracked) {
  FindTracked();
  present_watch.store(this);
  handle_ =
      at::addThreadLocalCallback(at::RecordFunctionCallback(OnOperator)
                                     .needsInputs(true)
                                     .scopes({at::RecordScope::FUNCTION}));
}

OperatorWatch::~OperatorWatch() {
  at::removeCallback(handle_);
  present_watch.store(nullptr);
}

// Each step, as they may have been moved.
void OperatorWatch::FindTracked() {
  tracked_storages_.clear();
  gradient_storages_.clear();
  for (const auto& item : tracked_.items()) {
    const absl::StatusOr<std::vector<at::Tensor>> tensors = item->Tensors();
    if (!tensors.ok()) continue;  // said when they are saved
    for (const at::Tensor& tensor : *tensors) {
      tracked_storages_.insert(StorageOf(tensor));
      if (!tensor.defined() || !tensor.is_leaf()) continue;
      gradient_storages_.insert(StorageOf(tensor.grad()));
    }
  }
  tracked_storages_.erase(nullptr);
}

bool OperatorWatch::IsEvaluating() const {
  if (!at::GradMode::is_enabled()) return true;
  bool any = false;
  for (const auto& item : tracked_.items()) {
    const std::optional<bool> training = item->training();
    if (training == true) return false;  // others may be frozen parts
    any |= training.has_value();
  }
  return any;
}

void OperatorWatch::Look(const at::RecordFunction& call) {
  if (quiet_ || std::this_thread::get_id() != thread_) return;
  const std::string_view name = call.name();
  if (std::ranges::find(kForward, name) != std::end(kForward)) {
    evaluated_ = evaluated_ || IsEvaluating();
  }
  const auto inputs = call.inputs();
  for (const c10::IValue& input : inputs) {
    if (input.isGenerator()) LookAtGenerator(input.toGenerator());
  }
  if (inputs.empty() || !name.ends_with('_')) return;
  std::vector<at::Tensor> to;
  std::vector<at::Tensor> from;
  AddTensors(inputs[0], &to);
  for (size_t i = 1; i < inputs.size(); ++i) AddTensors(inputs[i], &from);
  LookAtWrite(name, to, from);
}

void OperatorWatch::LookAtWrite(std::string_view name,
                                const std::vector<at::Tensor>& to,
                                const std::vector<at::Tensor>& from) {
  const bool follows =
      std::ranges::any_of(from, [this](const at::Tensor& tensor) {
        return tracked_storages_.contains(StorageOf(tensor));
      });
  for (const at::Tensor& tensor : to) {
    const void* const storage = StorageOf(tensor);
    if (storage == nullptr || tracked_storages_.contains(storage)) continue;
    auto found = written_.find(storage);
    // Another one may lie there by now.
    if (found != written_.end() && found->second.storage.expired()) {
      written_.erase(found);
      found = written_.end();
    }
    if (found == written_.end()) {
      Written written{
          c10::weak_intrusive_ptr<c10::StorageImpl>(
              tensor.storage().getWeakStorageImpl()),
          StrCat("a tensor of ", ShapeOf(tensor), ", written by ", name)};
      found = written_.emplace(storage, std::move(written)).first;
    }
    Written& written = found->second;
    written.steps += written.last_step != step_ ? 1 : 0;
    written.last_step = step_;
    written.follows |= follows;
  }
}

void OperatorWatch::LookAtGenerator(const at::Generator& generator) {
  if (!generator.defined()) return;
  const at::Device device = generator.device();
  if (generator == at::globalContext().defaultGenerator(device)) return;
  const void* const object = generator.unsafeGetGeneratorImpl();
  const bool is_tracked = std::ranges::any_of(
      tracked_.items(),
      [object](const auto& item) { return item->object() == object; });
  if (is_tracked || !generators_.insert(object).second) return;
  found_.push_back({"generator", StrCat("a generator on ", device.str())});
}

std::vector<UntrackedState> OperatorWatch::EndStep() {
  FindTracked();
  for (auto it = written_.begin(); it != written_.end();) {
    Written& written = it->second;
    const bool is_known = written.storage.expired() ||
                          tracked_storages_.contains(it->first) ||
                          gradient_storages_.contains(it->first);
    if (is_known) {
      it = written_.erase(it);
      continue;
    }
    ++it;
    const int steps = written.follows ? kStepsOfAverage : kStepsOfTensor;
    if (written.told || written.steps < steps) continue;
    written.told = true;
    found_.push_back({written.follows ? "average" : "tensor", written.text});
  }
  ++step_;
  return std::exchange(found_, {});
}

bool OperatorWatch::TakeEvaluated() { return std::exchange(evaluated_, false); }

Examination::~Examination() {
  watch_.reset();
  if (file_ != nullptr) std::fclose(file_);
}

absl::Status Examination::Begin(const std::string& path,
                                const TrackedState& tracked) {
  file_ = std::fopen(path.c_str(), "ae");
  if (file_ == nullptr) {
    return absl::InvalidArgumentError(
        StrCat("GAVEL_EXAMINATION_FILE: ", path,
               " can't be opened for writing; give a path that can"));
  }
  tracked_ = &tracked;
  for (const auto& item : tracked.items()) {
    Write("tracked", 0, StrCat(item->name(), " ", item->kind()));
    has_scheduler_ |=
        item->kind() == "schedule" || item->kind().ends_with("scheduler");
  }
  WriteUntrackedModules();
  watch_ = std::make_unique<OperatorWatch>(tracked);
  return absl::OkStatus();
}

void Examination::SetQuiet(bool quiet) {
  if (watch_) watch_->SetQuiet(quiet);
}

void Examination::LoopBegan(uint64_t steps_done) {
  if (!on()) return;
  WriteEvaluation(steps_done);
  Write("loop-begin", steps_done, "-");
}

void Examination::LoopEnded(uint64_t steps_done, bool used_up) {
  if (on()) Write(used_up ? "loop-end" : "loop-break", steps_done, "-");
}

void Examination::StepDone(uint64_t steps_done) {
  if (!on()) return;
  WriteEvaluation(steps_done);
  for (const UntrackedState& one : watch_->EndStep()) {
    Write("untracked", steps_done, StrCat(one.kind, " ", one.text));
  }
  if (!has_scheduler_) WriteSchedules(steps_done);
}

void Examination::Paused(uint64_t steps_done, uint64_t left_bytes) {
  if (!on() || left_bytes == 0 || std::exchange(has_left_memory_, true)) return;
  Write("untracked", steps_done,
        StrCat("device ", SizeText(left_bytes),
               " stay on the accelerator during a pause"));
}

void Examination::Finish(uint64_t steps_done) {
  if (on()) WriteEvaluation(steps_done);
  watch_.reset();
}

void Examination::WriteEvaluation(uint64_t step) {
  if (watch_ && watch_->TakeEvaluated()) Write("evaluation", step, "-");
}

// Modules are found through the optimizers: an optimizer's own state is saved
// with it, but not the parameters that it trains.
void Examination::WriteUntrackedModules() {
  const std::set<const void*> parameters = ParametersOf(*tracked_);
  for (const auto& item : tracked_->items()) {
    torch::optim::Optimizer* const optimizer = OptimizerOf(*item);
    if (optimizer == nullptr) continue;
    size_t count = 0;
    for (const auto& group : optimizer->param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        count += parameters.contains(parameter.unsafeGetTensorImpl()) ? 0 : 1;
      }
    }
    if (count == 0) continue;
    Write("untracked", 0,
          StrCat("module '", item->name(), "' trains ", count,
                 " parameters of no tracked module"));
  }
}

// The rate itself is saved with its optimizer; where the schedule is, is not.
void Examination::WriteSchedules(uint64_t step) {
  for (const auto& item : tracked_->items()) {
    torch::optim::Optimizer* const optimizer = OptimizerOf(*item);
    if (optimizer == nullptr) continue;
    std::vector<double> rates = RatesOf(*optimizer);
    std::vector<double>& before = rates_[item->name()];
    if (!before.empty() && rates != before) {
      Write("untracked", step,
            StrCat("schedule the learning rate of '", item->name(),
                   "' changes, and no scheduler is tracked"));
      has_scheduler_ = true;  // once
    }
    before = std::move(rates);
  }
}

void Examination::Write(const char* word, uint64_t step,
                        std::string_view text) {
  std::string line = StrCat(word, " ", step, " ", text);
  for (char& c : line) c = c == '\n' ? ' ' : c;
  std::fprintf(file_, "%s\n", line.c_str());
  std::fflush(file_);
}

}  // namespace gavel::internal
