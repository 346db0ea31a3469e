#include "coordinator/policy/share/position_matching.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace gavel::policy {
namespace {

constexpr double kFar = std::numeric_limits<double>::infinity();
constexpr size_t kNone = std::numeric_limits<size_t>::max();

// A position of a group: as many places as it has machines.
struct Slot {
  size_t group = 0;
  int from_end = 1;
  std::vector<size_t> jobs;  // that have it
  double price = 0;          // dual, <= 0; below 0 only when full
  // Of the search that is under way:
  double distance = kFar;
  size_t from = kNone;  // the job that reaches it
  bool done = false;
};

class Matcher {
 public:
  explicit Matcher(const MatchingProblem& problem)
      : problem_(problem),
        value_(problem.jobs(), 0),
        slot_(problem.jobs(), kNone),
        deepest_(problem.groups.size(), 0),
        full_(problem.groups.size(), 0) {
    for (size_t g = 0; g < problem.groups.size(); ++g) {
      if (FirstOfType(g)) AddSlot(g);
    }
  }

  void Insert(size_t job);
  Matching Result() const;

 private:
  double Cost(size_t job, const Slot& slot) const {
    const MachineGroup& group = problem_.groups[slot.group];
    const double price =
        problem_.price.empty() ? 0 : problem_.price[group.type];
    return (slot.from_end + price) *
               problem_.time_s[job * problem_.types + group.type] +
           group.ready_s;
  }
  bool Full(const Slot& slot) const {
    return static_cast<int>(slot.jobs.size()) ==
           problem_.groups[slot.group].machines;
  }
  bool FirstOfType(size_t group) const {
    return group == 0 ||
           problem_.groups[group - 1].type != problem_.groups[group].type;
  }
  void AddSlot(size_t group) {
    slots_.push_back({});
    slots_.back().group = group;
    slots_.back().from_end = ++deepest_[group];
  }
  void Extend(size_t group);
  void Reach(size_t job, double distance);
  size_t Nearest() const;
  void MoveAlong(size_t job, size_t slot);
  void Occupy(size_t job, size_t slot);

  const MatchingProblem& problem_;
  std::vector<Slot> slots_;
  std::vector<double> value_;  // dual of each job
  std::vector<size_t> slot_;   // that each job has
  // By group: slots there are, and how many of them are full: the first ones.
  std::vector<int> deepest_;
  std::vector<int> full_;
};

// Looks at all slots from a job that the search has come to.
void Matcher::Reach(size_t job, double distance) {
  for (Slot& slot : slots_) {
    if (slot.done) continue;
    const double cost = Cost(job, slot);
    if (cost == kFar) continue;
    const double there = distance + cost - value_[job] - slot.price;
    if (there >= slot.distance) continue;
    slot.distance = there;
    slot.from = job;
  }
}

size_t Matcher::Nearest() const {
  size_t nearest = kNone;
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].done || slots_[s].distance == kFar) continue;
    if (nearest == kNone || slots_[s].distance < slots_[nearest].distance) {
      nearest = s;
    }
  }
  return nearest;
}

// A position is no use while one before it is free that is not deeper in the
// queue, on machines of the type that are not free later: it costs every job
// more. So the next one of a group is there when the one above it is full, and
// the same one of the group before.
void Matcher::Extend(size_t group) {
  const int next = deepest_[group] + 1;
  if (full_[group] < next - 1) return;
  if (!FirstOfType(group) && full_[group - 1] < next) return;
  AddSlot(group);
}

void Matcher::Occupy(size_t job, size_t slot) {
  slot_[job] = slot;
  slots_[slot].jobs.push_back(job);
  const size_t group = slots_[slot].group;
  if (!Full(slots_[slot]) || slots_[slot].from_end <= full_[group]) return;
  full_[group] = slots_[slot].from_end;
  Extend(group);
  const size_t after = group + 1;
  if (after < full_.size() && !FirstOfType(after)) Extend(after);
}

// Each job on the path takes the slot that it reaches from the one before.
void Matcher::MoveAlong(size_t job, size_t slot) {
  while (true) {
    const size_t mover = slots_[slot].from;
    const size_t left = slot_[mover];
    if (left != kNone) std::erase(slots_[left].jobs, mover);
    Occupy(mover, slot);
    if (mover == job) return;
    slot = left;
  }
}

void Matcher::Insert(size_t job) {
  for (Slot& slot : slots_) {
    slot.distance = kFar;
    slot.from = kNone;
    slot.done = false;
  }
  Reach(job, 0);
  size_t end = Nearest();
  while (end != kNone && Full(slots_[end])) {
    slots_[end].done = true;
    for (const size_t other : slots_[end].jobs) {
      Reach(other, slots_[end].distance);
    }
    end = Nearest();
  }
  if (end == kNone) return;  // it can run nowhere
  const double length = slots_[end].distance;
  value_[job] += length;
  for (Slot& slot : slots_) {
    if (!slot.done) continue;
    for (const size_t other : slot.jobs)
      value_[other] += length - slot.distance;
    slot.price -= length - slot.distance;
  }
  MoveAlong(job, end);
}

Matching Matcher::Result() const {
  Matching matching;
  matching.positions.resize(problem_.jobs());
  for (size_t job = 0; job < problem_.jobs(); ++job) {
    if (slot_[job] == kNone) continue;
    const Slot& slot = slots_[slot_[job]];
    matching.positions[job] = {slot.group, slot.from_end};
    matching.cost += Cost(job, slot);
    matching.bound += value_[job];
  }
  for (const Slot& slot : slots_) {
    matching.bound += slot.price * problem_.groups[slot.group].machines;
  }
  return matching;
}

}  // namespace

Matching MatchPositions(const MatchingProblem& problem) {
  assert(problem.types == 0 || problem.time_s.size() % problem.types == 0);
  assert(problem.price.empty() || problem.price.size() == problem.types);
  Matcher matcher(problem);
  for (size_t job = 0; job < problem.jobs(); ++job) matcher.Insert(job);
  return matcher.Result();
}

}  // namespace gavel::policy
