#include "coordinator/engine/job_table.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <utility>

#include "coordinator/engine/operators.h"
#include "coordinator/engine/related_jobs.h"
#include "coordinator/workload/job_array.h"
#include "core/text.h"

namespace gavel::engine {
namespace {

// Frees the fields that only a launch needs, once a job has ended. They take up
// to 48 KiB a job, and thousands of ended jobs are kept.
void ForgetProgram(JobSpec& spec) {
  spec.argv = {};
  spec.environment = {};
  spec.working_directory = {};
  spec.env_file = {};
}

// NameOf the array that the element is of.
std::string ArrayName(const Job& element) {
  return NameOf(element.spec.owner, ArrayNameOf(element.spec.name));
}

}  // namespace

Job* JobTable::Find(JobId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second->second;
}

Job* JobTable::FindLive(JobId id) const {
  Job* job = Find(id);
  return job != nullptr && job->live ? job : nullptr;
}

Worker* JobTable::Find(const WorkerKey& key) const {
  Job* job = Find(key.job);
  if (job == nullptr || key.rank < 0 ||
      static_cast<size_t>(key.rank) >= job->workers.size()) {
    return nullptr;
  }
  Worker& worker = job->workers[static_cast<size_t>(key.rank)];
  const bool is_latest = worker.incarnation == key.incarnation;
  return is_latest && key.incarnation != 0 ? &worker : nullptr;
}

Job& JobTable::at(JobId id) const {
  Job* job = Find(id);
  assert(job != nullptr);
  return *job;
}

const Worker& JobTable::WorkerOf(const WorkerKey& key) const {
  const Job& job = at(key.job);
  assert(static_cast<size_t>(key.rank) < job.workers.size());
  return job.workers[static_cast<size_t>(key.rank)];
}

JobId JobTable::Named(const JobSpec& spec) const {
  const auto taken = names_.find(NameOf(spec));
  return taken == names_.end() ? JobId() : taken->second;
}

JobId JobTable::LatestNamed(const std::string& name) const {
  const auto found = latest_.find(name);
  return found == latest_.end() ? JobId() : found->second;
}

JobId JobTable::SavingIn(const JobSpec& spec) const {
  const auto taken = directories_.find({spec.owner, spec.checkpoint_directory});
  return taken == directories_.end() ? JobId() : taken->second;
}

void JobTable::KeepDirectory(const Job& job) {
  if (job.spec.checkpoint_directory.empty()) return;
  directories_.emplace(std::pair(job.spec.owner, job.spec.checkpoint_directory),
                       job.id);
}

bool JobTable::Together(const Job& job, JobId other) const {
  if (!other.valid() || job.partner != other || job.assigned.empty()) {
    return false;
  }
  const Job* partner = FindLive(other);
  return partner != nullptr && partner->partner == job.id &&
         partner->assigned == job.assigned;
}

ShareUnit JobTable::UnitOf(const Job& job) const {
  if (!Together(job, job.partner)) return {job.id, JobId()};
  return PairOf(job.id, job.partner);
}

bool JobTable::HasSeveralUsers() const {
  const Job* first = nullptr;
  for (const auto& [id, job] : live_) {
    if (!job->active()) continue;
    if (first == nullptr) first = job;
    if (job->spec.owner != first->spec.owner) return true;
  }
  return false;
}

bool JobTable::AreIndependent(const Job& a, const Job& b) const {
  return a.id != b.id && (a.spec.owner != b.spec.owner || !HasSeveralUsers());
}

// A job whose partner has ended keeps its half of the lock and continues as if
// it were alone: its place is unchanged.
bool JobTable::Unchanged(const Job& job, const std::vector<AcceleratorId>& next,
                         JobId partner) const {
  if (next != job.assigned) return false;
  return next.empty() || partner == job.partner ||
         (!partner.valid() && FindLive(job.partner) == nullptr);
}

JobId JobTable::TakeArrayId(const JobSpec& spec) {
  const JobId array = TakeId();
  latest_[NameOf(spec)] = array;
  return array;
}

Job& JobTable::Add(Time now, const JobSpec& spec) {
  Job& job = AddHeld(now, spec);
  Release(job);
  return job;
}

Job& JobTable::AddHeld(Time now, JobSpec spec) {
  const JobId id = TakeId();
  const auto entry = jobs_.try_emplace(jobs_.end(), id);
  by_id_[id] = entry;
  Job& job = entry->second;
  job.id = id;
  job.state = JobState::kHeld;
  job.spec = std::move(spec);
  job.submitted_at = now;
  job.epoch = numbers_from_;
  job.scale_factor = job.world_size = job.spec.scale_factor;
  names_.emplace(NameOf(job.spec), id);
  latest_[NameOf(job.spec)] = id;
  KeepDirectory(job);
  NoteElastic(job);
  return job;
}

// After rows were lost, new epochs, incarnations and generations must be higher
// than any number in a lost row: agents, workers and checkpoint directories
// refuse a number below the highest that they have seen. `from` is the term
// after the loss, which is the time of day in seconds. Numbers rise more slowly
// than that clock, so those in lost rows are lower, even if the same copy was
// restored before.
void JobTable::PassLostNumbers(uint64_t from) {
  numbers_from_ = std::max(numbers_from_, from);
  for (auto& [id, job] : jobs_) job.epoch = std::max(job.epoch + 1, from);
}

void JobTable::AddLive(Job& job) {
  live_.emplace_hint(live_.end(), job.id, &job);
  if (job.spec.interactive()) interactive_[job.id] = &job;
  job.live = true;
}

void JobTable::NoteAssigned(Job& job, int change) {
  if (job.assigned.empty()) {
    waiting_[job.id] = &job;
  } else {
    waiting_.erase(job.id);
  }
  if (!job.spec.interactive() || change == 0) return;
  const auto held = interactive_held_.try_emplace(job.spec.owner, 0).first;
  held->second += change;
  if (held->second == 0) interactive_held_.erase(held);
}

void JobTable::SetAssigned(Job& job, const std::vector<AcceleratorId>& next) {
  const auto change = std::ssize(next) - std::ssize(job.assigned);
  job.assigned = next;
  NoteAssigned(job, static_cast<int>(change));
}

int JobTable::InteractiveHeld(const std::string& owner) const {
  const auto held = interactive_held_.find(owner);
  return held == interactive_held_.end() ? 0 : held->second;
}

void JobTable::End(Job& job, JobState state) {
  assert(state != JobState::kActive);
  over_.push_back(job.id);
  if (job.active()) --active_;
  job.state = state;
  if (state == JobState::kHeld) return;
  names_.erase(NameOf(job.spec));
  // A journal of an earlier version may have two jobs in one directory.
  if (SavingIn(job.spec) == job.id) {
    directories_.erase({job.spec.owner, job.spec.checkpoint_directory});
  }
  (job.array.valid() ? ended_elements_ : ended_).push_back(job.id);
  if (!job.live) ForgetProgram(job.spec);  // Prune looks at live jobs only
}

void JobTable::Release(Job& job) {
  if (!job.active()) ++active_;
  job.state = JobState::kActive;
  if (job.workers.empty()) {
    job.workers.resize(static_cast<size_t>(job.spec.scale_factor));
  }
  uncounted_.push_back(job.id);
  AddLive(job);
  NoteAssigned(job, 0);
}

void JobTable::Prune(size_t ended_kept) {
  for (const JobId id : over_) {
    Job* job = FindLive(id);
    if (job == nullptr || job->active() || job->AnyLive()) continue;
    job->live = false;
    waiting_.erase(id);
    live_.erase(id);
    interactive_.erase(id);
    if (job->state != JobState::kHeld) ForgetProgram(job->spec);
  }
  over_.clear();
  ForgetEnded(ended_kept, ended_);
  ForgetEnded(ended_kept, ended_elements_);
}

void JobTable::ForgetEnded(size_t ended_kept, std::deque<JobId>& ended) {
  const auto forget = [&](const std::string& name, JobId id) {
    if (LatestNamed(name) == id) latest_.erase(name);
  };
  for (; ended.size() > ended_kept && FindLive(ended.front()) == nullptr;
       ended.pop_front()) {
    const auto found = by_id_.find(ended.front());
    if (found == by_id_.end()) continue;
    const Job& job = found->second->second;
    const JobId array = job.array;
    const std::string name = NameOf(job.spec);
    const std::string of_array = array.valid() ? ArrayName(job) : "";
    const bool failed = job.state != JobState::kFinished || job.array_failed;
    forget(name, job.id);
    jobs_.erase(found->second);
    by_id_.erase(found);
    if (!array.valid()) continue;
    const Job* const left = FirstElement(jobs_, array);
    if (left == nullptr) {
      forget(of_array, array);
    } else if (failed) {
      at(left->id).array_failed = true;
    }
  }
}

std::vector<JobId> JobTable::TakeUncounted() {
  return std::exchange(uncounted_, {});
}

std::vector<JobId> JobTable::LiveIds() const {
  std::vector<JobId> live;
  live.reserve(live_.size());
  for (const auto& [id, job] : live_) live.push_back(id);
  return live;
}

absl::Status JobTable::Rebuild(const std::vector<JobId>& live) {
  live_.clear();
  interactive_.clear();
  interactive_held_.clear();
  by_id_.clear();
  names_.clear();  // older snapshots have them by job alone
  latest_.clear();
  directories_.clear();
  for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
    by_id_[job->first] = job;
    latest_[NameOf(job->second.spec)] = job->first;
    if (job->second.array.valid()) {
      latest_[ArrayName(job->second)] = job->second.array;
    }
    if (!HasName(job->second)) continue;
    names_[NameOf(job->second.spec)] = job->first;
    KeepDirectory(job->second);
  }
  waiting_.clear();
  active_ = 0;
  for (const JobId id : live) {
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) {
      return absl::DataLossError(StrCat("the snapshot lists job ", id.value(),
                                        " and does not hold it"));
    }
    Job& job = found->second;
    if (job.id != id) {
      return absl::DataLossError(StrCat("the snapshot has job ", job.id.value(),
                                        " in the place of job ", id.value()));
    }
    AddLive(job);
    over_.push_back(id);
    uncounted_.push_back(id);
    active_ += job.active() ? 1 : 0;
    NoteAssigned(job, static_cast<int>(job.assigned.size()));
    NoteElastic(job);
  }
  return absl::OkStatus();
}

bool MustGo(const Job& job, int rank) {
  const auto index = static_cast<size_t>(rank);
  return index >= job.assigned.size() ||
         job.assigned[index] != job.workers[index].held;
}

void Changes::Touch(Job& job) {
  // Once a plan is enough: types count as filled only after a plan was made.
  if ((job.touched & (1u << kPlan)) == 0 && filled_.any()) {
    filled_.Forget(job.chosen);
  }
  for (size_t reader = 0; reader < changes_.size(); ++reader) {
    const auto bit = static_cast<uint8_t>(1u << reader);
    if ((job.touched & bit) != 0) continue;
    job.touched |= bit;
    changes_[reader].jobs.push_back(job.id);
  }
}

void Changes::TouchAll() {
  for (JobChanges& changes : changes_) changes.all = true;
  ForgetTypes();
}

std::vector<JobId> Changes::Take(Reader reader, const JobTable& jobs) {
  std::vector<JobId> changed =
      std::exchange(changes_[reader], {{}, false}).jobs;
  for (const JobId id : changed) {
    if (Job* job = jobs.Find(id)) {
      job->touched &= static_cast<uint8_t>(~(1u << reader));
    }
  }
  std::sort(changed.begin(), changed.end());
  // A job may be listed twice: after a restore, jobs have lost the mark that
  // they are listed already.
  changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
  return changed;
}

void Changes::ForgetType(size_t type) {
  filled_.Forget(type);
  idle_.types.Forget(type);
}

void Changes::ForgetTypes() {
  filled_.Forget();
  idle_.types.Forget();
}

void Changes::Rebuild() {
  SetAll(kPlan, true);
  SetAll(kProblem, true);
  SetAll(kFill, true);
}

void AssignedAccelerators::Add(AcceleratorId accelerator, JobId job) {
  Count(accelerator, 1);
  jobs_.Add(accelerator, job);
}

void AssignedAccelerators::Remove(AcceleratorId accelerator, JobId job) {
  if (jobs_.Remove(accelerator, [&](JobId id) { return id == job; })) {
    Count(accelerator, -1);
  }
}

void AssignedAccelerators::Count(AcceleratorId accelerator, int by) {
  assert(accelerator.valid() && accelerator.value() <= assigned_.size());
  uint8_t& jobs = assigned_[accelerator.value() - 1];
  const bool was_free = jobs == 0;
  jobs = static_cast<uint8_t>(jobs + by);
  const uint32_t type = cluster_.usable_types()[accelerator.value() - 1];
  changes_.ForgetType(type);
  if (was_free == (jobs == 0) || type == Cluster::kUnusable) return;
  free_[type] += was_free ? -1 : 1;
  if (!places_) return;
  was_free ? places_->Claim(accelerator) : places_->Release(accelerator);
}

void AssignedAccelerators::Recount() {
  changes_.TouchAll();
  free_ = cluster_.Capacity();
  assigned_.assign(cluster_.accelerators().size(), 0);
  places_.reset();
  // A snapshot may be damaged.
  const size_t end = std::min(jobs_.size(), assigned_.size());
  for (size_t i = 0; i < end; ++i) {
    const AcceleratorId id(i + 1);
    const size_t jobs = jobs_.At(id).size();
    if (jobs > 0) Count(id, static_cast<int>(jobs));
  }
}

bool AssignedAccelerators::IsFree(AcceleratorId accelerator) const {
  return assigned_[accelerator.value() - 1] == 0;
}

FreePlaces& AssignedAccelerators::Places() {
  if (!places_) places_.emplace(cluster_, assigned_);
  return *places_;
}

}  // namespace gavel::engine
