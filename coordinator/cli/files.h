// The files of jobs, clusters, journals and results that the user names
// (runtime/files/files.h reads and writes them). Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_FILES_H_
#define GAVEL_COORDINATOR_CLI_FILES_H_

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/workload/cluster_spec.h"
#include "coordinator/workload/job_spec.h"

namespace gavel {

// A coordinator's journal: `path`, or the one in it when it is a coordinator's
// state directory.
std::string JournalIn(const std::string& path);
// "gavel-results/NAME", for results without a file name from the user; makes
// the folder.
absl::StatusOr<std::string> MakeResultsPath(const std::string& name);

absl::StatusOr<ClusterSpec> ReadClusterFile(const std::string& path);

struct JobFile {
  std::string path;       // as the user wrote it, for messages
  std::string text;       // with the settings in it
  std::string directory;  // absolute, that it lies in
  JobSpec spec;
};

// Parses the files, so that most errors show before anything is submitted, with
// the settings in place of their own keys. Two jobs of one name are an error,
// too.
absl::StatusOr<std::vector<JobFile>> ReadJobFiles(
    const std::vector<std::string>& paths,
    std::span<const JobSetting> settings = {});
// A job that settings alone describe; it runs in this directory. `path`: names
// it in messages.
absl::StatusOr<JobFile> MakeJobFile(const std::string& path,
                                    std::span<const JobSetting> settings);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_FILES_H_
