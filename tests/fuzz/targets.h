// One function for each decoder that reads bytes from elsewhere (the network, a
// disk, a user). It may be called with any bytes and must return, and
// everything that the decoder accepts must survive being written and read
// again. libFuzzer (fuzzer.cc) looks for bytes that break a decoder;
// corpus_test.cc replays its findings.
#ifndef GAVEL_TESTS_FUZZ_TARGETS_H_
#define GAVEL_TESTS_FUZZ_TARGETS_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gavel::fuzz {

struct Target {
  std::string_view name;  // of its folder in corpus/
  // Ends the process when the decoder is wrong.
  void (*run)(std::string_view bytes);
  // Inputs that the real encoders (or users) write.
  std::vector<std::string> (*seeds)();
};

std::span<const Target> Targets();

// Ends the program when `holds` is false, and prints `what`.
void Require(bool holds, std::string_view what);

// ---- one of each target

void RunMessage(std::string_view bytes);
void RunEvent(std::string_view bytes);
void RunStream(std::string_view bytes);
void RunManifest(std::string_view bytes);
void RunSafetensors(std::string_view bytes);
void RunJob(std::string_view bytes);
void RunCluster(std::string_view bytes);
void RunTrace(std::string_view bytes);
void RunThroughputs(std::string_view bytes);
void RunPrices(std::string_view bytes);
void RunPrincipals(std::string_view bytes);
void RunReply(std::string_view bytes);
void RunSnapshot(std::string_view bytes);
void RunKeys(std::string_view bytes);
void RunRecord(std::string_view bytes);
void RunRecovery(std::string_view bytes);
void RunFilter(std::string_view bytes);
void RunSearch(std::string_view bytes);
void RunAnswer(std::string_view bytes);
void RunBid(std::string_view bytes);

std::vector<std::string> MessageSeeds();
std::vector<std::string> EventSeeds();
std::vector<std::string> StreamSeeds();
std::vector<std::string> ManifestSeeds();
std::vector<std::string> SafetensorsSeeds();
std::vector<std::string> JobSeeds();
std::vector<std::string> ClusterSeeds();
std::vector<std::string> TraceSeeds();
std::vector<std::string> ThroughputSeeds();
std::vector<std::string> PriceSeeds();
std::vector<std::string> PrincipalSeeds();
std::vector<std::string> ReplySeeds();
std::vector<std::string> SnapshotSeeds();
std::vector<std::string> KeySeeds();
std::vector<std::string> RecordSeeds();
std::vector<std::string> RecoverySeeds();
std::vector<std::string> FilterSeeds();
std::vector<std::string> SearchSeeds();
std::vector<std::string> AnswerSeeds();
std::vector<std::string> BidSeeds();

}  // namespace gavel::fuzz

#endif  // GAVEL_TESTS_FUZZ_TARGETS_H_
