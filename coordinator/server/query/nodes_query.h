// Servers and their accelerators, for `gavel nodes`. Pure, as query.h.
#ifndef GAVEL_COORDINATOR_SERVER_QUERY_NODES_QUERY_H_
#define GAVEL_COORDINATOR_SERVER_QUERY_NODES_QUERY_H_

#include "coordinator/server/query/query.h"

namespace gavel {

// Rows of servers; the cursor counts rows. At most kAcceleratorsPerRowMax in
// one, further ones follow in rows of the same server.
void AnswerNodes(const QueryRequest& request, const QueryView& view,
                 QueryReply* reply);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_QUERY_NODES_QUERY_H_
