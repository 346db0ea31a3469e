#include "coordinator/engine/related_jobs.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <set>
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

std::string ShownId(const Job& job) {
  return job.array.valid() ? StrCat(job.array.value(), "_", job.array_index)
                           : StrCat(job.id.value());
}

std::string ArrayInstead(const std::map<JobId, Job>& jobs, JobId array) {
  const Job& first = *FirstElement(jobs, array);
  return StrCat(array.value(), " is an array of ",
                ElementsOf(jobs, array).size(), " jobs; name one of them, as ",
                ShownId(first));
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

// The element is held, for nothing yet.
Job& AddElement(State& s, Time now, JobSpec spec, JobId array,
                const event::Element& element) {
  Job& job = s.jobs.AddHeld(now, std::move(spec));
  job.array = array;
  job.array_index = element.index;
  job.array_at_once = element.at_once;
  job.unqueued = true;
  job.submitted_wall_s = now + s.options.wall_offset_s;
  job.reason = reason::ArrayLimit{array, element.at_once};
  s.arrays.NoteSubmitted(job);
  return job;
}

// Holds a new element for its parents, its time or its turn.
void HoldElement(State& s, Job& job, std::vector<Parent> parents) {
  if (!parents.empty()) {
    HoldForParents(s, job, std::move(parents));
  } else if (!HoldElementUntilDue(s, job)) {
    s.arrays.NoteWaiting(job);
  }
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
  const JobId array = s.jobs.TakeArrayId(e.spec);
  for (const int index : indices) {
    Job& job = AddElement(s, now, ElementSpec(e.spec, index), array,
                          {.index = index, .at_once = at_once});
    HoldElement(s, job, ParentsOfElement(s, e.parents, index));
  }
  s.outbox.Emit(action::Reply{e.reply_to, array, ""});
}

void SubmitElement(State& s, Time now, const event::JobSubmitted& e) {
  JobSpec whole;
  whole.name = ArrayNameOf(e.spec.name);
  whole.owner = e.spec.owner;
  JobId array = s.jobs.LatestNamed(NameOf(whole));
  if (!array.valid()) array = s.jobs.TakeArrayId(whole);
  Job& job = AddElement(s, now, e.spec, array, *e.element);
  s.outbox.Emit(action::Reply{e.reply_to, job.id, ""});
  if (!e.element->queued) return HoldElement(s, job, e.parents);
  s.arrays.NoteQueued(job);
  EnterQueue(s, now, job);
  s.ledger.TakeReceived(job.id, e.received);
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
  // A release of several ends holds. Elements that wait for other jobs start
  // without them only if none of the named ones is held.
  const auto waits = [&](JobId id) { return WaitsByItself(s.jobs.at(id)); };
  if (e.kind == CommandKind::kRelease && !std::ranges::all_of(jobs, waits)) {
    std::erase_if(jobs, waits);
  }
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
// The parents that a reason names.
constexpr size_t kParentsNamedMax = 3;
// The most parents that an update looks at to see that no job waits for itself.
constexpr size_t kParentsSeenMax = 20'000;

std::string TextOf(const State& s, JobId id) {
  if (const Job* const job = s.jobs.Find(id)) {
    return StrCat(ShownId(*job), " ", job->spec.name);
  }
  const Job* const element = FirstElement(s.jobs.all(), id);
  return element == nullptr
             ? StrCat(id.value())
             : StrCat(id.value(), " ", ArrayNameOf(element->spec.name));
}

// Until somebody releases or cancels it.
bool IsHeld(const Job& job) {
  return job.state == JobState::kHeld && !WaitsByItself(job);
}

std::string ProgressText(const State& s, JobId id) {
  const Job* const job = s.jobs.Find(id);
  if (job == nullptr) {
    const ArrayBook::Counts* const counts = s.arrays.Find(id);
    if (counts == nullptr) return "";
    const size_t left = counts->present;
    const size_t go_on = counts->queued + counts->waiting.size();
    const std::string stand =
        left > go_on
            ? StrCat(", ", left - go_on, " held or waiting for other jobs")
            : "";
    return StrCat(" (an array, ", left, left == 1 ? " job" : " jobs",
                  " of which ", left == 1 ? "has" : "have", " not ended", stand,
                  ")");
  }
  if (job->active()) return job->HoldsAny() ? " (running)" : " (waiting)";
  // Not with the words of its program, which readers of the child may not read.
  if (IsHeld(*job)) {
    return StrCat(" (", RenderReason(ForOthers(job->reason)),
                  "; release or cancel it)");
  }
  return StrCat(
      " (", WaitsByItself(*job) ? "waiting" : JobStateName(job->state), ")");
}

// Ids of elements ascend with their indices, so the element with index k has
// one of the first k + 1 ids. Some elements may be forgotten.
JobId FindElement(const State& s, JobId array, int index) {
  if (!array.valid()) return {};
  const std::map<JobId, Job>& jobs = s.jobs.all();
  const auto at_or_after = [&](uint64_t id) {
    const auto found = jobs.lower_bound(JobId(id));
    const bool of_array = found != jobs.end() && found->second.array == array;
    return of_array ? &found->second : nullptr;
  };
  uint64_t first = array.value() + 1;
  uint64_t last = first + static_cast<uint64_t>(index);
  while (first < last) {
    const uint64_t middle = first + (last - first) / 2;
    const Job* const element = at_or_after(middle);
    if (element == nullptr || element->array_index >= index) {
      last = middle;
    } else {
      first = element->id.value() + 1;
    }
  }
  const Job* const element = at_or_after(first);
  const bool found = element != nullptr && element->array_index == index;
  return found ? element->id : JobId();
}

// The job or array that `name` stands for: a name, an id, or "42_7".
absl::StatusOr<JobId> Resolve(const State& s, const std::string& owner,
                              std::string_view key, const std::string& name) {
  uint64_t number = 0;
  const bool is_id = absl::SimpleAtoi(name, &number);
  JobId id = is_id ? JobId(number) : JobId();
  if (const std::optional<ElementId> element = ParseElementId(name)) {
    id = FindElement(s, JobId(element->array), element->index);
  }
  if (!is_id && !id.valid()) id = s.jobs.LatestNamed(NameOf(owner, name));
  const Job* job = s.jobs.Find(id);
  if (job == nullptr) job = FirstElement(s.jobs.all(), id);
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

bool HasFailed(const Job& job) {
  return !HasName(job) && job.state != JobState::kFinished;
}

// The job, or an element of the array, that has ended without success; the
// array itself if that element is forgotten (JobTable::Prune). Invalid: there
// is none.
JobId FailedOf(const State& s, JobId id) {
  if (const Job* const job = s.jobs.Find(id)) {
    return HasFailed(*job) ? id : JobId();
  }
  const std::map<JobId, Job>& jobs = s.jobs.all();
  JobId failed;
  for (auto element = jobs.upper_bound(id);
       element != jobs.end() && element->second.array == id; ++element) {
    if (HasFailed(element->second)) return element->first;
    if (element->second.array_failed) failed = id;
  }
  return failed;
}

// Whether the job, or all of the array, has ended.
bool HasEnded(const State& s, JobId id) {
  const Job* const job = s.jobs.Find(id);
  return job == nullptr ? s.arrays.Find(id) == nullptr : !HasName(*job);
}

// Adds `one`, which may be there as a parent of the other list.
void Add(const Parent& one, std::vector<Parent>* parents) {
  const auto known = std::ranges::find_if(*parents, [&](const Parent& other) {
    return other.job == one.job && other.by_index == one.by_index;
  });
  if (known == parents->end()) return parents->push_back(one);
  known->must_finish |= one.must_finish;
  known->any_end |= one.any_end;
  known->failed |= one.failed;
}

// Adds the job or array, unless it has ended as it should.
void AddUnlessOver(const State& s, JobId id, bool must_finish,
                   std::vector<Parent>* parents) {
  const JobId failed = must_finish ? FailedOf(s, id) : JobId();
  if (failed.valid()) return Add({failed, true, false, true}, parents);
  if (!HasEnded(s, id)) Add({id, must_finish, !must_finish}, parents);
}

// Adds the jobs and arrays that `names` stand for.
absl::Status AddNamed(const State& s, const std::string& owner,
                      bool must_finish, const std::vector<std::string>& names,
                      std::vector<Parent>* parents) {
  for (const std::string& name : names) {
    GAVEL_ASSIGN_OR_RETURN(
        const JobId id,
        Resolve(s, owner, must_finish ? "after_success" : "after_any", name));
    AddUnlessOver(s, id, must_finish, parents);
  }
  return absl::OkStatus();
}

// Adds the arrays of after_by_index.
absl::Status AddByIndex(const State& s, const JobSpec& spec,
                        std::vector<Parent>* parents) {
  for (const std::string& name : spec.after_by_index) {
    GAVEL_ASSIGN_OR_RETURN(const JobId id,
                           Resolve(s, spec.owner, "after_by_index", name));
    const std::vector<JobId> elements = ElementsOf(s.jobs.all(), id);
    if (elements.empty()) {
      return absl::InvalidArgumentError(
          StrCat("after_by_index names job ", TextOf(s, id),
                 ", which is no array; write after_success"));
    }
    const std::vector<int> has = IndicesOfJobs(s.jobs.all(), elements);
    std::vector<int> lacks;
    std::ranges::set_difference(IndicesOf(spec), has,
                                std::back_inserter(lacks));
    if (!lacks.empty()) {
      return absl::InvalidArgumentError(StrCat(
          "after_by_index names array ", TextOf(s, id),
          ", which has no element ", ShortIndices(lacks), "; it has ",
          ShortIndices(has),
          ", without those that ended long ago; submit the indices that both "
          "have"));
    }
    Add({id, true, false, false, /*by_index=*/true}, parents);
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

bool HasChildren(const Dependencies::Pairs& pairs, JobId parent) {
  const auto first = pairs.lower_bound({parent, JobId()});
  return first != pairs.end() && first->first == parent;
}

bool HasChildren(const State& s, JobId parent) {
  return parent.valid() && (HasChildren(s.dependencies.if_finished, parent) ||
                            HasChildren(s.dependencies.however_ended, parent));
}

// Why `job` can't wait for `parents`, through which it may wait for itself;
// empty: it can.
std::string WhyNotAfter(const State& s, const Job& job,
                        const std::vector<Parent>& parents) {
  // Nothing waits for most jobs, so most can't wait for themselves.
  const bool is_parent = HasChildren(s, job.id) || HasChildren(s, job.array);
  std::set<JobId> seen;
  std::vector<JobId> next;
  size_t looked_at = 0;
  const auto add = [&](const std::vector<Parent>& of) {
    looked_at += of.size();
    for (const Parent& parent : of) {
      if (seen.insert(parent.job).second) next.push_back(parent.job);
    }
  };
  const auto is_seen = [&] {
    return seen.contains(job.id) ||
           (job.array.valid() && seen.contains(job.array));
  };
  add(parents);
  if (is_seen()) return "it can't wait for itself; name other jobs";
  while (is_parent && !next.empty()) {
    const JobId id = next.back();
    next.pop_back();
    if (const Job* const parent = s.jobs.Find(id)) {
      add(parent->parents);
    } else {
      for (const JobId element : ElementsOf(s.jobs.all(), id)) {
        add(s.jobs.at(element).parents);
      }
    }
    if (is_seen()) {
      return StrCat("job ", TextOf(s, id),
                    " waits for it, so that neither would start; name other "
                    "jobs, or update that one first");
    }
    if (looked_at > kParentsSeenMax) {
      return StrCat("more than ", kParentsSeenMax,
                    " jobs would have to end before it; wait until some have "
                    "ended");
    }
  }
  return "";
}

Dependencies::Pairs& PairsOf(State& s, const Parent& parent) {
  return parent.must_finish ? s.dependencies.if_finished
                            : s.dependencies.however_ended;
}

// The job need not wait any longer, or must end.
void SettleIfDone(State& s, const Job& job) {
  if (std::ranges::any_of(job.parents, &Parent::failed) ||
      (job.parents.empty() && AwaitsJobs(job))) {
    s.dependencies.settled.insert(job.id);
  }
}

void AddChild(State& s, const Job& job) {
  for (const Parent& parent : job.parents) {
    if (!parent.failed) PairsOf(s, parent).insert({parent.job, job.id});
  }
  SettleIfDone(s, job);
}

void RemoveChild(State& s, const Job& job) {
  for (const Parent& parent : job.parents) {
    PairsOf(s, parent).erase({parent.job, job.id});
  }
  s.dependencies.settled.erase(job.id);
}

// The jobs that wait for the parent by these pairs, which are taken out.
std::vector<JobId> TakeChildren(JobId parent, Dependencies::Pairs* pairs) {
  std::vector<JobId> children;
  const auto first = pairs->lower_bound({parent, JobId()});
  auto last = first;
  for (; last != pairs->end() && last->first == parent; ++last) {
    children.push_back(last->second);
  }
  pairs->erase(first, last);
  return children;
}

// `parent`, a job or an array, has ended as its children want.
void Satisfy(State& s, JobId parent, const std::vector<JobId>& children) {
  for (const JobId id : children) {
    Job& child = s.jobs.at(id);
    std::erase_if(child.parents, [&](const Parent& one) {
      return one.job == parent && !one.failed;
    });
    SettleIfDone(s, child);
  }
}

// `failed`, which is `parent` or an element of it, has not finished, as the
// children want.
void Fail(State& s, JobId parent, JobId failed,
          const std::vector<JobId>& children) {
  for (const JobId id : children) {
    Job& child = s.jobs.at(id);
    const auto one = std::ranges::find(child.parents, parent, &Parent::job);
    one->job = failed;
    one->failed = true;
    SettleIfDone(s, child);
  }
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
  // A held parent is named first: without somebody's help it does not end.
  std::vector<Parent> parents = job.parents;
  std::ranges::stable_partition(parents, [&](const Parent& one) {
    const Job* const parent = s.jobs.Find(one.job);
    return parent != nullptr && IsHeld(*parent);
  });
  const size_t named = std::min(parents.size(), kParentsNamedMax);
  std::string first;
  for (size_t i = 0; i < named; ++i) {
    const JobId parent = parents[i].job;
    StrAppend(&first, i == 0 ? "" : ", job ", TextOf(s, parent),
              ProgressText(s, parent));
  }
  return reason::AwaitsJobs{std::move(first),
                            static_cast<int>(parents.size() - named), job.id};
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
  GAVEL_RETURN_IF_ERROR(AddByIndex(s, spec, &parents));
  return parents;
}

std::vector<Parent> ParentsOfElement(const State& s,
                                     const std::vector<Parent>& parents,
                                     int index) {
  std::vector<Parent> own;
  for (const Parent& parent : parents) {
    if (!parent.by_index) {
      Add(parent, &own);
      continue;
    }
    const JobId element = FindElement(s, parent.job, index);
    if (element.valid()) {
      AddUnlessOver(s, element, /*must_finish=*/true, &own);
    }
  }
  return own;
}

std::string FindNewParents(const State& s, const Job& job,
                           event::JobUpdated* e) {
  const std::string what = StrCat("job ", ShownId(job), ": ");
  if (job.active() && (!job.assigned.empty() || job.AnyLive())) {
    return StrCat(what,
                  "it has started, and only a job that waits can wait for "
                  "others; `gavel hold ",
                  ShownId(job), "` takes it out of the queue");
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
  const std::string why = WhyNotAfter(s, job, e->parents);
  return why.empty() ? "" : StrCat(what, why);
}

void SetParents(State& s, Time now, Job& job, std::vector<Parent> parents) {
  RemoveChild(s, job);
  job.parents = std::move(parents);
  const bool starts = job.active() || WaitsByItself(job);
  if (starts && !job.parents.empty()) Await(s, now, job);
  AddChild(s, job);
}

void HoldForParents(State& s, Job& job, std::vector<Parent> parents) {
  job.parents = std::move(parents);
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
  Dependencies& all = s.dependencies;
  const bool failed = HasFailed(job);
  const auto fail = [&](JobId parent) {
    Fail(s, parent, job.id, TakeChildren(parent, &all.if_finished));
  };
  const auto end = [&](JobId parent) {
    Satisfy(s, parent, TakeChildren(parent, &all.if_finished));
    Satisfy(s, parent, TakeChildren(parent, &all.however_ended));
  };
  // A failure takes out the children that it concerns.
  if (failed) fail(job.id);
  end(job.id);
  if (!job.array.valid()) return;
  if (failed) fail(job.array);
  if (s.arrays.Find(job.array) == nullptr) end(job.array);
}

size_t CountChildren(const State& s, const Job& job) {
  std::set<JobId> children;
  const auto add = [&](const Dependencies::Pairs& pairs, JobId parent) {
    auto pair = pairs.lower_bound({parent, JobId()});
    for (; pair != pairs.end() && pair->first == parent; ++pair) {
      children.insert(pair->second);
    }
  };
  for (const JobId parent : {job.id, job.array}) {
    if (!parent.valid()) continue;
    add(s.dependencies.if_finished, parent);
    add(s.dependencies.however_ended, parent);
  }
  return children.size();
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
