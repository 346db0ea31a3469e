// What `gavel queue`, `nodes`, `why` and `status` show, as JSON. Pure: reads
// the engine, changes nothing. The coordinator's event loop calls it between
// two steps.
//
// Fields may be added, none changes its meaning. Times are seconds of the
// engine's clock, which stands still while no coordinator runs; "now_s" is in
// every status. Figures that are not known are null.
#ifndef GAVEL_COORDINATOR_SERVER_QUERY_H_
#define GAVEL_COORDINATOR_SERVER_QUERY_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/job.h"
#include "coordinator/server/wire_counts.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel {

// At most this many accelerators are named in a row: a job's further ones are
// only counted, a server's further ones follow in rows of the same server.
inline constexpr size_t kAcceleratorsPerRowMax = 64;

struct QueryView {
  const Engine& engine;
  Time now = 0;
  std::string_view policy;
  WireCounts wire = {};
  std::vector<std::string> troubles = {};  // that a person has to see to
};

// kQueue: rows of all jobs, or of `request.job` alone when it is valid; the
// cursor is the last job's id. kNodes: rows of servers; the cursor counts rows.
// kWhy, kStatus: one object. `error` is set for a job that does not exist.
QueryReply AnswerQuery(const QueryRequest& request, const QueryView& view);

// As squeue's: PD waiting, R running, S paused, CG pausing or ending,
// CD finished, F held after failures, CA cancelled.
std::string_view StateLetters(const Job& job);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_QUERY_H_
