// What a part records an event with, which is journaled and then applied. The
// engine's core is the one recorder; it borrows nothing, and outlives the
// parts.
#ifndef GAVEL_COORDINATOR_ENGINE_STATE_RECORDER_H_
#define GAVEL_COORDINATOR_ENGINE_STATE_RECORDER_H_

#include "coordinator/engine/event.h"
#include "core/units.h"

namespace gavel::engine {

class Recorder {
 public:
  // Applies the event before it returns: what the caller has read of jobs and
  // workers may be different then.
  virtual void Record(Time now, Event event) = 0;

 protected:
  ~Recorder() = default;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_STATE_RECORDER_H_
