// One of every durable event, with something in it, in the order of Event.
#ifndef GAVEL_TESTS_ENGINE_DURABLE_EVENTS_H_
#define GAVEL_TESTS_ENGINE_DURABLE_EVENTS_H_

#include <vector>

#include "coordinator/engine/event.h"

namespace gavel {

std::vector<Event> DurableEvents();

}  // namespace gavel

#endif  // GAVEL_TESTS_ENGINE_DURABLE_EVENTS_H_
