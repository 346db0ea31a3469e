#include "coordinator/agent_host/agent_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "coordinator/workload/job_spec.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/files.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;

constexpr char kLogOwnerFile[] = "/owner";
constexpr char kLogIndexFile[] = "/index";
// The name of the cluster when the coordinator sends no id.
constexpr char kUnnamedCluster[] = "unnamed";

std::string SegmentPath(const std::string& folder, uint64_t segment) {
  return StrCat(folder, "/", segment, ".log");
}

struct Segments {
  uint64_t oldest = 0;
  uint64_t newest = 0;
};

// The numbers of the oldest and the newest segment; nullopt: the folder has no
// segments.
std::optional<Segments> FindSegments(const std::string& folder) {
  std::optional<Segments> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    uint64_t segment = 0;
    if (it->path().extension() != ".log" ||
        !absl::SimpleAtoi(it->path().stem().string(), &segment)) {
      continue;
    }
    if (!found) found = Segments{segment, segment};
    found->oldest = std::min(found->oldest, segment);
    found->newest = std::max(found->newest, segment);
  }
  return found;
}

// From this byte of all output on the incarnation wrote, at this time or later.
// Offsets, incarnations and times only rise, unless the clock was set back.
struct IndexEntry {
  uint64_t offset = 0;
  uint64_t incarnation = 0;
  double wall_s = 0;
};

// The index of a folder, searched on disk. Empty where an earlier version wrote
// the log.
class LogIndex {
 public:
  explicit LogIndex(const std::string& folder)
      : file_(open((folder + kLogIndexFile).c_str(),
                   O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) {
    struct stat info {};
    if (file_.get() < 0 || fstat(file_.get(), &info) != 0) return;
    size_ = static_cast<size_t>(info.st_size) / sizeof(IndexEntry);
  }

  // The entry that the byte belongs to; zeros: none.
  IndexEntry At(uint64_t offset) const {
    return Before(CountWhile(
        [&](const IndexEntry& entry) { return entry.offset <= offset; }));
  }
  // Where the output of this incarnation ends.
  uint64_t EndOf(uint64_t incarnation) const {
    const size_t count = CountWhile([&](const IndexEntry& entry) {
      return entry.incarnation <= incarnation;
    });
    return count == size_ ? std::numeric_limits<uint64_t>::max()
                          : Get(count).offset;
  }
  // The byte at which, or behind which, the output since then begins.
  uint64_t OffsetSince(double wall_s) const {
    return Before(CountWhile([&](const IndexEntry& entry) {
             return entry.wall_s <= wall_s;
           }))
        .offset;
  }

 private:
  // The number of entries, from the first one on, for which `is` is true.
  template <class Is>
  size_t CountWhile(const Is& is) const {
    size_t from = 0;
    size_t to = size_;
    while (from < to) {
      const size_t middle = from + (to - from) / 2;
      if (is(Get(middle))) {
        from = middle + 1;
      } else {
        to = middle;
      }
    }
    return from;
  }
  IndexEntry Before(size_t count) const {
    return count == 0 ? IndexEntry() : Get(count - 1);
  }
  IndexEntry Get(size_t at) const {
    IndexEntry entry;
    const auto offset = static_cast<off_t>(at * sizeof entry);
    if (pread(file_.get(), &entry, sizeof entry, offset) !=
        static_cast<ssize_t>(sizeof entry)) {
      return {};
    }
    return entry;
  }

  Descriptor file_;
  size_t size_ = 0;  // entries
};

// Where to begin for `request`.
uint64_t BeginOf(const std::string& folder, const LogIndex& index,
                 const LogRequest& request) {
  const bool leaves_out = request.since_s > 0 || request.tail_bytes > 0;
  if (request.offset > 0 || !leaves_out) return request.offset;
  const std::optional<Segments> segments = FindSegments(folder);
  if (!segments) return 0;
  struct stat newest {};
  const std::string path = SegmentPath(folder, segments->newest);
  if (stat(path.c_str(), &newest) != 0) return 0;
  const uint64_t end = segments->newest * kLogSegmentBytes +
                       static_cast<uint64_t>(newest.st_size);
  uint64_t begin = 0;
  if (request.tail_bytes > 0) {
    begin = std::max(end - std::min(end, request.tail_bytes),
                     segments->oldest * kLogSegmentBytes);
  }
  if (!(request.since_s > 0)) return begin;
  const bool quiet = static_cast<double>(newest.st_mtime) + 1 < request.since_s;
  return std::max(begin, quiet ? end : index.OffsetSince(request.since_s));
}

std::string OwnerText(const LogOwner& owner) {
  return StrCat(owner.job_name, " ",
                owner.unix_user.empty() ? "-" : owner.unix_user, " ",
                owner.worker.incarnation, "\n");
}

// Whether the folder belongs to an earlier incarnation of the same job's
// worker.
bool Continues(const std::string& folder, const LogOwner& owner) {
  std::istringstream text(ReadAll(folder + kLogOwnerFile));
  std::string name;
  std::string user;
  uint64_t incarnation = 0;
  if (!(text >> name >> user >> incarnation)) return false;
  LogOwner last = owner;
  last.worker.incarnation = incarnation;
  return StrCat(name, " ", user, " ", incarnation, "\n") == OwnerText(last) &&
         incarnation < owner.worker.incarnation;
}

absl::Status MakeLogFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, ToAbsl(StrCat("folder of logs ", path)));
}

// Under a name that no worker's folder has.
absl::Status PutAside(const std::string& folder) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const std::string aside =
      StrCat(folder, ".before-", now.tv_sec, "-", now.tv_nsec);
  if (rename(folder.c_str(), aside.c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, ToAbsl(StrCat("folder of logs ", folder)));
}

LogReply NothingYet(const std::string& logs_directory,
                    const LogRequest& request) {
  LogReply reply;
  reply.request = request.request;
  reply.next_offset = request.offset;
  reply.ended = true;
  reply.error =
      StrCat("job ", request.worker.job.value(), " rank ", request.worker.rank,
             " has no output in ", logs_directory, " yet");
  return reply;
}

// Appends what the file has from `offset` on; false with errno.
bool ReadPiece(const std::string& path, uint64_t offset, std::string* data) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file.get() < 0) return false;
  const size_t before = data->size();
  data->resize(kLogChunkBytesMax);
  const ssize_t bytes =
      pread(file.get(), data->data() + before, data->size() - before,
            static_cast<off_t>(offset));
  data->resize(before + static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  return bytes >= 0;
}

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

std::string LogFolder(const std::string& logs_directory,
                      const std::string& cluster, const WorkerId& worker) {
  return StrCat(logs_directory, "/",
                IsValidName(cluster) ? cluster : kUnnamedCluster, "/",
                worker.job.value(), ".", worker.rank);
}

absl::StatusOr<WorkerLog> WorkerLog::Open(const std::string& logs_directory,
                                          const LogOwner& owner,
                                          const LogLimits& limits,
                                          double wall_now_s) {
  const std::string folder =
      LogFolder(logs_directory, owner.cluster, owner.worker.worker());
  GAVEL_RETURN_IF_ERROR(MakeLogFolder(fs::path(folder).parent_path().string()));
  if (mkdir(folder.c_str(), 0700) != 0 && !Continues(folder, owner)) {
    GAVEL_RETURN_IF_ERROR(PutAside(folder));
    GAVEL_RETURN_IF_ERROR(MakeLogFolder(folder));
  }
  // One is being written, and one at least is whole.
  WorkerLog log(folder,
                std::max<uint64_t>(2, limits.worker_bytes / kLogSegmentBytes));
  GAVEL_RETURN_IF_ERROR(log.Claim(owner));
  const std::optional<Segments> segments = FindSegments(folder);
  GAVEL_RETURN_IF_ERROR(log.OpenSegment(segments ? segments->newest : 0,
                                        /*anew=*/!segments.has_value()));
  log.incarnation_ = owner.worker.incarnation;
  GAVEL_RETURN_IF_ERROR(log.OpenIndex());
  GAVEL_RETURN_IF_ERROR(log.NoteTime(wall_now_s));
  return log;
}

absl::Status WorkerLog::OpenIndex() {
  const std::string path = folder_ + kLogIndexFile;
  index_ = Descriptor(
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
           0600));
  struct stat info {};
  if (index_.get() < 0 || fstat(index_.get(), &info) != 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(path));
  }
  // An entry of which a full disk took only a part.
  const off_t part = info.st_size % static_cast<off_t>(sizeof(IndexEntry));
  if (part != 0 && ftruncate(index_.get(), info.st_size - part) != 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(path));
  }
  return absl::OkStatus();
}

absl::Status WorkerLog::NoteTime(double wall_now_s) {
  const IndexEntry entry{segment_ * kLogSegmentBytes + size_, incarnation_,
                         wall_now_s};
  noted_s_ = wall_now_s;
  if (write(index_.get(), &entry, sizeof entry) ==
      static_cast<ssize_t>(sizeof entry)) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(ENOSPC, ToAbsl(folder_ + kLogIndexFile));
}

absl::Status WorkerLog::Claim(const LogOwner& owner) {
  const std::string path = folder_ + kLogOwnerFile;
  const std::string text = OwnerText(owner);
  claim_ = Descriptor(
      open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (claim_.get() < 0 || flock(claim_.get(), LOCK_SH | LOCK_NB) != 0 ||
      ftruncate(claim_.get(), 0) != 0 ||
      pwrite(claim_.get(), text.data(), text.size(), 0) < 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(path));
  }
  return absl::OkStatus();
}

absl::Status WorkerLog::OpenSegment(uint64_t segment, bool anew) {
  const std::string path = SegmentPath(folder_, segment);
  file_ = Descriptor(open(path.c_str(),
                          O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW |
                              (anew ? O_CREAT | O_EXCL : 0),
                          0600));
  struct stat info {};
  if (file_.get() < 0 || fstat(file_.get(), &info) != 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(path));
  }
  segment_ = segment;
  size_ = static_cast<uint64_t>(info.st_size);
  if (anew && segment >= segments_max_) {
    unlink(SegmentPath(folder_, segment - segments_max_).c_str());
  }
  return absl::OkStatus();
}

absl::Status WorkerLog::Append(std::string_view data, double wall_now_s) {
  // Output that can be kept is worth more than its time.
  if (wall_now_s - noted_s_ >= kLogTimeInterval_s) {
    NoteTime(wall_now_s).IgnoreError();
  }
  while (!data.empty()) {
    if (size_ >= kLogSegmentBytes) {
      GAVEL_RETURN_IF_ERROR(OpenSegment(segment_ + 1, /*anew=*/true));
    }
    const size_t fits = static_cast<size_t>(
        std::min<uint64_t>(data.size(), kLogSegmentBytes - size_));
    const ssize_t written = write(file_.get(), data.data(), fits);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return absl::ErrnoToStatus(
          written < 0 ? errno : ENOSPC,
          ToAbsl(StrCat(SegmentPath(folder_, segment_), ": output is lost")));
    }
    size_ += static_cast<uint64_t>(written);
    data.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

LogReply ReadWorkerLog(const std::string& logs_directory,
                       const std::string& cluster, const LogRequest& request,
                       bool runs) {
  const std::string folder = LogFolder(logs_directory, cluster, request.worker);
  LogReply reply;
  reply.request = request.request;
  const LogIndex index(folder);
  uint64_t begin = BeginOf(folder, index, request);
  size_t notice = 0;  // bytes of reply.data that are ours
  uint64_t segment = begin / kLogSegmentBytes;
  bool read = ReadPiece(SegmentPath(folder, segment), begin % kLogSegmentBytes,
                        &reply.data);
  if (!read && errno == ENOENT) {
    const std::optional<Segments> segments = FindSegments(folder);
    if (!segments) return NothingYet(logs_directory, request);
    read = true;  // all that there is
    if (segment < segments->oldest) {
      segment = segments->oldest;
      const uint64_t oldest = segment * kLogSegmentBytes;
      reply.data = StrCat("[gavel: ", oldest - begin,
                          " bytes of output are no longer kept]\n");
      notice = reply.data.size();
      begin = oldest;
      read = ReadPiece(SegmentPath(folder, segment), 0, &reply.data);
    }
  }
  const IndexEntry entry = index.At(begin);
  const uint64_t of_incarnation = index.EndOf(entry.incarnation) - begin;
  if (reply.data.size() - notice > of_incarnation) {
    reply.data.resize(notice + of_incarnation);
  }
  reply.next_offset = begin + reply.data.size() - notice;
  reply.incarnation = entry.incarnation;
  reply.written_s = entry.wall_s;
  if (!read) reply.error = StrCat(folder, ": ", std::strerror(errno));
  reply.ended = !read || (reply.data.empty() && !runs);
  return reply;
}

void PruneLogs(const std::string& logs_directory, const LogLimits& limits) {
  const auto now = static_cast<double>(std::time(nullptr));
  LogPruner pruner(FindEntries(logs_directory));
  pruner.Remove([&](const LogEntry& entry) {
    return now - static_cast<double>(entry.written) > limits.age_s;
  });
  pruner.ShrinkTo(limits.total_bytes);
}

}  // namespace gavel
