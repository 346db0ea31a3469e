// Asks the policy: builds its problem and takes its answer. Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_SOLVER_H_
#define GAVEL_COORDINATOR_ENGINE_SOLVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "coordinator/engine/allocation.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/round_table.h"
#include "coordinator/policy/policy.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel {

// The worth of accelerators of each type to the policy. Rounds use it to give
// out what shares leave over. The engine calls AddWorth for each row of a
// round. Pure.

// All borrowed.
struct WorthTerms {
  const ThroughputMatrix& throughputs;
  const std::vector<std::string>& types;                     // of the cluster
  const std::map<std::string, double, std::less<>>& prices;  // missing: 1
};

// Sets row.worth by type, or leaves it alone if all types are alike. The worth
// of a job follows from `job.steps_per_s`, which must be up to date; that of a
// pair from the sum of both jobs' throughputs together.
void AddWorth(TypeWorth worth, const WorthTerms& terms, const ShareUnit& unit,
              const Job& job, RoundUnit& row);

// Fairness between users, or between apps, first and between jobs second. The
// weight of a group is divided over its active jobs in proportion to their own
// weights, so that many jobs of one group weigh no more than one. A group has
// its full weight in each entity; the weight of an app is that of its owner.
// Not thread-safe; deterministic.
class GroupShares {
 public:
  // kUser: the jobs of an owner. kApp: the jobs of an owner's app.
  enum class Group : uint8_t { kUser, kApp };

  // Reads all live jobs. Returns the active ones whose weight has changed since
  // the last call because jobs of their group came, went or changed.
  std::vector<Job*> Update(Group group,
                           const absl::btree_map<JobId, Job*>& live);

  // The weight as of the last Update. A job outside any group, or whose group
  // had no active job then, has its own weight.
  double WeightOf(const Job& job) const;

 private:
  struct Share {
    double weight = 1;  // of the group, as its latest job has it
    double sum = 0;     // of the weights of its active jobs
    friend bool operator==(const Share&, const Share&) = default;
  };
  using Key = std::tuple<std::string, std::string, std::string>;

  bool Counts(const Job& job) const;
  // Owner, app and entity; the app is empty for groups of users.
  Key KeyOf(const Job& job) const;

  Group group_ = Group::kUser;
  absl::btree_map<Key, Share> shares_;
};

// The problem of the policy, and how far its solution is. Snapshot fields: all
// but the problem itself.
struct Solving {
  std::shared_ptr<PolicyProblem> problem;  // the last one, kept by change
  uint64_t problem_version = 0;            // of the throughputs
  bool problem_guesses = false;            // it has throughputs nobody knows
  GroupShares groups;
  uint64_t epoch = 0;
  uint64_t problem_seq = 0;  // the row that its problem was made behind
  bool runs = false;
  bool placement = false;    // it had consolidated columns
  Time solved_at = -kNever;  // when the last problem went out
  Time retry_at = kNever;    // after a solve that failed
};

// The input of RhoOfJobs. A value that is made one job after the other.
struct RhoProblem {
  PolicyProblem problem;
  // [n] the speed of a gang at its level, relative to one on a single server.
  std::vector<double> paces;
  // Indices into the problem's apps, by owner and name.
  std::map<std::pair<std::string, std::string>, int> apps;
  double round_duration_s = 0;
};

// rho of the app of each active job of the problem that can run, with the
// accelerators that the app holds (policy/app_fairness.h). Pure: any thread may
// call it.
std::map<JobId, double> RhoOfJobs(const RhoProblem& rho);

}  // namespace gavel

namespace gavel::engine {

struct State;

// Builds the policy's problem. The last one is kept from one solve to the next:
// where the rows of other jobs can't have changed, only those of changed jobs
// are built and checked.
//
// Not thread-safe. No snapshot fields: the problem is built anew after a
// restart.

// The part of a problem that policy/app_fairness.h reads, with the jobs of the
// app of `of`.
PolicyProblem ProblemOfApp(const State& s, Time now, const Job& of);
RhoProblem RhoProblemOfApp(const State& s, Time now, const Job& of);
// The input of RhoOfJobs: a problem without jobs, and one job more.
RhoProblem EmptyRhoProblem(const State& s);
void AddToRho(const State& s, Time now, const Job& job, RhoProblem& rho);
// Makes Solving::problem describe the present state.
void BuildProblem(State& s, Time now);
void Drop(State& s);

// Decides when to ask the policy, and applies its answer. Solving is
// asynchronous, and the answer to an older question is dropped.
//
// Not thread-safe. Snapshot fields: all but problem_seq_.

// Asks for a new allocation if jobs or the cluster have changed and the
// change is on disk. Jobs that come together share one solve. Only one
// problem is out at a time; changes in the meantime lead to the next one.
void MaybeSolve(State& s, Time now, const std::string& policy);
// With apps that bid themselves, the answer may wait for their divisions.
// TakeAnswer, which every step calls, brings it then; true: it did.
void Admit(State& s, Time now, event::AllocationReady e);
bool TakeAnswer(State& s, Time now);
void On(State& s, Time now, const event::AllocationReady& e);
bool solving(const State& s);
// A new allocation is being made, or will be as soon as the changes are on
// disk.
bool IsAnswerNear(const State& s, Time now);
// The time of the next call of MaybeSolve that may have something to do;
// kNever if none.
Time NextSolve(const State& s);
// Makes a failed solve due again when its time has come.
void Retry(State& s, Time now);
// Gives up the solve in progress. `answer`: its answer may still come, and
// will be dropped.
void Abandon(State& s, bool answer);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_SOLVER_H_
