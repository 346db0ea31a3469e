#include "coordinator/server/journal/recorder.h"

#include <utility>

#include "coordinator/engine/event_codec.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {

RecoverInto RecoverBoth(const EngineOptions& options, Engine* engine,
                        HistoryProjector* projector, uint64_t* rows) {
  RecoverInto into;
  into.begin = [=](const JournalSnapshot* snapshot) {
    *rows = 0;
    if (snapshot != nullptr) {
      return UnpackSnapshot(snapshot->bytes, options, engine, projector);
    }
    *engine = Engine(options);
    *projector = HistoryProjector();
    return absl::OkStatus();
  };
  into.take = [=](const JournalRow& row) {
    GAVEL_ASSIGN_OR_RETURN(const Event event, DecodeEvent(row.row));
    engine->Replay(row.seq, row.term, row.time, event);
    projector->Observe(row.seq, row.time, event, *engine);  // is in the tables
    ++*rows;
    return absl::OkStatus();
  };
  return into;
}

absl::StatusOr<Recorder::Recovered> Recorder::Start(
    std::unique_ptr<Journal> journal, const EngineOptions& engine_options,
    Engine* engine, const Note& note, std::function<void()> notify,
    uint64_t term_min) {
  RecoverInto into = RecoverBoth(engine_options, engine, &projector_, &rows_);
  into.note = note;
  GAVEL_RETURN_IF_ERROR(journal->Recover(into));
  GAVEL_ASSIGN_OR_RETURN(const uint64_t term, journal->BeginTerm(term_min));
  const JournalPosition last = journal->position();
  if (term > last.term + 1 && term_min == 0) {
    note(StrCat("term ", term - 1,
                " was begun here and is not in it: that coordinator ended "
                "before it wrote anything, or the end of the journal was lost. "
                "Agents and workers that saw more of it will say so, and stop "
                "this one"));
  }
  const Recovered recovered{last, term, journal->last_time(), rows_};
  commits_ =
      std::make_unique<CommitThread>(std::move(journal), std::move(notify));
  Engine follower(engine_options);
  GAVEL_ASSIGN_OR_RETURN(const std::string bytes, engine->Snapshot());
  GAVEL_RETURN_IF_ERROR(follower.Restore(bytes));
  snapshots_ = std::make_unique<SnapshotThread>(
      std::move(follower), projector_, [this](JournalSnapshot snapshot) {
        commits_->Snapshot(std::move(snapshot));
      });
  return recovered;
}

void Recorder::Append(action::Persist&& row, const Engine& engine) {
  ++rows_;
  bytes_ += row.row.size();
  std::vector<HistoryRow> history =
      projector_.Observe(row.seq, row.time, *row.event, engine);
  snapshots_->Append({row.seq, row.term, row.time, std::move(row.event)});
  row.event.reset();
  commits_->Append(std::move(row), std::move(history));
}

void Recorder::MaybeSnapshot(const Engine& engine) {
  const ChainEnd end = commits_->state().end;
  const bool due =
      !engine.halted() && (rows_ >= options_.rows || bytes_ >= options_.bytes);
  if (!due && end.position.seq == told_seq_) return;
  told_seq_ = end.position.seq;
  snapshots_->Persisted(end, due);
  if (due) rows_ = bytes_ = 0;
}

std::vector<std::string> Recorder::Troubles() const {
  std::vector<std::string> troubles = commits_->state().Troubles();
  if (snapshots_->lost()) {
    troubles.emplace_back(
        "no snapshots are made any more, for the thread that makes them does "
        "not keep up; start the coordinator again when it has less to do");
  }
  return troubles;
}

}  // namespace gavel
