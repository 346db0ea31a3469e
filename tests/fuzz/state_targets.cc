// Fuzz targets for the files that a coordinator or an agent left on its own
// disk: snapshots of the engine, alone and in the form of a journal with its
// open history; key files; and the record of an agent's workers. One more
// target is the filter of queries to the journal.
#include "coordinator/agent_host/agent_record.h"
#include "coordinator/engine/engine.h"
#include "coordinator/server/history.h"
#include "coordinator/server/journal_writer.h"
#include "runtime/transport/curve.h"
#include "tests/fuzz/targets.h"

namespace gavel::fuzz {
namespace {

constexpr char kBoot[] = "6d1f0f4e-1b1c-4a8e-9f57-000000000001";

// Events of a job that has a lease.
std::vector<Event> SomeEvents() {
  event::ServerJoined joined;
  joined.hello.server = "here";
  joined.hello.incarnation = 1;
  AcceleratorInfo info;
  info.type = "v100";
  info.uuid = "here-0";
  joined.hello.accelerators = {info};
  event::JobSubmitted submitted;
  submitted.spec.name = "a";
  submitted.spec.argv = {"./train"};
  const WorkerKey key{JobId(1), 0, 1};
  WorkerHello hello;
  hello.worker = key;
  return {event::CoordinatorStarted{1, 360, 60},
          joined,
          submitted,
          event::UnitsAssigned{{{{JobId(1), JobId()}, {AcceleratorId(1)}}}},
          event::WorkerJoined{hello},
          event::LeaseStarted{key, 1, AcceleratorId(1)}};
}

// Replays the events; the number of an event is its seq and also its time.
void Replay(Engine& engine, HistoryProjector& projector) {
  uint64_t seq = 0;
  for (Event& event : SomeEvents()) {
    ++seq;
    const auto now = static_cast<double>(seq);
    if (auto* lease = std::get_if<event::LeaseStarted>(&event)) {
      lease->epoch = engine.jobs().at(JobId(1)).epoch;
    }
    engine.Replay(seq, 1, now, event);
    projector.Observe(seq, now, event, engine);
  }
}

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

void RunRecovery(std::string_view bytes) {
  const EngineOptions options;
  Engine engine{options};
  HistoryProjector projector;
  if (!UnpackSnapshot(bytes, options, &engine, &projector).ok()) return;
  const absl::StatusOr<std::string> written = PackSnapshot(engine, projector);
  if (!written.ok()) return;  // more than a journal takes
  Require(UnpackSnapshot(*written, options, &engine, &projector).ok(),
          "a snapshot that was written reads");
  Require(*PackSnapshot(engine, projector) == *written,
          "a snapshot comes back the same");
}

void RunFilter(std::string_view bytes) {
  const absl::StatusOr<HistoryFilter> filter = ParseHistoryFilter(bytes);
  if (!filter.ok()) return;
  const std::string written = FormatHistoryFilter(*filter);
  const absl::StatusOr<HistoryFilter> again = ParseHistoryFilter(written);
  Require(again.ok(), "a filter that was written reads");
  Require(FormatHistoryFilter(*again) == written,
          "a filter comes back the same");
}

std::vector<std::string> SnapshotSeeds() {
  std::vector<std::string> seeds;
  Engine engine{EngineOptions()};
  HistoryProjector projector;
  seeds.push_back(*engine.Snapshot());
  Replay(engine, projector);
  seeds.push_back(*engine.Snapshot());
  return seeds;
}

std::vector<std::string> RecoverySeeds() {
  std::vector<std::string> seeds;
  Engine engine{EngineOptions()};
  HistoryProjector projector;
  seeds.push_back(*PackSnapshot(engine, projector));
  Replay(engine, projector);
  seeds.push_back(*PackSnapshot(engine, projector));
  return seeds;
}

std::vector<std::string> FilterSeeds() {
  HistoryFilter filter;
  filter.table = "leases";
  filter.job = 7;
  filter.user = "ada";
  filter.state = "CD";
  filter.since_s = 1.7e9;
  filter.until_s = 1.8e9 + 0.25;
  return {FormatHistoryFilter(filter), FormatHistoryFilter({}),
          R"({"table":"jobs"})"};
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
