#include "coordinator/server/journal/journal_chain.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "core/status.h"
#include "core/text.h"
#include "xxhash.h"

namespace gavel {
namespace {

constexpr char kRemedy[] =
    "; restore the file from a backup, or end all agents and jobs of this "
    "cluster, start with an empty state directory, and then start the agents";

constexpr char kRemedyBehindSnapshot[] =
    "; a later snapshot stands for it, so the coordinator goes on, but its "
    "disk may be failing: stop it, copy its state directory to another disk "
    "and start it there. Replays of that row will end with this";

// VerifyRows reads no more than this and one row.
constexpr size_t kVerifiedBytesMax = 1024 * 1024;

void AppendBits(std::string* bytes, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) {
    bytes->push_back(static_cast<char>(value >> shift & 0xff));
  }
}

// The row that `select` has found, if it follows on `end`, which it becomes.
absl::StatusOr<JournalRow> NextRow(SqliteStatement& select,
                                   std::string_view remedy, ChainEnd* end) {
  JournalRow row{select.Integer(0), select.Integer(1), select.Real(2),
                 std::string(select.Blob(3))};
  const uint64_t last = end->position.seq;
  if (row.seq != last + 1) {
    return absl::DataLossError(StrCat("row ", last + 1, " is missing, row ",
                                      row.seq, " follows row ", last, remedy));
  }
  const JournalHash hash = ChainHash(end->head, row);
  if (!std::ranges::equal(select.Blob(4), hash)) {
    return absl::DataLossError(
        StrCat("row ", row.seq,
               " is damaged: its hash does not follow from it and row ", last,
               remedy));
  }
  *end = {{row.term, row.seq}, row.time, hash};
  return row;
}

// The chain alone would not miss rows at its end.
absl::Status CheckEnd(SqliteDatabase& database, uint64_t last) {
  GAVEL_ASSIGN_OR_RETURN(const std::string expected,
                         ReadMetadata(database, "last_seq"));
  if (expected == StrCat(last)) return absl::OkStatus();
  return absl::DataLossError(StrCat("row ", last + 1,
                                    " is missing: the last row should be ",
                                    expected, kRemedy));
}

bool SetHash(std::string_view bytes, JournalHash* hash) {
  if (bytes.size() != hash->size()) return false;
  std::ranges::copy(bytes, hash->begin());
  return true;
}

absl::Status Damaged(uint64_t seq, std::string_view what) {
  return absl::DataLossError(
      StrCat("the snapshot after row ", seq, " is damaged: ", what));
}

// Where both are there, the row and the snapshot must agree.
absl::Status CheckAgainstRow(SqliteDatabase& database, const ChainEnd& at) {
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database.Prepare("SELECT hash FROM journal WHERE seq = ?",
                       at.position.seq));
  GAVEL_ASSIGN_OR_RETURN(const bool found, select.Step());
  if (!found || std::ranges::equal(select.Blob(0), at.head)) {
    return absl::OkStatus();
  }
  return Damaged(at.position.seq, "it is not of this chain");
}

absl::StatusOr<ChainEnd> FromNothing(SqliteDatabase& database,
                                     const RecoverInto& into) {
  GAVEL_ASSIGN_OR_RETURN(const ChainEnd base, ReadChainBase(database));
  if (base.position.seq > 0 && into.begin) {
    return absl::DataLossError(
        StrCat("no snapshot can be read, and the rows up to ",
               base.position.seq, " have been pruned", kRemedy));
  }
  if (into.begin) {
    GAVEL_RETURN_IF_ERROR(into.begin(nullptr));
  }
  return base;
}

}  // namespace

JournalHash ChainHash(const JournalHash& previous, const JournalRow& row) {
  std::string bytes(previous.begin(), previous.end());
  bytes.reserve(bytes.size() + 3 * sizeof(uint64_t) + row.row.size());
  AppendBits(&bytes, row.seq);
  AppendBits(&bytes, row.term);
  AppendBits(&bytes, std::bit_cast<uint64_t>(row.time));
  bytes += row.row;
  XXH128_canonical_t canonical;  // the same bytes on every CPU
  XXH128_canonicalFromHash(&canonical,
                           XXH3_128bits(bytes.data(), bytes.size()));
  JournalHash hash;
  static_assert(sizeof(canonical.digest) == sizeof(JournalHash));
  std::memcpy(hash.data(), canonical.digest, hash.size());
  return hash;
}

JournalHash SnapshotHash(const ChainEnd& at, std::string_view bytes) {
  return ChainHash(at.head, {at.position.seq, at.position.term, at.time,
                             std::string(bytes)});
}

absl::StatusOr<std::string> ReadMetadata(SqliteDatabase& database,
                                         std::string_view key) {
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database.Prepare(
          StrCat("SELECT value FROM metadata WHERE key = '", key, "'")));
  GAVEL_ASSIGN_OR_RETURN(const bool found, select.Step());
  return std::string(found ? select.Blob(0) : "");
}

absl::Status CheckJournalFormat(SqliteDatabase& database, int format_version) {
  const absl::StatusOr<std::string> version =
      ReadMetadata(database, "format_version");
  if (!version.ok()) {
    return absl::DataLossError(StrCat("is not a journal of a coordinator (",
                                      ToStd(version.status().message()), ")"));
  }
  int number = 0;
  const bool known = absl::SimpleAtoi(*version, &number) &&
                     number >= kOldestJournalFormat && number <= format_version;
  if (known) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("has format ", version->empty() ? "none" : *version,
             ", this version of gavel knows formats ", kOldestJournalFormat,
             " to ", format_version, "; use the version of gavel that wrote it",
             number > format_version ? ", or a newer one" : ""));
}

absl::StatusOr<ChainEnd> ReadChainBase(SqliteDatabase& database) {
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database.Prepare("SELECT seq, term, time, hash FROM journal_base"));
  ChainEnd base;
  GAVEL_ASSIGN_OR_RETURN(const bool found, select.Step());
  if (!found) return base;
  base.position = {select.Integer(1), select.Integer(0)};
  base.time = select.Real(2);
  if (SetHash(select.Blob(3), &base.head)) return base;
  return absl::DataLossError(
      StrCat("where its rows begin is damaged", kRemedy));
}

absl::StatusOr<std::vector<uint64_t>> ListSnapshots(SqliteDatabase& database) {
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database.Prepare("SELECT seq FROM snapshot ORDER BY seq DESC"));
  std::vector<uint64_t> list;
  while (true) {
    GAVEL_ASSIGN_OR_RETURN(const bool found, select.Step());
    if (!found) return list;
    list.push_back(select.Integer(0));
  }
}

absl::StatusOr<JournalSnapshot> ReadSnapshot(SqliteDatabase& database,
                                             uint64_t seq) {
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database.Prepare(
          "SELECT term, time, head, hash FROM snapshot WHERE seq = ?", seq));
  GAVEL_ASSIGN_OR_RETURN(const bool found, select.Step());
  if (!found) return Damaged(seq, "it is not there");
  JournalSnapshot snapshot;
  snapshot.at.position = {select.Integer(0), seq};
  snapshot.at.time = select.Real(1);
  JournalHash hash;
  if (!SetHash(select.Blob(2), &snapshot.at.head) ||
      !SetHash(select.Blob(3), &hash)) {
    return Damaged(seq, "its hash is no hash");
  }
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement parts,
      database.Prepare("SELECT bytes FROM snapshot_part WHERE seq = ? "
                       "ORDER BY part",
                       seq));
  while (true) {
    GAVEL_ASSIGN_OR_RETURN(const bool more, parts.Step());
    if (!more) break;
    snapshot.bytes += parts.Blob(0);
  }
  if (SnapshotHash(snapshot.at, snapshot.bytes) != hash) {
    return Damaged(seq, "its hash does not follow from it");
  }
  GAVEL_RETURN_IF_ERROR(CheckAgainstRow(database, snapshot.at));
  return snapshot;
}

absl::Status ReadRows(SqliteDatabase& database, const TakeRow& take,
                      ChainEnd* end) {
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database.Prepare("SELECT seq, term, time, event, hash FROM journal "
                       "WHERE seq > ? ORDER BY seq",
                       end->position.seq));
  while (true) {
    const absl::StatusOr<bool> found = select.Step();
    GAVEL_RETURN_IF_ERROR(
        Annotate(found.status(), StrCat("after row ", end->position.seq)));
    if (!*found) return CheckEnd(database, end->position.seq);
    GAVEL_ASSIGN_OR_RETURN(const JournalRow row, NextRow(select, kRemedy, end));
    GAVEL_RETURN_IF_ERROR(Annotate(take(row), StrCat("row ", row.seq)));
  }
}

absl::Status VerifyRows(SqliteDatabase& database, uint64_t last, uint64_t rows,
                        ChainEnd* end) {
  const uint64_t until = std::min(last, end->position.seq + rows);
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database.Prepare("SELECT seq, term, time, event, hash FROM journal "
                       "WHERE seq > ? AND seq <= ? ORDER BY seq",
                       end->position.seq, until));
  size_t bytes = 0;
  while (end->position.seq < until && bytes < kVerifiedBytesMax) {
    const std::string after = StrCat("after row ", end->position.seq);
    const absl::StatusOr<bool> found = select.Step();
    GAVEL_RETURN_IF_ERROR(Annotate(found.status(), after));
    if (!*found) {
      return absl::DataLossError(
          StrCat(after, " one is missing", kRemedyBehindSnapshot));
    }
    GAVEL_ASSIGN_OR_RETURN(const JournalRow row,
                           NextRow(select, kRemedyBehindSnapshot, end));
    bytes += row.row.size();
  }
  return absl::OkStatus();
}

absl::StatusOr<ChainEnd> RecoverChain(SqliteDatabase& database,
                                      const RecoverInto& into) {
  std::optional<ChainEnd> end;
  std::vector<uint64_t> snapshots;
  if (into.begin) {
    GAVEL_ASSIGN_OR_RETURN(snapshots, ListSnapshots(database));
  }
  for (const uint64_t seq : snapshots) {
    if (seq >= into.before) continue;
    const absl::StatusOr<JournalSnapshot> snapshot =
        ReadSnapshot(database, seq);
    const absl::Status begun =
        snapshot.ok() ? into.begin(&*snapshot) : snapshot.status();
    if (begun.ok()) {
      end = snapshot->at;
      break;
    }
    // What it does not know it would lose.
    if (absl::IsFailedPrecondition(begun)) return begun;
    if (into.note) {
      into.note(StrCat(ToStd(begun.message()), "; going on without it"));
    }
  }
  if (!end) {
    GAVEL_ASSIGN_OR_RETURN(end, FromNothing(database, into));
  }
  GAVEL_RETURN_IF_ERROR(ReadRows(database, into.take, &*end));
  return *end;
}

}  // namespace gavel
