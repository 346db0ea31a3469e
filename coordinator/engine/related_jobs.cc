#include "coordinator/engine/related_jobs.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "coordinator/engine/operators.h"
#include "coordinator/engine/state.h"
#include "coordinator/engine/sweeper.h"
#include "coordinator/engine/workers.h"
#include "coordinator/workload/job_array.h"
#include "core/error_line.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {

// ---- arrays

const Job* FirstElement(const std::map<JobId, Job>& jobs, JobId array) {
  const auto first = jobs.upper_bound(array);
  const bool known =
      first != jobs.end() && array.valid() && first->second.array == array;
  return known ? &first->second : nullptr;
}

std::vector<JobId> ElementsOf(const std::map<JobId, Job>& jobs, JobId array) {
  std::vector<JobId> elements;
  if (!array.valid()) return elements;
  for (auto job = jobs.upper_bound(array);
       job != jobs.end() && job->second.array == array; ++job) {
    elements.push_back(job->first);
  }
  return elements;
}

std::vector<JobId> LastSubmitted(const std::map<JobId, Job>& jobs) {
  if (jobs.empty()) return {};
  const auto& [id, last] = *jobs.rbegin();
  return last.array.valid() ? ElementsOf(jobs, last.array) : std::vector{id};
}

std::vector<JobId> NamedJobs(const std::map<JobId, Job>& jobs,
                             const event::JobCommanded& e) {
  std::vector<JobId> elements = ElementsOf(jobs, e.job);
  if (elements.empty()) return {e.job};
  if (e.elements.empty()) return elements;
  const absl::StatusOr<std::vector<int>> indices = ParseIndices(e.elements);
  if (!indices.ok()) return {};
  std::erase_if(elements, [&](JobId id) {
    return !std::ranges::binary_search(*indices, jobs.at(id).array_index);
  });
  return elements;
}

std::string ArrayInstead(const std::map<JobId, Job>& jobs, JobId array) {
  const Job& first = *FirstElement(jobs, array);
  return StrCat(array.value(), " is an array of ",
                ElementsOf(jobs, array).size(), " jobs; name one of them, as ",
                array.value(), "_", first.array_index);
}

}  // namespace gavel

namespace gavel::engine {
namespace {

// Elements in the queue for each accelerator of the cluster, so that pairs can
// be packed, and those beyond, so that a free accelerator need not wait for the
// next allocation.
constexpr size_t kQueuedPerAccelerator = 2;
constexpr size_t kQueuedBeyond = 8;

size_t QueuedMax(const State& s, const Job& element) {
  const size_t runs = kQueuedPerAccelerator * s.cluster.size() + kQueuedBeyond;
  const auto at_once = static_cast<size_t>(element.array_at_once);
  return at_once > 0 ? std::min(at_once, runs) : runs;
}

std::vector<int> IndicesOfJobs(const std::map<JobId, Job>& jobs,
                               const std::vector<JobId>& elements) {
  std::vector<int> indices;
  for (const JobId id : elements) indices.push_back(jobs.at(id).array_index);
  return indices;
}

// An answer with longer lists might not fit into a frame.
constexpr size_t kIndicesBytesMax = 300;

std::string ShortIndices(const std::vector<int>& indices) {
  return PrintableLine(FormatIndices(indices), kIndicesBytesMax);
}

std::string WhyNotOne(const State& s, const event::JobCommanded& e,
                      JobId element) {
  event::JobCommanded one = e;
  one.job = element;
  const Job& job = s.jobs.at(element);
  return WhyNot(one, &job, IsKeptOut(s, job));
}

}  // namespace

void ArrayBook::NoteSubmitted(const Job& element) {
  ++counts_[element.array].present;
}

void ArrayBook::NoteQueued(const Job& element) {
  Counts& counts = counts_[element.array];
  ++counts.queued;
  counts.waiting.erase(element.id);
}

bool ArrayBook::AnyWaits(JobId array) const {
  const Counts* counts = Find(array);
  return counts != nullptr && !counts->waiting.empty();
}

void ArrayBook::Clear() {
  counts_.clear();
  due_.clear();
  accelerators_ = 0;
}

std::set<JobId> ArrayBook::TakeDue(size_t accelerators) {
  if (accelerators != accelerators_) {
    accelerators_ = accelerators;
    for (const auto& [array, counts] : counts_) due_.insert(array);
  }
  return std::exchange(due_, {});
}

void ArrayBook::NoteWaiting(const Job& element) {
  counts_[element.array].waiting.insert(element.id);
  due_.insert(element.array);
}

void ArrayBook::NoteGone(const Job& element, bool was_queued) {
  const auto found = counts_.find(element.array);
  if (found == counts_.end()) return;
  Counts& counts = found->second;
  if (was_queued && counts.queued > 0) --counts.queued;
  counts.waiting.erase(element.id);
  due_.insert(element.array);
  if (!HasName(element) && --counts.present == 0) counts_.erase(found);
}

const ArrayBook::Counts* ArrayBook::Find(JobId array) const {
  const auto found = counts_.find(array);
  return found == counts_.end() ? nullptr : &found->second;
}

bool WaitsForArray(const Job& job) {
  return job.state == JobState::kHeld &&
         std::holds_alternative<reason::ArrayLimit>(job.reason);
}

void SubmitArray(State& s, Time now, const event::JobSubmitted& e) {
  const std::vector<int> indices = IndicesOf(e.spec);
  const int at_once = AtOnceOf(e.spec);
  const JobId array = s.jobs.TakeId();
  for (const int index : indices) {
    Job& job = s.jobs.AddHeld(now, ElementSpec(e.spec, index));
    job.array = array;
    job.array_index = index;
    job.array_at_once = at_once;
    job.unqueued = true;
    job.submitted_wall_s = now + s.options.wall_offset_s;
    job.reason = reason::ArrayLimit{array, at_once};
    s.arrays.NoteSubmitted(job);
    if (!e.parents.empty()) {
      HoldForParents(s, job, e.parents);
    } else if (!HoldElementUntilDue(s, job)) {
      s.arrays.NoteWaiting(job);
    }
  }
  s.outbox.Emit(action::Reply{e.reply_to, array, ""});
}

void WaitForTurn(State& s, Job& element) {
  element.reason = reason::ArrayLimit{element.array, element.array_at_once};
  s.arrays.NoteWaiting(element);
}

void FillArrays(State& s, Time now) {
  for (const JobId array : s.arrays.TakeDue(s.cluster.size())) {
    while (s.arrays.AnyWaits(array)) {
      const ArrayBook::Counts& counts = *s.arrays.Find(array);
      const JobId next = *counts.waiting.begin();
      if (counts.queued >= QueuedMax(s, s.jobs.at(next))) break;
      Record(s, now, event::TimeReached{next});
    }
  }
}

std::string FittingElements(const State& s, const event::JobCommanded& e) {
  std::vector<JobId> jobs = NamedJobs(s.jobs.all(), e);
  std::erase_if(jobs, [&](JobId id) { return !WhyNotOne(s, e, id).empty(); });
  return FormatIndices(IndicesOfJobs(s.jobs.all(), jobs));
}

std::string WhyNoElement(const State& s, const event::JobCommanded& e) {
  const std::map<JobId, Job>& jobs = s.jobs.all();
  const std::vector<JobId> named = NamedJobs(jobs, e);
  if (!e.elements.empty()) {
    const absl::StatusOr<std::vector<int>> indices = ParseIndices(e.elements);
    if (!indices.ok()) {
      return StrCat(
          "elements \"", PrintableLine(e.elements, kIndicesBytesMax),
          "\" of array ", e.job.value(), ": ",
          PrintableLine(ToStd(indices.status().message()), kIndicesBytesMax));
    }
    std::vector<int> unknown;
    std::ranges::set_difference(*indices, IndicesOfJobs(jobs, named),
                                std::back_inserter(unknown));
    if (!unknown.empty()) {
      return StrCat("array ", e.job.value(), " has no element ",
                    ShortIndices(unknown), "; it has ",
                    ShortIndices(IndicesOfJobs(jobs, ElementsOf(jobs, e.job))));
    }
  }
  std::string first;
  for (const JobId id : named) {
    const std::string why = WhyNotOne(s, e, id);
    if (why.empty()) return "";
    if (first.empty()) first = why;
  }
  return first;
}

void RebuildArrays(State& s) {
  s.arrays.Clear();
  for (const auto& [id, job] : s.jobs.all()) {
    if (!job.array.valid() || !HasName(job)) continue;
    s.arrays.NoteSubmitted(job);
    if (job.active()) s.arrays.NoteQueued(job);
    if (WaitsForArray(job)) s.arrays.NoteWaiting(job);
  }
}

// ---- dependencies

namespace {

// The most jobs that one step releases or cancels. The end of one job may
// settle thousands: its children and, where they are cancelled, theirs.
constexpr size_t kSettledMax = 64;
// The most jobs that an update looks at to see that no job waits for itself.
constexpr size_t kAncestorsMax = 1000;

std::string TextOf(const State& s, JobId id) {
  const Job* const job = s.jobs.Find(id);
  return StrCat(id.value(), job == nullptr ? "" : " ",
                job == nullptr ? "" : job->spec.name);
}

std::string_view ProgressText(const Job& job) {
  if (job.active()) return job.HoldsAny() ? "running" : "waiting";
  if (WaitsByItself(job)) return "waiting";
  return JobStateName(job.state);
}

// The job that `name`, a name or an id, stands for.
absl::StatusOr<JobId> Resolve(const State& s, const std::string& owner,
                              std::string_view key, const std::string& name) {
  uint64_t number = 0;
  const bool is_id = absl::SimpleAtoi(name, &number);
  const JobId id =
      is_id ? JobId(number) : s.jobs.LatestNamed(NameOf(owner, name));
  const Job* const job = s.jobs.Find(id);
  if (job != nullptr && job->spec.owner == owner) return id;
  if (job != nullptr) {
    return absl::InvalidArgumentError(
        StrCat(key, " names job ", name,
               ", which is another user's; name jobs of the same owner"));
  }
  return absl::InvalidArgumentError(
      StrCat(key, " names ", is_id ? "job " : "\"", name, is_id ? "" : "\"",
             ", and its owner has no such job; `gavel queue` lists them, "
             "without those that ended long ago"));
}

// Adds `one`, which may be there as a parent of the other list.
void Add(const Parent& one, std::vector<Parent>* parents) {
  const auto known = std::ranges::find(*parents, one.job, &Parent::job);
  if (known == parents->end()) return parents->push_back(one);
  known->must_finish |= one.must_finish;
  known->any_end |= one.any_end;
  known->failed |= one.failed;
}

// Adds the jobs that `names` stand for, without those that have ended as they
// should.
absl::Status AddNamed(const State& s, const std::string& owner,
                      bool must_finish, const std::vector<std::string>& names,
                      std::vector<Parent>* parents) {
  for (const std::string& name : names) {
    GAVEL_ASSIGN_OR_RETURN(
        const JobId id,
        Resolve(s, owner, must_finish ? "after_success" : "after_any", name));
    const Job& job = s.jobs.at(id);
    const bool over = !HasName(job);
    const bool failed = over && must_finish && job.state != JobState::kFinished;
    if (over && !failed) continue;
    Add({id, must_finish, !must_finish, failed}, parents);
  }
  return absl::OkStatus();
}

// Adds those of `present` that the one list names.
void AddPresent(const std::vector<Parent>& present, bool must_finish,
                std::vector<Parent>* parents) {
  for (const Parent& one : present) {
    if (must_finish && one.must_finish) {
      Add({one.job, true, false, one.failed}, parents);
    } else if (!must_finish && one.any_end && !one.failed) {
      Add({one.job, false, true}, parents);
    }
  }
}

// Why `job` can't wait for `parents`, through which it may wait for itself;
// empty: it can.
std::string WhyNotAfter(const State& s, JobId job,
                        const std::vector<Parent>& parents) {
  // Nothing waits for most jobs, so most can't wait for themselves.
  const auto child = s.dependencies.children.lower_bound({job, JobId()});
  const bool is_parent =
      child != s.dependencies.children.end() && child->first == job;
  std::set<JobId> seen;
  std::vector<JobId> next;
  const auto add = [&](const std::vector<Parent>& of) {
    for (const Parent& parent : of) {
      if (seen.insert(parent.job).second) next.push_back(parent.job);
    }
  };
  add(parents);
  if (seen.contains(job)) {
    return "it can't wait for itself; name other jobs";
  }
  while (is_parent && !next.empty()) {
    const JobId id = next.back();
    next.pop_back();
    if (const Job* const parent = s.jobs.Find(id)) add(parent->parents);
    if (seen.contains(job)) {
      return StrCat("job ", TextOf(s, id),
                    " waits for it, so that neither would start; name other "
                    "jobs, or update that one first");
    }
    if (seen.size() > kAncestorsMax) {
      return StrCat("more than ", kAncestorsMax,
                    " jobs would have to end before it; wait until some have "
                    "ended");
    }
  }
  return "";
}

void AddChild(State& s, const Job& job) {
  for (const Parent& parent : job.parents) {
    if (parent.failed) {
      s.dependencies.settled.insert(job.id);
    } else {
      s.dependencies.children.insert({parent.job, job.id});
    }
  }
  if (job.parents.empty() && AwaitsJobs(job)) {
    s.dependencies.settled.insert(job.id);
  }
}

void RemoveChild(State& s, const Job& job) {
  for (const Parent& parent : job.parents) {
    s.dependencies.children.erase({parent.job, job.id});
  }
  s.dependencies.settled.erase(job.id);
}

void Await(State& s, Time now, Job& job) {
  EndJob(s, now, job, JobState::kHeld, WhyAwaiting(s, job));
}

}  // namespace

bool AwaitsJobs(const Job& job) {
  return job.state == JobState::kHeld &&
         std::holds_alternative<reason::AwaitsJobs>(job.reason);
}

Reason WhyAwaiting(const State& s, const Job& job) {
  if (job.parents.empty()) return job.reason;
  const JobId first = job.parents.front().job;
  std::string text = TextOf(s, first);
  if (const Job* const parent = s.jobs.Find(first)) {
    StrAppend(&text, " (", ProgressText(*parent), ")");
  }
  return reason::AwaitsJobs{std::move(text),
                            static_cast<int>(job.parents.size()) - 1, job.id};
}

bool NamesParents(const JobUpdate& update) {
  return update.after_success.has_value() || update.after_any.has_value();
}

absl::StatusOr<std::vector<Parent>> FindParents(const State& s,
                                                const JobSpec& spec) {
  std::vector<Parent> parents;
  GAVEL_RETURN_IF_ERROR(AddNamed(s, spec.owner, /*must_finish=*/true,
                                 spec.after_success, &parents));
  GAVEL_RETURN_IF_ERROR(
      AddNamed(s, spec.owner, /*must_finish=*/false, spec.after_any, &parents));
  return parents;
}

std::string FindNewParents(const State& s, const Job& job,
                           event::JobUpdated* e) {
  const std::string what = StrCat("job ", job.id.value(), ": ");
  if (job.active() && (!job.assigned.empty() || job.AnyLive())) {
    return StrCat(what,
                  "it has started, and only a job that waits can wait for "
                  "others; `gavel hold ",
                  job.id.value(), "` takes it out of the queue");
  }
  // A list that the update does not name stays as it was resolved.
  const auto add = [&](bool must_finish, const auto& names) -> absl::Status {
    if (names) {
      return AddNamed(s, job.spec.owner, must_finish, *names, &e->parents);
    }
    AddPresent(job.parents, must_finish, &e->parents);
    return absl::OkStatus();
  };
  absl::Status status = add(/*must_finish=*/true, e->update.after_success);
  if (status.ok()) status = add(/*must_finish=*/false, e->update.after_any);
  if (!status.ok()) return StrCat(what, ToStd(status.message()));
  const std::string why = WhyNotAfter(s, job.id, e->parents);
  return why.empty() ? "" : StrCat(what, why);
}

void SetParents(State& s, Time now, Job& job, std::vector<Parent> parents) {
  RemoveChild(s, job);
  job.parents = std::move(parents);
  const bool starts = job.active() || WaitsByItself(job);
  if (starts && !job.parents.empty()) Await(s, now, job);
  AddChild(s, job);
}

void HoldForParents(State& s, Job& job, const std::vector<Parent>& parents) {
  job.parents = parents;
  job.reason = WhyAwaiting(s, job);
  AddChild(s, job);
}

void ForgetParents(State& s, Job& job) {
  RemoveChild(s, job);
  job.parents.clear();
}

bool AwaitAgain(State& s, Time now, Job& job) {
  if (job.parents.empty() || AwaitsJobs(job)) return false;
  Await(s, now, job);
  return true;
}

void TellChildren(State& s, Job& job) {
  ForgetParents(s, job);
  auto& children = s.dependencies.children;
  auto entry = children.lower_bound({job.id, JobId()});
  while (entry != children.end() && entry->first == job.id) {
    Job& child = s.jobs.at(entry->second);
    entry = children.erase(entry);
    const auto parent = std::ranges::find(child.parents, job.id, &Parent::job);
    if (!parent->must_finish || job.state == JobState::kFinished) {
      child.parents.erase(parent);
    } else {
      parent->failed = true;
    }
    AddChild(s, child);
  }
}

void RebuildDependencies(State& s) {
  s.dependencies = {};
  for (const auto& [id, job] : s.jobs.all()) AddChild(s, job);
}

void SettleChildren(State& s, Time now) {
  for (size_t i = 0; i < kSettledMax && !s.dependencies.settled.empty(); ++i) {
    Record(s, now, event::ParentsEnded{*s.dependencies.settled.begin()});
  }
  if (!s.dependencies.settled.empty()) s.agenda.Due(now);
}

void On(State& s, Time now, const event::ParentsEnded& e) {
  s.dependencies.settled.erase(e.job);
  Job* const job = s.jobs.Find(e.job);
  if (job == nullptr || !HasName(*job)) return;
  const auto failed = std::ranges::find(job->parents, true, &Parent::failed);
  if (failed != job->parents.end()) {
    return EndJob(s, now, *job, JobState::kCancelled,
                  reason::ParentFailed{TextOf(s, failed->job)});
  }
  if (!AwaitsJobs(*job) || !job->parents.empty()) return;
  Release(s, now, *job);
  HoldUntilDue(s, now, *job);
}

}  // namespace gavel::engine
