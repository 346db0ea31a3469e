// A test of the tests: each safety rule that the whole-system simulation is
// there to guard can be taken out, one at a time, and the simulation has to
// notice. tests/simulation/mutants.h says of each rule what it forbids.
//
// In production every rule holds, always: only the class RuleRemover can take
// one out, and the one file that defines it is a test. What is left here is a
// read of a variable that never changes. Not thread-safe to remove.
#ifndef GAVEL_CORE_RULES_H_
#define GAVEL_CORE_RULES_H_

#include <cstdint>

namespace gavel {

// Named after what holds. The order is of no importance.
enum class Rule : uint8_t {
  kNone,
  // runtime/lease
  kGrantAnswersLatestRequest,
  kGrantIsOfIncarnation,
  kLeaseCountsFromSending,
  kLeaseEndsAtDeadline,
  kGivenUpEpochStaysSo,
  kWorkerHeedsLatestTerm,
  kStopBindsForAll,
  kAcceptedStopIsWaitedAt,
  kPassedStopIsRefused,
  kStopIsKnownBeforeTheNext,
  // core/generation
  kLatestGenerationByEpoch,
  // coordinator/agent
  kLaunchIsOnce,
  kOlderIncarnationGoesFirst,
  kWelcomeNamesItsAgent,
  kRejectionNamesItsAgent,
  kAgentHeedsLatestTerm,
  // coordinator/engine
  kActsAfterPersist,
  kGrantsAfterPersist,
  kTermIsOnDiskFirst,
  kUnknownPositionHalts,
  kEarlierTermsAreWhole,
  kGraceAfterRestart,
  kGraceAsLeasesWereGiven,
  kLeaseEndsForAllClocks,
  kKillIsConfirmed,
  kAbandonedIsQuarantined,
  kQuarantineEndsWithProcess,
  kQuarantineBars,
  kOlderAgentIsRejected,
  kOnlyNewAgentHasSwept,
  kOtherAgentHasNotSwept,
  kNewAgentEndsLaunches,
  kIncarnationIsTheLatest,
  kNewIncarnationNewEpoch,
  kReleaseIsOfHeldEpoch,
  kReleaseIsRepaired,
  kGivenUpEpochEnds,
  kAcceleratorIsFree,
  kGangStartsTogether,
  kGangStoreIsOfEpoch,
  kPartnerTakesHalf,
  kPausingIsNotRenewed,
  kLeaseEndsWithRound,
  kLongestGrantCounts,
  kGangIsOfItsSize,
  kStopIsRepeated,
  kHungIsEnded,
  kRetriesAreBounded,
  // coordinator/server, as tests/simulation/world/virtual_cluster has it
  kFencedWriterWritesNothing,
  kGrantsAsOwnerOnly,
  kTermsComeOnce,
};

class Rules {
 public:
  static bool Hold(Rule rule) { return removed_ != rule; }

 private:
  friend class RuleRemover;
  static inline constinit Rule removed_ = Rule::kNone;
};

}  // namespace gavel

#endif  // GAVEL_CORE_RULES_H_
