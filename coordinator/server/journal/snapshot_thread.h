// Makes the journal's snapshots off the event loop. It replays durable rows
// into its own engine and history projector; a snapshot is these two as bytes.
// The recorder owns one.
//
// Thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_JOURNAL_SNAPSHOT_THREAD_H_
#define GAVEL_COORDINATOR_SERVER_JOURNAL_SNAPSHOT_THREAD_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/event.h"
#include "coordinator/server/journal/history_projector.h"
#include "coordinator/server/journal/journal_chain.h"
#include "core/units.h"

namespace gavel {

class SnapshotThread {
 public:
  // It gives up when this many rows wait: it does not keep up.
  static constexpr size_t kRowsMax = 256 * 1024;

  // Called on the thread with each snapshot; it must not block.
  using Take = std::function<void(JournalSnapshot)>;

  // `engine` and `projector` as they are after the last row of the journal. At
  // its end a snapshot that is not yet made is forgotten.
  SnapshotThread(Engine engine, HistoryProjector projector, Take take);

  struct Row {
    uint64_t seq = 0;
    uint64_t term = 0;
    Time time = 0;
    std::shared_ptr<const Event> event;
  };
  // In the order of seq.
  void Append(Row row);
  // It has given up; there are no snapshots until the next start.
  bool lost() const;
  // All rows up to `end` are on disk; `snapshot`: one is to be made of them. It
  // is passed over while another one is under way.
  void Persisted(const ChainEnd& end, bool snapshot);

 private:
  void Work(const std::stop_token& stop);
  // Waits for something to do. False: the end.
  bool TakeSome(const std::stop_token& stop, std::deque<Row>* rows,
                std::optional<ChainEnd>* snapshot);

  const Take take_;
  Engine engine_;  // the thread's, and the next
  HistoryProjector projector_;
  // As in CommitThread, of the standard library.
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable_any changed_;
  std::deque<Row> rows_;
  uint64_t persisted_ = 0;
  std::optional<ChainEnd> wanted_;
  bool lost_ = false;
  std::jthread thread_;
};

// The engine and the projector as they are written into a journal's snapshot.
absl::StatusOr<std::string> PackSnapshot(const Engine& engine,
                                         const HistoryProjector& projector);
// Into an engine made anew from `options`. DATA_LOSS: both are of no use.
// FAILED_PRECONDITION: a newer version made it.
absl::Status UnpackSnapshot(std::string_view bytes,
                            const EngineOptions& options, Engine* engine,
                            HistoryProjector* projector);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_JOURNAL_SNAPSHOT_THREAD_H_
