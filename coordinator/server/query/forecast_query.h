// What a prediction needs of each active job, for `gavel what-if`: the client
// simulates, so that the coordinator never computes for it. Pure, as query.h.
#ifndef GAVEL_COORDINATOR_SERVER_QUERY_FORECAST_QUERY_H_
#define GAVEL_COORDINATOR_SERVER_QUERY_FORECAST_QUERY_H_

#include "coordinator/server/query/query.h"

namespace gavel {

// Rows by job id, the cursor is the last one's. "steps_left" is null for a job
// that runs until its program ends by itself.
void AnswerForecast(const QueryRequest& request, const QueryView& view,
                    QueryReply* reply);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_QUERY_FORECAST_QUERY_H_
