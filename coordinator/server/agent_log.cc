#include "coordinator/server/agent_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "core/text.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;

// The newest file of that worker: an earlier coordinator on the same state
// directory may have had another job of that number.
std::string FindLog(const std::string& logs_directory, const WorkerId& worker) {
  const std::string prefix = StrCat(worker.job.value(), "-");
  const std::string suffix = StrCat(".", worker.rank, ".log");
  std::string found;
  fs::file_time_type newest = fs::file_time_type::min();
  std::error_code error;
  for (fs::directory_iterator it(logs_directory, error), end;
       !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(suffix)) continue;
    std::error_code ignored;
    const fs::file_time_type time = it->last_write_time(ignored);
    if (!found.empty() && time <= newest) continue;
    found = it->path().string();
    newest = time;
  }
  return found;
}

}  // namespace

std::string WorkerLogPath(const std::string& logs_directory,
                          const LaunchWorker& launch) {
  return StrCat(logs_directory, "/", launch.worker.job.value(), "-",
                launch.job_name, ".", launch.worker.rank, ".log");
}

LogReply ReadWorkerLog(const std::string& logs_directory,
                       const LogRequest& request, bool runs) {
  LogReply reply;
  reply.request = request.request;
  reply.next_offset = request.offset;
  reply.ended = true;
  const std::string path = FindLog(logs_directory, request.worker);
  if (path.empty()) {
    reply.error = StrCat("job ", request.worker.job.value(), " rank ",
                         request.worker.rank, " has no output in ",
                         logs_directory, " yet");
    return reply;
  }
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  reply.data.resize(kLogChunkBytesMax);
  const ssize_t bytes = file < 0
                            ? -1
                            : pread(file, reply.data.data(), reply.data.size(),
                                    static_cast<off_t>(request.offset));
  if (bytes < 0) reply.error = StrCat(path, ": ", std::strerror(errno));
  if (file >= 0) close(file);
  reply.data.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
  reply.next_offset += reply.data.size();
  reply.ended = bytes < 0 || (bytes == 0 && !runs);
  return reply;
}

}  // namespace gavel
