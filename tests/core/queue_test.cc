#include "core/queue.h"

#include "tests/support/test.h"

namespace gavel {
namespace {

TEST(Queue, GivesWhatCameFirst) {
  Queue<int> queue;
  EXPECT_TRUE(queue.empty());
  for (int i = 0; i < 3; ++i) queue.Push(i);
  EXPECT_EQ(queue.size(), 3u);
  EXPECT_EQ(queue.front(), 0);
  EXPECT_EQ(queue.Pop(), 0);
  EXPECT_EQ(queue.Pop(), 1);
  queue.Push(3);
  EXPECT_EQ(queue.Pop(), 2);
  EXPECT_EQ(queue.Pop(), 3);
  EXPECT_TRUE(queue.empty());
}

// Never empty, and never longer than three: the front goes on through memory
// that does not grow.
TEST(Queue, KeepsTheOrderWhereItIsNeverEmpty) {
  Queue<std::unique_ptr<int>> queue;
  int pushed = 0;
  const auto push = [&] { queue.Push(std::make_unique<int>(pushed++)); };
  push();
  push();
  for (int i = 0; i < 1000; ++i) {
    push();
    ASSERT_EQ(*queue.Pop(), i);
    ASSERT_EQ(queue.size(), 2u);
  }
}

TEST(Queue, IsEmptyOnceCleared) {
  Queue<int> queue;
  queue.Push(1);
  queue.Push(2);
  EXPECT_EQ(queue.Pop(), 1);
  queue.clear();
  EXPECT_TRUE(queue.empty());
  queue.Push(3);
  EXPECT_EQ(queue.Pop(), 3);
}

}  // namespace
}  // namespace gavel
