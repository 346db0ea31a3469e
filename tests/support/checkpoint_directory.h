// Where a job's checkpoints are by default, whatever its cluster's id is.
#ifndef GAVEL_TESTS_SUPPORT_CHECKPOINT_DIRECTORY_H_
#define GAVEL_TESTS_SUPPORT_CHECKPOINT_DIRECTORY_H_

#include <filesystem>
#include <string>
#include <system_error>

namespace gavel::testing {

// STATE/checkpoints/CLUSTER-`job`, of a `job` like "1-digits"; before it is
// there, a path of nothing.
inline std::string CheckpointDirectory(const std::string& state,
                                       const std::string& job) {
  const std::string all = state + "/checkpoints/";
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(all, none)) {
    const std::string name = entry.path().filename();
    if (name.ends_with("-" + job)) return entry.path();
  }
  return all + "none-" + job;
}

// Below `folder` there is a checkpoint that is complete.
inline bool HasGeneration(const std::string& folder) {
  std::error_code none;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder, none)) {
    if (entry.path().filename() == "manifest.json") return true;
  }
  return false;
}

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SUPPORT_CHECKPOINT_DIRECTORY_H_
