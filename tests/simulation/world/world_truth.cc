#include "tests/simulation/world/world_truth.h"

#include <algorithm>

#include "core/text.h"

namespace gavel {
namespace {

// An accelerator has two slots: an unpacked worker takes both, a packed one
// takes one.
constexpr int kSlots = 2;
// The largest rounding error of a conversion between clocks.
constexpr double kRounding_s = 1e-6;
// A run with more violations has gone wrong, and they need not fill the memory.
constexpr size_t kViolationsMax = 20;

}  // namespace

std::string NameOf(const WorkerKey& worker) {
  return StrCat("job ", worker.job.value(), " rank ", worker.rank, " #",
                worker.incarnation);
}

void WorldTruth::Violation(Time now, const std::string& what) {
  if (violations_.size() >= kViolationsMax) return;
  violations_.push_back(StrCat("at ", now, " s: ", what));
}

void WorldTruth::AddAccelerator(const std::string& uuid,
                                uint64_t memory_bytes) {
  accelerators_[uuid].memory_bytes = memory_bytes;
}

bool WorldTruth::Take(Time now, const WorkerKey& worker,
                      const std::string& uuid, int slots) {
  Accelerator& accelerator = accelerators_[uuid];
  int taken = slots;
  for (const auto& [user, count] : accelerator.slots) taken += count;
  if (taken <= kSlots) {
    accelerator.slots[worker] = slots;
    return true;
  }
  Violation(now, StrCat("accelerator ", uuid, " is wanted by ", NameOf(worker),
                        " while ", NameOf(accelerator.slots.begin()->first),
                        " uses it"));
  return false;
}

void WorldTruth::Free(const WorkerKey& worker, const std::string& uuid) {
  accelerators_[uuid].slots.erase(worker);
}

void WorldTruth::Hold(Time now, const WorkerKey& worker,
                      const std::string& uuid, uint64_t bytes) {
  Accelerator& accelerator = accelerators_[uuid];
  accelerator.memory.erase(worker);
  if (bytes > 0) accelerator.memory[worker] = bytes;
  if (accelerator.memory_bytes == 0) return;
  uint64_t used = 0;
  for (const auto& [user, held] : accelerator.memory) used += held;
  if (used <= accelerator.memory_bytes) return;
  Violation(now, StrCat("accelerator ", uuid, " has ", accelerator.memory_bytes,
                        " bytes of memory, and ", used, " are in use"));
}

bool WorldTruth::any_in_use() const {
  return std::any_of(
      accelerators_.begin(), accelerators_.end(),
      [](const auto& entry) { return !entry.second.slots.empty(); });
}

void WorldTruth::Granted(const WorkerKey& worker, uint64_t epoch, Time until) {
  Time& latest = granted_until_[{worker, epoch}];
  latest = std::max(latest, until);
}

void WorldTruth::Boundary(Time now, const WorkerKey& worker, uint64_t epoch) {
  const auto lease = granted_until_.find({worker, epoch});
  if (lease == granted_until_.end()) {
    return Violation(now, StrCat(NameOf(worker), " trains under epoch ", epoch,
                                 ", which it was not granted"));
  }
  if (now <= lease->second + kRounding_s) return;
  Violation(now, StrCat(NameOf(worker), " trains under a lease that ended at ",
                        lease->second, " s"));
}

void WorldTruth::Agreed(Time now, GangKey gang, int rank, uint64_t step,
                        bool stops) {
  Agreement& agreement = agreements_[gang];
  const size_t place = agreement.seen[rank]++;
  if (place == agreement.steps.size()) agreement.steps.push_back(step);
  if (agreement.steps[place] != step) {
    Violation(now, StrCat("rank ", rank, " of job ", gang.first.value(),
                          " takes boundary ", step, " for the one agreed on, ",
                          "and another rank took ", agreement.steps[place]));
  }
  if (!stops) return;
  agreement.stopped_at[rank] = step;
  for (const auto& [other, begun] : agreement.begun) {
    if (begun <= step) continue;
    Violation(now, StrCat("rank ", rank, " of job ", gang.first.value(),
                          " stops after step ", step, ", and rank ", other,
                          " has begun step ", begun));
  }
}

void WorldTruth::BeganStep(Time now, GangKey gang, int rank, uint64_t step) {
  Agreement& agreement = agreements_[gang];
  agreement.begun[rank] = step;
  for (const auto& [other, stopped_at] : agreement.stopped_at) {
    if (stopped_at >= step) continue;
    Violation(now, StrCat("rank ", rank, " of job ", gang.first.value(),
                          " begins step ", step, ", and rank ", other,
                          " stopped after step ", stopped_at));
  }
}

// This does not use the comparison of Generation, because the simulation tests
// that.
void WorldTruth::Committed(JobId job, Generation generation) {
  auto& latest = latest_[job];
  latest = std::max(latest, {generation.epoch, generation.step});
  uint64_t& steps = steps_saved_[job];
  steps = std::max(steps, generation.step);
}

void WorldTruth::Damaged(JobId job, Generation rest) {
  latest_[job] = {rest.epoch, rest.step};
}

void WorldTruth::Restored(Time now, const WorkerKey& worker,
                          Generation generation) {
  const Generation latest = LatestOf(worker.job);
  if (std::pair(generation.epoch, generation.step) >=
      std::pair(latest.epoch, latest.step)) {
    return;
  }
  Violation(now,
            StrCat(NameOf(worker), " starts from step ", generation.step,
                   " of epoch ", generation.epoch, ", and step ", latest.step,
                   " of epoch ", latest.epoch, " was safe on disk"));
}

Generation WorldTruth::LatestOf(JobId job) const {
  const auto found = latest_.find(job);
  if (found == latest_.end()) return {};
  return {found->second.first, found->second.second};
}

uint64_t WorldTruth::StepsSaved(JobId job) const {
  const auto found = steps_saved_.find(job);
  return found == steps_saved_.end() ? 0 : found->second;
}

void WorldTruth::Journaled(Time now, uint64_t seq, uint64_t term) {
  if (seq != seq_ + 1 || term < term_) {
    Violation(now, StrCat("row ", seq, " of term ", term,
                          " is written behind row ", seq_, " of term ", term_));
  }
  seq_ = seq;
  term_ = term;
}

void WorldTruth::Spawned(Time now, const std::string& server, uint64_t life,
                         const WorkerKey& worker) {
  if (spawned_.insert({{server, life}, worker}).second) return;
  Violation(now, StrCat(NameOf(worker), " is started twice on ", server));
}

}  // namespace gavel
