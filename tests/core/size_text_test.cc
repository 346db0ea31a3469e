#include "core/text_table.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

TEST(SizeText, TakesTheLargestUnitOfWhichThereIsOne) {
  EXPECT_EQ(SizeText(0), "0.0 KiB");
  EXPECT_EQ(SizeText(512), "0.5 KiB");
  EXPECT_EQ(SizeText(uint64_t{3} << 20), "3.0 MiB");
  EXPECT_EQ(SizeText((uint64_t{7} << 30) / 2), "3.5 GiB");
  EXPECT_EQ(SizeText(UINT64_MAX), "16777216.0 TiB");
}

}  // namespace
}  // namespace gavel
