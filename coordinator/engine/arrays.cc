#include "coordinator/engine/arrays.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "coordinator/engine/dependencies.h"
#include "coordinator/engine/job_times.h"
#include "coordinator/engine/operators.h"
#include "coordinator/engine/state.h"
#include "coordinator/workload/job_array.h"
#include "core/text.h"

namespace gavel {

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
  const size_t runs =
      kQueuedPerAccelerator * s.cluster.accelerators().size() + kQueuedBeyond;
  const auto at_once = static_cast<size_t>(element.array_at_once);
  return at_once > 0 ? std::min(at_once, runs) : runs;
}

std::vector<int> IndicesOfJobs(const std::map<JobId, Job>& jobs,
                               const std::vector<JobId>& elements) {
  std::vector<int> indices;
  for (const JobId id : elements) indices.push_back(jobs.at(id).array_index);
  return indices;
}

std::string WhyNotOne(const State& s, const event::JobCommanded& e,
                      JobId element) {
  event::JobCommanded one = e;
  one.job = element;
  const Job& job = s.jobs.at(element);
  return WhyNot(one, &job, IsKeptOut(s, job));
}

}  // namespace

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
  if (counts.queued == 0 && counts.waiting.empty()) counts_.erase(found);
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
  for (const JobId array : s.arrays.TakeDue(s.cluster.accelerators().size())) {
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
      return StrCat("elements \"", e.elements, "\" of array ", e.job.value(),
                    ": ", ToStd(indices.status().message()));
    }
    std::vector<int> unknown;
    std::ranges::set_difference(*indices, IndicesOfJobs(jobs, named),
                                std::back_inserter(unknown));
    if (!unknown.empty()) {
      return StrCat(
          "array ", e.job.value(), " has no element ", FormatIndices(unknown),
          "; it has ",
          FormatIndices(IndicesOfJobs(jobs, ElementsOf(jobs, e.job))));
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
    if (!job.array.valid()) continue;
    if (job.active()) s.arrays.NoteQueued(job);
    if (WaitsForArray(job)) s.arrays.NoteWaiting(job);
  }
}

}  // namespace gavel::engine
