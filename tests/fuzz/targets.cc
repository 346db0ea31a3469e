#include "tests/fuzz/targets.h"

#include <array>
#include <cstdio>
#include <cstdlib>

namespace gavel::fuzz {

std::span<const Target> Targets() {
  static constexpr std::array kTargets = {
      Target{"message", RunMessage, MessageSeeds},
      Target{"event", RunEvent, EventSeeds},
      Target{"stream", RunStream, StreamSeeds},
      Target{"manifest", RunManifest, ManifestSeeds},
      Target{"safetensors", RunSafetensors, SafetensorsSeeds},
      Target{"job", RunJob, JobSeeds},
      Target{"cluster", RunCluster, ClusterSeeds},
      Target{"trace", RunTrace, TraceSeeds},
      Target{"throughputs", RunThroughputs, ThroughputSeeds},
      Target{"prices", RunPrices, PriceSeeds},
      Target{"principals", RunPrincipals, PrincipalSeeds},
      Target{"reply", RunReply, ReplySeeds},
      Target{"snapshot", RunSnapshot, SnapshotSeeds},
      Target{"keys", RunKeys, KeySeeds},
      Target{"record", RunRecord, RecordSeeds},
      Target{"recovery", RunRecovery, RecoverySeeds},
      Target{"filter", RunFilter, FilterSeeds},
      Target{"search", RunSearch, SearchSeeds},
      Target{"answer", RunAnswer, AnswerSeeds},
      Target{"bid", RunBid, BidSeeds},
  };
  return kTargets;
}

void Require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %.*s\n", static_cast<int>(what.size()),
               what.data());
  std::abort();
}

}  // namespace gavel::fuzz
