#include "iterator/process_bytes.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>

namespace gavel::internal {
namespace {

// Calls, and pages that came from a disk. What is written through the page
// cache is in the first already.
constexpr std::string_view kCounters[] = {"rchar: ", "wchar: ", "read_bytes: "};

}  // namespace

uint64_t ParseProcessBytes(std::string_view text) {
  uint64_t bytes = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    for (const std::string_view counter : kCounters) {
      if (line.substr(0, counter.size()) != counter) continue;
      uint64_t count = 0;
      std::from_chars(line.data() + counter.size(), line.data() + line.size(),
                      count);
      bytes += count;
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return bytes;
}

uint64_t ProcessBytes() {
  const int fd = ::open("/proc/self/io", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[512];
  const ssize_t size = ::read(fd, text, sizeof text);
  ::close(fd);
  if (size <= 0) return 0;
  return ParseProcessBytes(std::string_view(text, static_cast<size_t>(size)));
}

}  // namespace gavel::internal
