// Workers' output on disk: STATE/logs/JOB-NAME.RANK.log, one file for all
// incarnations of a worker. Agents write there and answer LogRequests from it.
// Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_AGENT_LOG_H_
#define GAVEL_COORDINATOR_SERVER_AGENT_LOG_H_

#include <cstddef>
#include <string>

#include "core/messages.h"

namespace gavel {

// A LogReply carries at most this much of a file, so that it fits a frame.
inline constexpr size_t kLogChunkBytesMax = 32 * 1024;

std::string WorkerLogPath(const std::string& logs_directory,
                          const LaunchWorker& launch);

// The next piece from `request.offset` on. `runs`: the worker's process is
// there, so more may come; without it `ended` is set once all has been read.
LogReply ReadWorkerLog(const std::string& logs_directory,
                       const LogRequest& request, bool runs);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_AGENT_LOG_H_
