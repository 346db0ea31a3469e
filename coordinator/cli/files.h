// The files of jobs, clusters, journals and results that the user names
// (runtime/files/user_files.h reads and writes them). Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_FILES_H_
#define GAVEL_COORDINATOR_CLI_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/workload/cluster_spec.h"

namespace gavel {

// A coordinator's journal: `path`, or the one in it when it is a coordinator's
// state directory.
std::string JournalIn(const std::string& path);
// "gavel-results/NAME", for results without a file name from the user; makes
// the folder.
absl::StatusOr<std::string> MakeResultsPath(const std::string& name);

absl::StatusOr<ClusterSpec> ReadClusterFile(const std::string& path);

struct JobFile {
  std::string path;  // as the user wrote it, for messages
  std::string text;
  std::string directory;  // absolute, that it lies in
  std::string name;       // of the job
};

// Parses the files, so that most errors show before anything is submitted. Two
// jobs of one name are an error, too.
absl::StatusOr<std::vector<JobFile>> ReadJobFiles(
    const std::vector<std::string>& paths);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_FILES_H_
