// `gavel profile`: the workloads of a file and the cells that they make on the
// accelerators of this machine, the measurement of each cell, alone and in
// pairs, and the table of results. RunProfile runs programs; all else is pure,
// of values, and thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_PROFILE_RUN_H_
#define GAVEL_COORDINATOR_CLI_PROFILE_RUN_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/workload/cluster_spec.h"
#include "coordinator/workload/throughput_table.h"
#include "core/locality.h"
#include "core/messages.h"

namespace gavel {

// ---- workloads and cells

struct ProfileWorkload {
  std::string type;  // the row's name: no quote, comma or control character
  std::vector<std::string> argv;
  std::string working_directory;  // as written; empty: that of the file
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<int> scale_factors = {1};
  bool pairs = true;  // also beside others
};

// [[workload]] with `type`, `command`, and if need be `scale_factors`,
// `working_directory`, `pairs`, [workload.environment]. INVALID_ARGUMENT as
// "SOURCE:LINE:COLUMN: what; remedy".
absl::StatusOr<std::vector<ProfileWorkload>> ParseWorkloads(
    std::string_view toml, std::string_view source);

// One thing to be measured.
struct ProfileCell {
  size_t workload = 0;
  std::optional<size_t> beside;  // an index too; it may be the same workload
  int scale_factor = 1;
  std::string accelerator;              // type
  Locality level = Locality::kServer;   // of `places`
  std::vector<AcceleratorInfo> places;  // by rank
  // On each of these a copy of the workload trains meanwhile, alone.
  std::vector<AcceleratorInfo> neighbours = {};
};

// By type, then scale factor: alone at each level, and in pairs (on one
// server). A gang at a level is at no tighter one: over two groups of a server,
// two servers of a rack, two racks. Where the groups of servers or the racks
// leave only one of two levels, that is measured as one of Gavel's: on one
// server, or spread. A cell that does not fit on `servers` is left out and
// named in `left_out`.
std::vector<ProfileCell> CellsOf(const std::vector<ProfileWorkload>& workloads,
                                 const std::vector<ServerSpec>& servers,
                                 bool pairs,
                                 std::vector<std::string>* left_out);

// The neighbours of each cell: all accelerators that it does not use itself.
void KeepOthersBusy(const std::vector<ServerSpec>& servers,
                    std::vector<ProfileCell>* cells);

// ---- the results: rows of a CSV table, and Gavel's JSON made of them

// Which figure it is; `beside`: another workload, empty: alone.
struct ProfileKey {
  std::string workload;
  int scale_factor = 1;
  std::string accelerator;
  Locality level = Locality::kServer;
  std::string beside;
  friend auto operator<=>(const ProfileKey&, const ProfileKey&) = default;
};

struct ProfileFigure {
  // The speed of the whole job. 0: it cannot run there, and the note says why.
  // Below 0: it was not measured and will be tried again.
  double steps_per_s = -1;
  // Half of the 95 % confidence interval, steps/s.
  double half_width = 0;
  int samples = 0;     // reports that it is the mean of
  double seconds = 0;  // that they cover
  std::string note;
};

class ProfileResults {
 public:
  // Comma separated, with a line of titles. INVALID_ARGUMENT as "SOURCE:LINE:
  // what; remedy".
  static absl::StatusOr<ProfileResults> Parse(std::string_view csv,
                                              std::string_view source);
  std::string ToCsv() const;

  void Set(const ProfileKey& key, ProfileFigure figure);
  // Null: not measured, or to be measured again.
  const ProfileFigure* Find(const ProfileKey& key) const;
  const std::map<ProfileKey, ProfileFigure>& figures() const {
    return figures_;
  }
  // FAILED_PRECONDITION: nothing was measured.
  absl::StatusOr<ThroughputTable> ToTable() const;

 private:
  std::map<ProfileKey, ProfileFigure> figures_;
};

// Mean of samples, each of `weight_s` seconds, and half of the 95 % confidence
// interval of that mean (Student's t over the samples; 0 for fewer than two).
struct ProfileSample {
  double steps_per_s = 0;
  double weight_s = 0;
};
ProfileFigure FigureOf(const std::vector<ProfileSample>& samples);

// ---- the measurement

struct ProfileOptions {
  std::string table;     // results, kept after each cell
  std::string output;    // Gavel's JSON of them; empty: none
  std::string folder;    // of the programs' output and checkpoints
  double warm_up_s = 5;  // of training, discarded
  double measure_s = 20;
  // A cell is measured until half of its confidence interval is at most this
  // part of the mean, for at most kLongestFactor times measure_s.
  double precision = 0.02;
  // For the first step, from the start of the program.
  double timeout_s = 120;
  const std::atomic<bool>* stop = nullptr;  // borrowed; true: give up
  // `done` of `all` cells are known, `what` is measured now.
  std::function<void(size_t done, size_t all, const std::string& what)> show;
};
inline constexpr double kLongestFactor = 3;

// Measures the cells that the table lacks, one after the other, and writes the
// table after each. One call at a time; the programs die with its thread.
// CANCELLED: stopped; the same call resumes. ABORTED: some could not be
// measured; the message says why, and the rest is in the table. `figures`: how
// many the table has in the end.
absl::Status RunProfile(const std::vector<ProfileWorkload>& workloads,
                        const std::vector<ProfileCell>& cells,
                        const ProfileOptions& options, size_t* figures);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_PROFILE_RUN_H_
