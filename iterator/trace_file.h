// A TraceRing as a file in Chrome's trace event format, which Perfetto
// (ui.perfetto.dev) and chrome://tracing open. Steps, spans and boundaries are
// one row, the runtime's events another, checkpoints until they are on disk a
// third; memory is a counter. Times in microseconds since `origin_ns`, which
// lies at otherData.monotonic_origin_us of the machine's monotonic clock:
// traces of several processes can be laid beside each other. Source: "Trace
// Event Format", the Chromium project.
#ifndef GAVEL_ITERATOR_TRACE_FILE_H_
#define GAVEL_ITERATOR_TRACE_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "iterator/trace_ring.h"

namespace gavel::internal {

struct TraceOrigin {
  int rank = 0;
  int64_t origin_ns = 0;
  int64_t now_ns = 0;  // the end of what is not over yet
};

// "DIR/trace.json" of rank 3 of 4 is "DIR/trace.rank-3.json".
std::string TracePath(const std::string& path, int rank, int world_size);

std::string TraceText(const TraceRing& ring, const TraceOrigin& origin);

// Replaces the file as a whole. UNAVAILABLE: it can't be written.
absl::Status WriteTrace(const TraceRing& ring, const TraceOrigin& origin,
                        const std::string& path);

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_TRACE_FILE_H_
