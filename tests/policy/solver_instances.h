// Random problems on which solvers are compared, and how many of them.
#ifndef GAVEL_TESTS_POLICY_SOLVER_INSTANCES_H_
#define GAVEL_TESTS_POLICY_SOLVER_INSTANCES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/policy/policy.h"

namespace gavel::testing {

// GAVEL_SOLVER_INSTANCES, 300 without; from number GAVEL_SOLVER_FIRST on, so
// that long runs can be made in parts; at most GAVEL_SOLVER_JOBS jobs, 2,000
// without where instances are asked for, else 300. See the README of
// coordinator/policy.
int Instances();
int FirstInstance();
size_t InstanceJobsMax();

// J 1 to 10, n log-uniform up to `jobs_max`; by the seed modulo 7: plain, equal
// jobs, exact ties between types, ratios up to 1e-6..1e6, gangs larger than
// types, few accelerators, many. Of every fifth some deadlines have passed.
PolicyProblem Instance(uint64_t seed, size_t jobs_max);

// Instance on servers of 4 accelerators, one in four on servers of any size up
// to 5; gangs across servers have 0.2 to 1 of what they have on one.
PolicyProblem PlacedInstance(uint64_t seed, size_t jobs_max);

// Instance with pairs: a third each with kinds of equal jobs, with kinds whose
// jobs differ alone, and with every job of its own kind. Together jobs have 0.3
// to 1 of what the first job of their kind has alone, rarely 0 or more.
PolicyProblem PackedInstance(uint64_t seed, size_t jobs_max);

inline constexpr int kInstanceFamilies = 7;  // by the seed modulo this
inline constexpr int kExtremeFamily = 3;     // ratios of 1e-6..1e6

// The problem with that solver.
PolicyResult By(SolverChoice choice, const char* policy, PolicyProblem problem);
bool ByPrices(const PolicyResult& result);

// Ascending, without NaN.
std::vector<double> Sorted(std::vector<double> values);
// Whether sorted values have less than those of HiGHS at any rank, and no more
// at an earlier one: where throughputs differ by many powers of ten, the tenth
// digit of one value is all of another, and the lower rank counts.
bool AnyLower(const std::vector<double>& values,
              const std::vector<double>& highs);

// What one test compared. Says so in one line when it ends, and fails when it
// was less than nine tenths of what there was to compare.
class Tally {
 public:
  explicit Tally(const char* what) : what_(what) {}
  ~Tally();

  void Begin(int instance) { instance_ = instance; }
  void Ask() { ++asked_; }  // the referee about one answer
  // The referee has an optimum, this far away, relative.
  void Compare(double difference);
  // The solver that is tried first gave up, as it said.
  void TakeFallback(const char* policy);
  void Dispute();
  // Others could have more for a trace of what somebody has.
  void TakeTraces();
  int asked() const { return asked_; }
  int fallbacks() const { return fallbacks_; }
  int disputes() const { return disputes_; }
  const std::string& whose() const { return whose_; }

 private:
  const char* what_;
  int asked_ = 0;
  int compared_ = 0;
  int fallbacks_ = 0;
  int disputes_ = 0;
  double worst_ = 0;
  int instance_ = 0;
  int worst_instance_ = 0;
  std::string disputed_;  // instances
  std::string traced_;    // instances
  std::string whose_;     // policies of the fallbacks
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_POLICY_SOLVER_INSTANCES_H_
