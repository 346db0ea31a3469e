// Jobs that are equal in all that a policy looks at, as one: linear programs of
// clusters where many jobs run the same model become as small as the number of
// models. An allocation then has a row for each class. Exact for policies that
// treat equal jobs alike: of any optimum, the mean over all ways to exchange
// equal jobs is one too, and gives them equal shares. Called by the max-min
// policies. Pure functions, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_JOB_CLASSES_H_
#define GAVEL_COORDINATOR_POLICY_JOB_CLASSES_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "coordinator/policy/share_problem.h"

namespace gavel::policy {

struct JobClasses {
  // One "job" for each class, in the order of their first members: its shares
  // are those of each member, its cells hold the accelerators of all members.
  // scale_factor and weight are those of one member.
  ShareProblem problem;
  std::vector<double> members;     // [classes] how many
  std::vector<uint32_t> class_of;  // [k] by job of the original
};

// Straight from a problem, whose jobs run alone; its `rows` are used where it
// has them. class_of is [n], kLeftOut for jobs that can run nowhere. O(n)
// looks at rows, and cells of one job for each different row, unless these are
// more than half as many as jobs. `problem` has passed CheckProblem.
JobClasses ClassesOf(const PolicyProblem& problem, ShareOptions options = {});
inline constexpr uint32_t kLeftOut = std::numeric_limits<uint32_t>::max();

// An allocation of classes of ClassesOf(problem), with its certificate.
PolicyResult ToResult(const PolicyProblem& problem, const JobClasses& classes,
                      std::span<const double> shares, double objective,
                      double bound);

// Same throughputs, scale factor and weight, and of one kind where there are
// pairs that are not listed. A problem that lists pairs has no classes: as it
// is.
JobClasses ClassifyJobs(const ShareProblem& problem);

// Shares of the classes' problem as those of the original one, in which pairs
// that have a share are listed: of two classes as many as they have members,
// not all.
std::vector<double> SharesOfMembers(const JobClasses& classes,
                                    std::span<const double> shares,
                                    ShareProblem* problem);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_JOB_CLASSES_H_
