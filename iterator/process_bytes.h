// How many bytes this process has read and written, as the kernel counts them.
// Thread-safe.
#ifndef GAVEL_ITERATOR_PROCESS_BYTES_H_
#define GAVEL_ITERATOR_PROCESS_BYTES_H_

#include <cstdint>
#include <string_view>

namespace gavel::internal {

// The sum of what calls moved and what was fetched from disks for memory that
// is mapped, of all threads and of children that ended: it rises whenever the
// process reads or writes. 0 where the kernel does not count.
uint64_t ProcessBytes();

// `text`: of /proc/PID/io.
uint64_t ParseProcessBytes(std::string_view text);

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_PROCESS_BYTES_H_
