#include <random>
#include <tuple>

#include "core/queue.h"
#include "core/units.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

std::vector<int> TakeAll(TimedQueue<int>& queue) {
  std::vector<int> taken;
  while (const auto task = queue.Take(kNever)) taken.push_back(*task);
  return taken;
}

TEST(TimedQueue, GivesTasksOfOneTimeInTheOrderInWhichTheyCame) {
  TimedQueue<int> queue;
  std::mt19937_64 random(1);
  std::vector<std::pair<Time, int>> expected;
  for (int i = 0; i < 1000; ++i) {
    const Time time = static_cast<double>(random() % 20);
    queue.At(time, i);
    expected.emplace_back(time, i);
  }
  std::sort(expected.begin(), expected.end());
  std::vector<int> order;
  for (const auto& [time, task] : expected) order.push_back(task);
  EXPECT_EQ(TakeAll(queue), order);
  EXPECT_EQ(queue.now(), 19);
}

TEST(TimedQueue, TakesWhatIsLateNow) {
  TimedQueue<int> queue;
  queue.At(10, 1);
  ASSERT_EQ(queue.Take(kNever), 1);
  queue.At(5, 2);
  EXPECT_EQ(queue.next(), 10);
  EXPECT_EQ(queue.Take(9), std::nullopt);
  EXPECT_EQ(queue.Take(10), 2);
}

TEST(TimedQueue, IsInOrderAgainWhenItsStateWasReadInAnyOrder) {
  TimedQueue<int> queue;
  for (int i = 0; i < 9; ++i) queue.At(9 - i, 9 - i);
  auto& tasks = std::get<2>(TimedQueue<int>::State(queue));
  std::reverse(tasks.begin(), tasks.end());
  queue.Restored();
  EXPECT_EQ(TakeAll(queue), (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

}  // namespace
}  // namespace gavel
