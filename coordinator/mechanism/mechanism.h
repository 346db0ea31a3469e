// The round mechanism: from fractions of time to who has which accelerators in
// the next round. Gavel section 5. Pure and deterministic: ties go by job id,
// never by hash order. The engine calls it at each round and whenever an
// accelerator is idle.
#ifndef GAVEL_COORDINATOR_MECHANISM_MECHANISM_H_
#define GAVEL_COORDINATOR_MECHANISM_MECHANISM_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/jobs/cluster.h"
#include "core/ids.h"
#include "core/share_unit.h"

namespace gavel {

// kGavel: the paper's; every round the highest priorities, whatever it costs
// to change. kMoveAware: a unit keeps its accelerators over consecutive rounds
// while the others' debts allow, and longer the more a change costs.
enum class MechanismKind : uint8_t { kGavel, kMoveAware };
// kGlobal: one queue over all types. kPerType: type by type in the cluster's
// order, as the original without --enable_global_queue: what is left of a type
// is given away before the next one's turn.
enum class QueueKind : uint8_t { kGlobal, kPerType };

// "gavel", "move_aware"; "global", "per_type". nullopt: no such name.
std::optional<MechanismKind> FindMechanism(std::string_view name);
std::optional<QueueKind> FindQueue(std::string_view name);
std::string_view MechanismName(MechanismKind kind);
std::string_view QueueName(QueueKind kind);

// One job, or two packed ones, that could run in the round.
struct RoundUnit {
  ShareUnit unit;
  int scale_factor = 1;
  // By accelerator type, in the cluster's order of types; sizes J. Types that
  // came later and are missing at the end count as zero, and not usable.
  std::vector<double> share;            // X[u][j]; from the allocation
  std::vector<double> time_received_s;  // on type j since the last reset
  // What X would have given it on type j less what it received, over all
  // resets; positive: it is owed. kMoveAware orders by it. Empty: not known,
  // kGavel takes it as zero, kMoveAware reckons it from time received.
  std::vector<double> deficit_s;
  std::vector<bool> usable;  // has a throughput there
  // What it holds now, as this unit (empty: nothing): all of one type. A unit
  // keeps only what is complete and usable; with an accelerator lost it is
  // placed anew.
  std::vector<AcceleratorId> holds;
  std::string home_server;  // where its process is; preferred; may be empty
  // Seconds of work lost when it gives up what it holds and comes back later
  // (pause and resume), and when it goes on elsewhere at once. For kMoveAware.
  double preempt_cost_s = 0;
  double move_cost_s = 0;
  // Of what it was to receive since it came, the part that it did not, in
  // [0, 1]. For kMoveAware.
  double owed_part = 0;
};

// Priorities of Gavel section 5.1: share / fraction of the type's time that
// the unit received. [units x J]; 0 where share is 0, infinity where it has
// received nothing. They compare units on one type; PlanRound compares across
// types by share / time received, which orders each type the same way.
std::vector<std::vector<double>> Priorities(
    const std::vector<RoundUnit>& units);

// Who has which accelerators in a round; jobs that are in no unit of it wait.
using RoundAssignment = std::map<ShareUnit, std::vector<AcceleratorId>>;

struct RoundOptions {
  MechanismKind mechanism = MechanismKind::kGavel;
  QueueKind queue = QueueKind::kGlobal;
  double round_duration_s = 360;  // for kMoveAware
  // Units that hold accelerators keep exactly them: the plan only fills idle
  // ones (in the middle of a round).
  bool keep_running = false;
  // Give leftovers to units of zero priority too, jobs alone before pairs: to
  // those that received the least time first.
  bool work_conserving = true;
};

// Chooses by priority, greedily, gangs all or nothing, then places: where a
// unit already is, else consolidated, else wherever there is room. Of equal
// priorities the larger deficit goes first, then the larger share, then who
// holds that type already, then the smaller unit, then the cluster's order of
// types.
//
// Every job of `units` is in the answer at most once, whether alone or in a
// pair, with scale_factor usable accelerators of one type; no accelerator is in
// it twice.
RoundAssignment PlanRound(const Cluster& cluster,
                          const std::vector<RoundUnit>& units,
                          const RoundOptions& options);

// A policy's own choice of types (FIFO): the same placement, no priorities.
// `type_of_unit` indexes the cluster's types. What no longer fits (the cluster
// may have shrunk since) is left out, the later units of `units` first.
RoundAssignment PlaceAssignment(
    const Cluster& cluster, const std::vector<RoundUnit>& units,
    const std::map<ShareUnit, size_t>& type_of_unit);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_MECHANISM_MECHANISM_H_
