#include "iterator/session_context.h"

#include <string>
#include <utility>

#include "iterator/clock.h"

namespace gavel::internal {

SessionContext::SessionContext(SessionOptions given)
    : options(std::move(given)),
      log(options.log),
      arena(options.pinned_memory_bytes) {}

void SessionContext::Fail(absl::Status status) {
  if (board.SetFatal(status)) log.Error(std::string(status.message()));
}

void SessionContext::Warn(const absl::Status& status) {
  if (!status.ok()) log.Warning(std::string(status.message()));
}

void SessionContext::WriteProfile(at::Device device) {
  profile.MarkMemory(Now_ns(), device);
  Warn(profile.Write(stats));
}

void SessionContext::FinishProfile(at::Device device) {
  WriteProfile(device);
  for (const std::string& line : profile.Table(stats)) log.Info(line);
}

}  // namespace gavel::internal
