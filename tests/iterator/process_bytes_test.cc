// The bytes that a process has read and written, as the kernel counts them.
#include <cstdio>

#include "iterator/step_profile.h"
#include "tests/support/test.h"

namespace gavel::internal {
namespace {

TEST(ProcessBytes, AreCallsAndPagesFromDisks) {
  EXPECT_EQ(ParseProcessBytes("rchar: 1000\nwchar: 200\nsyscr: 7\n"
                              "syscw: 7\nread_bytes: 4096\n"
                              "write_bytes: 8192\n"),
            5296u);
  EXPECT_EQ(ParseProcessBytes(""), 0u);
  EXPECT_EQ(ParseProcessBytes("rchar: 12"), 12u);
}

TEST(ProcessBytes, RiseWithEachWrite) {
  const uint64_t before = ProcessBytes();
  if (before == 0) GTEST_SKIP() << "this kernel does not count";
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  const std::string bytes(1 << 20, 'x');
  EXPECT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
  std::fclose(file);
  EXPECT_GE(ProcessBytes(), before + (1 << 20));
}

}  // namespace
}  // namespace gavel::internal
