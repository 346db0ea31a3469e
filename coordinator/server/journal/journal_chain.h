// What is in a journal's file: the chain of rows, and snapshots of the engine
// that make recovery short. Reading and verifying only: `journal.h` writes.
// Called by the journal, and by whoever reads a file offline (replay, history),
// also while a coordinator writes it.
//
// The hash of a row is XXH3-128 over (previous hash, seq, term, time, bytes).
// It finds damage; it is not cryptographic and keeps nobody from rewriting the
// file. A snapshot after row N is hashed as if it were the row that follows
// row N, and holds the hash of row N: with it the chain can be verified from
// there on, though the rows before it may have been pruned.
//
// Not thread-safe. DATA_LOSS: damaged; names the row and the remedy.
#ifndef GAVEL_COORDINATOR_SERVER_JOURNAL_JOURNAL_CHAIN_H_
#define GAVEL_COORDINATOR_SERVER_JOURNAL_JOURNAL_CHAIN_H_

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/engine/action.h"
#include "coordinator/server/journal/sqlite.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel {

// A row is what the engine asks to persist: seq, term, time [s of the engine,
// finite], bytes.
using JournalRow = action::Persist;
using JournalHash = std::array<char, 16>;

// Of the row that follows the one with the hash `previous`; the first row's
// previous hash is all zeros.
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
// Of the snapshot `bytes` at `at`.
JournalHash SnapshotHash(const ChainEnd& at, std::string_view bytes);

// Where the rows that are kept begin: what came before has been pruned.
absl::StatusOr<ChainEnd> ReadChainBase(SqliteDatabase& database);
// Of snapshots that were written to their end, the newest first.
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
  // What had to be passed over, for the log; may be null.
  std::function<void(const std::string&)> note;
};
// The newest snapshot that is whole, and the rows after it; without any, all
// rows. Older rows are not looked at, for they decide nothing any more:
// VerifyRows does that.
absl::StatusOr<ChainEnd> RecoverChain(SqliteDatabase& database,
                                      const RecoverInto& into);

// Of `metadata`; empty when it is not there.
absl::StatusOr<std::string> ReadMetadata(SqliteDatabase& database,
                                         std::string_view key);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_JOURNAL_JOURNAL_CHAIN_H_
