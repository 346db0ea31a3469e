// The channel between a worker's stdout and stderr and its agent. It is a
// pseudo-terminal, since C libraries, Python and others write to a terminal
// line by line, and to a file or pipe in blocks that a reader of the log would
// see minutes later. Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_OUTPUT_CHANNEL_H_
#define GAVEL_COORDINATOR_AGENT_HOST_OUTPUT_CHANNEL_H_

#include <optional>

#include "absl/status/statusor.h"
#include "coordinator/agent_host/unix_account.h"
#include "runtime/descriptor.h"

namespace gavel {

struct OutputChannel {
  Descriptor reader;  // non-blocking; EIO or 0 bytes: all writers are gone
  Descriptor writer;
};

// Bytes arrive unchanged. The terminal is not a controlling one, so no signal
// comes from it. Where there is no free pseudo-terminal it is a pipe. The
// writer belongs to `account`, which can open /dev/stdout that way.
absl::StatusOr<OutputChannel> OpenOutputChannel(
    const std::optional<UnixAccount>& account);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_OUTPUT_CHANNEL_H_
