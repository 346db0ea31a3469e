#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <map>
#include <sstream>
#include <system_error>
#include <vector>

#include "coordinator/agent_host/agent_log.h"
#include "core/text.h"
#include "runtime/descriptor.h"
#include "runtime/files/text_file.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;

struct LogEntry {
  std::string path;
  std::string user;
  uint64_t bytes = 0;
  std::time_t written = 0;  // last
};

void AddLogFile(const std::string& path, LogEntry* entry) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  entry->bytes += static_cast<uint64_t>(info.st_size);
  entry->written = std::max(entry->written, info.st_mtime);
}

std::vector<fs::path> PathsIn(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    paths.push_back(it->path());
  }
  return paths;
}

bool IsLogFolder(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() == fs::file_type::directory;
}

LogEntry FolderEntry(const fs::path& folder) {
  LogEntry entry{folder.string(), "", 0, 0};
  std::string name;
  std::istringstream(ReadAll(entry.path + "/owner")) >> name >> entry.user;
  for (const fs::path& file : PathsIn(folder))
    AddLogFile(file.string(), &entry);
  return entry;
}

// Folders of workers, oldest first; and files of agents that had none.
std::vector<LogEntry> FindEntries(const std::string& logs_directory) {
  std::vector<LogEntry> entries;
  for (const fs::path& cluster : PathsIn(logs_directory)) {
    if (!IsLogFolder(cluster)) {
      entries.push_back({cluster.string(), "", 0, 0});
      AddLogFile(entries.back().path, &entries.back());
      continue;
    }
    for (const fs::path& folder : PathsIn(cluster)) {
      entries.push_back(FolderEntry(folder));
    }
  }
  std::ranges::sort(entries, {}, &LogEntry::written);
  return entries;
}

// A WorkerLog has its claim locked.
bool IsInUse(const std::string& folder) {
  const Descriptor claim(
      open((folder + "/owner").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return claim.get() >= 0 && flock(claim.get(), LOCK_EX | LOCK_NB) != 0;
}

class LogPruner {
 public:
  explicit LogPruner(std::vector<LogEntry> entries)
      : entries_(std::move(entries)) {
    for (const LogEntry& entry : entries_) Count(entry, 1);
  }

  template <class Predicate>
  void Remove(const Predicate& predicate) {
    std::erase_if(entries_, [&](const LogEntry& entry) {
      if (!predicate(entry) || IsInUse(entry.path)) return false;
      std::error_code ignored;
      fs::remove_all(entry.path, ignored);
      Count(entry, -1);
      return true;
    });
  }

  // Fairness: who writes the most loses the oldest.
  void ShrinkTo(uint64_t bytes) {
    while (total_ > bytes) {
      const auto largest = std::ranges::max_element(
          of_users_, {}, [](const auto& item) { return item.second; });
      const std::string user = largest->first;
      const uint64_t before = total_;
      Remove([&](const LogEntry& entry) {
        return total_ > bytes && total_ == before && entry.user == user &&
               entry.bytes > 0;
      });
      if (total_ == before) of_users_.erase(user);  // all of it is in use
      if (of_users_.empty()) return;
    }
  }

 private:
  void Count(const LogEntry& entry, int sign) {
    const uint64_t bytes = sign > 0 ? entry.bytes : 0 - entry.bytes;
    total_ += bytes;
    of_users_[entry.user] += bytes;
  }

  std::vector<LogEntry> entries_;
  uint64_t total_ = 0;
  std::map<std::string, uint64_t> of_users_;
};

}  // namespace

void PruneLogs(const std::string& logs_directory, const LogLimits& limits) {
  const auto now = static_cast<double>(std::time(nullptr));
  LogPruner pruner(FindEntries(logs_directory));
  pruner.Remove([&](const LogEntry& entry) {
    return now - static_cast<double>(entry.written) > limits.age_s;
  });
  pruner.ShrinkTo(limits.total_bytes);
}

}  // namespace gavel
