#include "runtime/device/streaming_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace gavel {
namespace {

#ifdef __SSE2__

constexpr size_t kLineBytes = 64;
constexpr size_t kPageBytes = 4096;
// Pages that are copied side by side, a line of each in turn: more of them are
// under way at once than one page's prefetcher would ask for.
constexpr size_t kPages = 4;
constexpr size_t kBlockBytes = kPages * kPageBytes;
constexpr size_t kPrefetchBytes = 512;

// `to` is a multiple of 16.
void CopyLine(char* to, const char* from) {
  const auto* source = reinterpret_cast<const __m128i*>(from);
  auto* target = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(source);
  const __m128i b = _mm_loadu_si128(source + 1);
  const __m128i c = _mm_loadu_si128(source + 2);
  const __m128i d = _mm_loadu_si128(source + 3);
  _mm_stream_si128(target, a);
  _mm_stream_si128(target + 1, b);
  _mm_stream_si128(target + 2, c);
  _mm_stream_si128(target + 3, d);
}

void CopyBlock(char* to, const char* from) {
  for (size_t line = 0; line < kPageBytes; line += kLineBytes) {
    for (size_t page = 0; page < kBlockBytes; page += kPageBytes) {
      const size_t offset = page + line;
      // A hint only: it may point behind the block.
      _mm_prefetch(from + offset + kPrefetchBytes, _MM_HINT_T0);
      CopyLine(to + offset, from + offset);
    }
  }
}

#endif

}  // namespace

void StreamingCopy(char* to, const char* from, size_t size) {
#ifdef __SSE2__
  const size_t misaligned = reinterpret_cast<uintptr_t>(to) % kLineBytes;
  const size_t head = std::min(size, (kLineBytes - misaligned) % kLineBytes);
  std::memcpy(to, from, head);
  size_t done = head;
  for (; size - done >= kBlockBytes; done += kBlockBytes) {
    CopyBlock(to + done, from + done);
  }
  // Streaming stores are not ordered with others: another thread may read next.
  _mm_sfence();
  std::memcpy(to + done, from + done, size - done);
#else
  std::memcpy(to, from, size);
#endif
}

}  // namespace gavel
