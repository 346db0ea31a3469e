#include "coordinator/engine/solver.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/engine/state.h"
#include "coordinator/engine/type_names.h"
#include "coordinator/policy/app_fairness.h"
#include "coordinator/policy/assigner.h"
#include "coordinator/policy/policy.h"

namespace gavel {
namespace {

std::vector<double> StepsTogether(const WorthTerms& terms,
                                  const ShareUnit& unit) {
  std::vector<double> steps_per_s;
  for (const std::string& type : terms.types) {
    const auto of = [&](JobId job, JobId beside) {
      return terms.throughputs.Together(job, beside, type).value_or(0);
    };
    steps_per_s.push_back(of(unit.job, unit.partner) +
                          of(unit.partner, unit.job));
  }
  return steps_per_s;
}

// Prices name types as in the policy's problem (BuildProblem).
void DivideByCost(const WorthTerms& terms, std::vector<double>& worth) {
  std::map<std::string, double> prices(terms.prices.begin(),
                                       terms.prices.end());
  NameInFull(terms.types, &prices);
  for (size_t type = 0; type < worth.size(); ++type) {
    const auto price = prices.find(terms.types[type]);
    if (price != prices.end() && price->second > 0) {
      worth[type] /= price->second;
    }
  }
}

}  // namespace

void AddWorth(TypeWorth worth, const WorthTerms& terms, const ShareUnit& unit,
              const Job& job, RoundUnit& row) {
  // Pairs are not moved to faster types, and get leftovers by the time that
  // they have received.
  const bool unused = worth == TypeWorth::kSpeed && unit.packed();
  if (worth == TypeWorth::kAlike || unused || terms.types.empty()) return;
  row.worth = unit.packed() ? StepsTogether(terms, unit) : job.steps_per_s;
  row.worth.resize(terms.types.size(), 0);
  double one = job.scale_factor;
  if (worth == TypeWorth::kSpeed) one = std::ranges::max(row.worth);
  if (!(one > 0)) return;
  for (double& steps_per_s : row.worth) steps_per_s /= one;
  if (worth == TypeWorth::kThroughputPerCost) DivideByCost(terms, row.worth);
}

bool GroupShares::Counts(const Job& job) const {
  const std::string& name =
      group_ == Group::kUser ? job.spec.owner : job.spec.app;
  return job.active() && !name.empty();
}

GroupShares::Key GroupShares::KeyOf(const Job& job) const {
  return {job.spec.owner, group_ == Group::kApp ? job.spec.app : "",
          job.spec.entity};
}

std::vector<Job*> GroupShares::Update(
    Group group, const absl::btree_map<JobId, Job*>& live) {
  group_ = group;
  absl::btree_map<Key, Share> shares;
  for (const auto& [id, job] : live) {
    if (!Counts(*job)) continue;
    Share& share = shares[KeyOf(*job)];
    share.weight = job->spec.owner_weight;
    share.sum += job->spec.weight;
  }
  shares.swap(shares_);
  std::vector<Job*> changed;
  for (const auto& [id, job] : live) {
    if (!Counts(*job)) continue;
    const Key key = KeyOf(*job);
    const auto before = shares.find(key);
    if (before == shares.end() || before->second != shares_.at(key)) {
      changed.push_back(job);
    }
  }
  return changed;
}

double GroupShares::WeightOf(const Job& job) const {
  const auto share = shares_.find(KeyOf(job));
  if (!Counts(job) || share == shares_.end()) return job.spec.weight;
  return share->second.weight * job.spec.weight / share->second.sum;
}

}  // namespace gavel

namespace gavel::engine {
namespace {

// Removes the rows at these ascending indices.
template <class T>
void EraseRows(const std::vector<std::ptrdiff_t>& gone, std::ptrdiff_t width,
               std::vector<T>& rows) {
  if (gone.empty()) return;
  const auto begin = rows.begin();
  auto end = begin + gone.front() * width;  // of what stays
  for (size_t i = 0; i < gone.size(); ++i) {
    const auto next =
        i + 1 < gone.size() ? begin + gone[i + 1] * width : rows.end();
    end = std::move(begin + (gone[i] + 1) * width, next, end);
  }
  rows.erase(end, rows.end());
}

// Whether problem.rows can be updated: it covers all jobs, and does not hold
// too many rows of jobs that have gone.
bool KeepsRows(const PolicyProblem& problem) {
  constexpr size_t kRowsGoneMax = 1024;
  const size_t n = problem.jobs.size();
  return problem.rows.row_of.size() == n &&
         problem.rows.size() <= 2 * n + kRowsGoneMax;
}

// Groups jobs into kinds that behave alike in pairs, each kind named by the
// index of its first job. Jobs with the same row of the table share a kind;
// if the row is a guess, their throughputs alone must be equal too. Jobs in
// `measured`, of which more is known, are kinds of their own, and so are jobs
// that can't be packed or are restricted to some types.
std::vector<size_t> KindsOf(const std::vector<const Job*>& jobs,
                            const std::set<JobId>& measured,
                            const PolicyProblem& problem) {
  std::map<std::pair<ThroughputTable::Row, std::vector<double>>, size_t>
      kind_of;
  std::vector<size_t> kinds;
  for (size_t m = 0; m < jobs.size(); ++m) {
    const Job& job = *jobs[m];
    size_t kind = m;
    if (job.table_row.has_value() && !job.spec.elastic() &&
        !job.spec.opaque() && job.spec.types.empty() &&
        !measured.contains(job.id)) {
      std::vector<double> alone;
      if (job.row_speed > 0) {
        const auto row = problem.throughputs.begin() +
                         static_cast<std::ptrdiff_t>(m * problem.columns());
        alone.assign(row, row + static_cast<std::ptrdiff_t>(problem.columns()));
      }
      kind = kind_of.try_emplace({*job.table_row, std::move(alone)}, m)
                 .first->second;
    }
    kinds.push_back(kind);
  }
  return kinds;
}

}  // namespace

static bool HasGroups(const DecisionSettings& settings) {
  return settings.user_shares || settings.app_shares;
}

static bool KeepsProblem(const State& s);
static void UpdateProblem(State& s, Time now);
static PolicyJob ProblemJob(const State& s, const Job& job, Time now);
static void AddProgress(const State& s, const Job& job, Time now,
                        PolicyJob& row);
static void AddApps(const State& s, Time now, PolicyProblem& problem);
static void AddPlacement(const State& s, PolicyProblem& problem);
static void AddHosts(const State& s, PolicyProblem& problem);
static void AddLosses(const State& s, PolicyProblem& problem);
static void AddSizes(const State& s, PolicyProblem& problem);
static void AddThroughputs(State& s, PolicyProblem& problem);
static void AddThroughputs(State& s, const PolicyJob& row,
                           PolicyProblem& problem, std::vector<double>& out);
static double ThroughputAt(const State& s, const PolicyJob& row, size_t type,
                           Locality level);
static void AddLevels(const State& s, PolicyProblem& problem);
static void AddPairs(const State& s, PolicyProblem& problem);

bool KeepsProblem(const State& s) {
  return !s.options.progress && !s.options.packing &&
         !s.options.placement_sensitive && !s.changes.all(Changes::kProblem) &&
         !s.solving.problem_guesses &&
         s.solving.problem_version == s.throughputs.version();
}

void UpdateProblem(State& s, Time now) {
  // The solver may still be reading the last problem.
  if (s.solving.problem.use_count() > 1)
    s.solving.problem = std::make_shared<PolicyProblem>(*s.solving.problem);
  PolicyProblem& problem = *s.solving.problem;
  const auto columns = static_cast<std::ptrdiff_t>(problem.columns());
  if (!KeepsRows(problem)) problem.rows = JobRows(problem);
  std::vector<uint32_t>& row_of = problem.rows.row_of;
  std::vector<std::ptrdiff_t> gone;
  bool sound = problem.checked;
  std::vector<double> throughputs;
  for (const JobId id : s.changes.Take(Changes::kProblem, s.jobs)) {
    const auto row =
        std::ranges::lower_bound(problem.jobs, id, {}, &PolicyJob::id);
    const std::ptrdiff_t index = row - problem.jobs.begin();
    const bool known = row != problem.jobs.end() && row->id == id;
    const Job* job = s.jobs.FindLive(id);
    if (job == nullptr || !job->active() || job->pinned()) {
      if (known) gone.push_back(index);
      continue;
    }
    const PolicyJob now_so = ProblemJob(s, *job, now);
    const bool resized = known && (row->scale_factor != now_so.scale_factor ||
                                   row->weight != now_so.weight);
    if (known) *row = now_so;
    // The job was there before, and none of its throughputs has changed.
    if (known && !resized) {
      sound = sound && IsSoundJob(problem, static_cast<size_t>(index));
      continue;
    }
    throughputs.clear();
    AddThroughputs(s, now_so, problem, throughputs);
    const uint32_t number = problem.rows.Number(now_so, throughputs);
    const auto at = problem.throughputs.begin() + index * columns;
    if (known) {
      std::ranges::copy(throughputs, at);
      row_of[static_cast<size_t>(index)] = number;
    } else {
      // A new job is nearly always the last one. If not, the indices in `gone`
      // are still right: ids ascend, so those rows lie before it.
      problem.jobs.insert(row, now_so);
      problem.throughputs.insert(at, throughputs.begin(), throughputs.end());
      row_of.insert(row_of.begin() + index, number);
    }
    sound = sound && IsSoundJob(problem, static_cast<size_t>(index));
  }
  EraseRows(gone, 1, problem.jobs);
  EraseRows(gone, columns, problem.throughputs);
  EraseRows(gone, 1, row_of);
  problem.checked = sound;
  if (!sound) problem.checked = CheckProblem(problem).ok();
}

void BuildProblem(State& s, Time now) {
  if (HasGroups(s.options)) {
    const auto group = s.options.app_shares ? GroupShares::Group::kApp
                                            : GroupShares::Group::kUser;
    for (Job* job : s.solving.groups.Update(group, s.jobs.live()))
      s.changes.Touch(*job);
  }
  if (s.solving.problem != nullptr && KeepsProblem(s))
    return UpdateProblem(s, now);
  s.changes.Take(Changes::kProblem, s.jobs);
  s.solving.problem = std::make_shared<PolicyProblem>();
  PolicyProblem& problem = *s.solving.problem;
  problem.types = s.cluster.types();
  problem.capacity = s.cluster.Capacity();
  problem.round_s = s.terms.round_duration_s();
  problem.round = s.round.rounds();
  for (const auto& [id, job] : s.jobs.live()) {
    if (!job->active() || job->pinned()) continue;
    problem.jobs.push_back(ProblemJob(s, *job, now));
  }
  for (const PolicyEntity& entity : s.options.entities) {
    problem.entities.push_back(entity);
  }
  if (s.options.progress) {
    AddApps(s, now, problem);
    AddBids(s, problem);
    AddHosts(s, problem);
    AddLosses(s, problem);
    AddSizes(s, problem);
  }
  if (!s.allocation.prices().empty()) {
    std::map<std::string, double> prices(s.allocation.prices().begin(),
                                         s.allocation.prices().end());
    NameInFull(problem.types, &prices);
    for (const std::string& type : problem.types) {
      const auto price = prices.find(type);
      problem.cost.push_back(price == prices.end() ? 0 : price->second);
    }
  }
  if (s.options.placement_sensitive) AddPlacement(s, problem);
  AddThroughputs(s, problem);
  if (s.options.packing) AddPairs(s, problem);
  s.solving.problem_version = s.throughputs.version();
}

void AddProgress(const State& s, const Job& job, Time now, PolicyJob& row) {
  row.time_since_start_s = now - job.queued_at;
  row.steps_done = s.figures.StepsDone(job, now);
  const double total = s.apps.StepsOf(job);
  row.steps_remaining = std::max(0.0, total - row.steps_done);
  // 0 would mean that its steps are not known.
  const bool is_stopped = total != static_cast<double>(job.spec.steps_total);
  if (is_stopped) row.steps_remaining = std::max(1.0, row.steps_remaining);
  row.apps_average = s.apps.AveragePresent(job, now);
}

PolicyApp FactsOf(const State& s, Time now, const App& app) {
  return {.age_s = now - app.began_at,
          .apps_average = s.apps.AveragePresent(app, now),
          .ended_longest_s = app.ended_longest_s,
          .ended_area_s = app.ended_area_s,
          .goal = app.goal};
}

RhoProblem EmptyRhoProblem(const State& s) {
  RhoProblem rho;
  rho.problem.types = s.cluster.types();
  rho.problem.capacity = s.cluster.Capacity();
  rho.round_duration_s = s.terms.round_duration_s();
  return rho;
}

void AddToRho(const State& s, Time now, const Job& job, RhoProblem& rho) {
  if (!job.active() || job.pinned()) return;
  PolicyProblem& problem = rho.problem;
  PolicyJob& row = problem.jobs.emplace_back();
  row.id = job.id;
  row.scale_factor = job.scale_factor;
  if (!job.assigned.empty()) {
    row.running_on = s.cluster.TypeOf(job.assigned.front());
  }
  AddProgress(s, job, now, row);
  for (const std::string& type : problem.types) {
    problem.throughputs.push_back(s.throughputs.Get(job.id, type).steps_per_s);
  }
  double& pace = rho.paces.emplace_back(1);
  if (row.running_on >= 0 && row.scale_factor > 1) {
    const auto type = static_cast<size_t>(row.running_on);
    const double best = ThroughputAt(s, row, type, Locality::kServer);
    const double there =
        ThroughputAt(s, row, type, s.cluster.LevelOf(job.assigned));
    if (there > 0 && there < best) pace = there / best;
  }
  const App* const app = s.apps.Find(job);
  if (app == nullptr) return;
  const auto [known, is_new] = rho.apps.try_emplace(
      {job.spec.owner, job.spec.app}, static_cast<int>(problem.apps.size()));
  row.app = known->second;
  if (is_new) problem.apps.push_back(FactsOf(s, now, *app));
}

RhoProblem RhoProblemOfApp(const State& s, Time now, const Job& of) {
  RhoProblem rho = EmptyRhoProblem(s);
  if (const App* const app = s.apps.Find(of)) {
    for (const JobId id : app->jobs) AddToRho(s, now, s.jobs.at(id), rho);
  } else {
    AddToRho(s, now, of, rho);
  }
  return rho;
}

PolicyProblem ProblemOfApp(const State& s, Time now, const Job& of) {
  return RhoProblemOfApp(s, now, of).problem;
}

PolicyJob ProblemJob(const State& s, const Job& job, Time now) {
  PolicyJob row;
  row.id = job.id;
  row.scale_factor = job.scale_factor;
  row.weight =
      HasGroups(s.options) ? s.solving.groups.WeightOf(job) : job.spec.weight;
  row.arrival_s = job.submitted_at;
  if (s.options.progress) {
    AddProgress(s, job, now, row);
    row.time_received_s = s.ledger.SecondsReceived(job, now);
    row.isolated_s = s.isolated.SumOf(job, now).seconds;
    if (job.spec.deadline_s.has_value()) {
      // A round realises shares only to within its length: a job with exactly
      // the share that its deadline takes could end up to a round late.
      const double left_s = job.submitted_at + *job.spec.deadline_s - now;
      row.deadline_s = left_s - std::min(s.terms.round_duration_s(),
                                         std::max(0.0, left_s / 2));
    }
  }
  for (size_t i = 0; i < s.options.entities.size(); ++i) {
    if (s.options.entities[i].name == job.spec.entity) {
      row.entity = static_cast<int>(i);
    }
  }
  if (!job.assigned.empty()) {
    row.running_on = s.cluster.TypeOf(job.assigned.front());
    if (s.jobs.Together(job, job.partner)) row.running_with = job.partner;
  }
  return row;
}

// Adds the apps of several jobs, and which of them each job belongs to.
void AddApps(const State& s, Time now, PolicyProblem& problem) {
  std::map<const App*, int> index_of;
  for (PolicyJob& row : problem.jobs) {
    const App* app = s.apps.Find(s.jobs.at(row.id));
    if (app == nullptr) continue;
    const auto [found, added] =
        index_of.try_emplace(app, static_cast<int>(problem.apps.size()));
    row.app = found->second;
    if (!added) continue;
    problem.apps.push_back(FactsOf(s, now, *app));
  }
}

// Adds the servers only if some gang has a throughput of its own for another
// level than one server.
void AddPlacement(const State& s, PolicyProblem& problem) {
  bool matters = false;
  for (const PolicyJob& row : problem.jobs) {
    if (row.scale_factor == 1) continue;
    for (const auto& [type, steps_per_s] : s.jobs.at(row.id).spec.throughputs) {
      const auto at = SplitTypeName(type);
      matters |= at.has_value() && at->level != Locality::kServer;
    }
  }
  if (!matters) return;
  problem.servers.resize(problem.types.size());
  for (const auto& [server, ids] : s.cluster.servers()) {
    std::vector<int> count(problem.types.size(), 0);
    for (const AcceleratorId id : ids) {
      if (!s.cluster.accelerator(id).usable()) continue;
      ++count[static_cast<size_t>(s.cluster.TypeOf(id))];
    }
    for (size_t type = 0; type < count.size(); ++type) {
      if (count[type] > 0) problem.servers[type].push_back(count[type]);
    }
  }
}

// Adds the servers, and where the processes of each job are: on its
// accelerators, or parked where it had some last.
void AddHosts(const State& s, PolicyProblem& problem) {
  const std::span<const uint32_t> type_of = s.cluster.usable_types();
  std::vector<size_t> host_of(type_of.size(), kNoIndex);    // by id - 1
  std::map<std::pair<uint32_t, uint32_t>, size_t> host_at;  // server and type
  std::map<std::pair<size_t, uint32_t>, int> groups;        // host and group
  for (const Cluster::Place& place : s.cluster.places()) {
    const uint32_t type = type_of[place.id.value() - 1];
    if (type == Cluster::kUnusable) continue;
    const auto [found, added] =
        host_at.try_emplace({place.server, type}, problem.hosts.size());
    if (added) problem.hosts.push_back({place.id, type, 0});
    PolicyHost& host = problem.hosts[found->second];
    ++host.capacity;
    if (place.rack != Cluster::kNowhere) {
      host.rack = static_cast<int>(place.rack);
    }
    if (place.group != Cluster::kNowhere) {
      host.group = std::max(host.group, ++groups[{found->second, place.group}]);
    }
    host_of[place.id.value() - 1] = found->second;
  }
  std::vector<AcceleratorId> places;
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    const Job& job = s.jobs.at(problem.jobs[m].id);
    places = job.assigned;
    for (const Worker& worker : job.gang()) {
      if (!job.assigned.empty() || !worker.is_live()) break;
      places.push_back(worker.left_on);
    }
    std::map<size_t, int> counts;
    for (const AcceleratorId place : places) {
      if (place.valid()) ++counts[host_of[place.value() - 1]];
    }
    counts.erase(kNoIndex);
    for (const auto& [host, count] : counts) {
      problem.places.push_back({m, host, count});
    }
  }
}

void AddLosses(const State& s, PolicyProblem& problem) {
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    const Job& job = s.jobs.at(problem.jobs[m].id);
    for (const auto& [steps, loss] : job.losses.points()) {
      problem.losses.push_back({m, static_cast<double>(steps), loss});
    }
  }
}

// Adds the sizes that elastic jobs may have in this cluster.
void AddSizes(const State& s, PolicyProblem& problem) {
  constexpr int kSizesMax = 256;
  if (!s.jobs.elastic() || problem.types.empty()) return;
  const int largest = std::ranges::max(problem.capacity);
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    const Job& job = s.jobs.at(problem.jobs[m].id);
    if (!job.spec.elastic()) continue;
    PolicySizes sizes{m, job.spec.LeastWorkers(), {}};
    const int most = std::min(
        {job.spec.MostWorkers(), largest, sizes.least + kSizesMax - 1});
    for (int workers = sizes.least; workers <= most; ++workers) {
      for (size_t type = 0; type < problem.types.size(); ++type) {
        const bool runs = workers <= problem.capacity[type] &&
                          !s.figures.IsKeptOut(job, type);
        sizes.steps_per_s.push_back(
            runs ? s.throughputs.AtSize(job.id, problem.types[type], workers)
                       .steps_per_s
                 : 0);
      }
    }
    if (!sizes.steps_per_s.empty()) problem.sizes.push_back(std::move(sizes));
  }
}

// By type: the most usable accelerators that one group has, and one rack.
struct LargestRooms {
  std::vector<int> group;
  std::vector<int> rack;
};

static LargestRooms LargestRoomsOf(const Cluster& cluster) {
  LargestRooms most{std::vector<int>(cluster.types().size(), 0), {}};
  most.rack = most.group;
  std::map<std::pair<uint32_t, uint32_t>, int> groups;  // with a type
  std::map<std::pair<uint32_t, uint32_t>, int> racks;
  for (const Cluster::Place& place : cluster.places()) {
    const uint32_t type = cluster.usable_types()[place.id.value() - 1];
    if (type == Cluster::kUnusable) continue;
    if (place.group != Cluster::kNowhere) {
      most.group[type] =
          std::max(most.group[type], ++groups[{place.group, type}]);
    }
    if (place.rack != Cluster::kNowhere) {
      most.rack[type] = std::max(most.rack[type], ++racks[{place.rack, type}]);
    }
  }
  return most;
}

void AddThroughputs(State& s, PolicyProblem& problem) {
  s.solving.problem_guesses = false;
  for (const PolicyJob& row : problem.jobs) {
    AddThroughputs(s, row, problem, problem.throughputs);
  }
  if (problem.placement_sensitive()) AddLevels(s, problem);
}

void AddThroughputs(State& s, const PolicyJob& row, PolicyProblem& problem,
                    std::vector<double>& out) {
  const Job& job = s.jobs.at(row.id);
  for (size_t type = 0; type < problem.types.size(); ++type) {
    const Throughput known =
        s.throughputs.AtSize(row.id, problem.types[type], row.scale_factor);
    s.solving.problem_guesses |= known.source == ThroughputSource::kGuessed;
    out.push_back(s.figures.IsKeptOut(job, type) ? 0 : known.steps_per_s);
  }
  if (!problem.placement_sensitive()) return;
  for (size_t type = 0; type < problem.types.size(); ++type) {
    out.push_back(ThroughputAt(s, row, type, Locality::kCluster));
  }
}

double ThroughputAt(const State& s, const PolicyJob& row, size_t type,
                    Locality level) {
  if (s.figures.IsKeptOut(s.jobs.at(row.id), type)) return 0;
  const std::string name =
      s.figures.FigureName(row.id, s.cluster.types()[type], level);
  return s.throughputs.AtSize(row.id, name, row.scale_factor).steps_per_s;
}

// Where some gang has throughputs of groups or racks, adds those of all levels,
// and gives each column that of the tightest level with room for the gang.
void AddLevels(const State& s, PolicyProblem& problem) {
  const auto has_levels = [&](const PolicyJob& row) {
    const auto& known = s.jobs.at(row.id).spec.throughputs;
    return row.scale_factor > 1 &&
           std::ranges::any_of(known, [](const auto& figure) {
             return figure.first.find('@') != std::string::npos;
           });
  };
  if (std::ranges::none_of(problem.jobs, has_levels)) return;
  const LargestRooms most = LargestRoomsOf(s.cluster);
  const size_t types = problem.types.size();
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    const PolicyJob& row = problem.jobs[m];
    double* const columns = problem.throughputs.data() + m * 2 * types;
    for (size_t type = 0; type < types; ++type) {
      for (const Locality level : kAllLocalities) {
        const double steps_per_s =
            level == Locality::kServer || row.scale_factor == 1
                ? columns[type]
                : ThroughputAt(s, row, type, level);
        problem.level_throughputs.push_back(steps_per_s);
      }
      const double* const at = problem.level_throughputs.data() +
                               problem.level_throughputs.size() - kLocalities;
      const int needed = row.scale_factor;
      if (needed > 1 && needed <= most.group[type]) {
        columns[type] = at[static_cast<size_t>(Locality::kGroup)];
      }
      if (needed <= most.rack[type]) {
        columns[types + type] = at[static_cast<size_t>(Locality::kRack)];
      }
    }
  }
}

// Adds all pairs of kinds with equal scale factors whose throughputs together
// are known. A pair that is to be tried gets the best possible figures, those
// of both jobs alone, so that the policy runs it. From then on its throughputs
// are measured.
void AddPairs(const State& s, PolicyProblem& problem) {
  const ThroughputTable* table = s.options.throughputs.get();
  const bool in_table = table != nullptr && table->has_pairs();
  const std::map<ShareUnit, size_t> to_try = s.trials.PairsToTry(problem);
  if (!in_table && !s.throughputs.has_pairs() && to_try.empty()) return;
  std::vector<const Job*> jobs;
  for (const PolicyJob& row : problem.jobs) jobs.push_back(&s.jobs.at(row.id));
  std::set<JobId> unlike = s.throughputs.UnlikeTheirKind();
  for (const auto& [unit, type] : to_try) {
    unlike.insert({unit.job, unit.partner});
  }
  problem.kinds = KindsOf(jobs, unlike, problem);
  std::vector<std::optional<size_t>> type_of;
  for (const std::string& type : problem.types) {
    type_of.push_back(in_table ? FindColumn(*table, type, problem.types)
                               : std::nullopt);
  }
  std::vector<int> members(problem.jobs.size(), 0);
  for (const size_t kind : problem.kinds) ++members[kind];
  const size_t columns = problem.columns();
  std::vector<double> row(2 * columns);
  for (size_t a = 0; a < problem.jobs.size(); ++a) {
    const Job& first = *jobs[a];
    if (members[a] == 0) continue;
    if (!first.table_row.has_value() && !s.throughputs.has_pairs() &&
        to_try.empty()) {
      continue;
    }
    for (size_t b = members[a] > 1 ? a : a + 1; b < problem.jobs.size(); ++b) {
      if (members[b] == 0 ||
          problem.jobs[b].scale_factor != problem.jobs[a].scale_factor) {
        continue;
      }
      const Job& second = *jobs[b];
      // An elastic job is not packed, because a packed job can't grow.
      if (first.spec.elastic() || second.spec.elastic()) continue;
      if (first.spec.opaque() || second.spec.opaque()) continue;
      bool any = false;
      for (size_t c = 0; c < columns; ++c) {
        const size_t type = problem.TypeOfColumn(c);
        std::tie(row[2 * c], row[2 * c + 1]) =
            s.figures
                .PairThroughput(first, second, type, type_of[type],
                                /*consolidated=*/c < problem.types.size())
                .value_or(std::pair(0.0, 0.0));
        // The two jobs are equal, so the table can't tell which is which.
        if (a == b)
          row[2 * c] = row[2 * c + 1] = (row[2 * c] + row[2 * c + 1]) / 2;
        any |= row[2 * c] > 0 && row[2 * c + 1] > 0;
      }
      if (const auto found = to_try.find({first.id, second.id});
          found != to_try.end()) {
        const size_t type = found->second;
        row[2 * type] = problem.throughputs[a * columns + type];
        row[2 * type + 1] = problem.throughputs[b * columns + type];
        any = true;
      }
      if (!any) continue;
      problem.pairs.push_back({a, b});
      problem.pair_throughputs.insert(problem.pair_throughputs.end(),
                                      row.begin(), row.end());
    }
  }
}

namespace {

// Adds up consolidated and unconsolidated shares. The mechanism puts a gang on
// one server wherever it can, whatever the policy expected.
Allocation OverTypes(const Allocation& allocation, size_t types) {
  if (types == 0 || allocation.columns() == types) return allocation;
  std::vector<ShareUnit> units(allocation.units().begin(),
                               allocation.units().end());
  std::vector<double> shares(units.size() * types, 0.0);
  for (size_t u = 0; u < units.size(); ++u) {
    const std::span<const double> row = allocation.RowAt(u);
    for (size_t c = 0; c < row.size(); ++c) {
      shares[u * types + c % types] += row[c];
    }
  }
  return Allocation::FromRows(std::move(units), types, std::move(shares));
}

bool Usable(const PolicyResult& result) {
  return result.outcome == SolveOutcome::kOptimal ||
         result.outcome == SolveOutcome::kIterationLimit ||
         // Not all deadlines can be met; the allocation relaxes them the least.
         (result.outcome == SolveOutcome::kInfeasible &&
          !result.allocation.units().empty());
}

}  // namespace

static Time SolveDue(const State& s);
static void Settle(State& s, Time now, event::AllocationReady e);
static void TakeAllocation(State& s, Time now, const PolicyResult& result);
static void AddTarget(State& s, const ShareUnit& unit, double share);
static void TakeAssignment(State& s, Time now, const PolicyResult& result);

Time SolveDue(const State& s) {
  const double gap_s = std::max(s.options.reset_interval_s,
                                s.options.solve_gap_s_per_job *
                                    static_cast<double>(s.jobs.live().size()));
  return gap_s > 0 ? s.solving.solved_at + gap_s : -kNever;
}

void MaybeSolve(State& s, Time now, const std::string& policy) {
  if (!s.agenda.unsolved() || s.solving.runs || s.outbox.replaying() ||
      s.outbox.halted())
    return;
  if (now < SolveDue(s) || s.outbox.persisted() < s.agenda.unsolved_seq())
    return;
  if (WaitsForBids(s, now, policy)) return;
  BuildProblem(s, now);
  const std::shared_ptr<PolicyProblem>& problem = s.solving.problem;
  s.solving.problem_seq = s.outbox.seq();
  s.agenda.BeginSolve();
  if (problem->jobs.empty() || problem->types.empty()) return;
  s.solving.runs = true;
  s.solving.solved_at = now;
  s.solving.placement = problem->placement_sensitive();
  s.outbox.EmitAtOnce(action::SolvePolicy{++s.solving.epoch, problem, policy});
}

void Admit(State& s, Time now, event::AllocationReady e) {
  if (e.epoch != s.solving.epoch) return;  // of a problem that is no more
  if (Usable(e.result) && HoldForDivisions(s, now, e)) return;
  Settle(s, now, std::move(e));
}

bool TakeAnswer(State& s, Time now) {
  std::optional<event::AllocationReady> ready = TakeDivided(s, now);
  if (!ready.has_value()) return false;
  Settle(s, now, *std::move(ready));
  return true;
}

void Settle(State& s, Time now, event::AllocationReady e) {
  s.solving.runs = false;
  e.problem_seq = s.solving.problem_seq;
  e.problem_at = s.solving.solved_at;
  if (!Usable(e.result)) {
    s.solving.retry_at = now + s.options.round_duration_s;
  }
  // New types are only ever appended, so the problem's are the first ones.
  if (s.options.placement_sensitive && e.result.allocation.columns() > 0) {
    const size_t columns = e.result.allocation.columns();
    e.result.allocation = OverTypes(
        e.result.allocation, s.solving.placement ? columns / 2 : columns);
  }
  Record(s, now, std::move(e));
}

void On(State& s, Time now, const event::AllocationReady& e) {
  const PolicyResult& result = e.result;
  if (!Usable(result)) {
    return s.allocation.NoteFailure(result);
  }
  s.ledger.BookAll(now);
  s.isolated.CountAll(now);
  TakeAllocation(s, now, result);
  s.ledger.BeginAllocation();
  s.round.StartRounds(now);
  s.agenda.FillSoon();
}

void TakeAllocation(State& s, Time now, const PolicyResult& result) {
  for (const JobId id : s.jobs.TakeUncounted()) {
    Job* job = s.jobs.Find(id);  // null: long over
    if (job == nullptr || !job->active()) continue;
    if (job->counted_since == kNever) job->counted_since = now;
  }
  s.changes.ForgetTypes();
  if (result.is_assignment && s.allocation.result().is_assignment) {
    return TakeAssignment(s, now, result);
  }
  s.allocation.Replace(result);
  for (const auto& [id, job] : s.jobs.live()) {
    s.ledger.BookTarget(now, *job);
    job->target_share = 0;
  }
  s.ledger.SetBookedAt(now);
  s.changes.SetAll(Changes::kPlan, true);
  for (const TypeAssignment& entry : s.allocation.result().assignment) {
    AddTarget(s, entry.unit,
              s.allocation.Chosen(entry.unit) == kNoIndex ? 0 : 1);
  }
  const Allocation& allocation = s.allocation.result().allocation;
  for (size_t u = 0; u < allocation.units().size(); ++u) {
    const std::span<const double> row = allocation.RowAt(u);
    if (!IsShare(row)) continue;
    AddTarget(s, allocation.units()[u],
              std::accumulate(row.begin(), row.end(), 0.0));
  }
}

void AddTarget(State& s, const ShareUnit& unit, double share) {
  for (const JobId id : {unit.job, unit.partner}) {
    Job* job = s.jobs.FindLive(id);
    if (job == nullptr) continue;
    job->target_share = std::min(1.0, job->target_share + share);
    job->left_out = false;
  }
}

// Applies an assignment that follows another one: visits only entries that
// differ.
void TakeAssignment(State& s, Time now, const PolicyResult& result) {
  std::vector<TypeAssignment> ordered;
  const bool in_order =
      std::ranges::is_sorted(result.assignment, {}, &TypeAssignment::unit);
  if (!in_order) {
    ordered = result.assignment;
    std::ranges::sort(ordered, {}, &TypeAssignment::unit);
  }
  const std::vector<TypeAssignment>& before = s.allocation.result().assignment;
  std::vector<ShareUnit> left;
  std::vector<TypeAssignment> came;
  auto old = before.begin();
  for (const TypeAssignment& entry : in_order ? result.assignment : ordered) {
    // Nearly all entries are unchanged, so an equal one is looked for first.
    while (old != before.end() && *old != entry && old->unit < entry.unit) {
      left.push_back((old++)->unit);
    }
    if (old != before.end() && *old == entry) {
      ++old;
      continue;
    }
    came.push_back(entry);
    if (old != before.end() && old->unit == entry.unit) {
      left.push_back((old++)->unit);
    }
  }
  for (; old != before.end(); ++old) left.push_back(old->unit);
  s.allocation.Succeed(result, std::move(ordered));
  for (const ShareUnit& unit : left) {
    if (Job* job = s.jobs.Find(unit.job)) job->chosen = kNoIndex;
    for (const JobId id : {unit.job, unit.partner}) {
      Job* job = s.jobs.FindLive(id);
      if (job == nullptr) continue;
      s.ledger.BookTarget(now, *job);
      job->target_share = 0;
      s.changes.Touch(*job);
    }
  }
  s.allocation.NoteChosen(came);
  for (const TypeAssignment& entry : came) {
    const ShareUnit& unit = entry.unit;
    for (const JobId id : {unit.job, unit.partner}) {
      Job* job = s.jobs.FindLive(id);
      if (job == nullptr) continue;
      s.ledger.BookTarget(now, *job);
      s.changes.Touch(*job);
    }
    AddTarget(s, unit, s.allocation.Chosen(unit) == kNoIndex ? 0 : 1);
  }
}

Time NextSolve(const State& s) {
  const bool may_ask = s.agenda.unsolved() && !s.solving.runs &&
                       s.outbox.persisted() >= s.agenda.unsolved_seq();
  Time next = s.solving.retry_at;
  if (may_ask || s.solving.runs) next = std::min(next, s.bidding.until());
  const bool may_begin = s.bidding.stage == Bidding::Stage::kClosed;
  return may_ask && may_begin ? std::min(next, SolveDue(s)) : next;
}

void Retry(State& s, Time now) {
  if (now < s.solving.retry_at) return;
  s.solving.retry_at = kNever;
  s.agenda.SolveSoon();
}

void Abandon(State& s, bool answer) {
  if (answer) ++s.solving.epoch;
  s.solving.runs = false;
  CloseAuction(s);
}

void Drop(State& s) { s.solving.problem = nullptr; }

bool solving(const State& s) { return s.solving.runs; }

bool IsAnswerNear(const State& s, Time now) {
  return s.solving.runs || (s.agenda.unsolved() && SolveDue(s) <= now);
}

}  // namespace gavel::engine

namespace gavel {

std::map<JobId, double> RhoOfJobs(const RhoProblem& rho) {
  const Assigner assigner(rho.problem);
  std::map<JobId, double> rho_of;
  std::vector<double> paces;
  for (const policy::FairApp& one : policy::FairAppsOf(rho.problem, assigner)) {
    paces.clear();
    for (const size_t m : one.jobs) paces.push_back(rho.paces[m]);
    const double own =
        policy::PresentRho(assigner, one, rho.round_duration_s, paces);
    for (const size_t job : one.jobs) rho_of[rho.problem.jobs[job].id] = own;
  }
  return rho_of;
}

}  // namespace gavel
