#include "study/profile/profile_run.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_join.h"
#include "coordinator/cli/files.h"
#include "coordinator/workload/throughput_writer.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/text_file.h"
#include "runtime/stopwatch.h"
#include "runtime/transport/lease_granter.h"
#include "study/profile/live_workloads.h"

namespace gavel::study {
namespace {

namespace fs = std::filesystem;

constexpr double kPoll_s = 0.05;
constexpr size_t kTableBytesMax = size_t{64} << 20;
// With fewer samples their spread is not known.
constexpr size_t kSamplesMin = 3;

std::string TitleOf(const ProfileCell& cell,
                    const std::vector<ProfileWorkload>& workloads) {
  std::string title = workloads[cell.workload].type;
  if (cell.beside) {
    StrAppend(&title, " beside ", workloads[*cell.beside].type);
  }
  StrAppend(&title, " on ", cell.scale_factor, " ", cell.accelerator);
  return cell.spread ? title + ", spread" : title;
}

// The keys of one cell: two when it is a pair, each beside the other.
std::vector<ProfileKey> KeysOf(const ProfileCell& cell,
                               const std::vector<ProfileWorkload>& workloads) {
  ProfileKey key{workloads[cell.workload].type, cell.scale_factor,
                 cell.accelerator, cell.spread, ""};
  if (!cell.beside) return {key};
  ProfileKey other = key;
  key.beside = workloads[*cell.beside].type;
  other.workload = key.beside;
  other.beside = key.workload;
  return {key, other};
}

// One cell from the start of its programs to their end.
class CellRun {
 public:
  CellRun(const std::vector<ProfileWorkload>& workloads,
          const ProfileCell& cell, const ProfileOptions& options,
          LeaseGranter& leases)
      : workloads_(workloads),
        cell_(cell),
        options_(options),
        leases_(leases) {}

  // One figure per measured job. CANCELLED: stopped.
  absl::StatusOr<std::vector<ProfileFigure>> Run() {
    std::vector<LeasedJob> jobs(measured());
    for (LeasedJob& job : jobs) {
      job.terms.places = cell_.places;
      job.terms.slots = cell_.beside ? 1 : 2;
    }
    for (const AcceleratorInfo& info : cell_.neighbours) {
      jobs.emplace_back().terms.places = {info};
    }
    const size_t count = jobs.size();
    const uint64_t incarnation = leases_.Begin(std::move(jobs));
    std::string why;
    for (size_t job = 0; job < count && why.empty(); ++job) {
      const absl::Status started = Start(job, incarnation);
      if (!started.ok()) why = std::string(started.message());
    }
    while (why.empty() && !IsEnough()) {
      if (options_.stop != nullptr && *options_.stop) {
        return absl::CancelledError("");
      }
      leases_.Turn(clock_.elapsed_s(), kPoll_s);
      why = WhyOver();
    }
    leases_.Turn(clock_.elapsed_s(), 0);
    // A failure may have come last.
    if (why.empty()) why = WhyOver();
    return Figures(why);
  }

 private:
  const ProfileWorkload& WorkloadOf(size_t job) const {
    return workloads_[job == 1 && cell_.beside ? *cell_.beside
                                               : cell_.workload];
  }
  // The jobs after these are neighbours, which only keep the server busy.
  size_t measured() const { return cell_.beside ? 2 : 1; }

  absl::Status Start(size_t job, uint64_t incarnation) {
    LiveLaunch launch;
    launch.worker.server = "profile";
    launch.worker.job_name = StrCat("profile-", job + 1);
    launch.worker.checkpoint_directory =
        StrCat(options_.folder, "/checkpoints-", job + 1);
    launch.worker.worker = {JobId(job + 1), 0, incarnation};
    launch.places = leases_.jobs()[job].terms.places;
    launch.endpoint = leases_.endpoint();
    launch.run_directory = options_.folder;
    launch.output_path = StrCat(options_.folder, "/job-", job + 1, ".log");
    std::error_code error;
    fs::remove_all(launch.worker.checkpoint_directory, error);
    GAVEL_RETURN_IF_ERROR(MakeDirectory(launch.worker.checkpoint_directory));
    fs::remove(launch.output_path, error);
    return StartWorkload(WorkloadOf(job), std::move(launch), &children_);
  }

  // Why the run is over; empty: it is not.
  std::string WhyOver() const {
    for (const LeasedJob& job : leases_.jobs()) {
      if (job.out_of_memory) return "out of memory";
      if (!job.error.empty()) return StrCat("failed: ", job.error);
    }
    for (const auto& child : children_) {
      if (!child->Ended()) continue;
      const int code = child->Collect();
      if (code == 0) return "its program ended; make it train for longer";
      return code > 0 ? StrCat("its program exited with ", code)
                      : StrCat("its program died of signal ", -code);
    }
    for (const LeasedJob& job : leases_.jobs()) {
      if (clock_.elapsed_s() - job.stepped_at <= options_.timeout_s) continue;
      return job.steps_done == 0
                 ? StrCat("no steps within ", options_.timeout_s,
                          " s; is its loop a gavel::Iterator?")
                 : StrCat("no step for ", options_.timeout_s, " s after ",
                          job.steps_done);
    }
    return "";
  }

  std::vector<ProfileSample> Samples(size_t job) const {
    std::vector<ProfileSample> samples;
    const std::optional<Time> from = TrainsFrom();
    if (!from) return samples;
    for (const ReportedRate& report : leases_.jobs()[job].rates) {
      if (report.at - report.window_s < *from + options_.warm_up_s) continue;
      samples.push_back({report.steps_per_s, report.window_s});
    }
    return samples;
  }

  // From when on all jobs of the cell have made steps; nothing: not yet.
  std::optional<Time> TrainsFrom() const {
    Time from = 0;
    for (const LeasedJob& job : leases_.jobs()) {
      if (job.rates.empty()) return std::nullopt;
      const ReportedRate& first = job.rates.front();
      from = std::max(from, first.at - first.window_s);
    }
    return from;
  }

  bool IsEnough() const {
    bool precise = true;
    double least_s = kNever;
    for (size_t job = 0; job < measured(); ++job) {
      const std::vector<ProfileSample> samples = Samples(job);
      if (samples.size() < kSamplesMin) return false;
      const ProfileFigure figure = FigureOf(samples);
      least_s = std::min(least_s, figure.seconds);
      precise &= figure.half_width <= options_.precision * figure.steps_per_s;
    }
    return least_s >= options_.measure_s * (precise ? 1 : kLongestFactor);
  }

  std::vector<ProfileFigure> Figures(const std::string& why) const {
    std::vector<ProfileFigure> figures;
    bool all = true;
    bool out_of_memory = false;
    for (size_t job = 0; job < measured(); ++job) {
      const std::vector<ProfileSample> samples = Samples(job);
      figures.push_back(FigureOf(samples));
      all &= samples.size() >= kSamplesMin;
      out_of_memory |= leases_.jobs()[job].out_of_memory;
    }
    if (all && !out_of_memory) return figures;
    for (size_t job = 0; job < figures.size(); ++job) {
      figures[job] = ProfileFigure();
      figures[job].note = why;
      if (out_of_memory) figures[job].steps_per_s = 0;
    }
    return figures;
  }

  const std::vector<ProfileWorkload>& workloads_;
  const ProfileCell& cell_;
  const ProfileOptions& options_;
  LeaseGranter& leases_;
  const Stopwatch clock_;
  LiveProcesses children_;
};

class ProfileRun {
 public:
  ProfileRun(const std::vector<ProfileWorkload>& workloads,
             const std::vector<ProfileCell>& cells,
             const ProfileOptions& options)
      : workloads_(workloads), cells_(cells), options_(options) {}

  absl::Status Run() {
    GAVEL_RETURN_IF_ERROR(ReadTable());
    GAVEL_RETURN_IF_ERROR(MakeDirectory(options_.folder));
    GAVEL_ASSIGN_OR_RETURN(const auto leases, LeaseGranter::Open());
    for (size_t i = 0; i < cells_.size(); ++i) {
      if (options_.show) {
        options_.show(i, cells_.size(), TitleOf(cells_[i], workloads_));
      }
      if (IsKnown(cells_[i])) continue;
      const absl::Status measured = Measure(cells_[i], *leases);
      if (absl::IsCancelled(measured)) {
        return absl::CancelledError(
            StrCat("stopped; the same command goes on with ", options_.table));
      }
      GAVEL_RETURN_IF_ERROR(measured);
    }
    GAVEL_RETURN_IF_ERROR(Write());
    if (failed_.empty()) return absl::OkStatus();
    return absl::AbortedError(StrCat(
        failed_.size(), " of ", cells_.size(), " could not be measured: ",
        absl::StrJoin(failed_, "; "), " (output in ", options_.folder,
        "; the same command tries them again)"));
  }
  size_t figures() const {
    return static_cast<size_t>(std::ranges::count_if(
        results_.figures(),
        [](const auto& entry) { return entry.second.steps_per_s >= 0; }));
  }

 private:
  absl::Status ReadTable() {
    std::error_code error;
    if (!fs::exists(options_.table, error)) return absl::OkStatus();
    GAVEL_ASSIGN_OR_RETURN(const std::string text,
                           ReadFile(options_.table, kTableBytesMax));
    GAVEL_ASSIGN_OR_RETURN(results_,
                           ProfileResults::Parse(text, options_.table));
    return absl::OkStatus();
  }

  absl::Status Measure(const ProfileCell& cell, LeaseGranter& leases) {
    GAVEL_ASSIGN_OR_RETURN(std::vector<ProfileFigure> figures,
                           CellRun(workloads_, cell, options_, leases).Run());
    const std::vector<ProfileKey> keys = KeysOf(cell, workloads_);
    if (keys.size() == 2 && keys[0] == keys[1]) {
      // A workload beside itself: the mean of both.
      figures[0].steps_per_s =
          (figures[0].steps_per_s + figures[1].steps_per_s) / 2;
      figures[0].half_width =
          std::max(figures[0].half_width, figures[1].half_width);
      figures.pop_back();
    }
    if (figures[0].steps_per_s < 0) {
      failed_.push_back(
          StrCat(TitleOf(cell, workloads_), ": ", figures[0].note));
    }
    for (size_t i = 0; i < figures.size(); ++i) {
      results_.Set(keys[i], std::move(figures[i]));
    }
    return Write();
  }

  absl::Status Write() const {
    GAVEL_RETURN_IF_ERROR(
        ReplaceFile(options_.table, results_.ToCsv(), kSharedMode));
    if (options_.output.empty()) return absl::OkStatus();
    const absl::StatusOr<ThroughputTable> table = results_.ToTable();
    if (absl::IsFailedPrecondition(table.status())) return absl::OkStatus();
    GAVEL_RETURN_IF_ERROR(table.status());
    return ReplaceFile(options_.output, WriteThroughputs(table->ToFigures()),
                       kSharedMode);
  }
  bool IsKnown(const ProfileCell& cell) const {
    return std::ranges::all_of(KeysOf(cell, workloads_), [&](const auto& key) {
      return results_.Find(key) != nullptr;
    });
  }

  const std::vector<ProfileWorkload>& workloads_;
  const std::vector<ProfileCell>& cells_;
  const ProfileOptions& options_;
  ProfileResults results_;
  std::vector<std::string> failed_;
};

}  // namespace

absl::Status RunProfile(const std::vector<ProfileWorkload>& workloads,
                        const std::vector<ProfileCell>& cells,
                        const ProfileOptions& options, size_t* figures) {
  ProfileRun run(workloads, cells, options);
  const absl::Status status = run.Run();
  *figures = run.figures();
  return status;
}

}  // namespace gavel::study
