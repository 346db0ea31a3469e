#include "runtime/device/host_memory.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

// Every alignment of both sides, and sizes around the blocks it is made of.
TEST(StreamingCopy, CopiesJustWhatItShall) {
  std::string from(200'000, '\0');
  for (size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<char>(i * 2654435761u >> 13);
  }
  for (const size_t size : {0, 1, 63, 64, 65, 4096, 16383, 16384, 16385, 16448,
                            32768 + 77, 100'000}) {
    for (size_t to_offset = 0; to_offset < 66; to_offset += 5) {
      for (size_t from_offset = 0; from_offset < 66; from_offset += 13) {
        std::string to(size + 200, 'x');
        StreamingCopy(to.data() + 70 + to_offset, from.data() + from_offset,
                      size);
        std::string expected(size + 200, 'x');
        expected.replace(70 + to_offset, size, from, from_offset, size);
        ASSERT_EQ(to, expected) << size << " " << to_offset;
      }
    }
  }
}

}  // namespace
}  // namespace gavel::testing
