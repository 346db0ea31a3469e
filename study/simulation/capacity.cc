#include "study/simulation/capacity.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "coordinator/policy/lp/highs_solver.h"
#include "coordinator/policy/lp/linear_program.h"
#include "core/units.h"

namespace gavel::study {
namespace {

using policy::kInfinity;
using policy::LinearProgram;
using policy::LpEntry;

// Jobs that differ only in how much work they are.
struct JobClass {
  const TraceJob* job;
  const std::string* type;
  double steps = 0;    // of all of them
  double fastest = 0;  // steps/s of one; 0: it fits nowhere
  std::vector<LpEntry> row = {};
};

class Capacity {
 public:
  Capacity(const ThroughputTable& throughputs,
           const std::vector<ClusterPart>& cluster)
      : throughputs_(throughputs), cluster_(cluster), used_(cluster.size()) {}

  double Solve(const Trace& trace, size_t jobs, bool pairs) {
    Classify(trace, jobs);
    const int rate = program_.AddColumn(1, 0, kInfinity);
    for (JobClass& one : classes_) AddAlone(one);
    if (pairs) AddPairs();
    bool any = false;
    for (JobClass& one : classes_) {
      if (one.fastest == 0) continue;
      any = true;
      // In hours of its fastest accelerators, so that all rows are alike.
      const double hours = one.steps / one.fastest / kHour_s;
      for (LpEntry& entry : one.row) entry.value /= one.fastest;
      one.row.push_back({rate, -hours / static_cast<double>(jobs)});
      program_.AddRow(0, kInfinity, one.row);
    }
    if (!any) return kInfinity;
    for (size_t j = 0; j < cluster_.size(); ++j) {
      program_.AddRow(-kInfinity, cluster_[j].count, used_[j]);
    }
    const policy::LpSolution solution = policy::HighsSolver(program_).Solve();
    return solution.outcome == SolveOutcome::kOptimal ? solution.objective
                                                      : kInfinity;
  }

 private:
  void Classify(const Trace& trace, size_t jobs) {
    std::map<std::tuple<std::string_view, int, int, int>, size_t> class_of;
    for (size_t i = 0; i < jobs; ++i) {
      const TraceJob& job = trace.jobs[i];
      const std::string& type = trace.templates[job.job_template].type;
      const auto [found, added] = class_of.try_emplace(
          {type, job.LeastWorkers(), job.scale_factor, job.MostWorkers()},
          classes_.size());
      if (added) classes_.push_back({&job, &type});
      // Without a row jobs run at the speed that their durations tell.
      const bool known =
          throughputs_.FindRow(type, job.scale_factor).has_value();
      classes_[found->second].steps += known ? job.steps_total : job.duration_s;
    }
  }

  // steps/s where that is best: on one server or spread.
  double Alone(const JobClass& one, int workers, size_t j) const {
    const auto row = throughputs_.FindRow(*one.type, workers);
    if (!row) return workers == one.job->scale_factor ? 1 : 0;
    const auto type = throughputs_.FindType(cluster_[j].type);
    if (!type) return 0;
    return std::max(throughputs_.Alone(*row, *type).value_or(0),
                    throughputs_.Alone(*row, *type, false).value_or(0));
  }

  void AddAlone(JobClass& one) {
    for (int workers = one.job->LeastWorkers();
         workers <= one.job->MostWorkers(); ++workers) {
      for (size_t j = 0; j < cluster_.size(); ++j) {
        const double steps_per_s = Alone(one, workers, j);
        if (cluster_[j].count < workers || steps_per_s <= 0) continue;
        one.fastest = std::max(one.fastest, steps_per_s);
        one.row.push_back({AddColumn(j, workers), steps_per_s});
      }
    }
  }

  void AddPairs() {
    for (size_t a = 0; a < classes_.size(); ++a) {
      for (size_t b = a; b < classes_.size(); ++b) AddPair(a, b);
    }
  }

  void AddPair(size_t a, size_t b) {
    const int workers = classes_[a].job->scale_factor;
    if (classes_[b].job->scale_factor != workers) return;
    const auto row = throughputs_.FindRow(*classes_[a].type, workers);
    const auto other = throughputs_.FindRow(*classes_[b].type, workers);
    if (!row || !other) return;
    for (size_t j = 0; j < cluster_.size(); ++j) {
      const auto type = throughputs_.FindType(cluster_[j].type);
      if (!type || cluster_[j].count < workers) continue;
      for (const bool consolidated : {true, false}) {
        const auto both =
            throughputs_.Together(*row, *other, *type, consolidated);
        if (!both || both->first <= 0) continue;
        const int column = AddColumn(j, workers);
        if (a == b) {
          classes_[a].row.push_back({column, both->first + both->second});
        } else {
          classes_[a].row.push_back({column, both->first});
          classes_[b].row.push_back({column, both->second});
        }
      }
    }
  }

  int AddColumn(size_t j, int workers) {
    const int column = program_.AddColumn(0, 0, kInfinity);
    used_[j].push_back({column, static_cast<double>(workers)});
    return column;
  }

  const ThroughputTable& throughputs_;
  const std::vector<ClusterPart>& cluster_;
  LinearProgram program_;
  std::vector<JobClass> classes_;
  std::vector<std::vector<LpEntry>> used_;  // [J] accelerators of each column
};

}  // namespace

double CapacityPerHour(const Trace& trace, size_t jobs,
                       const ThroughputTable& throughputs,
                       const std::vector<ClusterPart>& cluster, bool pairs) {
  return Capacity(throughputs, cluster)
      .Solve(trace, std::min(jobs, trace.jobs.size()), pairs);
}

}  // namespace gavel::study
