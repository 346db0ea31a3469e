// Writes throughputs in the form that ThroughputTable::Parse reads: Gavel's
// JSON. Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_WORKLOAD_THROUGHPUT_WRITER_H_
#define GAVEL_COORDINATOR_WORKLOAD_THROUGHPUT_WRITER_H_

#include <string>

#include "coordinator/workload/throughput_table.h"

namespace gavel {

// Parsed again, it is the same table: figures are written with all their
// digits. Types and rows without any figure are left out.
std::string WriteThroughputs(const ThroughputTable::Figures& figures);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_THROUGHPUT_WRITER_H_
