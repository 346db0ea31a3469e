#include "tests/simulation/mutants.h"

#include <array>

namespace gavel {
namespace {

constexpr uint64_t kRare = 200'000;

constexpr auto kMutants = std::to_array<Mutant>({
    // ---- a worker's lease
    {Rule::kGrantAnswersLatestRequest, "grant-nonce",
     "a worker takes the answer to an older request for one to its latest, and "
     "so believes in a lease that ended"},
    {Rule::kGrantIsOfIncarnation, "grant-of-another-life",
     "a worker takes what was meant for the process before it, whose requests "
     "had the same nonces, for its own",
     kRare},
    {Rule::kLeaseCountsFromSending, "lease-from-receipt",
     "a lease counts from when its grant arrived, however long that took"},
    {Rule::kLeaseEndsAtDeadline, "lease-without-end",
     "a worker that hears nothing goes on training"},
    {Rule::kGivenUpEpochStaysSo, "given-up-epoch-grant",
     "a worker takes a late grant of an epoch that it gave back"},
    {Rule::kWorkerHeedsLatestTerm, "worker-heeds-older-term",
     "a worker that has heard a coordinator still obeys the one before it"},
    // ---- how the ranks of a gang stop
    {Rule::kStopBindsForAll, "stop-binds-for-some",
     "a stop counts although a rank has not said yes to it"},
    {Rule::kAcceptedStopIsWaitedAt, "accepted-stop-passed",
     "a rank goes past the step that it said it would wait at"},
    {Rule::kPassedStopIsRefused, "passed-stop-accepted",
     "a rank that is beyond the step says yes to stopping there"},
    {Rule::kStopIsKnownBeforeTheNext, "next-stop-too-early",
     "another stop is proposed while a rank does not know of the last one"},
    // ---- checkpoints
    {Rule::kLatestGenerationByEpoch, "latest-by-step",
     "the checkpoint with the most steps is the latest, even one that a worker "
     "wrote after another had taken its place"},
    // ---- an agent
    {Rule::kLaunchIsOnce, "launch-twice",
     "a launch that comes twice starts two processes"},
    {Rule::kOlderIncarnationGoesFirst, "older-incarnation-stays",
     "an agent starts a worker anew while its older process is still there"},
    {Rule::kWelcomeNamesItsAgent, "welcome-of-another",
     "an agent takes the welcome of the one before it for its own, and obeys "
     "what was meant for that one"},
    {Rule::kRejectionNamesItsAgent, "rejection-of-another",
     "an agent ends because another one of its server was refused"},
    {Rule::kAgentHeedsLatestTerm, "agent-heeds-older-term",
     "an agent that has heard a coordinator still obeys the one before it"},
    // ---- the coordinator and its disk
    {Rule::kActsAfterPersist, "act-before-persist",
     "messages leave before the event that they follow from is on disk"},
    {Rule::kGrantsAfterPersist, "grant-before-persist",
     "the first grant of a lease leaves before the lease is on disk"},
    {Rule::kTermIsOnDiskFirst, "term-before-persist",
     "a coordinator speaks before its term is on disk, and the next one may "
     "speak in the same term"},
    {Rule::kUnknownPositionHalts, "no-fence",
     "a coordinator whose journal lost its end goes on when it is shown that"},
    {Rule::kEarlierTermsAreWhole, "no-fence-of-terms",
     "a coordinator that is shown a row which its journal lost takes it as one "
     "of an earlier term, as its own is higher"},
    {Rule::kFencedWriterWritesNothing, "two-writers",
     "the journal takes rows of a coordinator behind those of another that has "
     "taken over"},
    {Rule::kGrantsAsOwnerOnly, "two-grant",
     "a coordinator that was replaced and has not yet noticed goes on granting "
     "and renewing leases"},
    {Rule::kTermsComeOnce, "term-again",
     "a coordinator whose journal lost the start of its last term begins that "
     "term again, and takes what it is shown of it as its own"},
    {Rule::kGraceAfterRestart, "no-grace",
     "a coordinator that starts again takes the leases of before as over"},
    {Rule::kGraceAsLeasesWereGiven, "grace-by-new-option",
     "a coordinator that starts again with shorter leases takes those of "
     "before as that short, too"},
    // ---- leases that end without a word
    {Rule::kLeaseEndsForAllClocks, "no-drift-margin",
     "the coordinator takes a lease as over by its own clock alone"},
    {Rule::kKillIsConfirmed, "kill-unconfirmed",
     "a process that was told to end counts as ended"},
    {Rule::kAbandonedIsQuarantined, "no-quarantine",
     "the accelerator of a worker that can't be asked is given to another job"},
    {Rule::kQuarantineEndsWithProcess, "quarantine-ends-early",
     "a server that comes back frees its accelerators, whoever still runs "
     "there"},
    {Rule::kQuarantineBars, "quarantine-ignored",
     "a lease begins on an accelerator in quarantine"},
    // ---- messages that are old
    {Rule::kOlderAgentIsRejected, "older-agent",
     "the late hello of an agent that was replaced says who runs"},
    {Rule::kOnlyNewAgentHasSwept, "late-hello",
     "what a late hello of an agent does not list counts as ended"},
    {Rule::kOtherAgentHasNotSwept, "unswept",
     "an agent with another state directory is taken to have swept what an "
     "earlier one started"},
    {Rule::kNewAgentEndsLaunches, "launched-by-another",
     "what was launched at an agent that is gone is launched again by the same "
     "number",
     kRare},
    {Rule::kIncarnationIsTheLatest, "older-incarnation",
     "what an earlier process of a worker still says counts for the present "
     "one"},
    {Rule::kNewIncarnationNewEpoch, "same-epoch-again",
     "a new process of a worker is granted the epoch that the old one had"},
    {Rule::kReleaseIsOfHeldEpoch, "release-of-old-epoch",
     "a late release of an earlier lease ends the present one"},
    {Rule::kReleaseIsRepaired, "lost-release",
     "a release that was lost is never made good"},
    {Rule::kGivenUpEpochEnds, "given-up-epoch-lease",
     "an epoch that a worker gave back is leased to it again"},
    // ---- who may start
    {Rule::kAcceleratorIsFree, "accelerator-in-use",
     "a lease begins while the last holder has not released"},
    {Rule::kGangStartsTogether, "gang-in-part",
     "some ranks of a gang are granted before all are there"},
    {Rule::kGangStoreIsOfEpoch, "gang-without-store",
     "ranks are granted before rank 0 has opened a store for them"},
    {Rule::kPartnerTakesHalf, "pair-takes-whole",
     "a job starts beside a partner that still uses the whole accelerator"},
    {Rule::kPausingIsNotRenewed, "renewed-while-pausing",
     "a lease is renewed although its holder has to go"},
    {Rule::kLeaseEndsWithRound, "lease-past-round",
     "a lease outlasts the round that it was given for"},
    {Rule::kLongestGrantCounts, "shorter-renewal",
     "a lease counts as over when its last grant is, though that may be lost "
     "and an earlier one runs longer",
     kRare},
    // ---- jobs that grow and shrink
    {Rule::kGangIsOfItsSize, "gang-of-old-size",
     "a job is assigned more or fewer accelerators, and its gang stays as it "
     "was"},
    // ---- that all ends
    {Rule::kStopIsRepeated, "stop-once",
     "a process that hangs outlives the loss of one message"},
    {Rule::kHungIsEnded, "hung-for-ever",
     "a worker that makes no steps keeps its accelerator"},
    {Rule::kRetriesAreBounded, "endless-retries",
     "a job that always fails is started for ever"},
});

}  // namespace

std::span<const Mutant> Mutants() { return kMutants; }

}  // namespace gavel
