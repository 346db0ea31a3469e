// Learning-rate schedulers as tracked items. LibTorch's C++ classes can neither
// be saved nor asked for their state, so it is reached by pointers to members:
// the one of LRScheduler as a derived class may, those of ReduceLROnPlateau by
// an explicit instantiation, where access is not checked ([temp.spec.general]).
// Both are plain C++: a LibTorch that names them otherwise does not compile.
#include <torch/optim/schedulers/lr_scheduler.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>

#include <cstring>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "core/text.h"
#include "iterator/tracked_item.h"

namespace gavel::internal {

using Plateau = torch::optim::ReduceLROnPlateauScheduler;

namespace {

struct StepCount : torch::optim::LRScheduler {
  static unsigned LRScheduler::*Member() { return &StepCount::step_count_; }
};

// Each instantiation below defines the function that its Tag declares.
template <class Tag, auto member>
struct Reach {
  friend auto MemberOf(Tag) { return member; }
};
struct Best {
  friend auto MemberOf(Best);
};
struct BadEpochs {
  friend auto MemberOf(BadEpochs);
};
struct Cooldown {
  friend auto MemberOf(Cooldown);
};
struct LastEpoch {
  friend auto MemberOf(LastEpoch);
};
template struct Reach<Best, &Plateau::best>;
template struct Reach<BadEpochs, &Plateau::num_bad_epochs>;
template struct Reach<Cooldown, &Plateau::cooldown_counter>;
template struct Reach<LastEpoch, &Plateau::last_epoch>;

absl::Status NotSaved(const std::string& name) {
  return absl::DataLossError(StrCat("the checkpoint entry of scheduler '", name,
                                    "' is missing or not readable"));
}

const std::string* EntryOf(const Snapshot& snapshot, const std::string& name) {
  const auto found = snapshot.bytes.find(name);
  return found == snapshot.bytes.end() ? nullptr : &found->second;
}

// The member that refers to the optimizer is a reference, to which no pointer
// can be made; but it lies in the object as an address.
template <class Scheduler>
bool RefersTo(const Scheduler& scheduler, const torch::optim::Optimizer& to) {
  const void* const wanted = &to;
  const auto* const bytes = reinterpret_cast<const char*>(&scheduler);
  for (size_t at = 0; at + sizeof(wanted) <= sizeof(Scheduler);
       at += alignof(void*)) {
    if (std::memcmp(bytes + at, &wanted, sizeof(wanted)) == 0) return true;
  }
  return false;
}

class SchedulerItem final : public TrackedItem {
 public:
  SchedulerItem(std::string name, torch::optim::LRScheduler& scheduler)
      : TrackedItem(std::move(name)), scheduler_(scheduler) {}

  bool IsOf(const torch::optim::Optimizer& optimizer) const {
    return RefersTo(scheduler_, optimizer);
  }
  std::string kind() const override { return "learning-rate scheduler"; }
  const void* object() const override { return &scheduler_; }
  absl::Status Collect(Snapshot* snapshot) override {
    snapshot->bytes[name()] = StrCat(scheduler_.*StepCount::Member());
    return absl::OkStatus();
  }
  absl::Status Restore(const Snapshot& snapshot) override {
    const std::string* text = EntryOf(snapshot, name());
    unsigned step_count = 0;
    if (text == nullptr || !absl::SimpleAtoi(*text, &step_count)) {
      return NotSaved(name());
    }
    scheduler_.*StepCount::Member() = step_count;
    return absl::OkStatus();
  }

 private:
  torch::optim::LRScheduler& scheduler_;
};

class PlateauItem final : public TrackedItem {
 public:
  PlateauItem(std::string name, Plateau& scheduler)
      : TrackedItem(std::move(name)), scheduler_(scheduler) {}

  bool IsOf(const torch::optim::Optimizer& optimizer) const {
    return RefersTo(scheduler_, optimizer);
  }
  std::string kind() const override { return "plateau scheduler"; }
  const void* object() const override { return &scheduler_; }
  absl::Status Collect(Snapshot* snapshot) override {
    snapshot->bytes[name()] = absl::StrFormat(
        "%.9g %d %d %d", scheduler_.*MemberOf(Best()),
        scheduler_.*MemberOf(BadEpochs()), scheduler_.*MemberOf(Cooldown()),
        scheduler_.*MemberOf(LastEpoch()));
    return absl::OkStatus();
  }
  absl::Status Restore(const Snapshot& snapshot) override {
    const std::string* text = EntryOf(snapshot, name());
    if (text == nullptr) return NotSaved(name());
    std::istringstream words(*text);
    std::string best_text;  // "inf" is none for operator>>
    float best = 0;
    int bad_epochs = 0;
    int cooldown = 0;
    int last_epoch = 0;
    if (!(words >> best_text >> bad_epochs >> cooldown >> last_epoch) ||
        !absl::SimpleAtof(best_text, &best)) {
      return NotSaved(name());
    }
    scheduler_.*MemberOf(Best()) = best;
    scheduler_.*MemberOf(BadEpochs()) = bad_epochs;
    scheduler_.*MemberOf(Cooldown()) = cooldown;
    scheduler_.*MemberOf(LastEpoch()) = last_epoch;
    return absl::OkStatus();
  }

 private:
  Plateau& scheduler_;
};

}  // namespace

std::unique_ptr<TrackedItem> TrackScheduler(
    std::string name, torch::optim::LRScheduler& scheduler) {
  return std::make_unique<SchedulerItem>(std::move(name), scheduler);
}

std::unique_ptr<TrackedItem> TrackScheduler(std::string name,
                                            Plateau& scheduler) {
  return std::make_unique<PlateauItem>(std::move(name), scheduler);
}

bool IsScheduler(const TrackedItem& item) {
  return dynamic_cast<const SchedulerItem*>(&item) != nullptr ||
         dynamic_cast<const PlateauItem*>(&item) != nullptr;
}

bool IsSchedulerOf(const TrackedItem& item,
                   const torch::optim::Optimizer& optimizer) {
  if (const auto* by_step = dynamic_cast<const SchedulerItem*>(&item)) {
    return by_step->IsOf(optimizer);
  }
  const auto* const plateau = dynamic_cast<const PlateauItem*>(&item);
  return plateau != nullptr && plateau->IsOf(optimizer);
}

}  // namespace gavel::internal
