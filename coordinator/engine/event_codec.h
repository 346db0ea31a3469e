// Rows of the journal: durable events as bytes, by the rules of core/codec.h.
// Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_EVENT_CODEC_H_
#define GAVEL_COORDINATOR_ENGINE_EVENT_CODEC_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/engine/event.h"

namespace gavel {

bool IsDurable(const Event& event);
// "JobSubmitted".
std::string_view EventName(const Event& event);

// Requires IsDurable(event).
std::string EncodeEvent(const Event& event);
// Returns DATA_LOSS, with the reason, if the row is not a durable event.
absl::StatusOr<Event> DecodeEvent(std::string_view row);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_EVENT_CODEC_H_
