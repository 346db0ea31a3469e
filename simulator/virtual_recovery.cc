// The coordinator's life: what it starts from, and what it leaves behind.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "coordinator/engine/event_codec.h"
#include "core/text.h"
#include "simulator/virtual_cluster.h"

namespace gavel {

// From the snapshot, which stands for the first `from` rows (0: without), and
// the rows behind it.
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

// Its clock goes on where the journal ended, as the server's does.
void VirtualCluster::Recover(size_t rows) {
  if (snapshot_.rows > rows) snapshot_ = {};
  engine_ = Recovered(snapshot_.rows, rows);
  ++engine_life_;
  armed_engine_ = kNever;
  stalled_ = false;
  held_.clear();
  const uint64_t term = rows == 0 ? 0 : journal_.rows()[rows - 1].term;
  started_at_ = rows == 0 ? 0 : journal_.rows()[rows - 1].time;
  clock_.rate = options_.coordinator_clock_rate;
  clock_.offset = started_at_ - clock_.rate * world_.now();
  const std::string recovered = Durable(*engine_);
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
  StepEngine(event::CoordinatorStarted{term + 1});
}

// When nothing is under way, as the server does.
void VirtualCluster::MaybeSnapshot() {
  const size_t rows = journal_.rows().size();
  if (options_.snapshot_rows == 0 || forgetful_ || engine_->halted() ||
      rows < snapshot_.rows + options_.snapshot_rows ||
      journal_.rows().back().seq != engine_->position().seq) {
    return;
  }
  absl::StatusOr<std::string> bytes = engine_->Snapshot();
  if (bytes.ok()) snapshot_ = {rows, *std::move(bytes)};
}

void VirtualCluster::StartCoordinator() {
  if (coordinator_up()) return;
  forgetful_ = false;
  invariants_.Restarted();
  const uint64_t life = engine_life_ + 1;
  journal_.Open(
      [this, life](uint64_t seq) {
        if (life == engine_life_) StepEngine(event::Persisted{seq});
      },
      [this] { CommitFailed(); });
  Recover(journal_.rows().size());
}

void VirtualCluster::StartForgetfulCoordinator(size_t rows_lost) {
  KillCoordinator();
  forgetful_ = true;
  const size_t rows = journal_.rows().size();
  Recover(rows - std::min(rows, rows_lost));
}

void VirtualCluster::KillCoordinator() {
  if (engine_ == nullptr) return;
  if (!forgetful_) {
    const bool all_on_disk =
        !journal_.rows().empty() &&
        journal_.rows().back().seq == engine_->position().seq;
    durable_ = all_on_disk ? Durable(*engine_) : "";
    journal_.Crash();
  }
  engine_.reset();
}

// What a successor has to know of every job.
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
