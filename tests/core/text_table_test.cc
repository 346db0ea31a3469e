#include "core/text_table.h"

#include <limits>

#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(TextTable, LongTextIsCutAtCharactersNotBytes) {
  EXPECT_EQ(Cut("abcdef", 6), "abcdef");
  EXPECT_EQ(Cut("abcdef", 4), "abc…");
  EXPECT_EQ(Cut("äöüß", 4), "äöüß");
  EXPECT_EQ(Cut("äöüß", 3), "äö…");
  EXPECT_EQ(Cut("abc", 0), "");
}

TEST(TextTable, NumbersCanBeRead) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(99'999), "99999");
  EXPECT_EQ(FormatCount(123'456), "123k");
  EXPECT_EQ(FormatCount(4'567'890), "4.57M");
  EXPECT_EQ(FormatCount(7'000'000'000), "7.00G");
  EXPECT_EQ(FormatCount(18'000'000'000'000'000'000u), "1.8e+19");
  EXPECT_EQ(FormatRate(0), "-");
  EXPECT_EQ(FormatRate(0.517), "0.52");
  EXPECT_EQ(FormatRate(33.14), "33.1");
  EXPECT_EQ(FormatRate(1234.5), "1234");
  EXPECT_EQ(FormatScalar(2.302585), "2.303");
  EXPECT_EQ(FormatScalar(1e-5), "1e-05");
  EXPECT_EQ(FormatScalar(123456), "1.235e+05");
}

TEST(TextTable, DurationsAsPeopleReadThem) {
  EXPECT_EQ(FormatDuration(0.416), "0.42 s");
  EXPECT_EQ(FormatDuration(12.4), "12 s");
  EXPECT_EQ(FormatDuration(200), "3 min 20 s");
  EXPECT_EQ(FormatDuration(5 * 3600 + 12 * 60), "5 h 12 min");
  EXPECT_EQ(FormatDuration(4 * 86400), "4.0 days");
  EXPECT_EQ(FormatDuration(kNaN), "-");
  EXPECT_EQ(FormatHours(3600 * 16.824), "16.82 h");
  EXPECT_EQ(FormatHours(3600 * 104.12), "104.1 h");
  EXPECT_EQ(FormatHours(kNaN), "-");
  EXPECT_EQ(FormatPercent(0.4531), "45.3 %");
}

TEST(TextTable, DurationsAsPeopleWriteThem) {
  EXPECT_EQ(ParseDuration("90s"), 90);
  EXPECT_EQ(ParseDuration("1h30m"), 5400);
  EXPECT_EQ(ParseDuration("1.5d"), 129600);
  EXPECT_EQ(ParseDuration("0s"), 0);
  for (const char* bad : {"", "90", "h", "-1h", "1 h", "1h30", "1w", "1e9h",
                          "1:30:00", "inf", "1..5h"}) {
    EXPECT_EQ(ParseDuration(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace gavel
