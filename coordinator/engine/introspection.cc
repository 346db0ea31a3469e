#include "coordinator/engine/introspection.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/engine/state.h"
#include "coordinator/engine/type_names.h"
#include "coordinator/engine/workers.h"
#include "core/text.h"

namespace gavel::engine {
namespace {

// A pair that shows no gain for this long is parted.
constexpr double kTrial_s = 60;
// A trial whose processes have not all started by then is given up.
constexpr double kStart_s = 300;
// A pair that nobody has measured may lose as much as this part of the
// accelerator's time.
constexpr double kLossExpected = 0.5;
// Trials may cost this part of the accelerators' time, beyond a credit for each
// accelerator.
constexpr double kBudget = 0.01;
constexpr double kCredit_s = 30;
// The back-off doubles at most so often.
constexpr int kDoublingsMax = 6;
// A lesson counts for this long, and this many are remembered.
constexpr double kLesson_s = 24 * 3600;
constexpr size_t kLessonsMax = 4096;
// A move has helped if the job is at least this much faster.
constexpr double kMoveGainMin = 1.02;
// A job is slowed down by another one that came to its server at most this
// long ago.
constexpr double kNeighbour_s = 600;
// Packing looks at so many waiting and so many running jobs of a round.
constexpr size_t kLookedAtMax = 64;
// The utilisation of a job whose agent does not report it, in percent.
constexpr double kUtilisationUnknown = 50;

std::string_view TextOf(TrialKind kind) {
  switch (kind) {
    case TrialKind::kPack:
      return "to run";
    case TrialKind::kVacated:
      return "a move to vacated accelerators";
    case TrialKind::kLocality:
      return "a move to one server";
    case TrialKind::kNeighbour:
      return "a move away";
    case TrialKind::kDefragment:
      return "a move to make room";
  }
  return "";
}

std::string_view TextOf(TrialStage stage) {
  switch (stage) {
    case TrialStage::kBegun:
      return "on trial";
    case TrialStage::kKept:
      return "kept";
    case TrialStage::kUndone:
      return "undone";
    case TrialStage::kOver:
      return "over";
  }
  return "";
}

double BackoffAfter(const State& s, int failures) {
  return std::ldexp(s.options.trial_backoff_s,
                    std::min(failures, kDoublingsMax));
}

std::string WhatOf(const TrialNote& note, JobId of) {
  std::string what(TextOf(note.kind));
  const JobId other = note.other == of ? note.job : note.other;
  if (!other.valid()) return what;
  const bool beside = note.kind == TrialKind::kPack;
  const bool away = note.kind == TrialKind::kNeighbour;
  return StrCat(what,
                beside ? " beside job "
                : away ? " from job "
                       : " for job ",
                other.value());
}

std::optional<double> SumTogether(const State& s, const Job& a, const Job& b,
                                  size_t type) {
  const std::string& name = s.cluster.types()[type];
  const ThroughputTable* table = s.options.throughputs.get();
  const auto column = table == nullptr
                          ? std::nullopt
                          : FindColumn(*table, name, s.cluster.types());
  const auto together =
      s.figures.PairThroughput(a, b, type, column, /*consolidated=*/true);
  const double alone_a = s.throughputs.Get(a.id, name).steps_per_s;
  const double alone_b = s.throughputs.Get(b.id, name).steps_per_s;
  if (!together.has_value() || !(alone_a > 0) || !(alone_b > 0)) {
    return std::nullopt;
  }
  return together->first / alone_a + together->second / alone_b;
}

// Returns the key of the lesson of such a pair.
std::string LessonOf(const State& s, const Job& a, const Job& b, size_t type) {
  const auto [first, second] =
      std::minmax(a.spec.Workload(), b.spec.Workload());
  return StrCat(first, "\n", second, "\n", s.cluster.types()[type], "\n",
                a.spec.scale_factor);
}

// Returns the sum that a pair of the same workloads had, or nothing if none was
// tried.
std::optional<double> Learnt(const State& s, Time now, const Job& a,
                             const Job& b, size_t type) {
  const auto& lessons = s.introspection.lessons;
  const auto found = lessons.find(LessonOf(s, a, b, type));
  if (found == lessons.end() || now > found->second.at + kLesson_s) return {};
  return found->second.sum;
}

JobId OtherOf(const ShareUnit& unit, JobId job) {
  return unit.job == job ? unit.partner : unit.job;
}

double DebtAt(const State& s, Time now) {
  double accelerators = 0;
  for (const int count : s.cluster.Capacity()) accelerators += count;
  const IntrospectionBook& book = s.introspection;
  return std::max(0.0,
                  book.debt_s - kBudget * accelerators * (now - book.debt_at));
}

// The last time that a rank of the job got its lease; kNever: some rank of the
// assigned gang has none.
Time RunsSince(const Job& job) {
  Time since = -kNever;
  if (job.assigned.empty()) return kNever;
  for (const Worker& worker : job.gang()) {
    if (worker.held_epoch != job.epoch) return kNever;
    since = std::max(since, worker.leased_at);
  }
  return since;
}

// Changes the plan of one round.
class Improvement {
 public:
  Improvement(State& s, Time now, RoundPlan& plan)
      : s_(s), now_(now), plan_(plan), debt_s_(DebtAt(s, now)) {
    for (const int count : s.cluster.Capacity()) credit_s_ += kCredit_s * count;
    for (RoundAssignment::Entry& entry : plan.places.Release()) {
      units_.emplace(entry.first, std::move(entry.second));
    }
    for (const Accelerator& one : s.cluster.accelerators()) {
      if (one.usable()) idle_.insert(one.id);
    }
    for (const auto& [unit, places] : units_) {
      for (const AcceleratorId id : places) idle_.erase(id);
      planned_.insert({unit.job, unit.partner});
    }
    for (const auto& [id, job] : s.jobs.live()) {
      if (planned_.contains(id) || job->pinned() || job->spec.opaque() ||
          !s.candidates.MayRun(*job)) {
        continue;
      }
      waiting_.push_back(job);
    }
    NoteUtilisation();
  }

  std::vector<TrialNote> Run() {
    KeepPairs();
    MoveAgain();
    // The plan is made once more when an answer of the policy comes.
    if (!s_.solving.runs && !s_.agenda.unsolved()) Try();
    std::vector<RoundAssignment::Entry> entries(units_.begin(), units_.end());
    auto claims = plan_.places.ReleaseClaims();
    std::erase_if(claims, [&](const auto& claim) {
      return !units_.contains({claim.first, JobId()});
    });
    plan_.places = RoundAssignment(std::move(entries), std::move(claims));
    return std::move(notes_);
  }

 private:
  using Places = std::vector<AcceleratorId>;

  size_t TypeOf(AcceleratorId id) const {
    return static_cast<size_t>(s_.cluster.TypeOf(id));
  }
  const std::string& ServerOf(AcceleratorId id) const {
    return s_.cluster.accelerator(id).server;
  }

  bool MayTry(JobId id) const {
    const auto found = s_.introspection.attempts.find(id);
    return !tried_.contains(id) && (found == s_.introspection.attempts.end() ||
                                    now_ >= found->second.next_at);
  }
  bool Affords(double cost_s) const {
    return debt_s_ == 0 || debt_s_ + cost_s <= credit_s_;
  }
  // The plan has the job's new places already. The loss is an expectation: what
  // was lost counts when the trial ends.
  void Begin(TrialKind kind, JobId job, JobId other, double cost_s,
             double before = 0, double loss_s = 0) {
    debt_s_ += cost_s + loss_s;
    tried_.insert(job);
    if (kind == TrialKind::kPack) tried_.insert(other);
    const auto moved = units_.find({job, JobId()});
    notes_.push_back({kind, TrialStage::kBegun, job, other, before, cost_s,
                      moved == units_.end() ? Places() : moved->second});
  }

  bool AvoidsAny(JobId job, const Places& places) const {
    return std::ranges::any_of(places, [&](AcceleratorId id) {
      return s_.avoidance.Avoids(now_, job, id);
    });
  }

  double MoveCost(const Job& job) const {
    RoundUnit costs;
    AddCosts(job, costs);
    return costs.move_cost_s * job.scale_factor;
  }
  double PauseCost(const Job& job) const {
    RoundUnit costs;
    AddCosts(job, costs);
    return costs.preempt_cost_s * job.scale_factor;
  }

  // Where agents report it, and the job runs alone.
  void NoteUtilisation() {
    for (const auto& [id, job] : s_.jobs.live()) {
      if (job->partner.valid() || RunsSince(*job) == kNever) continue;
      double sum = 0;
      int told = 0;
      for (const AcceleratorId place : job->assigned) {
        const Accelerator& one = s_.cluster.accelerator(place);
        const Agent* agent = s_.agents.Find(one.server);
        if (agent == nullptr) continue;
        const auto health = agent->health.find(one.info.uuid);
        if (health == agent->health.end() ||
            health->second.utilisation_percent < 0) {
          continue;
        }
        sum += health->second.utilisation_percent;
        ++told;
      }
      if (told > 0) s_.introspection.utilisation[id] = sum / told;
    }
  }
  double Utilisation(JobId id) const {
    const auto found = s_.introspection.utilisation.find(id);
    return found == s_.introspection.utilisation.end() ? kUtilisationUnknown
                                                       : found->second;
  }

  void DropPlaced() {
    std::erase_if(waiting_,
                  [&](const Job* job) { return planned_.contains(job->id); });
  }
  void Put(const Job& job, Places places) {
    for (const AcceleratorId id : places) idle_.erase(id);
    planned_.insert(job.id);
    units_[{job.id, JobId()}] = std::move(places);
  }
  // Gives the unit other accelerators, which are idle or its own.
  void Move(const ShareUnit& unit, Places places) {
    Places& own = units_.at(unit);
    idle_.insert(own.begin(), own.end());
    for (const AcceleratorId id : places) idle_.erase(id);
    own = std::move(places);
  }

  void Try() {
    for (Job* job : waiting_) ResumeElsewhere(*job);
    DropPlaced();
    MakeRoomForGangs();
    DropPlaced();
    LeaveNeighbours();
    Pack();
  }

  // ---- trials that began before

  // A pair counts as one unit: where one of the two has its turn, both run.
  // They are parted when each has accelerators of its own, and when the sum of
  // their rates has fallen below that of turns.
  void KeepPairs() {
    for (const auto& [unit, pair] : s_.introspection.pairs) {
      const Job* a = s_.jobs.FindLive(unit.job);
      const Job* b = s_.jobs.FindLive(unit.partner);
      const auto end = [&, unit = unit, pair = pair](TrialStage stage,
                                                     double value) {
        const JobId other = OtherOf(unit, pair.first);
        notes_.push_back(
            {TrialKind::kPack, stage, pair.first, other, value, 0});
        if (const auto both = units_.find(unit); both != units_.end()) {
          Places places = std::move(both->second);
          units_.erase(both);
          planned_.erase(other);
          units_[{pair.first, JobId()}] = std::move(places);
        }
      };
      if (a == nullptr || b == nullptr || !s_.candidates.MayRun(unit) ||
          a->scale_factor != b->scale_factor) {
        if (units_.contains(unit)) units_.erase(unit);
        notes_.push_back({TrialKind::kPack, TrialStage::kOver, unit.job,
                          unit.partner, 0, 0});
        continue;
      }
      const auto alone_a = units_.find({unit.job, JobId()});
      const auto alone_b = units_.find({unit.partner, JobId()});
      if (alone_a != units_.end() && alone_b != units_.end()) {
        end(TrialStage::kOver, 0);
        continue;
      }
      const auto both = units_.find(unit);
      const auto turn = both != units_.end()      ? both
                        : alone_a != units_.end() ? alone_a
                                                  : alone_b;
      if (turn == units_.end()) continue;
      const size_t type = TypeOf(turn->second.front());
      const auto sum = SumTogether(s_, *a, *b, type);
      if (pair.kept && sum.has_value() && *sum < 1) {
        end(TrialStage::kUndone, *sum);
        tried_.insert({unit.job, unit.partner});
        continue;
      }
      if (turn == both) continue;
      const JobId joins = turn == alone_a ? unit.partner : unit.job;
      const Job& other = turn == alone_a ? *b : *a;
      if (!s_.figures.UsableTypes(other)[type] ||
          AvoidsAny(joins, turn->second)) {
        end(TrialStage::kOver, 0);
        continue;
      }
      Places places = std::move(turn->second);
      units_.erase(turn);
      units_[unit] = std::move(places);
      planned_.insert({unit.job, unit.partner});
      tried_.insert({unit.job, unit.partner});
    }
    DropPlaced();
  }

  // Moves that were planned for the same round, of which the last may be to
  // where the first ones leave.
  void MoveAgain() {
    for (auto left = s_.introspection.moving; !left.empty();) {
      const size_t before = left.size();
      std::erase_if(left, [&](const auto& move) {
        const auto& [id, places] = move;
        const ShareUnit unit{id, JobId()};
        const auto own = units_.find(unit);
        const bool runs = own != units_.end();
        if (!runs && planned_.contains(id)) return true;  // in a pair
        for (const AcceleratorId place : places) {
          const bool has = runs && std::ranges::count(own->second, place) > 0;
          if (!has && !idle_.contains(place)) return false;
        }
        const Job* job = s_.jobs.FindLive(id);
        if (job == nullptr || !s_.candidates.MayRun(*job) ||
            static_cast<int>(places.size()) != job->scale_factor ||
            AvoidsAny(id, places)) {
          return true;
        }
        runs ? Move(unit, places) : Put(*job, places);
        tried_.insert(id);
        return true;
      });
      if (left.size() == before) break;
    }
    DropPlaced();
  }

  // ---- migration

  // Idle accelerators of one type for the job: on one server if there is one
  // with room, else on the fewest. `server`: not on that one.
  Places IdleFor(const Job& job, const std::string& server = "",
                 std::optional<size_t> of_type = std::nullopt) const {
    const auto wanted = static_cast<size_t>(job.scale_factor);
    std::map<std::pair<size_t, std::string>, Places> rooms;
    for (const AcceleratorId id : idle_) {
      const size_t type = TypeOf(id);
      if (!s_.figures.UsableTypes(job)[type] || ServerOf(id) == server ||
          (of_type.has_value() && type != *of_type) ||
          s_.avoidance.Avoids(now_, job.id, id)) {
        continue;
      }
      rooms[{type, ServerOf(id)}].push_back(id);
    }
    const Places* best = nullptr;
    double fastest = 0;
    for (const auto& [key, room] : rooms) {
      if (room.size() < wanted) continue;
      const double speed = job.steps_per_s[key.first];
      const bool better = best == nullptr || speed > fastest ||
                          (speed == fastest && room.size() < best->size());
      if (!better) continue;
      best = &room;
      fastest = speed;
    }
    if (best == nullptr) return {};
    return {best->begin(), best->begin() + static_cast<std::ptrdiff_t>(wanted)};
  }

  // A suspended job whose policy gives it no turn takes what nobody else uses.
  // It can't lose by that, so it need not wait after an earlier trial.
  void ResumeElsewhere(const Job& job) {
    if (!job.stays.last().valid() || tried_.contains(job.id) ||
        !s_.allocation.result().is_assignment) {
      return;
    }
    const double cost_s = MoveCost(job);
    if (!Affords(cost_s)) return;
    Places places = IdleFor(job);
    if (places.empty() || !s_.checkpoints.ShareCheckpoints(places)) return;
    Put(job, std::move(places));
    Begin(TrialKind::kVacated, job.id, JobId(), cost_s);
  }

  // A job is slower than it was by more than can be chance, and another one
  // came to its server not long ago.
  void LeaveNeighbours() {
    if (idle_.empty()) return;
    std::vector<ShareUnit> slow;
    for (const auto& [unit, places] : units_) {
      if (unit.packed()) continue;
      if (NewNeighbour(unit.job, places).second > 0) slow.push_back(unit);
    }
    for (const ShareUnit& unit : slow) {
      const Job& job = s_.jobs.at(unit.job);
      const AcceleratorId first = units_.at(unit).front();
      const double cost_s = MoveCost(job);
      if (!MayTry(job.id) || !Affords(cost_s)) continue;
      Places places = IdleFor(job, ServerOf(first), TypeOf(first));
      if (places.empty()) continue;
      const auto [neighbour, rate] = NewNeighbour(unit.job, units_.at(unit));
      Move(unit, std::move(places));
      Begin(TrialKind::kNeighbour, job.id, neighbour, cost_s, rate);
    }
  }
  // The job that came last, and the slower rate; 0: none slowed it down.
  std::pair<JobId, double> NewNeighbour(JobId id, const Places& places) const {
    const Job& job = s_.jobs.at(id);
    if (job.assigned != places || job.spec.elastic()) return {};
    const Time since = RunsSince(job);
    const auto told = s_.throughputs.Contradicted(
        id, s_.cluster.types()[TypeOf(places.front())]);
    if (since == kNever || !(told.before > told.measured)) return {};
    std::pair<JobId, double> newest;
    Time latest = std::max(since, now_ - kNeighbour_s);
    const auto& servers = s_.cluster.servers();
    for (const AcceleratorId other : servers.at(ServerOf(places.front()))) {
      for (const JobId there : s_.assigned.JobsOn(other)) {
        const Time came = RunsSince(s_.jobs.at(there));
        if (there == id || came == kNever || came <= latest) continue;
        latest = came;
        newest = {there, told.measured};
      }
    }
    return newest;
  }

  // ---- defragmentation, and better locality

  void MakeRoomForGangs() {
    std::vector<const Job*> gangs;
    for (const Job* job : waiting_) {
      const bool ran = job->stays.last().valid();
      if (ran || s_.allocation.IsAllocated(*job)) gangs.push_back(job);
    }
    for (const auto& [unit, places] : units_) {
      const bool spread = std::ranges::any_of(places, [&](AcceleratorId id) {
        return ServerOf(id) != ServerOf(places.front());
      });
      if (spread && !unit.packed()) gangs.push_back(&s_.jobs.at(unit.job));
    }
    for (const Job* gang : gangs) {
      if (gang->scale_factor > 1 && !gang->spec.elastic() && MayTry(gang->id)) {
        MakeRoomFor(*gang);
      }
    }
  }

  struct Eviction {
    std::vector<std::pair<ShareUnit, Places>> moves;
    Places room;  // of the gang, once they have moved
    int moved = 0;
  };

  void MakeRoomFor(const Job& gang) {
    std::optional<Eviction> best;
    for (const auto& [server, ids] : s_.cluster.servers()) {
      for (size_t type = 0; type < s_.cluster.types().size(); ++type) {
        if (!s_.figures.UsableTypes(gang)[type]) continue;
        auto eviction = Evict(gang, ids, type);
        if (!eviction) continue;
        if (!best || eviction->moved < best->moved) best = std::move(eviction);
      }
    }
    if (!best) return;
    const ShareUnit unit{gang.id, JobId()};
    const bool runs = units_.contains(unit);
    double cost_s = runs ? MoveCost(gang) : 0;
    for (const auto& [mover, places] : best->moves) {
      cost_s += MoveCost(s_.jobs.at(mover.job));
    }
    if (!Affords(cost_s)) return;
    for (auto& [mover, places] : best->moves) {
      const Job& job = s_.jobs.at(mover.job);
      Move(mover, std::move(places));
      Begin(TrialKind::kDefragment, job.id, gang.id, MoveCost(job));
    }
    if (!runs) {
      Put(gang, best->room);
      Begin(TrialKind::kVacated, gang.id, JobId(), 0);
      return;
    }
    const std::string& name = s_.cluster.types()[TypeOf(best->room.front())];
    const double rate =
        s_.throughputs
            .Get(gang.id,
                 s_.figures.FigureName(gang.id, name,
                                       s_.cluster.LevelOf(units_.at(unit))))
            .steps_per_s;
    Move(unit, best->room);
    Begin(TrialKind::kLocality, gang.id, JobId(), MoveCost(gang), rate);
  }

  // The moves that it takes for the gang to have its accelerators on one
  // server, to idle accelerators elsewhere. nullopt: that is not possible.
  std::optional<Eviction> Evict(const Job& gang, const Places& server,
                                size_t type) const {
    const auto wanted = static_cast<size_t>(gang.scale_factor);
    const ShareUnit own{gang.id, JobId()};
    const auto has = units_.find(own);
    Eviction result;
    std::set<AcceleratorId> here;  // usable and of the type
    for (const AcceleratorId id : server) {
      if (!s_.cluster.accelerator(id).usable() || TypeOf(id) != type) continue;
      if (s_.avoidance.Avoids(now_, gang.id, id)) continue;
      here.insert(id);
      const bool its = has != units_.end() &&
                       std::ranges::find(has->second, id) != has->second.end();
      if (its || idle_.contains(id)) result.room.push_back(id);
    }
    if (here.size() < wanted) return std::nullopt;
    Places free;  // of the type on other servers
    for (const AcceleratorId id : idle_) {
      if (TypeOf(id) == type && ServerOf(id) != ServerOf(server.front())) {
        free.push_back(id);
      }
    }
    for (const auto& [unit, places] : units_) {
      if (result.room.size() >= wanted) break;
      if (unit.packed() || unit == own || places.size() != 1) continue;
      if (!here.contains(places.front()) || !MayTry(unit.job)) continue;
      const Job& job = s_.jobs.at(unit.job);
      const auto to = std::ranges::find_if(free, [&](AcceleratorId id) {
        return !s_.avoidance.Avoids(now_, unit.job, id);
      });
      if (to == free.end() || job.spec.elastic() || job.pinned()) continue;
      result.moves.push_back({unit, {*to}});
      result.room.push_back(places.front());
      ++result.moved;
      free.erase(to);
    }
    if (result.room.size() < wanted) return std::nullopt;
    result.room.resize(wanted);
    std::ranges::sort(result.room);
    return result;
  }

  // ---- packing

  void Pack() {
    std::vector<std::pair<double, ShareUnit>> running;
    for (const auto& [unit, places] : units_) {
      if (unit.packed() || !MayTry(unit.job)) continue;
      running.push_back({Utilisation(unit.job), unit});
    }
    std::vector<std::pair<double, const Job*>> waiting;
    for (const Job* job : waiting_) {
      if (MayTry(job->id)) waiting.push_back({Utilisation(job->id), job});
    }
    std::ranges::sort(running);
    std::ranges::stable_sort(waiting, {},
                             [](const auto& w) { return w.first; });
    running.resize(std::min(running.size(), kLookedAtMax));
    waiting.resize(std::min(waiting.size(), kLookedAtMax));
    for (const auto& [low, job] : waiting) {
      // Among equals, first those beside which the job need not move.
      std::ranges::stable_sort(running, {}, [&](const auto& one) {
        return std::pair(
            one.first, units_.contains(one.second) && Comes(*job, one.second));
      });
      for (const auto& [lowest, unit] : running) {
        if (units_.contains(unit) && PackOnto(*job, unit)) break;
      }
    }
  }

  // The job's last lease was on another accelerator than the unit's.
  bool Comes(const Job& job, const ShareUnit& unit) const {
    const AcceleratorId last = job.stays.last();
    return last.valid() && std::ranges::count(units_.at(unit), last) == 0;
  }

  bool PackOnto(const Job& job, const ShareUnit& unit) {
    const Job& runs = s_.jobs.at(unit.job);
    const size_t type = TypeOf(units_.at(unit).front());
    if (runs.spec.elastic() || job.spec.elastic() || runs.spec.opaque() ||
        runs.scale_factor != job.scale_factor ||
        !s_.figures.UsableTypes(job)[type] ||
        AvoidsAny(job.id, units_.at(unit))) {
      return false;
    }
    const auto sum = SumTogether(s_, job, runs, type);
    const bool fits = s_.figures.PairFits(job, runs, type);
    if (!sum.has_value() && !s_.trials.IsPairTrial(job, runs, type)) {
      return false;
    }
    const auto expected = sum ? sum : Learnt(s_, now_, job, runs, type);
    if (!fits || (expected.has_value() && *expected <= 1)) return false;
    if (s_.introspection.PartnerOf(runs.id).valid() ||
        s_.introspection.PartnerOf(job.id).valid()) {
      return false;
    }
    const double loss_s =
        expected ? 0 : kLossExpected * kTrial_s * job.scale_factor;
    // A job that comes from another accelerator moves there, and perhaps back.
    const double cost_s =
        PauseCost(runs) +
        (Comes(job, unit) ? 2 * MoveCost(job) : PauseCost(job));
    if (!Affords(cost_s + loss_s)) return false;
    Places places = std::move(units_.at(unit));
    units_.erase(unit);
    units_[PairOf(runs.id, job.id)] = std::move(places);
    planned_.insert(job.id);
    Begin(TrialKind::kPack, runs.id, job.id, cost_s, 0, loss_s);
    return true;
  }

  State& s_;
  const Time now_;
  RoundPlan& plan_;
  std::map<ShareUnit, Places> units_;  // of the plan
  std::set<AcceleratorId> idle_;
  std::set<JobId> planned_;
  std::vector<Job*> waiting_;  // ascending
  std::set<JobId> tried_;      // in this plan
  double debt_s_ = 0;
  double credit_s_ = 0;
  std::vector<TrialNote> notes_;
};

void JudgePair(State& s, Time now, const ShareUnit& unit,
               const IntrospectionBook::Pair& pair,
               std::vector<TrialNote>& notes) {
  const Job* a = s.jobs.FindLive(unit.job);
  const Job* b = s.jobs.FindLive(unit.partner);
  TrialNote note{TrialKind::kPack,
                 TrialStage::kUndone,
                 pair.first,
                 OtherOf(unit, pair.first),
                 0,
                 0};
  const bool together =
      a != nullptr && b != nullptr && s.jobs.Together(*a, unit.partner);
  const Time since = together ? std::max(RunsSince(*a), RunsSince(*b)) : kNever;
  if (since == kNever) {
    if (now >= pair.began_at + kStart_s) notes.push_back(note);
    return;
  }
  const auto type = static_cast<size_t>(s.cluster.TypeOf(a->assigned.front()));
  const std::string& name = s.cluster.types()[type];
  const bool measured = s.throughputs.Together(a->id, b->id, name) &&
                        s.throughputs.Together(b->id, a->id, name);
  const auto sum = SumTogether(s, *a, *b, type);
  if (!measured && now < since + kTrial_s) return;
  const bool known = measured && sum.has_value();
  if (known) note.value = *sum;
  if (known && *sum > 1) note.stage = TrialStage::kKept;
  const double loss = known ? std::max(0.0, 1 - *sum) : kLossExpected;
  note.cost_s = pair.cost_s + loss * (now - since) * a->scale_factor;
  if (note.stage == TrialStage::kUndone) {
    RoundUnit costs;
    AddCosts(note.other == a->id ? *a : *b, costs);
    note.cost_s += costs.preempt_cost_s * a->scale_factor;
  }
  notes.push_back(note);
}

void JudgeMove(const State& s, Time now, JobId id,
               const IntrospectionBook::Move& move,
               std::vector<TrialNote>& notes) {
  const Job* job = s.jobs.FindLive(id);
  const Time since = job == nullptr ? kNever : RunsSince(*job);
  if (since == kNever || since < move.began_at) {
    if (job != nullptr && now < move.began_at + kStart_s) return;
    notes.push_back({move.kind, TrialStage::kOver, id, move.other, 0, 0});
    return;
  }
  if (now < since + kTrial_s) return;
  const double value = move.before_steps_per_s > 0
                           ? s.figures.Pace(*job) / move.before_steps_per_s
                           : 1;
  const auto stage =
      value >= kMoveGainMin ? TrialStage::kKept : TrialStage::kUndone;
  notes.push_back({move.kind, stage, id, move.other, value, move.cost_s});
}

}  // namespace

JobId IntrospectionBook::PartnerOf(JobId job) const {
  const auto found = partners.find(job);
  return found == partners.end() ? JobId() : found->second;
}

void IntrospectionBook::AddPair(const ShareUnit& unit, const Pair& pair) {
  pairs[unit] = pair;
  partners[unit.job] = unit.partner;
  partners[unit.partner] = unit.job;
}

void IntrospectionBook::ErasePair(const ShareUnit& unit) {
  pairs.erase(unit);
  partners.erase(unit.job);
  partners.erase(unit.partner);
}

void IntrospectionBook::Rebuild() {
  partners.clear();
  for (const auto& [unit, pair] : pairs) {
    partners[unit.job] = unit.partner;
    partners[unit.partner] = unit.job;
  }
}

void IntrospectionBook::ForgetJob(JobId job) {
  if (const JobId partner = PartnerOf(job); partner.valid()) {
    ErasePair(PairOf(job, partner));
  }
  moves.erase(job);
  moving.erase(job);
  attempts.erase(job);
  utilisation.erase(job);
}

void IntrospectionBook::ForgetTrials() {
  for (const auto& [unit, pair] : pairs) {
    if (pair.kept) continue;
    attempts.erase(unit.job);
    attempts.erase(unit.partner);
  }
  for (const auto& [job, move] : moves) attempts.erase(job);
  pairs.clear();
  partners.clear();
  moves.clear();
  moving.clear();
}

std::vector<TrialNote> Introspect(State& s, Time now, RoundPlan& plan) {
  return Improvement(s, now, plan).Run();
}

void JudgeTrials(State& s, Time now) {
  std::set<ShareUnit> pairs;
  std::vector<TrialNote> notes;
  for (const JobId id : s.agenda.TakeJudged()) {
    const auto move = s.introspection.moves.find(id);
    if (move != s.introspection.moves.end()) {
      JudgeMove(s, now, id, move->second, notes);
    }
    const JobId with = s.introspection.PartnerOf(id);
    if (with.valid()) pairs.insert(PairOf(id, with));
  }
  for (const ShareUnit& unit : pairs) {
    const auto pair = s.introspection.pairs.find(unit);
    if (pair == s.introspection.pairs.end() || pair->second.kept) continue;
    JudgePair(s, now, unit, pair->second, notes);
  }
  if (!notes.empty()) Record(s, now, event::TrialsNoted{std::move(notes)});
}

void SweepTrials(State& s, Time now) {
  constexpr double kLookAgain_s = 5;
  for (const auto& [unit, pair] : s.introspection.pairs) {
    if (pair.kept) continue;
    s.agenda.JudgeSoon(pair.first);
    s.agenda.Due(now + kLookAgain_s);
  }
  for (const auto& [id, move] : s.introspection.moves) {
    s.agenda.JudgeSoon(id);
    s.agenda.Due(now + kLookAgain_s);
  }
}

void On(State& s, Time now, const event::TrialsNoted& e) {
  IntrospectionBook& book = s.introspection;
  book.debt_s = DebtAt(s, now);
  book.debt_at = now;
  for (const TrialNote& note : e.trials) {
    const bool pack = note.kind == TrialKind::kPack;
    const ShareUnit unit =
        pack ? PairOf(note.job, note.other) : ShareUnit{note.job, JobId()};
    double expected_s = 0;
    if (note.stage == TrialStage::kBegun) {
      if (pack) {
        book.AddPair(unit, {now, false, note.cost_s, note.job});
      } else {
        book.moving[note.job] = note.places;
      }
      if (!pack && note.value > 0) {
        book.moves[note.job] = {note.kind, note.other, now, note.value,
                                note.cost_s};
      }
      s.agenda.Due(now + kTrial_s);
    } else if (const auto pair = book.pairs.find(unit);
               pack && pair != book.pairs.end()) {
      if (!pair->second.kept) expected_s = pair->second.cost_s;
      pair->second.kept = true;
      if (note.stage != TrialStage::kKept) book.ErasePair(unit);
    } else if (const auto move = book.moves.find(note.job);
               !pack && move != book.moves.end()) {
      expected_s = move->second.cost_s;
      book.moves.erase(move);
    }
    if (note.stage == TrialStage::kOver) continue;
    book.debt_s = std::max(0.0, book.debt_s + note.cost_s - expected_s);
    for (const JobId id : {note.job, pack ? note.other : JobId()}) {
      Job* job = s.jobs.FindLive(id);
      if (job == nullptr) continue;
      IntrospectionBook::Attempt& attempt = book.attempts[id];
      attempt.last = reason::Tried{WhatOf(note, id), note.value, note.cost_s,
                                   std::string(TextOf(note.stage))};
      if (note.stage == TrialStage::kKept) attempt.failures = 0;
      if (note.stage == TrialStage::kUndone) ++attempt.failures;
      attempt.next_at = now + BackoffAfter(s, attempt.failures);
    }
    Job* stays = s.jobs.FindLive(note.job);
    Job* leaves = s.jobs.FindLive(note.other);
    if (!pack || note.stage == TrialStage::kBegun || stays == nullptr ||
        leaves == nullptr || !s.jobs.Together(*stays, leaves->id)) {
      continue;
    }
    if (note.value > 0) {
      const auto type = s.cluster.TypeOf(stays->assigned.front());
      if (book.lessons.size() >= kLessonsMax) book.lessons.clear();
      book.lessons[LessonOf(s, *stays, *leaves, static_cast<size_t>(type))] = {
          note.value, now};
    }
    if (note.stage != TrialStage::kUndone) continue;
    const std::vector<AcceleratorId> places = stays->assigned;
    Assign(s, now, *leaves, {}, JobId());
    Assign(s, now, *stays, places, JobId());
    s.agenda.FillSoon();
  }
}

std::string RenderTrial(const State& s, const Job& job) {
  const auto found = s.introspection.attempts.find(job.id);
  return found == s.introspection.attempts.end()
             ? ""
             : RenderReason(found->second.last);
}

std::string RenderNewTrial(const State& s, const Job& job, Time now) {
  const auto found = s.introspection.attempts.find(job.id);
  if (found == s.introspection.attempts.end()) return "";
  const IntrospectionBook::Attempt& attempt = found->second;
  const auto* const tried = std::get_if<reason::Tried>(&attempt.last);
  if (tried == nullptr || tried->became != TextOf(TrialStage::kBegun)) {
    return "";
  }
  const Time began_at = attempt.next_at - BackoffAfter(s, attempt.failures);
  return now - began_at <= 2 * s.terms.round_duration_s()
             ? RenderReason(attempt.last)
             : "";
}

}  // namespace gavel::engine
