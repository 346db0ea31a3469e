// What comes of a handshake with keys. Values.
#ifndef GAVEL_RUNTIME_TRANSPORT_ADMISSION_H_
#define GAVEL_RUNTIME_TRANSPORT_ADMISSION_H_

#include <cstdint>

namespace gavel {

// Peers learn which of the last two it is, and try again all the same. Those of
// earlier versions then do not: kNotYet is for keys that may be allowed in a
// moment, as of a worker that is here before its agent has told of it.
enum class Admission : uint8_t { kAllowed, kNotYet, kRefused, kRevoked };

}  // namespace gavel

#endif  // GAVEL_RUNTIME_TRANSPORT_ADMISSION_H_
