// check_demo SUMMARY.json CLUSTER.toml DIRECTORY JOB.toml...: the end of the
// demo. Prints what `gavel local` wrote of each job, then runs one that was
// paused and moved between two equal slots of the cluster again, alone and from
// its beginning, and compares the two final checkpoints bit by bit. DIRECTORY
// must be empty. Exit code 1 when they differ, when a job did not finish, or
// when none was paused and moved so.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/workload/cluster_spec.h"
#include "coordinator/workload/job_spec.h"
#include "core/status.h"
#include "examples/demo/run_alone.h"
#include "examples/demo/summary.h"
#include "runtime/checkpoint/generation_store.h"
#include "runtime/generation/manifest.h"

namespace gavel::demo {
namespace {

constexpr size_t kNamesShown = 5;

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(StrCat(path, ": cannot be read"));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::StatusOr<Summary> ReadSummary(const std::string& path,
                                    const std::string& cluster_path) {
  GAVEL_ASSIGN_OR_RETURN(const std::string json, ReadText(path));
  GAVEL_ASSIGN_OR_RETURN(Summary summary, ParseSummary(json));
  GAVEL_ASSIGN_OR_RETURN(const std::string toml, ReadText(cluster_path));
  GAVEL_ASSIGN_OR_RETURN(const ClusterSpec cluster,
                         ParseClusterSpec(toml, cluster_path));
  std::vector<AcceleratorInfo> declared;
  for (const ServerSpec& server : cluster.servers) {
    declared.insert(declared.end(), server.accelerators.begin(),
                    server.accelerators.end());
  }
  GAVEL_RETURN_IF_ERROR(FillThreads(declared, &summary));
  return summary;
}

absl::StatusOr<JobSpec> FindJob(const std::vector<std::string>& paths,
                                const std::string& name) {
  for (const std::string& path : paths) {
    GAVEL_ASSIGN_OR_RETURN(const std::string toml, ReadText(path));
    GAVEL_ASSIGN_OR_RETURN(JobSpec job, ParseJobSpec(toml, path));
    if (job.name == name) return job;
  }
  return absl::NotFoundError(StrCat("no job file is of job ", name));
}

absl::Status CheckAllFinished(const Summary& summary) {
  for (const JobSummary& job : summary.jobs) {
    if (job.state == "finished") continue;
    return absl::InternalError(
        StrCat("job ", job.name, " ended as ", job.state));
  }
  return absl::OkStatus();
}

// The one with the fewest steps: it is the soonest run again.
absl::StatusOr<JobSummary> JobToCompare(const Summary& summary) {
  std::optional<JobSummary> best;
  for (const JobSummary& job : summary.jobs) {
    if (!WasPausedAndMoved(job)) continue;
    if (!best || job.steps < best->steps) best = job;
  }
  if (best) return *best;
  return absl::FailedPreconditionError(
      "no job was paused and moved between two slots of one type and thread "
      "count, so there is nothing to compare");
}

absl::StatusOr<Manifest> LastManifest(const std::string& directory) {
  GAVEL_ASSIGN_OR_RETURN(const GenerationStore store,
                         GenerationStore::Open(directory));
  GAVEL_ASSIGN_OR_RETURN(const Generation last, store.LatestGeneration());
  return store.ReadManifest(last);
}

absl::Status CompareWithAlone(const JobSummary& job, const JobSpec& spec,
                              const std::string& directory) {
  const AloneOptions options = {
      .checkpoint_directory = directory + "/checkpoints",
      .output = directory + "/output",
      .threads = job.accelerators_used.front().threads};
  GAVEL_RETURN_IF_ERROR(RunAlone(spec, options));
  GAVEL_ASSIGN_OR_RETURN(const Manifest scheduled,
                         LastManifest(job.checkpoint_directory));
  GAVEL_ASSIGN_OR_RETURN(const Manifest alone,
                         LastManifest(options.checkpoint_directory));
  if (scheduled.generation.step != alone.generation.step) {
    return absl::InternalError(
        StrCat("it ended at step ", scheduled.generation.step,
               " and alone at step ", alone.generation.step));
  }
  std::vector<std::string> differing = DifferingTensors(scheduled, alone);
  if (differing.empty()) return absl::OkStatus();
  const size_t count = differing.size();
  differing.resize(std::min(count, kNamesShown));
  return absl::InternalError(
      StrCat(count, " differ, among them ", absl::StrJoin(differing, ", ")));
}

absl::Status Check(const std::string& summary_path,
                   const std::string& cluster_path,
                   const std::string& directory,
                   const std::vector<std::string>& job_paths) {
  GAVEL_ASSIGN_OR_RETURN(const Summary summary,
                         ReadSummary(summary_path, cluster_path));
  absl::PrintF("\n%s", Render(summary));
  GAVEL_RETURN_IF_ERROR(CheckAllFinished(summary));
  GAVEL_ASSIGN_OR_RETURN(const JobSummary job, JobToCompare(summary));
  GAVEL_ASSIGN_OR_RETURN(const JobSpec spec, FindJob(job_paths, job.name));
  absl::PrintF(
      "\nJob %s was paused %d times and moved %d times. Running it once more, "
      "alone ...\n",
      job.name, job.pauses, job.moves);
  std::fflush(stdout);
  const absl::Status compared = CompareWithAlone(job, spec, directory);
  absl::PrintF("%s: job %s after %d steps is %s the same job run alone\n",
               compared.ok() ? "PASS" : "FAIL", job.name, job.steps,
               compared.ok() ? "bit-identical to" : "not equal to");
  return compared;
}

}  // namespace
}  // namespace gavel::demo

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fputs(
        "usage: check_demo SUMMARY.json CLUSTER.toml DIRECTORY JOB.toml...\n",
        stderr);
    return 2;
  }
  const absl::Status status =
      gavel::demo::Check(argv[1], argv[2], argv[3], {argv + 4, argv + argc});
  if (status.ok()) return 0;
  std::fprintf(stderr, "demo: %s\n", std::string(status.message()).c_str());
  return 1;
}
