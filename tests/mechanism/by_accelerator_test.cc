#include "coordinator/mechanism/cluster.h"
#include "core/ids.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr AcceleratorId kFirst(1);
constexpr AcceleratorId kThird(3);

TEST(ByAccelerator, KeepsWhatCameInItsOrder) {
  ByAccelerator<JobId> jobs;
  EXPECT_THAT(jobs.At(kThird), IsEmpty());
  for (const uint64_t id : {7, 5, 6}) jobs.Add(kThird, JobId(id));
  EXPECT_THAT(jobs.At(kThird), ElementsAre(JobId(7), JobId(5), JobId(6)));
  EXPECT_THAT(jobs.At(kFirst), IsEmpty());
  EXPECT_THAT(jobs.At(AcceleratorId()), IsEmpty());
  EXPECT_THAT(jobs.At(AcceleratorId(9)), IsEmpty());
}

TEST(ByAccelerator, RemovesOneOfAnAccelerator) {
  ByAccelerator<JobId> jobs;
  for (const uint64_t id : {7, 5, 7}) jobs.Add(kFirst, JobId(id));
  const auto is_seven = [](JobId id) { return id == JobId(7); };
  EXPECT_TRUE(jobs.Remove(kFirst, is_seven));
  EXPECT_THAT(jobs.At(kFirst), ElementsAre(JobId(5), JobId(7)));
  EXPECT_TRUE(jobs.Remove(kFirst, is_seven));
  EXPECT_FALSE(jobs.Remove(kFirst, is_seven));
  EXPECT_FALSE(jobs.Remove(kThird, is_seven));
  EXPECT_THAT(jobs.At(kFirst), ElementsAre(JobId(5)));
}

TEST(ByAccelerator, IsReadAsItWasWritten) {
  ByAccelerator<JobId> jobs;
  jobs.Add(kThird, JobId(7));
  jobs.Add(kFirst, JobId(9));
  jobs.Add(kFirst, JobId(2));
  EXPECT_THAT(jobs.ToEntries(), ElementsAre(::testing::Pair(kFirst, JobId(9)),
                                            ::testing::Pair(kFirst, JobId(2)),
                                            ::testing::Pair(kThird, JobId(7))));
  ByAccelerator<JobId> read;
  EXPECT_TRUE(read.TakeEntries(jobs.ToEntries()));
  EXPECT_EQ(read.ToEntries(), jobs.ToEntries());
}

TEST(ByAccelerator, RefusesAcceleratorsThatCannotBe) {
  ByAccelerator<JobId> jobs;
  EXPECT_FALSE(jobs.TakeEntries({{AcceleratorId(), JobId(1)}}));
  const AcceleratorId beyond(ByAccelerator<JobId>::kIdMax + 1);
  EXPECT_FALSE(jobs.TakeEntries({{beyond, JobId(1)}}));
}

}  // namespace
}  // namespace gavel
