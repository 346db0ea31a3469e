#include "runtime/files/worker_thread.h"

#include <atomic>
#include <future>
#include <semaphore>
#include <stdexcept>
#include <thread>

#include "tests/support/eventually.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

// The calls of a thread. The first one begins and stays until it is let go.
class Calls {
 public:
  Time Take(std::vector<int> items) {
    const bool first = count_++ == 0;
    {
      const std::lock_guard lock(mutex_);
      batches_.push_back(std::move(items));
    }
    if (first) {
      begun_.release();
      may_end_.acquire();
    }
    return kNever;
  }
  WorkerThread<int>::Work Work() {
    return [this](std::vector<int> items, const std::stop_token&) {
      return Take(std::move(items));
    };
  }

  void WaitForTheFirst() { begun_.acquire(); }
  void LetGo() { may_end_.release(); }
  std::vector<std::vector<int>> batches() {
    const std::lock_guard lock(mutex_);
    return batches_;
  }
  size_t count() const { return count_; }

 private:
  std::atomic<size_t> count_ = 0;
  std::binary_semaphore begun_{0};
  std::binary_semaphore may_end_{0};
  std::mutex mutex_;
  std::vector<std::vector<int>> batches_;
};

TEST(WorkerThread, WhatWaitsGoesToOneCallInItsOrder) {
  Calls calls;
  WorkerThread<int> thread(AtEnd::kFinish, calls.Work());
  EXPECT_FALSE(thread.IsBusy());
  thread.Post(1);
  calls.WaitForTheFirst();
  EXPECT_TRUE(thread.IsBusy());
  EXPECT_FALSE(thread.WaitUntilIdle(0.01));
  for (int item = 2; item <= 5; ++item) thread.Post(item);
  EXPECT_TRUE(thread.IsBusy());
  EXPECT_FALSE(thread.WaitUntilIdle(0.01));
  calls.LetGo();
  EXPECT_TRUE(thread.WaitUntilIdle());
  EXPECT_FALSE(thread.IsBusy());
  EXPECT_THAT(calls.batches(),
              ElementsAre(ElementsAre(1), ElementsAre(2, 3, 4, 5)));
}

TEST(WorkerThread, PostsOfSeveralThreadsAllArriveEachInItsOrder) {
  constexpr int kThreads = 4;
  constexpr int kItems = 2000;
  constexpr size_t kWaitingMax = 16;
  std::map<int, std::vector<int>> taken;  // by who posted it
  size_t most = 0;
  {
    WorkerThread<std::pair<int, int>> thread(
        AtEnd::kFinish, [&](auto items, const std::stop_token&) {
          most = std::max(most, items.size());
          for (const auto& [poster, item] : items) {
            taken[poster].push_back(item);
          }
          return kNever;
        });
    std::vector<std::jthread> posters;
    for (int poster = 0; poster < kThreads; ++poster) {
      posters.emplace_back([&thread, poster] {
        for (int item = 0; item < kItems; ++item) {
          thread.Post({poster, item}, kWaitingMax);
        }
      });
    }
  }
  EXPECT_LE(most, kWaitingMax);
  ASSERT_EQ(taken.size(), size_t{kThreads});
  for (const auto& [poster, items] : taken) {
    EXPECT_EQ(items.size(), size_t{kItems});
    EXPECT_TRUE(std::ranges::is_sorted(items));
  }
}

TEST(WorkerThread, APostWaitsForRoom) {
  Calls calls;
  WorkerThread<int> thread(AtEnd::kFinish, calls.Work());
  thread.Post(1, 2);
  calls.WaitForTheFirst();
  thread.Post(2, 2);
  thread.Post(3, 2);
  std::atomic<bool> posted = false;
  std::jthread poster([&] {
    thread.Post(4, 2);
    posted = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(posted);
  thread.Post(5);  // without a limit
  calls.LetGo();
  EXPECT_TRUE(Eventually([&] { return posted.load(); }));
  poster.join();
  thread.WaitUntilIdle();
  EXPECT_THAT(calls.batches(), ElementsAre(ElementsAre(1), ElementsAre(2, 3, 5),
                                           ElementsAre(4)));
}

// As when a commit takes long: the next ones wait for it together.
TEST(WorkerThread, ThereIsRoomAsSoonAsACallBegins) {
  std::counting_semaphore<> begun(0);
  std::counting_semaphore<> may_end(0);
  WorkerThread<int> thread(AtEnd::kFinish, [&](auto, const std::stop_token&) {
    begun.release();
    may_end.acquire();
    return kNever;
  });
  thread.Post(1);
  begun.acquire();
  thread.Post(2);
  std::atomic<bool> posted = false;
  const std::jthread poster([&] {
    thread.Post(3, 1);
    posted = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(posted);
  may_end.release();
  begun.acquire();  // the second call stays
  EXPECT_TRUE(Eventually([&] { return posted.load(); }));
  may_end.release(2);
}

TEST(WorkerThread, AStopFreesAPostThatWaitsForRoom) {
  Calls calls;
  WorkerThread<int> thread(AtEnd::kFinish, calls.Work());
  thread.Post(1);
  calls.WaitForTheFirst();
  thread.Post(2);
  std::jthread poster([&] { thread.Post(3, 1); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::jthread stopper([&] { thread.Stop(); });
  poster.join();
  calls.LetGo();
  stopper.join();
  EXPECT_THAT(calls.batches(), ElementsAre(ElementsAre(1), ElementsAre(2)));
}

TEST(WorkerThread, OnlyTheNewestOfWhatWaitsIsKept) {
  Calls calls;
  WorkerThread<int> thread(AtEnd::kFinish, calls.Work());
  thread.Replace(1);
  calls.WaitForTheFirst();
  thread.Post(2);
  for (int item = 3; item <= 9; ++item) thread.Replace(item);
  calls.LetGo();
  thread.WaitUntilIdle();
  EXPECT_THAT(calls.batches(), ElementsAre(ElementsAre(1), ElementsAre(9)));
}

TEST(WorkerThread, WhatIsDroppedIsNotCalledAndMakesRoom) {
  Calls calls;
  WorkerThread<int> thread(AtEnd::kFinish, calls.Work());
  thread.Post(1);
  calls.WaitForTheFirst();
  thread.Post(2);
  thread.Drop();
  thread.Post(3, 1);
  thread.Drop();
  calls.LetGo();
  thread.WaitUntilIdle();
  thread.Stop();
  EXPECT_THAT(calls.batches(), ElementsAre(ElementsAre(1)));
}

// As when a function that waits has the last reference to who posts.
TEST(WorkerThread, ADroppedItemMayCallItsThread) {
  struct Caller {
    std::function<void()> call;
    ~Caller() { call(); }
  };
  Calls calls;
  WorkerThread<std::shared_ptr<Caller>> thread(
      AtEnd::kDrop,
      [&](auto, const std::stop_token&) { return calls.Take({}); });
  int called = 0;
  const auto post = [&] {
    thread.Post(std::make_shared<Caller>([&] {
      thread.IsBusy();
      ++called;
    }));
  };
  thread.Post(nullptr);
  calls.WaitForTheFirst();
  post();
  thread.Drop();
  EXPECT_EQ(called, 1);
  post();
  thread.Replace(nullptr);
  EXPECT_EQ(called, 2);
  post();
  calls.LetGo();
  thread.Stop();
}

TEST(WorkerThread, TheEndFinishesWhatWaits) {
  Calls calls;
  calls.LetGo();
  {
    WorkerThread<int> thread(AtEnd::kFinish, calls.Work());
    for (int item = 0; item < 100; ++item) thread.Post(item);
  }
  size_t items = 0;
  for (const auto& batch : calls.batches()) items += batch.size();
  EXPECT_EQ(items, 100u);
}

TEST(WorkerThread, TheEndDropsWhatWaitsButNotTheCallUnderWay) {
  Calls calls;
  std::atomic<bool> ended = false;
  std::jthread later;
  {
    WorkerThread<int> thread(AtEnd::kDrop, [&](auto items, const auto& stop) {
      later = std::jthread([&calls, stop] {
        EXPECT_TRUE(Eventually([&] { return stop.stop_requested(); }));
        calls.LetGo();
      });
      calls.Take(std::move(items));
      ended = true;
      return 0.0;  // it is not called again
    });
    thread.Post(1);
    calls.WaitForTheFirst();
    thread.Post(2);
  }
  EXPECT_TRUE(ended);
  EXPECT_THAT(calls.batches(), ElementsAre(ElementsAre(1)));
}

TEST(WorkerThread, AStoppedThreadTakesNothing) {
  Calls calls;
  WorkerThread<int> thread(AtEnd::kFinish, calls.Work());
  EXPECT_TRUE(thread.Stop());
  thread.Post(1);
  thread.Post(2, 0);
  thread.Replace(3);
  EXPECT_FALSE(thread.IsBusy());
  EXPECT_TRUE(thread.WaitUntilIdle());
  EXPECT_EQ(calls.count(), 0u);
}

TEST(WorkerThread, AThreadThatDoesNotEndInTimeIsLeftAlone) {
  auto calls = std::make_shared<Calls>();  // outlives the thread
  std::promise<void> gone;
  {
    auto work = [calls, last = std::shared_ptr<void>(nullptr, [&](void*) {
                          gone.set_value();
                        })](std::vector<int> items, const std::stop_token&) {
      return calls->Take(std::move(items));
    };
    WorkerThread<int> thread(AtEnd::kDrop, std::move(work));
    thread.Post(1);
    calls->WaitForTheFirst();
    thread.Post(2);
    EXPECT_FALSE(thread.Stop(0.01));
  }
  EXPECT_THAT(calls->batches(), ElementsAre(ElementsAre(1)));
  calls->LetGo();
  gone.get_future().wait();
  EXPECT_EQ(calls->count(), 1u);
}

TEST(WorkerThread, AThreadThatEndsInTimeIsJoined) {
  std::atomic<bool> ended = false;
  WorkerThread<int> thread(AtEnd::kFinish,
                           [&](auto, const std::stop_token& stop) {
                             Eventually([&] { return stop.stop_requested(); });
                             ended = true;
                             return kNever;
                           });
  thread.Post(1);
  EXPECT_TRUE(thread.Stop(kPatience_s));
  EXPECT_TRUE(ended);
}

TEST(WorkerThread, IsCalledAgainAtOnceUntilNothingIsLeftToDo) {
  std::atomic<int> left = 4;
  std::vector<size_t> sizes;
  WorkerThread<int> thread(AtEnd::kFinish, [&](auto items, const auto&) {
    sizes.push_back(items.size());
    return --left > 0 ? 0.0 : kNever;
  });
  thread.Post(7);
  EXPECT_TRUE(Eventually([&] { return left == 0; }));
  thread.Stop();
  EXPECT_THAT(sizes, ElementsAre(1, 0, 0, 0));
}

TEST(WorkerThread, IsCalledAgainWhenTheTimeHasComeOrAnItem) {
  std::counting_semaphore<> called(0);
  double wait_s = 0.02;
  WorkerThread<int> thread(AtEnd::kDrop, [&](auto items, const auto&) {
    if (!items.empty()) wait_s = items.back();
    called.release();
    return wait_s;
  });
  EXPECT_FALSE(called.try_acquire_for(std::chrono::milliseconds(50)));
  const double start = Seconds();
  thread.Post(0);
  for (int call = 0; call < 3; ++call) called.acquire();
  thread.Post(3600);
  thread.WaitUntilIdle();
  while (called.try_acquire()) {
  }
  thread.Post(3600);
  called.acquire();  // long before the hour
  EXPECT_LT(Seconds() - start, kPatience_s);
}

TEST(WorkerThread, WorkMayPost) {
  std::vector<int> taken;
  WorkerThread<int>* self = nullptr;
  WorkerThread<int> thread(AtEnd::kFinish, [&](auto items, const auto&) {
    for (const int item : items) {
      taken.push_back(item);
      if (item < 5) self->Post(item + 1);
    }
    return kNever;
  });
  self = &thread;
  thread.Post(1);
  thread.WaitUntilIdle();
  EXPECT_THAT(taken, ElementsAre(1, 2, 3, 4, 5));
}

TEST(WorkerThread, ItemsNeedNoCopy) {
  int sum = 0;
  {
    WorkerThread<std::unique_ptr<int>> thread(
        AtEnd::kFinish, [&](auto items, const std::stop_token&) {
          for (const auto& item : items) sum += *item;
          return kNever;
        });
    thread.Post(std::make_unique<int>(1));
    thread.WaitUntilIdle();
    thread.Replace(std::make_unique<int>(2));
  }
  EXPECT_EQ(sum, 3);
}

TEST(WorkerThread, AnUnusedThreadEnds) {
  for (const AtEnd at_end : {AtEnd::kFinish, AtEnd::kDrop}) {
    const WorkerThread<int> thread(at_end, [](auto, const auto&) -> Time {
      ADD_FAILURE() << "nothing was posted";
      return kNever;
    });
  }
}

using WorkerThreadDeathTest = Test;

TEST_F(WorkerThreadDeathTest, AnExceptionEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        TaskThread thread;
        thread.Post([] { throw std::runtime_error("out of cheese"); });
        thread.WaitUntilIdle();
      },
      "out of cheese");
}

TEST(TaskThread, RunsTasksInTheirOrderAndAllBeforeItEnds) {
  std::vector<int> run;
  std::thread::id where;
  {
    TaskThread thread;
    for (int task = 0; task < 100; ++task) {
      thread.Post([&run, &where, task] {
        run.push_back(task);
        where = std::this_thread::get_id();
      });
    }
  }
  EXPECT_EQ(run.size(), 100u);
  EXPECT_TRUE(std::ranges::is_sorted(run));
  EXPECT_NE(where, std::this_thread::get_id());
}

}  // namespace
}  // namespace gavel::testing
