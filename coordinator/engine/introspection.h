// Introspection (Gandiva, Xiao et al., OSDI'18, section 4.2): the engine tries
// changes to the plan of a round, measures them, and undoes those that do not
// help. It works beside any policy (DecisionSettings::introspection): the
// policy decides whose turn it is, and the plan of its round is then improved.
//
// - Packing: while jobs wait, one of them runs beside a job that has its turn.
//   The lowest utilisation goes to the least utilised accelerator. The pair is
//   kept if the sum of both normalised rates is above that of turns, which is
//   1, and is parted within a minute otherwise. The result counts for other
//   pairs of the same workloads, too.
// - Migration: a suspended job resumes on accelerators that were vacated, a
//   gang moves from several servers to one, and a job whose rate fell after
//   another job came to its server moves to another server.
// - Defragmentation: jobs leave the server with the fewest others to move, for
//   a gang that has room on no one server.
// Elastic jobs grow and shrink whatever this setting is (rounds.h).
//
// Each trial has a cost in accelerator-seconds, and three limits keep jobs from
// being moved about: a job is tried at most once in trial_backoff_s, twice as
// rarely after each trial in a row that failed; and trials take no more than
// 1 % of the accelerators' time, beyond a small credit.
//
// Decisions are journaled: with the plan, and as TrialsNoted. Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_INTROSPECTION_H_
#define GAVEL_COORDINATOR_ENGINE_INTROSPECTION_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/engine/event.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/reason.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel::engine {

struct State;

// Trials in progress, and what came of earlier ones. Snapshot fields: all but
// `partners`, which is made anew, and `utilisation`, which a restart forgets.
struct IntrospectionBook {
  // A pair that runs on trial or was kept.
  struct Pair {
    Time began_at = 0;
    bool kept = false;
    double cost_s = 0;  // as expected when it began
    JobId first;        // that had the accelerators, and keeps them
  };
  // A move whose gain is measured.
  struct Move {
    TrialKind kind = TrialKind::kLocality;
    JobId other;  // TrialNote::other
    Time began_at = 0;
    double before_steps_per_s = 0;
    double cost_s = 0;
  };
  struct Attempt {
    Time next_at = -kNever;  // no trial before
    int failures = 0;        // in a row
    Reason last;             // a reason::Tried
  };

  // The result of a pair, for other pairs of the same workloads.
  struct Lesson {
    double sum = 0;  // of both normalised rates
    Time at = 0;
  };

  std::map<ShareUnit, Pair> pairs;  // change it by AddPair and ErasePair
  std::map<JobId, JobId> partners;  // in these; a job is in one at most
  std::map<JobId, Move> moves;
  // Where jobs move when the planned round begins. The plan may be made again.
  std::map<JobId, std::vector<AcceleratorId>> moving;
  std::map<JobId, Attempt> attempts;
  std::map<std::string, Lesson> lessons;  // by workloads, type and scale factor
  // The cost of trials, as of `debt_at`; it fades as accelerators work.
  double debt_s = 0;
  Time debt_at = 0;
  // Percent, of jobs that ran alone where their agent reports it.
  std::map<JobId, double> utilisation;

  JobId PartnerOf(JobId job) const;  // invalid: none
  void AddPair(const ShareUnit& unit, const Pair& pair);
  void ErasePair(const ShareUnit& unit);
  void ForgetJob(JobId job);
  // Gives up the trials in progress, and all pairs, whose jobs the next plan
  // parts. Lessons stay.
  void ForgetTrials();
  void Rebuild();  // call this after State was read

  static auto State(auto& b) {
    return std::tie(b.pairs, b.moves, b.moving, b.attempts, b.lessons, b.debt_s,
                    b.debt_at);
  }
};

// Improves the plan of the next round, and returns the trials that begin or end
// with it. Call this when the round is planned, and record them.
std::vector<TrialNote> Introspect(State& s, Time now, RoundPlan& plan);
// Judges the trials of the jobs that reported since the last call, and those
// that are due (Agenda::JudgeSoon).
void JudgeTrials(State& s, Time now);
// Sets the agenda for trials that have to be judged by a certain time.
void SweepTrials(State& s, Time now);
void On(State& s, Time now, const event::TrialsNoted& e);

// "tried beside job 7: kept, ..."; empty: no trial yet.
std::string RenderTrial(const State& s, const Job& job);
// The same of a trial that runs and began in this round or the one before;
// empty: there is none.
std::string RenderNewTrial(const State& s, const Job& job, Time now);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_INTROSPECTION_H_
