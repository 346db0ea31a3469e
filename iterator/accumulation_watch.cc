#include "iterator/accumulation_watch.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/record_function.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/device/torch_errors.h"

namespace gavel::internal {
namespace {

// Parameters of an optimizer that are looked at: a program resets all alike.
constexpr size_t kSamplesMax = 8;
// The first of these tell by bits or counters whether it made a step.
constexpr size_t kMarkedMax = 2;
constexpr size_t kMarkedBytesMax = 256;
// Steps that are looked at until one shows what the program does: more than
// two, as the first ones may be unlike the others.
constexpr int kLooksMax = 5;

bool IsNonzero(const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  const at::DisableRecordFunctionGuard no_record;  // no doing of the program's
  const at::Tensor values =
      gradient.layout() == at::kSparse ? gradient._values() : gradient.detach();
  return values.numel() > 0 && values.any().item<bool>();
}

// FNV-1a over words.
void Mix(uint64_t word, uint64_t* hash) {
  *hash = (*hash ^ word) * uint64_t{0x100000001b3};
}

void MixBits(const at::Tensor& tensor, uint64_t* hash) {
  const size_t bytes =
      std::min<size_t>(static_cast<size_t>(tensor.nbytes()), kMarkedBytesMax);
  const auto* const data = static_cast<const char*>(tensor.const_data_ptr());
  for (size_t begin = 0; begin < bytes; begin += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, data + begin, std::min(sizeof(word), bytes - begin));
    Mix(word, hash);
  }
}

bool CanBeLookedAt(const at::Tensor& parameter) {
  return parameter.defined() && parameter.is_leaf() &&
         parameter.requires_grad() && !parameter.is_inference() &&
         parameter.layout() == at::kStrided && parameter.numel() > 0 &&
         parameter.is_non_overlapping_and_dense();
}

}  // namespace

AccumulationWatch::~AccumulationWatch() {
  for (Group& group : groups_) {
    for (Sample& sample : group.samples) {
      CatchAsStatus("removing a hook", [&] {
        sample.parameter.remove_hook(sample.hook);
        return absl::OkStatus();
      }).IgnoreError();
    }
  }
}

void AccumulationWatch::Begin(const TrackedState& tracked, Gradients mode) {
  mode_ = mode;
  if (mode != Gradients::kDetect) return;
  // A gradient that can't be looked at is saved.
  CatchAsStatus("looking at gradients", [&] {
    std::unordered_map<const void*, bool> optimized;
    for (const auto& item : tracked.items()) {
      torch::optim::Optimizer* const optimizer = OptimizerOf(*item);
      if (optimizer == nullptr) continue;
      Group group;
      group.name = StrCat("'", item->name(), "'");
      group.optimizer = optimizer;
      group.counter = StepCounterOf(*optimizer);
      std::vector<at::Tensor> parameters;
      for (const auto& one : optimizer->param_groups()) {
        for (const at::Tensor& parameter : one.params()) {
          optimized[parameter.unsafeGetTensorImpl()] = true;
          parameters.push_back(parameter);
        }
      }
      AddGroup(std::move(group), std::move(parameters));
    }
    Group others;
    others.name = "parameters of no tracked optimizer";
    std::vector<at::Tensor> parameters;
    for (const auto& item : tracked.items()) {
      for (const auto& [name, parameter] : item->Parameters()) {
        if (!optimized.contains(parameter.unsafeGetTensorImpl())) {
          parameters.push_back(parameter);
        }
      }
    }
    AddGroup(std::move(others), std::move(parameters));
    return absl::OkStatus();
  }).IgnoreError();
  decided_ = groups_.empty();
}

void AccumulationWatch::AddGroup(Group group,
                                 std::vector<at::Tensor> parameters) {
  std::erase_if(parameters,
                [](const at::Tensor& one) { return !CanBeLookedAt(one); });
  if (parameters.empty()) return;
  for (const at::Tensor& parameter : parameters) {
    groups_of_[parameter.unsafeGetTensorImpl()].push_back(groups_.size());
  }
  std::stable_sort(parameters.begin(), parameters.end(),
                   [](const at::Tensor& a, const at::Tensor& b) {
                     return a.nbytes() < b.nbytes();
                   });
  // Evenly over all sizes.
  const size_t count = std::min(parameters.size(), kSamplesMax);
  for (size_t i = 0; i < count; ++i) {
    Sample sample;
    sample.parameter = parameters[i * parameters.size() / count];
    sample.hook = sample.parameter.register_hook(
        [seen = sample.seen,
         weak =
             c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>(
                 sample.parameter.getIntrusivePtr())](const at::Tensor&) {
          if (!seen->armed.load(std::memory_order_relaxed)) return;
          // A second backward pass of the step adds to the first one's.
          if (!seen->armed.exchange(false)) return;
          const at::Tensor parameter(weak.lock());
          const at::Tensor gradient =
              parameter.defined() ? parameter.grad() : at::Tensor();
          const absl::Status status =
              CatchAsStatus("looking at a gradient", [&] {
                seen->added = gradient.defined() && IsNonzero(gradient);
                return absl::OkStatus();
              });
          if (!status.ok()) seen->added = true;
          seen->fired = true;
        });
    group.samples.push_back(std::move(sample));
  }
  group.mark = MarkOf(group);
  groups_.push_back(std::move(group));
}

// Differs after a step of the optimizer. nullopt: it is on an accelerator, and
// only bits would tell.
std::optional<uint64_t> AccumulationWatch::MarkOf(const Group& group) {
  uint64_t mark = 0xcbf29ce484222325;
  const size_t count = std::min(group.samples.size(), kMarkedMax);
  for (size_t i = 0; i < count; ++i) {
    const at::Tensor& parameter = group.samples[i].parameter;
    if (group.counter != nullptr) {
      const auto& states = group.optimizer->state();
      const auto state = states.find(parameter.unsafeGetTensorImpl());
      const std::optional<int64_t> steps =
          state == states.end() ? std::nullopt : group.counter(*state->second);
      if (steps) {
        Mix(static_cast<uint64_t>(*steps), &mark);
        continue;
      }
    }
    if (!parameter.is_cpu()) return std::nullopt;
    MixBits(parameter, &mark);
  }
  return mark;
}

bool AccumulationWatch::LookAtStep() {
  const size_t news = news_.size();
  bool decided = true;
  const absl::Status status = CatchAsStatus("looking at gradients", [&] {
    const at::NoGradGuard no_grad;
    for (Group& group : groups_) {
      const std::optional<uint64_t> mark = MarkOf(group);
      group.stepped.reset();
      if (mark) {
        group.stepped = group.mark && *group.mark != *mark;
      } else {
        // Compared when it is asked for, as that waits for the device.
        std::swap(group.before, group.now);
        const at::DisableRecordFunctionGuard no_record;
        const at::Tensor& parameter = group.samples[0].parameter;
        if (!group.now.defined() || group.now.device() != parameter.device()) {
          group.now = at::empty_like(parameter.detach());
        }
        group.now.copy_(parameter.detach(), /*non_blocking=*/true);
      }
      group.mark = mark;
      if (group.looks) TakeLook(group);
      if (group.resets || group.adds) continue;
      decided = false;
      if (looks_ < kLooksMax && HasGradient(group)) Arm(group);
    }
    return absl::OkStatus();
  });
  if (!status.ok()) groups_.clear();  // nothing is known: all are saved
  decided = decided || ++looks_ >= kLooksMax;
  const bool is_new = decided && !std::exchange(decided_, decided);
  return is_new || news_.size() > news;
}

bool AccumulationWatch::Stepped(Group& group) {
  if (group.stepped) return *group.stepped;
  bool stepped = false;  // also where it is not known
  CatchAsStatus("comparing a parameter", [&] {
    stepped = group.before.defined() && group.now.defined() &&
              group.before.device() == group.now.device() &&
              !at::equal(group.before, group.now);
    return absl::OkStatus();
  }).IgnoreError();
  group.stepped = stepped;
  return stepped;
}

bool AccumulationWatch::HasGradient(const Group& group) {
  return std::ranges::any_of(group.samples, [](const Sample& sample) {
    return sample.parameter.grad().defined();
  });
}

void AccumulationWatch::Arm(Group& group) {
  group.looks = true;
  for (Sample& sample : group.samples) {
    sample.seen->fired = false;
    sample.seen->added = false;
    sample.seen->armed = true;
  }
}

// After the step that was looked at.
void AccumulationWatch::TakeLook(Group& group) {
  group.looks = false;
  bool fired = false;
  bool added = false;
  for (Sample& sample : group.samples) {
    sample.seen->armed = false;
    fired = fired || sample.seen->fired;
    added = added || sample.seen->added;
  }
  const std::optional<uint64_t> left_out =
      std::exchange(group.left_out, std::nullopt);
  group.resets = group.resets || (fired && !added);
  if (!added || group.adds) return;
  group.adds = true;
  if (left_out) {
    news_.push_back(
        {StrCat("the checkpoint of step ", *left_out,
                " was written without the gradients of ", group.name,
                ", and step ", *left_out + 1,
                " added to them: a restart from it trains differently. "
                "Checkpoints hold them from now on, and one is taken at once; "
                "SessionOptions::gradients (GAVEL_GRADIENTS=always) has them "
                "in all"),
         true});
  } else {
    news_.push_back({StrCat("gradients add up over several steps: checkpoints "
                            "hold those of ",
                            group.name, ", too"),
                     false});
  }
}

bool AccumulationWatch::Saves(const at::Tensor& parameter) {
  if (mode_ != Gradients::kDetect) return mode_ == Gradients::kSaveAlways;
  const auto found = groups_of_.find(parameter.unsafeGetTensorImpl());
  if (found == groups_of_.end() || groups_.empty()) return true;
  return std::ranges::any_of(found->second, [this](size_t index) {
    Group& group = groups_[index];
    return group.adds || !group.resets || !Stepped(group);
  });
}

void AccumulationWatch::Saved(uint64_t step) {
  for (Group& group : groups_) {
    if (group.adds || !group.resets || !Stepped(group)) continue;
    if (!HasGradient(group)) continue;
    group.left_out = step;
    Arm(group);
  }
}

std::vector<AccumulationWatch::News> AccumulationWatch::TakeNews() {
  return std::exchange(news_, {});
}

void AccumulationWatch::Leave() {
  for (Group& group : groups_) {
    Stepped(group);
    group.before.reset();
    group.now.reset();
  }
}

void AccumulationWatch::Arrive() {
  for (Group& group : groups_) {
    group.mark = MarkOf(group);
    if (group.mark) continue;
    CatchAsStatus("copying a parameter", [&] {
      group.now = group.samples[0].parameter.detach().clone();
      return absl::OkStatus();
    }).IgnoreError();
  }
}

absl::Status StepMark::Set(uint64_t steps_done, const Snapshot& snapshot,
                           const TrackedState& tracked) {
  is_set_ = false;
  GAVEL_RETURN_IF_ERROR(ReadVersions(tracked, &versions_));
  steps_done_ = steps_done;
  bytes_ = snapshot.bytes;
  is_set_ = true;
  return absl::OkStatus();
}

bool StepMark::Holds(uint64_t steps_done, const TrackedState& tracked) const {
  if (!is_set_ || steps_done != steps_done_) return false;
  std::vector<Version> versions;
  return ReadVersions(tracked, &versions).ok() && versions == versions_;
}

void StepMark::Restore(Snapshot* snapshot) const { snapshot->bytes = bytes_; }

absl::Status StepMark::ReadVersions(const TrackedState& tracked,
                                    std::vector<Version>* versions) {
  return CatchAsStatus("reading the versions of tensors", [&] {
    versions->clear();
    for (const auto& item : tracked.items()) {
      GAVEL_ASSIGN_OR_RETURN(const std::vector<at::Tensor> tensors,
                             item->Tensors());
      for (const at::Tensor& tensor : tensors) {
        if (!tensor.defined()) continue;
        versions->push_back(
            {tensor.unsafeGetTensorImpl(),
             tensor.has_storage() ? tensor.storage().data() : nullptr,
             tensor._version()});
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace gavel::internal
