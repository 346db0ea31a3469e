// What operators do to the cluster, and owners to their jobs: durable events
// (event.h). The server makes them of clients' commands.
#ifndef GAVEL_COORDINATOR_ENGINE_OPERATOR_EVENTS_H_
#define GAVEL_COORDINATOR_ENGINE_OPERATOR_EVENTS_H_

#include <cstdint>
#include <map>
#include <string>

#include "core/ids.h"
#include "core/job_update.h"
#include "core/units.h"

namespace gavel {

// The policy that decides now. `instead_of`: the coordinator's own (--policy),
// where another one was set while it ran; empty: it is that one.
struct DecidingPolicy {
  std::string name;
  std::string instead_of;
  // As in EngineOptions; of a policy that was set.
  bool packing = false;
  bool progress = true;
};

// What the engine keeps of what operators did, beside what is the cluster's.
struct Operated {
  DecidingPolicy policy;
  // Until when jobs may stay that are on drained accelerators.
  std::map<AcceleratorId, Time> drains;
};

namespace event {

// Nobody starts there any more, and whoever is there leaves at the end of the
// round, at `until` at the latest; or it is in use again.
struct AcceleratorsDrained {
  // As somebody named it: a server, an accelerator's uuid, or "SERVER/UUID". In
  // the journal always the server.
  std::string server;
  std::string uuid = "";  // empty: all of the server
  bool drained = true;
  bool by_agent = false;  // it ends: until it comes back
  Time until = 0;
  uint64_t reply_to = 0;  // not journaled
  // Of one accelerator that the coordinator finds unfit: why, with the remedy,
  // and AcceleratorHealth::uncorrectable_errors, which then are known.
  std::string why = "";
  uint64_t errors = 0;
  // An accelerator that is drained by itself stays so when its server is
  // resumed. Events of earlier versions make no difference.
  bool scoped = false;
};

struct JobUpdated {
  JobId job;
  JobUpdate update;
  uint64_t reply_to = 0;  // not journaled
};

struct PolicyChanged {
  std::string policy;
  std::string instead_of = "";
  bool packing = false;
  bool progress = true;
  uint64_t reply_to = 0;  // not journaled
};

// It was gone, and is not expected back.
struct ServerForgotten {
  std::string server;
  uint64_t reply_to = 0;  // not journaled
};

}  // namespace event
}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_OPERATOR_EVENTS_H_
