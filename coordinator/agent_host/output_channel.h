// The channel between a worker's stdout and stderr and its agent. A
// pseudo-terminal, since every C library, Python and others write to one line
// by line, whatever language the program is in and however it was linked; to a
// file or pipe they write in blocks of kilobytes, which a reader of the log
// sees minutes later. Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_OUTPUT_CHANNEL_H_
#define GAVEL_COORDINATOR_AGENT_HOST_OUTPUT_CHANNEL_H_

#include <optional>

#include "absl/status/statusor.h"
#include "coordinator/agent_host/unix_account.h"
#include "runtime/files/descriptor.h"

namespace gavel {

struct OutputChannel {
  Descriptor reader;  // non-blocking; EIO or 0 bytes: all writers are gone
  Descriptor writer;
};

// What is written arrives unchanged: no line ends are translated. The terminal
// is nobody's controlling one, so that no signal comes from it. Where there are
// no pseudo-terminals (or none left) it is a pipe. The writer belongs to
// `account`, which may so open /dev/stdout.
absl::StatusOr<OutputChannel> OpenOutputChannel(
    const std::optional<UnixAccount>& account);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_OUTPUT_CHANNEL_H_
