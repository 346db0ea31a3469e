// Measured throughputs of job types by accelerator type, alone and in pairs:
// Gavel's throughput file, unchanged, read and written, with more levels of
// locality where a file has them. Given text, not files.
// A table is a value that is not changed once parsed: thread-safe.
#ifndef GAVEL_COORDINATOR_WORKLOAD_THROUGHPUT_TABLE_H_
#define GAVEL_COORDINATOR_WORKLOAD_THROUGHPUT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/locality.h"

namespace gavel {

inline constexpr size_t kThroughputBytesMax = size_t{1} << 30;
inline constexpr double kStepsPerSecondMax = 1e9;

struct ThroughputFigures;

class ThroughputTable {
 public:
  // Gavel's JSON: { WORKER_TYPE: { "('JOB TYPE', SCALE)": { "null": steps/s,
  // "('OTHER', SCALE)": [steps/s, steps/s of the other] } } }. WORKER_TYPE may
  // end in "_unconsolidated": a gang spread over servers, or, without pairs, in
  // "@group" or "@rack" (core/locality.h). INVALID_ARGUMENT names source, and
  // the worker type and row of a bad figure (negative, above
  // kStepsPerSecondMax, not a number), the worker type of an unknown level, or
  // the line and column of malformed JSON.
  static absl::StatusOr<ThroughputTable> Parse(std::string_view json,
                                               std::string_view source);

  // Rows are numbered, so that a caller looks a name up once.
  using Row = size_t;
  std::optional<Row> FindRow(std::string_view job_type, int scale_factor) const;
  // Accelerator types without their levels, sorted.
  const std::vector<std::string>& types() const { return types_; }
  // Index into types(); nullopt when the table does not know it.
  std::optional<size_t> FindType(std::string_view type) const;

  // steps/s of the whole job, all of its accelerators together. 0: cannot run
  // there. nullopt: the table has no figure of that level.
  std::optional<double> Alone(Row row, size_t type,
                              Locality level = Locality::kServer) const;
  // The same at the level, or where it has no figure, at its substitute.
  std::optional<double> AloneAsAt(Row row, size_t type, Locality level) const;
  // steps/s of `row` and of `other` when they share. 0 for both unless both can
  // share. Same scale factor. nullopt: the table has no figure.
  std::optional<std::pair<double, double>> Together(
      Row row, Row other, size_t type, bool consolidated = true) const;
  bool has_pairs() const { return has_pairs_; }
  bool has_unconsolidated() const { return has_unconsolidated_; }
  // It has figures of groups or racks.
  bool has_levels() const { return !alone_at_.empty(); }
  // (job type, scale factor) of a row; all rows are [0, rows()).
  const std::pair<std::string, int>& NameOf(Row row) const {
    return names_[row];
  }
  size_t rows() const { return names_.size(); }

  // All of it, to be written down; and back (INVALID_ARGUMENT: the parts do not
  // fit each other). `alone` (below 0: no figure) and `partners`: [types x
  // {consolidated, spread} x names]; a partner is a row and the steps/s of
  // both. `alone_at`: [types x {group, rack} x names], or empty.
  struct Figures {
    std::vector<std::string> types;
    std::vector<std::pair<std::string, int>> names;
    std::vector<double> alone;
    std::vector<std::vector<std::pair<uint64_t, std::pair<double, double>>>>
        partners;
    bool has_unconsolidated = false;
    std::vector<double> alone_at;
  };
  // Number of the table of that type and level, from 0: of `alone` and
  // `partners` for the two levels that are Gavel's, of `alone_at` for others.
  static size_t TableOf(size_t type, Locality level) {
    return type * 2 + (level >= Locality::kRack ? 1 : 0);
  }
  static bool IsGavels(Locality level) {
    return level == Locality::kServer || level == Locality::kCluster;
  }
  Figures ToFigures() const;
  static absl::StatusOr<ThroughputTable> FromFigures(Figures figures);

 private:
  struct NameLess {
    using is_transparent = void;
    using Name = std::pair<std::string_view, int>;
    bool operator()(const Name& a, const Name& b) const { return a < b; }
  };
  struct Partner {
    Row row;
    std::pair<double, double> steps_per_s;
  };

  ThroughputTable() = default;
  explicit ThroughputTable(ThroughputFigures figures);

  std::vector<std::string> types_;
  std::vector<std::pair<std::string, int>> names_;
  std::map<std::pair<std::string, int>, Row, NameLess> row_of_;
  std::vector<double> alone_;                   // [tables x rows]
  std::vector<double> alone_at_;                // the same, or empty
  std::vector<std::vector<Partner>> partners_;  // [tables x rows], by row
  bool has_pairs_ = false;
  bool has_unconsolidated_ = false;
};

// Parsed again, it is the same table: figures are written with all their
// digits. Types and rows without any figure are left out.
std::string WriteThroughputs(const ThroughputTable::Figures& figures);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_THROUGHPUT_TABLE_H_
