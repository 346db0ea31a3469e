// What a coordinator or an agent left on its own disk: snapshots of the engine,
// key files, the record of an agent's workers.
#include "coordinator/engine/engine.h"
#include "coordinator/server/agent_record.h"
#include "runtime/transport/curve.h"
#include "tests/fuzz/targets.h"

namespace gavel::fuzz {
namespace {

constexpr char kBoot[] = "6d1f0f4e-1b1c-4a8e-9f57-000000000001";

}  // namespace

void RunSnapshot(std::string_view bytes) {
  Engine engine{EngineOptions()};
  if (!engine.Restore(bytes).ok()) return;
  const absl::StatusOr<std::string> written = engine.Snapshot();
  if (!written.ok()) return;  // more than a journal takes
  Engine again{EngineOptions()};
  Require(again.Restore(*written).ok(), "a snapshot that was written reads");
  Require(*again.Snapshot() == *written, "a snapshot comes back the same");
}

void RunKeys(std::string_view bytes) {
  const CurveKeyPair keys = ParseKeyFile(bytes);
  const std::string written = "public_key = " + keys.public_key +
                              "\nsecret_key = " + keys.secret_key + "\n";
  const CurveKeyPair again = ParseKeyFile(written);
  Require(again.public_key == keys.public_key, "a key comes back the same");
  Require(again.secret_key == keys.secret_key, "a key comes back the same");
}

void RunRecord(std::string_view bytes) {
  const std::vector<RecordedWorker> workers = ParseRecord(bytes, kBoot);
  const std::string written = FormatRecord(workers, kBoot);
  Require(ParseRecord(written, kBoot) == workers,
          "a record of workers comes back the same");
}

std::vector<std::string> SnapshotSeeds() {
  std::vector<std::string> seeds;
  Engine engine{EngineOptions()};
  seeds.push_back(*engine.Snapshot());
  uint64_t seq = 0;
  const auto replay = [&](const Event& event) {
    ++seq;
    engine.Replay(seq, 1, static_cast<double>(seq), event);
  };
  replay(event::CoordinatorStarted{1, 360, 60});
  event::ServerJoined joined;
  joined.hello.server = "here";
  joined.hello.incarnation = 1;
  AcceleratorInfo info;
  info.type = "v100";
  info.uuid = "here-0";
  joined.hello.accelerators = {info};
  replay(joined);
  event::JobSubmitted submitted;
  submitted.spec.name = "a";
  submitted.spec.argv = {"./train"};
  replay(submitted);
  replay(event::UnitsAssigned{{{{JobId(1), JobId()}, {AcceleratorId(1)}}}});
  const WorkerKey key{JobId(1), 0, 1};
  WorkerHello hello;
  hello.worker = key;
  replay(event::WorkerJoined{hello});
  replay(event::LeaseStarted{key, engine.jobs().at(JobId(1)).epoch,
                             AcceleratorId(1)});
  seeds.push_back(*engine.Snapshot());
  return seeds;
}

std::vector<std::string> KeySeeds() {
  return {
      "# of ada\npublic_key = rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\n"
      "secret_key = JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6\n",
      "public_key =\n"};
}

std::vector<std::string> RecordSeeds() {
  RecordedWorker worker;
  worker.running.worker = {JobId(3), 1, 4};
  worker.running.pid = 4711;
  worker.start_time = 99;
  return {FormatRecord({worker}, kBoot), FormatRecord({}, kBoot)};
}

}  // namespace gavel::fuzz
