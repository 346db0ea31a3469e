// The journal: the engine's durable events in one SQLite file (WAL, synchronous
// FULL), each row chained to the one before by a hash, with snapshots of the
// engine and the tables of history beside them (journal_chain.h,
// history_tables.h). Replaying it gives the engine again (design section 4).
// The coordinator reads it at its start; from then on its commit thread alone
// owns it.
//
// SQLite takes damage in the WAL for the WAL's end: rows that were committed
// are then missing without a trace here, which is what the journal positions in
// every message are for.
//
// One coordinator writes it, and the file lock sees to that. Should the lock be
// gone while its holder lives (its file removed, a file system that does not
// honour it), the one that starts later is the owner: each transaction looks
// whether the last row is still the one that this journal knows, and a writer
// that finds another one writes nothing any more.
//
// Not thread-safe, but may be handed from thread to thread. Every error names
// the file and what to do.
#ifndef GAVEL_COORDINATOR_SERVER_JOURNAL_JOURNAL_H_
#define GAVEL_COORDINATOR_SERVER_JOURNAL_JOURNAL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/server/journal/history_rows.h"
#include "coordinator/server/journal/journal_chain.h"
#include "coordinator/server/journal/sqlite.h"
#include "core/ids.h"
#include "core/units.h"
#include "runtime/files/file_lock.h"

namespace gavel {

struct JournalOptions {
  // Rows and history older than this (of the engine's clock, which stands still
  // while no coordinator runs) may be pruned, once two newer snapshots make
  // them unnecessary. kNever: nothing is pruned.
  double keep_s = 30 * 86400.0;
};

class Journal {
 public:
  // Version of the tables and of what is in them, kept in the file. Raised when
  // either changes, so that an older binary refuses what it would lose; files
  // of older versions become of this one when they are opened. 2: snapshots and
  // history. 3: users' shares, held launches and operators' commands in
  // snapshots, which are refused when they have more fields than are known.
  static constexpr int kFormatVersion = 3;
  // Snapshots that are kept: the newest, and one to fall back to.
  static constexpr size_t kSnapshotsKept = 2;
  // Rows that one step of Maintain prunes.
  static constexpr uint64_t kPrunedAtOnce = 1000;
  // Rows that one step of VerifySome reads.
  static constexpr uint64_t kVerifiedAtOnce = 100;

  // Creates the file when there is none (its directory must exist), mode 0600,
  // and takes the lock PATH.lock for as long as the Journal lives.
  // ALREADY_EXISTS: another coordinator has it, named by its pid.
  // FAILED_PRECONDITION: written by a newer version. DATA_LOSS: not a journal,
  // or damaged.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(
      const std::string& path, JournalOptions options = {});

  // As RecoverChain; once, before the first Append.
  absl::Status Recover(const RecoverInto& into);

  // The term of a start: above the journal's last one and above any that was
  // begun here, also where the journal has lost the rows of it since. It is on
  // disk, in PATH.term, before anybody hears of it. DATA_LOSS: that file says
  // no term. After Recover.
  // `term_min`: it is at least that.
  absl::StatusOr<uint64_t> BeginTerm(uint64_t term_min = 0) const;

  // Makes room on disk for the WAL in its usual length, which takes a third off
  // the time of each Append until the WAL has had that length; where there is
  // no room it grows as it must. After Recover. After a failure as after
  // Append's.
  absl::Status ReserveWal();

  // Commits all of `rows` and what they mean for the history, or none: on disk
  // when it returns OK. They follow on each other and on what is there. After a
  // failure nothing is ever written again, since a failed fsync must not be
  // retried: every later call returns the same error. ABORTED: another
  // coordinator has written since.
  absl::Status Append(std::span<const JournalRow> rows,
                      std::span<const HistoryRow> history = {});

  // `bytes` are the engine after a row that is there, or after the last one.
  // Maintain() writes them; until then, or when the disk is full, the snapshots
  // before count.
  void StartSnapshot(JournalSnapshot snapshot);
  void StartSnapshot(std::string bytes) {
    StartSnapshot(JournalSnapshot{end_, std::move(bytes)});
  }
  // One short transaction of what is to be done besides rows: writes a part of
  // the snapshot, removes what is no longer needed. False: nothing is left.
  absl::StatusOr<bool> Maintain();

  // Verifies some of the rows that Recover passed over, as a snapshot stands
  // for them. False: none is left. DATA_LOSS: names the row; no more of them
  // are verified, and all else goes on.
  absl::StatusOr<bool> VerifySome();

  // ABORTED: another coordinator has taken the lock since, or its file is gone.
  // May be called by any thread.
  absl::Status CheckLock() const;

  const std::string& path() const { return path_; }
  // 16 hexadecimal digits, random, made with the file: what this journal's job
  // ids are told apart by from those of any other.
  const std::string& cluster_id() const { return cluster_id_; }
  // Of the last row; zeros when there is none.
  JournalPosition position() const { return end_.position; }
  Time last_time() const { return end_.time; }
  const ChainEnd& end() const { return end_; }

 private:
  // On its way into the file, part by part.
  struct Snapshot {
    JournalSnapshot content;
    size_t parts_written = 0;
  };

  Journal(std::string path, JournalOptions options, FileLock lock,
          SqliteDatabase database);
  absl::Status Prepare();
  template <class Body>
  absl::Status InTransaction(const Body& body);
  absl::Status CheckLastRow();
  absl::Status InsertRows(std::span<const JournalRow> rows);
  absl::Status InsertRow(SqliteStatement& insert, const JournalRow& row);
  absl::Status WritePart();
  absl::StatusOr<bool> RemoveOldPart();
  absl::StatusOr<bool> PruneSome();
  absl::StatusOr<bool> MaintainOnce();
  absl::Status VerifyOnce();
  absl::Status Broke(const absl::Status& status);
  absl::Status Error(const absl::Status& status) const;

  std::string path_;
  std::string cluster_id_;
  JournalOptions options_;
  FileLock lock_;
  SqliteDatabase database_;
  absl::Status broken_;  // what the first failure said
  bool was_read_ = false;
  ChainEnd end_;
  ChainEnd verified_;          // of the rows before the snapshot
  uint64_t snapshot_seq_ = 0;  // that it recovered from
  std::optional<Snapshot> snapshot_;
  bool maintained_ = false;  // nothing is left to remove
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_JOURNAL_JOURNAL_H_
