// The journal's file. The functions at the beginning read and verify it, also
// while a coordinator writes it; the class Journal writes it.
#ifndef GAVEL_COORDINATOR_SERVER_JOURNAL_H_
#define GAVEL_COORDINATOR_SERVER_JOURNAL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/engine/event.h"
#include "coordinator/server/history.h"
#include "core/ids.h"
#include "core/units.h"
#include "runtime/database/sqlite.h"
#include "runtime/files/files.h"

namespace gavel {

// Reads and verifies a journal's file: the chain of rows, and the snapshots of
// the engine that make recovery short. The journal uses these functions, and so
// do commands that read a file offline (replay, history), also while a
// coordinator writes it.
//
// The hash of a row is XXH3-128 over (previous hash, seq, term, time, bytes).
// It finds damage; it is not cryptographic and keeps nobody from rewriting the
// file. A snapshot after row N is hashed as if it were the row that follows row
// N, and holds the hash of row N: with it the chain can be verified from there
// on, though the rows before it may have been pruned.
//
// Not thread-safe. DATA_LOSS: damaged; names the row and the remedy.

// A row is what the engine asks to persist: seq, term, time [s of the engine,
// finite], bytes.
using JournalRow = action::Persist;
using JournalHash = std::array<char, 16>;

// The hash of the row that follows the one with the hash `previous`. The
// previous hash of the first row is all zeros.
JournalHash ChainHash(const JournalHash& previous, const JournalRow& row);

// How far the chain has been followed; at first: before row 1.
struct ChainEnd {
  JournalPosition position;
  Time time = 0;
  JournalHash head{};
};

// A snapshot is kept in parts of this size, each written in a transaction of
// its own, so that rows never wait for more than one of them.
inline constexpr size_t kSnapshotPartBytes = 256 * 1024;

struct JournalSnapshot {
  ChainEnd at;
  std::string bytes;
};
// The hash of the snapshot `bytes` at `at`.
JournalHash SnapshotHash(const ChainEnd& at, std::string_view bytes);

// Where the rows that are kept begin: what came before has been pruned.
absl::StatusOr<ChainEnd> ReadChainBase(SqliteDatabase& database);
// Lists the complete snapshots, the newest first.
absl::StatusOr<std::vector<uint64_t>> ListSnapshots(SqliteDatabase& database);
absl::StatusOr<JournalSnapshot> ReadSnapshot(SqliteDatabase& database,
                                             uint64_t seq);

// The oldest that readers still read.
inline constexpr int kOldestJournalFormat = 2;
// FAILED_PRECONDITION: of an older format than that, or of a newer one than
// `format_version`; DATA_LOSS: no journal at all.
absl::Status CheckJournalFormat(SqliteDatabase& database, int format_version);

using TakeRow = std::function<absl::Status(const JournalRow&)>;
// Hands on the rows after `end`, each verified, and moves `end` on. An error of
// `take` is returned as it is, with the row's number.
absl::Status ReadRows(SqliteDatabase& database, const TakeRow& take,
                      ChainEnd* end);

// Follows the chain from `end` over the next rows, which a snapshot stands for:
// `rows` or a mebibyte at most, none after `last`. Moves `end` on.
absl::Status VerifyRows(SqliteDatabase& database, uint64_t last, uint64_t rows,
                        ChainEnd* end);

// How to come back from a journal.
struct RecoverInto {
  // Begin from this one (null: from nothing). Called again, with an older one,
  // when it returns an error. Not set: snapshots are not used.
  std::function<absl::Status(const JournalSnapshot*)> begin;
  TakeRow take;  // then these
  // Snapshots after this row or a later one are not used.
  uint64_t before = std::numeric_limits<uint64_t>::max();
  // Called with a line for the log about each thing that had to be skipped; may
  // be null.
  std::function<void(const std::string&)> note;
};
// The newest snapshot that is whole, and the rows after it; without any, all
// rows. Older rows are not looked at, for they decide nothing any more:
// VerifyRows does that.
absl::StatusOr<ChainEnd> RecoverChain(SqliteDatabase& database,
                                      const RecoverInto& into);

// Reads a value of `metadata`; empty when it is missing.
absl::StatusOr<std::string> ReadMetadata(SqliteDatabase& database,
                                         std::string_view key);

struct JournalOptions {
  // Rows and history older than this (of the engine's clock, which stands still
  // while no coordinator runs) may be pruned, once two newer snapshots make
  // them unnecessary. kNever: nothing is pruned.
  double keep_s = 30 * 86400.0;
};

// The journal: the engine's durable events in one SQLite file (WAL, synchronous
// FULL), each row chained to the one before by a hash, with snapshots of the
// engine and the tables of history beside them (see the functions above and
// history.h). Replaying it gives the engine again.
// The coordinator reads it at its start; from then on its commit thread alone
// owns it.
//
// SQLite takes damage in the WAL for its end: committed rows are then missing
// without a trace in the file. The journal positions in messages reveal that.
//
// The file lock ensures a single writer. If the lock is lost (its file was
// removed, or the file system does not honour it), the coordinator that started
// last is the owner: each transaction checks that the last row is still the one
// that this journal knows, and a writer that finds another stops writing.
//
// Not thread-safe, but may be handed from thread to thread. Every error names
// the file and what to do.
class Journal {
 public:
  // The version of the tables and of their content, kept in the file. It is
  // raised when either changes, so that an older binary refuses a file whose
  // data it would lose. Files of older versions are converted when they are
  // opened. 2: snapshots and history. 3: users' shares, held launches and
  // operators' commands in snapshots, which are refused when they have more
  // fields than are known.
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

  // The term of this start, at least `term_min`: above the journal's last one
  // and above any that was begun here, even if the journal has lost its rows.
  // Durable in PATH.term before it is used. DATA_LOSS: that file has no term.
  // After Recover.
  absl::StatusOr<uint64_t> BeginTerm(uint64_t term_min = 0) const;

  // Extends the WAL to its usual length, which makes the first Appends a third
  // faster. Does nothing on a full disk. Called after Recover; returns the
  // errors of Append.
  absl::Status ReserveWal();

  // Commits `rows` and their history, all or nothing: durable when it returns
  // OK. The rows' seq continue the journal's. After a failure nothing is ever
  // written again, since a failed fsync must not be retried: every later call
  // returns the same error. ABORTED: another coordinator has written since.
  absl::Status Append(std::span<const JournalRow> rows,
                      std::span<const HistoryRow> history = {});

  // Maintain() writes the snapshot, of the engine after a committed row. Until
  // then, or when the disk is full, the earlier snapshots count.
  void StartSnapshot(JournalSnapshot snapshot);
  void StartSnapshot(std::string bytes) {
    StartSnapshot(JournalSnapshot{end_, std::move(bytes)});
  }
  // One short transaction: writes a part of the snapshot, or removes old parts
  // or rows. False: nothing is left to do.
  absl::StatusOr<bool> Maintain();

  // Verifies some of the rows before the snapshot that Recover began from.
  // False: none is left. DATA_LOSS names the row; verification then ends.
  absl::StatusOr<bool> VerifySome();

  // ABORTED: another coordinator has taken the lock since, or its file is gone.
  // May be called by any thread.
  absl::Status CheckLock() const;

  const std::string& path() const { return path_; }
  // 16 random hexadecimal digits, made with the file: they distinguish this
  // journal's job ids from those of any other.
  const std::string& cluster_id() const { return cluster_id_; }
  // The position and time of the last row; zeros when there is none.
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

#endif  // GAVEL_COORDINATOR_SERVER_JOURNAL_H_
