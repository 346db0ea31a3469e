// What is right about an answer of `gavel solve` to one of the recorded cases,
// from the two JSON documents alone: no code of the policies is used. The rule
// is the one that the original forgets: a job has no throughput on a type that
// is smaller than its gang.
#ifndef GAVEL_TESTS_POLICY_CASE_CHECKER_H_
#define GAVEL_TESTS_POLICY_CASE_CHECKER_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

namespace gavel::testing {

class CaseChecker {
 public:
  // Both outlive it. Policies of some names look at other throughputs than the
  // real ones: all 1, or those of the V100.
  CaseChecker(const nlohmann::json& given, const nlohmann::json& answer,
              const std::string& policy);

  // Jobs that can run on no type.
  const std::set<int>& left_out() const { return left_out_; }

  // What makes the shares infeasible, by more than 1e-9. Empty: nothing.
  std::string FeasibilityErrors() const;

  // Of the answer's shares, by the formula of the policy. NaN for policies
  // that have none.
  double Objective() const;
  // s_m / (w_m prop_m) T_m(X), ascending.
  std::vector<double> SortedValues() const;
  // The largest difference to the original's shares.
  double DifferenceToOriginal() const;
  // Steps/s of a job, as the policy sees them.
  double ThroughputOf(int id) const { return Throughput(jobs_.at(id)); }
  // Both rules give the same: every job can run on every type.
  bool RulesAgree() const;
  // Deadlines that are missed by more than 1e-6 of the throughput they need.
  std::set<int> MissedDeadlines() const;

 private:
  struct Job {
    int id = 0;
    int place = 0;  // in the case's list
    double scale_factor = 1;
    double weight = 1;
    double steps = 0;
    double time_since_start_s = 0;
    std::map<std::string, double> real;  // 0 where it cannot run
    std::map<std::string, double> seen;  // by the policy
  };
  using Shares = std::map<std::string, double>;

  void ReadJob(const nlohmann::json& json, int place);
  void SetSeen(Job* job) const;
  double Throughput(const Job& job) const;
  double UnitThroughput(const std::string& unit, const Job& job,
                        const std::string& type) const;
  std::set<int> IdsOf(const std::string& unit) const;
  bool CanRun(const std::string& unit, const std::string& type) const;
  double Proportional(const Job& job) const;
  double Isolated(const Job& job) const;
  double Value(const Job& job) const;
  double Rho(const Job& job) const;
  double TotalThroughput() const;
  std::string JobErrors() const;
  std::string TypeErrors() const;

  const nlohmann::json& given_;
  const nlohmann::json& answer_;
  std::string policy_;
  std::map<std::string, double> capacity_;
  std::map<int, Job> jobs_;  // all of them
  std::set<int> left_out_;
  std::map<std::string, Shares> shares_;  // by unit
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_POLICY_CASE_CHECKER_H_
