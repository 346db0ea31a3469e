#include "tests/policy/case_checker.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "core/text.h"

namespace gavel::testing {
namespace {

using Json = nlohmann::json;

constexpr double kTolerance = 1e-9;

bool StartsWith(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// max_min_fairness of no kind "perf" or "packed": all throughputs are 1.
bool LooksAtTimeOnly(const std::string& policy) {
  return policy == "max_min_fairness" ||
         policy == "max_min_fairness_water_filling";
}

bool LooksAtReferenceType(const std::string& policy) {
  return policy == "finish_time_fairness" || policy == "min_total_duration";
}

}  // namespace

CaseChecker::CaseChecker(const Json& given, const Json& answer,
                         const std::string& policy)
    : given_(given), answer_(answer), policy_(policy) {
  for (const auto& [type, count] : given["cluster_spec"].items()) {
    capacity_[type] = count;
  }
  int place = 0;
  for (const Json& job : given["jobs"]) ReadJob(job, place++);
  for (const auto& [unit, shares] : answer["allocation"].items()) {
    for (const auto& [type, share] : shares.items()) {
      shares_[unit][type] = share;
    }
  }
}

void CaseChecker::ReadJob(const Json& json, int place) {
  Job job;
  job.id = json["id"];
  job.place = place;
  job.scale_factor = json["scale_factor"];
  job.weight = json["priority_weight"];
  job.steps = json["num_steps_remaining"];
  job.time_since_start_s = json["time_since_start"];
  const Json& row = given_["throughputs"][std::to_string(job.id)];
  bool usable = false;
  for (const auto& [type, capacity] : capacity_) {
    job.real[type] = job.scale_factor <= capacity ? row[type].get<double>() : 0;
    usable = usable || job.real[type] > 0;
  }
  if (!usable) left_out_.insert(job.id);
  SetSeen(&job);
  jobs_[job.id] = job;
}

void CaseChecker::SetSeen(Job* job) const {
  job->seen = job->real;
  double reference = job->real.contains("v100") ? job->real["v100"] : 0;
  if (reference == 0) {
    for (const auto& [type, real] : job->real) {
      reference = std::max(reference, real);
    }
  }
  for (auto& [type, seen] : job->seen) {
    if (seen == 0) continue;
    if (LooksAtTimeOnly(policy_)) seen = 1;
    if (LooksAtReferenceType(policy_)) seen = reference;
  }
}

std::set<int> CaseChecker::IdsOf(const std::string& unit) const {
  std::set<int> ids;
  std::istringstream stream(unit);
  for (std::string id; std::getline(stream, id, ',');) {
    ids.insert(std::stoi(id));
  }
  return ids;
}

double CaseChecker::UnitThroughput(const std::string& unit, const Job& job,
                                   const std::string& type) const {
  const std::set<int> ids = IdsOf(unit);
  if (ids.size() == 1) return job.seen.at(type);
  return given_["pair_throughputs"][unit][type][*ids.begin() == job.id ? 0 : 1];
}

double CaseChecker::Throughput(const Job& job) const {
  double throughput = 0;
  for (const auto& [unit, shares] : shares_) {
    if (!IdsOf(unit).contains(job.id)) continue;
    for (const auto& [type, share] : shares) {
      throughput += share * UnitThroughput(unit, job, type);
    }
  }
  return throughput;
}

bool CaseChecker::CanRun(const std::string& unit,
                         const std::string& type) const {
  if (!capacity_.contains(type)) return false;
  double scale_factor = 0;
  for (const int id : IdsOf(unit)) {
    const auto found = jobs_.find(id);
    if (found == jobs_.end() || left_out_.contains(id)) return false;
    const Job& job = found->second;
    if (scale_factor != 0 && job.scale_factor != scale_factor) return false;
    scale_factor = job.scale_factor;
    if (scale_factor > capacity_.at(type)) return false;
    if (UnitThroughput(unit, job, type) <= 0) return false;
  }
  return scale_factor > 0;
}

std::string CaseChecker::JobErrors() const {
  std::string errors;
  std::map<int, double> time;
  for (const auto& [unit, shares] : shares_) {
    for (const auto& [type, share] : shares) {
      if (!(share >= 0)) StrAppend(&errors, unit, ": share ", share, "; ");
      if (share != 0 && !CanRun(unit, type)) {
        StrAppend(&errors, unit, " can't run on ", type, "; ");
      }
      for (const int id : IdsOf(unit)) time[id] += share;
    }
  }
  for (const auto& [id, sum] : time) {
    if (sum > 1 + kTolerance) StrAppend(&errors, id, " has ", sum, "; ");
    if (!jobs_.contains(id)) StrAppend(&errors, id, " is unknown; ");
  }
  for (const auto& [id, job] : jobs_) {
    if (!left_out_.contains(id) && !time.contains(id)) {
      StrAppend(&errors, id, " is missing; ");
    }
  }
  return errors;
}

std::string CaseChecker::TypeErrors() const {
  std::string errors;
  for (const auto& [type, capacity] : capacity_) {
    double used = 0;
    for (const auto& [unit, shares] : shares_) {
      const auto share = shares.find(type);
      if (share == shares.end()) continue;
      used += share->second * jobs_.at(*IdsOf(unit).begin()).scale_factor;
    }
    if (used > capacity * (1 + kTolerance)) {
      StrAppend(&errors, type, ": ", used, " of ", capacity, "; ");
    }
  }
  return errors;
}

std::string CaseChecker::FeasibilityErrors() const {
  const std::string errors = JobErrors();
  return errors.empty() ? TypeErrors() : errors;
}

double CaseChecker::Proportional(const Job& job) const {
  double all = 0;
  double sum = 0;
  for (const auto& [type, capacity] : capacity_) {
    all += capacity;
    sum += job.seen.at(type) * capacity;
  }
  return sum / all;
}

// Throughput with X[m][j] = c_j / (n s_m), scaled down to a sum of 1.
double CaseChecker::Isolated(const Job& job) const {
  const auto n = static_cast<double>(jobs_.size() - left_out_.size());
  double time = 0;
  double throughput = 0;
  for (const auto& [type, capacity] : capacity_) {
    const double share = capacity / (n * job.scale_factor);
    time += share;
    throughput += share * job.seen.at(type);
  }
  return throughput / std::max(1.0, time);
}

double CaseChecker::Value(const Job& job) const {
  return job.scale_factor * Throughput(job) / (job.weight * Proportional(job));
}

double CaseChecker::Rho(const Job& job) const {
  const double fair_s =
      given_["cumulative_isolated_time"][static_cast<size_t>(job.place)]
          .get<double>() +
      job.steps / Isolated(job);
  return (job.time_since_start_s + job.steps / Throughput(job)) / fair_s;
}

double CaseChecker::TotalThroughput() const {
  const bool by_cost = Contains(policy_, "normalized_by_cost");
  double total = 0;
  for (const auto& [unit, shares] : shares_) {
    for (const auto& [type, share] : shares) {
      const double cost =
          by_cost ? given_["instance_costs"][type].get<double>() : 1;
      for (const int id : IdsOf(unit)) {
        total += share * UnitThroughput(unit, jobs_.at(id), type) / cost;
      }
    }
  }
  return total;
}

double CaseChecker::Objective() const {
  if (StartsWith(policy_, "max_sum_throughput")) return TotalThroughput();
  const bool fairness = StartsWith(policy_, "max_min_fairness") &&
                        !Contains(policy_, "strategy_proof");
  const bool finish = StartsWith(policy_, "finish_time_fairness");
  const bool duration = StartsWith(policy_, "min_total_duration");
  double objective = fairness ? std::numeric_limits<double>::infinity() : 0;
  for (const auto& [id, job] : jobs_) {
    if (left_out_.contains(id)) continue;
    if (fairness) objective = std::min(objective, Value(job));
    if (finish) objective = std::max(objective, Rho(job));
    if (duration) objective = std::max(objective, job.steps / Throughput(job));
  }
  return fairness || finish || duration
             ? objective
             : std::numeric_limits<double>::quiet_NaN();
}

std::vector<double> CaseChecker::SortedValues() const {
  std::vector<double> values;
  for (const auto& [id, job] : jobs_) {
    if (!left_out_.contains(id)) values.push_back(Value(job));
  }
  std::sort(values.begin(), values.end());
  return values;
}

double CaseChecker::DifferenceToOriginal() const {
  std::map<std::string, Shares> shares = shares_;
  double difference = 0;
  for (const auto& [unit, row] : given_["gavel_allocation"].items()) {
    for (const auto& [type, share] : row.items()) {
      difference = std::max(difference,
                            std::abs(shares[unit][type] - share.get<double>()));
    }
    shares.erase(unit);
  }
  for (const auto& [unit, row] : shares) {
    for (const auto& [type, share] : row) {
      difference = std::max(difference, share);
    }
  }
  return difference;
}

bool CaseChecker::RulesAgree() const {
  for (const auto& [id, job] : jobs_) {
    for (const auto& [type, throughput] : job.real) {
      if (throughput == 0) return false;
    }
  }
  return true;
}

std::set<int> CaseChecker::MissedDeadlines() const {
  std::set<int> missed;
  for (const auto& [id, seconds] : given_["SLO_seconds_remaining"].items()) {
    const Job& job = jobs_.at(std::stoi(id));
    if (left_out_.contains(job.id)) continue;
    const double needs = job.steps / seconds.get<double>();
    if (Throughput(job) < needs * (1 - 1e-6)) missed.insert(job.id);
  }
  return missed;
}

}  // namespace gavel::testing
