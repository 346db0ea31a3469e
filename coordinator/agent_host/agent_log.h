// Workers' output on disk. One worker's, of all its incarnations, is a folder
//
//   LOGS/CLUSTER/JOB.RANK/    owner   index   0.log   1.log   ...
//
// of segments of kLogSegmentBytes. The index says which incarnation wrote from
// which byte on, and when. The oldest segments are removed when there
// are too many, and whole folders when all logs together are too large or old.
// CLUSTER separates jobs with equal ids of other clusters or journals. A folder
// of another job is renamed, never appended to. All files belong to the agent's
// user. Not thread-safe; blocks on the disk (see agent_workers.h).
#ifndef GAVEL_COORDINATOR_AGENT_HOST_AGENT_LOG_H_
#define GAVEL_COORDINATOR_AGENT_HOST_AGENT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/messages.h"
#include "runtime/files/files.h"
#include "runtime/files/stopwatch.h"

namespace gavel {

// A LogReply carries at most this much of a file, so that it fits a frame.
inline constexpr size_t kLogChunkBytesMax = 32 * 1024;
inline constexpr uint64_t kLogSegmentBytes = uint64_t{4} << 20;
// The index has the time of output at most so often.
inline constexpr double kLogTimeInterval_s = 60;

struct LogLimits {
  uint64_t worker_bytes = uint64_t{64} << 20;  // of one worker
  uint64_t total_bytes = uint64_t{4} << 30;    // of all
  double age_s = 30.0 * 24 * 3600;
};

// The worker that wrote the output.
struct LogOwner {
  std::string cluster;  // a name; empty: the coordinator does not tell
  WorkerKey worker;
  std::string job_name;
  std::string unix_user;
};

std::string LogFolder(const std::string& logs_directory,
                      const std::string& cluster, const WorkerId& worker);

class WorkerLog {
 public:
  // Continues the log of the worker's last incarnation, or begins one.
  // `wall_now_s`: seconds since 1970.
  static absl::StatusOr<WorkerLog> Open(const std::string& logs_directory,
                                        const LogOwner& owner,
                                        const LogLimits& limits,
                                        double wall_now_s = WallClockNow());

  // Data that can't be written (a full disk) is lost, with an error.
  absl::Status Append(std::string_view data,
                      double wall_now_s = WallClockNow());

 private:
  WorkerLog(std::string folder, uint64_t segments_max)
      : folder_(std::move(folder)), segments_max_(segments_max) {}
  absl::Status Claim(const LogOwner& owner);
  absl::Status OpenSegment(uint64_t segment, bool anew);
  absl::Status OpenIndex();
  absl::Status NoteTime(double wall_now_s);

  std::string folder_;
  uint64_t segments_max_;
  uint64_t segment_ = 0;
  uint64_t size_ = 0;  // of the segment
  Descriptor file_{-1};
  Descriptor index_{-1};
  uint64_t incarnation_ = 0;
  double noted_s_ = 0;    // the last time in the index
  Descriptor claim_{-1};  // locked, so that the folder is not pruned
};

// The next piece from `request.offset` on, counted from the beginning of all
// output. One incarnation wrote all of it. Where that part was removed: the
// oldest that is there, after a line that says so. `runs`: more may come; else
// `ended` is set once all is read.
LogReply ReadWorkerLog(const std::string& logs_directory,
                       const std::string& cluster, const LogRequest& request,
                       bool runs);

// Removes logs that are too old, then the oldest of the user with the most
// bytes, until the rest fits. Logs that a WorkerLog has open stay.
void PruneLogs(const std::string& logs_directory, const LogLimits& limits);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_AGENT_LOG_H_
