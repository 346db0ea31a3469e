#include "iterator/examination.h"

#include <torch/optim/optimizer.h>

#include <set>
#include <utility>

#include "core/size_text.h"
#include "core/text.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

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
    has_scheduler_ |= item->kind().ends_with("scheduler");
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

// Found through the optimizers: an optimizer's own state is saved with it, and
// not what it trains.
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
