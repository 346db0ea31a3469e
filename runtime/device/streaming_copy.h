// memcpy for large blocks that nobody reads soon, such as a copy of a model: it
// goes past the caches, so that training finds what it had in them, and memory
// is not read before it is overwritten. Called by CopyList.
//
// Pure, thread-safe.
#ifndef GAVEL_RUNTIME_DEVICE_STREAMING_COPY_H_
#define GAVEL_RUNTIME_DEVICE_STREAMING_COPY_H_

#include <cstddef>

namespace gavel {

// The blocks must not overlap. Any alignment and size.
void StreamingCopy(char* to, const char* from, size_t size);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_DEVICE_STREAMING_COPY_H_
