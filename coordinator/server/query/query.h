// Answers what `gavel nodes`, `status` and `what-if` ask: rows (rows.h), as
// JSON. Pure: reads the engine, changes nothing. The coordinator's event loop
// calls it between two steps.
//
// Times are seconds of the engine's clock, which stands still while no
// coordinator runs; "now_s" is in every status.
#ifndef GAVEL_COORDINATOR_SERVER_QUERY_QUERY_H_
#define GAVEL_COORDINATOR_SERVER_QUERY_QUERY_H_

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/job.h"
#include "coordinator/server/query/rows.h"
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
  // CountStates, where it has been computed already.
  const Named<uint64_t>* counts = nullptr;
};

// kNodes: rows of servers; the cursor counts rows. kStatus: one object.
// kForecast: rows of active jobs. Of jobs queue_view.h answers.
QueryReply AnswerQuery(const QueryRequest& request, const QueryView& view);

// The parts of it that are rows. Of servers: at most kAcceleratorsPerRowMax
// accelerators in one, further ones follow in rows of the same server.
void AnswerNodes(const QueryRequest& request, const QueryView& view,
                 QueryReply* reply);
// What a prediction needs of each active job, for `gavel what-if`: the client
// simulates, so that the coordinator never computes for it. By job id, the
// cursor is the last one's. "steps_left" is null for a job that runs until its
// program ends by itself.
void AnswerForecast(const QueryRequest& request, const QueryView& view,
                    QueryReply* reply);

// As squeue's: PD waiting, R running, S paused, CG pausing or ending,
// CD finished, F held after failures, CA cancelled.
std::string_view StateLetters(const Job& job);
// "measured".
std::string_view SourceName(ThroughputSource source);
// Jobs by state letters; looks at each.
Named<uint64_t> CountStates(const std::map<JobId, Job>& jobs);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_QUERY_QUERY_H_
