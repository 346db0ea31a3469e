// A disk in memory that can lose its power: what was not fsynced may be there
// afterwards, in part, or not at all, and so may every name in a folder that
// was not fsynced, each on its own. Harsher than real file systems, which keep
// some order. Single-threaded.
#ifndef GAVEL_TESTS_CHECKPOINT_SIMULATED_DISK_H_
#define GAVEL_TESTS_CHECKPOINT_SIMULATED_DISK_H_

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/generation/file_system.h"

namespace gavel::testing {

class SimulatedDisk : public FileSystem {
 public:
  SimulatedDisk();

  // Loses power: `random` chooses what of the unsynced survives.
  void Crash(std::mt19937& random);

  // The next Sync of a file fails as a real one does: its unwritten data is
  // marked clean and lost, and a later Sync would report success.
  void FailNextSync() { fail_next_sync_ = true; }
  // From now on no file gets a second name.
  void RefuseLinks() { refuse_links_ = true; }
  // Whether a file was synced again after that: never right.
  bool synced_after_failure() const { return synced_after_failure_; }

  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(
      const std::string& path, FileAccess access) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> AppendFile(
      const std::string& path) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(
      const std::string& path, FileAccess access) override;
  absl::StatusOr<std::vector<DirectoryEntry>> List(
      const std::string& path) override;
  absl::Status CreateDirectory(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Link(const std::string& from, const std::string& to) override;
  absl::Status RemoveFile(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;

 private:
  friend class SimulatedFile;

  struct Node {
    bool is_directory = false;
    std::string data, durable_data;
    std::map<std::string, std::shared_ptr<Node>> names, durable_names;
    bool sync_failed = false;
  };
  using NodePointer = std::shared_ptr<Node>;

  static void CrashNode(Node& node, std::mt19937& random);
  static void CrashFile(Node& node, std::mt19937& random);
  static void CrashNames(Node& node, std::mt19937& random);
  NodePointer Find(const std::string& path) const;
  // The directory that holds `path`; sets the last part of it.
  NodePointer FindParent(const std::string& path, std::string* name) const;
  absl::Status SyncFile(Node& node);

  NodePointer root_;
  bool fail_next_sync_ = false;
  bool refuse_links_ = false;
  bool synced_after_failure_ = false;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_CHECKPOINT_SIMULATED_DISK_H_
