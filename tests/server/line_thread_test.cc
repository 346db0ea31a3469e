#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "coordinator/server/audit_log.h"
#include "core/text.h"
#include "runtime/files/files.h"
#include "tests/support/eventually.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

TEST(LineThread, WritesAllLinesInTheirOrderBeforeItEnds) {
  std::vector<std::string> written;
  {
    LineThread lines([&](std::string_view line, const std::stop_token&) {
      written.emplace_back(line);
      return true;
    });
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(lines.Append(StrCat(i, "\n")));
  }
  ASSERT_EQ(written.size(), 1000U);
  EXPECT_EQ(written.front(), "0\n");
  EXPECT_EQ(written.back(), "999\n");
}

TEST(LineThread, CountsWhatCouldNotBeWritten) {
  LineThread lines(
      [](std::string_view, const std::stop_token&) { return false; });
  EXPECT_TRUE(lines.Append("a\n"));
  uint64_t lost = 0;
  EXPECT_TRUE(Eventually([&] { return (lost = lines.TakeLost()) > 0; }));
  EXPECT_EQ(lost, 1U);
  EXPECT_EQ(lines.TakeLost(), 0U);
}

// A pipe that nobody reads, as that of a stopped pager.
TEST(LineThread, AReaderThatStandsStillKeepsNobodyWaiting) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(pipe2(pipe.data(), O_CLOEXEC), 0);
  const Descriptor reader(pipe[0]);
  const Descriptor writer(pipe[1]);
  const std::string line(1023, 'x');
  const double start = Seconds();
  {
    LineThread lines(WriteTo(writer.get()));
    const size_t fit = LineThread::kQueuedBytesMax / 1024;
    for (size_t i = 0; i < 2 * fit; ++i) lines.Append(line + "\n");
    EXPECT_LT(Seconds() - start, 5);
    EXPECT_GE(lines.TakeLost(), fit - 200);
  }
  EXPECT_LT(Seconds() - start, 15);
  std::array<char, 1024> first{};
  ASSERT_EQ(read(reader.get(), first.data(), first.size()), 1024);
  EXPECT_EQ(std::string(first.data(), first.size()), line + "\n");
}

}  // namespace
}  // namespace gavel
