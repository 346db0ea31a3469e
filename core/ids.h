// Distinct types for ids, so that a job can never be passed where an
// accelerator is meant. Used everywhere. Values, thread-safe.
#ifndef GAVEL_CORE_IDS_H_
#define GAVEL_CORE_IDS_H_

#include <algorithm>
#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace gavel {

// An integer id that only compares with ids of its own kind. Zero is "none".
template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(uint64_t value) : value_(value) {}
  constexpr uint64_t value() const { return value_; }
  constexpr bool valid() const { return value_ != 0; }
  friend constexpr auto operator<=>(Id, Id) = default;
  template <class H>
  friend H AbslHashValue(H state, Id id) {
    return H::combine(std::move(state), id.value_);
  }

 private:
  uint64_t value_ = 0;
};

// A job, numbered from 1 in the order of submission.
using JobId = Id<struct JobTag>;
// One GPU or one declared CPU slot, numbered from 1 in the order in which the
// coordinator first saw it.
using AcceleratorId = Id<struct AcceleratorTag>;

// One worker (process) of a job. `rank` is in [0, scale factor).
struct WorkerId {
  JobId job;
  int rank = 0;
  friend auto operator<=>(const WorkerId&, const WorkerId&) = default;
};

// One incarnation of a worker. Each launch of its process is a new one, so that
// late messages of an earlier process are recognised as stale.
struct WorkerKey {
  JobId job;
  int rank = 0;
  uint64_t incarnation = 0;
  WorkerId worker() const { return {job, rank}; }
  friend auto operator<=>(const WorkerKey&, const WorkerKey&) = default;
};

// A proof (MAC) that a coordinator issued a journal position. Only the
// coordinator makes and checks it (coordinator/server/gatekeeper.h); all
// others store it beside the position. All zeros: there is no proof.
struct PositionProof {
  uint64_t first = 0;
  uint64_t second = 0;
  friend bool operator==(const PositionProof&, const PositionProof&) = default;
};

// A position in a coordinator's journal. The term rises with every start of a
// coordinator, seq with every event; the pair is totally ordered. A process
// that has seen a term ignores messages with a lower one.
struct JournalPosition {
  uint64_t term = 0;
  uint64_t seq = 0;
  PositionProof proof = {};  // ignored by comparisons
  friend constexpr auto operator<=>(const JournalPosition& a,
                                    const JournalPosition& b) {
    return a.term != b.term ? a.term <=> b.term : a.seq <=> b.seq;
  }
  friend constexpr bool operator==(const JournalPosition& a,
                                   const JournalPosition& b) {
    return a.term == b.term && a.seq == b.seq;
  }
};

// The accelerator type assumed where types are not distinguished: by
// heterogeneity-agnostic policies, and for the durations of jobs in traces,
// which Gavel gives for a V100.

inline constexpr std::string_view kReferenceType = "v100";

// A unit is one job alone, or two jobs that share accelerators (a packed pair,
// Gavel section 3.1). Policies give units shares of time, and the mechanism
// gives them rounds. Values, thread-safe.

struct ShareUnit {
  JobId job;
  JobId partner;  // > job; invalid if `job` is alone
  bool packed() const { return partner.valid(); }
  bool Holds(JobId id) const { return job == id || partner == id; }
  friend auto operator<=>(const ShareUnit&, const ShareUnit&) = default;
};

// The unit of two different jobs, which may be given in either order.
inline ShareUnit PairOf(JobId a, JobId b) {
  return {std::min(a, b), std::max(a, b)};
}

}  // namespace gavel

#endif  // GAVEL_CORE_IDS_H_
