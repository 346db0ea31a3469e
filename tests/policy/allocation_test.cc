#include "coordinator/policy/policy.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

TEST(Allocation, ARowIsWhatWasPutIn) {
  const Allocation allocation =
      Allocation::FromRows({{JobId(2), {}}, {JobId(5), {}}, {JobId(9), {}}}, 2,
                           {0.1, 0.2, 0.3, 0.4, 0.5, 0.6});
  EXPECT_EQ(allocation.columns(), 2u);
  EXPECT_EQ(allocation.units().size(), 3u);
  EXPECT_EQ(allocation.Row(JobId(2)), (std::vector<double>{0.1, 0.2}));
  EXPECT_EQ(allocation.Row(JobId(9)), (std::vector<double>{0.5, 0.6}));
}

TEST(Allocation, AJobThatIsNotInItHasARowOfZeros) {
  const Allocation allocation = Allocation::FromRows(
      {{JobId(2), {}}, {JobId(5), {}}}, 2, {0.1, 0.2, 0.3, 0.4});
  for (const uint64_t id : {1, 3, 6}) {
    EXPECT_FALSE(allocation.Contains(JobId(id)));
    EXPECT_EQ(allocation.Row(JobId(id)), (std::vector<double>{0, 0}));
  }
  EXPECT_TRUE(allocation.Contains(JobId(5)));
}

TEST(Allocation, EqualUnitsHaveOneRow) {
  const std::vector<ShareUnit> units = {
      {JobId(1), {}}, {JobId(2), {}}, {JobId(4), {}}};
  const Allocation classes =
      Allocation::FromClasses(units, {1, 0, 1}, 2, {0.1, 0.2, 0.3, 0.4});
  const Allocation rows =
      Allocation::FromRows(units, 2, {0.3, 0.4, 0.1, 0.2, 0.3, 0.4});
  for (size_t u = 0; u < units.size(); ++u) {
    EXPECT_EQ(classes.Find(units[u]), u);
    EXPECT_EQ(classes.Row(units[u]), rows.Row(units[u]));
    EXPECT_EQ(classes.Row(units[u].job), rows.Row(units[u].job));
  }
  EXPECT_EQ(classes.RowAt(0).data(), classes.RowAt(2).data());
  EXPECT_EQ(classes.Find({JobId(3), {}}), std::nullopt);
}

TEST(Allocation, AnEmptyHandleHasNoJobsAndNoTypes) {
  const Allocation allocation;
  EXPECT_EQ(allocation.columns(), 0u);
  EXPECT_TRUE(allocation.units().empty());
  EXPECT_FALSE(allocation.Contains(JobId(1)));
  EXPECT_TRUE(allocation.Row(JobId(1)).empty());
}

TEST(Allocation, CopiesShareOneForm) {
  const Allocation allocation =
      Allocation::FromRows({{JobId(1), {}}}, 1, {0.5});
  const Allocation copy = allocation;
  EXPECT_EQ(copy.units().data(), allocation.units().data());
}

}  // namespace
}  // namespace gavel::testing
