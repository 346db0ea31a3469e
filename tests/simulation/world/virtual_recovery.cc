// The coordinator's life in the simulation: how it recovers, takes snapshots,
// ends, and is replaced by a successor.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "coordinator/engine/event.h"
#include "core/text.h"
#include "tests/simulation/world/virtual_cluster.h"

namespace gavel {

// Recovers an engine from the snapshot, which stands for the first `from` rows
// (0: no snapshot), and from the rows behind it.
std::unique_ptr<Engine> VirtualCluster::Recovered(size_t from, size_t rows) {
  auto engine = std::make_unique<Engine>(options_.engine);
  const auto failed = [&](const absl::Status& status) {
    world_.truth.Violation(world_.now(), std::string(status.message()));
  };
  if (from > 0) {
    const absl::Status restored = engine->Restore(snapshot_.bytes);
    if (!restored.ok()) failed(restored);
  }
  for (size_t i = from; i < rows; ++i) {
    const action::Persist& row = journal_.rows()[i];
    const absl::StatusOr<Event> event = DecodeEvent(row.row);
    if (!event.ok()) {
      failed(event.status());
      break;
    }
    engine->Replay(row.seq, row.term, row.time, *event);
  }
  return engine;
}

// The engine's clock continues where the journal ended, as the server's does.
void VirtualCluster::Recover(size_t rows) {
  if (snapshot_.rows > rows) snapshot_ = {};
  present_.engine = Recovered(snapshot_.rows, rows);
  present_.trials = TrialTruth();
  for (size_t i = 0; i < rows; ++i) {
    present_.trials.Take(journal_.rows()[i], options_.engine);
  }
  world_.auctions.Restarted();
  present_.life = ++lives_;
  present_.armed = kNever;
  present_.stalled = false;
  present_.held.clear();
  const uint64_t term = rows == 0 ? 0 : journal_.rows()[rows - 1].term;
  present_.seq_recovered = rows == 0 ? 0 : journal_.rows()[rows - 1].seq;
  present_.seq_written.clear();
  present_.started_at = rows == 0 ? 0 : journal_.rows()[rows - 1].time;
  present_.clock.rate = options_.coordinator_clock_rate;
  present_.clock.offset =
      present_.started_at - present_.clock.rate * world_.now();
  const std::string recovered = Durable(*present_.engine);
  if (!forgetful_ && !durable_.empty() && durable_ != recovered) {
    world_.truth.Violation(
        world_.now(), StrCat("the coordinator knew\n", durable_,
                             "and recovered from its journal as\n", recovered));
  }
  if (snapshot_.rows > 0) {
    const std::string replayed = Durable(*Recovered(0, rows));
    if (replayed != recovered) {
      world_.truth.Violation(
          world_.now(), StrCat("from a snapshot of ", snapshot_.rows, " of ",
                               rows, " rows the coordinator recovered as\n",
                               recovered, "and from all rows as\n", replayed));
    }
  }
  BeginTerm(term);
}

// Begins a term that was never begun before, as Journal::BeginTerm does.
void VirtualCluster::BeginTerm(uint64_t last) {
  begun_ = std::max(begun_, last) + 1;
  event::CoordinatorStarted started{begun_};
  started.policy = options_.policy;
  Step(present_, started);
}

// Whether all rows that the present coordinator wrote are on disk, and none of
// another coordinator follow.
bool VirtualCluster::AllOnDisk() const {
  if (journal_.rows().empty()) return false;
  const action::Persist& last = journal_.rows().back();
  return JournalPosition{last.term, last.seq} == present_.engine->position();
}

// Takes a snapshot only when no row is on its way to the disk, as the server
// does.
void VirtualCluster::MaybeSnapshot() {
  const size_t rows = journal_.rows().size();
  if (options_.snapshot_rows == 0 || forgetful_ || present_.engine->halted() ||
      rows < snapshot_.rows + options_.snapshot_rows || !AllOnDisk()) {
    return;
  }
  absl::StatusOr<std::string> bytes = present_.engine->Snapshot();
  if (bytes.ok()) snapshot_ = {rows, *std::move(bytes)};
}

void VirtualCluster::StartCoordinator() {
  if (coordinator_up()) return;
  forgetful_ = false;
  present_.invariants.Restarted();
  const uint64_t life = lives_ + 1;
  present_.writer = journal_.Open(
      [this, life](uint64_t seq) {
        if (Coordinator* alive = OfLife(life)) {
          Step(*alive, event::Persisted{seq});
        }
      },
      [this, life] { CommitFailed(life); });
  Recover(journal_.rows().size());
}

void VirtualCluster::StartForgetfulCoordinator(size_t rows_lost,
                                               uint64_t starts) {
  KillFormerCoordinator();
  KillCoordinator();
  forgetful_ = true;
  const size_t rows = journal_.rows().size();
  Recover(rows - std::min(rows, rows_lost));
  for (uint64_t start = 1; start < starts; ++start) {
    BeginTerm(present_.engine->position().term);
  }
}

void VirtualCluster::KillCoordinator() {
  if (present_.engine == nullptr) return;
  if (!forgetful_) {
    durable_ = AllOnDisk() ? Durable(*present_.engine) : "";
    journal_.Crash(present_.writer);
  }
  present_.engine.reset();
}

// As in the server, a coordinator whose journal has failed may promise nothing
// any more.
void VirtualCluster::CommitFailed(uint64_t life) {
  if (former_.engine != nullptr && former_.life == life) {
    world_.Tell(
        [] { return "the former coordinator may not write, and ends"; });
    return former_.engine.reset();
  }
  world_.Tell([] { return "the journal failed, the coordinator ends"; });
  durable_.clear();
  present_.engine.reset();
}

// ---- two at once

void VirtualCluster::TakeOver() {
  if (!coordinator_up()) return;
  KillFormerCoordinator();
  former_ = std::move(present_);
  present_ = Coordinator();
  present_.invariants = former_.invariants;
  durable_.clear();
  for (Peer& peer : peers_) peer = static_cast<Peer>(world_.random() % 3);
  world_.Tell([] { return "another coordinator starts beside the first"; });
  StartCoordinator();
  if (!former_.stalled) LookAtLock();
}

void VirtualCluster::WakeFormerCoordinator() {
  if (former_.engine == nullptr || !former_.stalled) return;
  world_.Tell([] { return "the former coordinator wakes"; });
  former_.stalled = false;
  LookAtLock();
  for (const Event& event : std::exchange(former_.held, {})) {
    Step(former_, event);
  }
}

// The former coordinator checks its lock once a second if its loop is in time,
// which is not certain.
void VirtualCluster::LookAtLock() {
  constexpr double kLook_s_max = 3;
  world_.queue.After(kLook_s_max * world_.Draw(), [this, life = former_.life] {
    if (former_.engine == nullptr || former_.life != life) return;
    KillFormerCoordinator();
  });
}

void VirtualCluster::KillFormerCoordinator() {
  if (former_.engine == nullptr) return;
  world_.Tell([] { return "the former coordinator ends"; });
  journal_.Crash(former_.writer);
  former_.engine.reset();
}

// The state of every job that a successor has to know, as text.
std::string VirtualCluster::Durable(const Engine& engine) {
  std::string text;
  for (const auto& [id, job] : engine.jobs()) {
    absl::StrAppendFormat(&text, "job %d: %s, epoch %d, received %.9g s",
                          id.value(), std::string(JobStateName(job.state)),
                          job.epoch, job.received_s);
    for (const Worker& worker : job.workers) {
      absl::StrAppendFormat(&text, ", #%d on %s (%d) holds %d of %d",
                            worker.incarnation, worker.server,
                            static_cast<int>(worker.process), worker.held_epoch,
                            worker.held.value());
    }
    text += "\n";
  }
  return text;
}

}  // namespace gavel
