#include <atomic>
#include <stdexcept>

#include "runtime/device/host_memory.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

class WorkerPoolTest : public TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, WorkerPoolTest, Values(1, 2, 5));

TEST_P(WorkerPoolTest, RunsEveryTaskOnce) {
  WorkerPool pool(GetParam());
  for (size_t count : {0, 1, 2, 100}) {
    std::vector<std::atomic<int>> runs(count);
    EXPECT_OK(pool.Run(count, [&](size_t i) {
      ++runs[i];
      return absl::OkStatus();
    }));
    for (const auto& one : runs) EXPECT_EQ(one, 1);
  }
}

TEST_P(WorkerPoolTest, AnErrorEndsTheRunAndNotThePool) {
  WorkerPool pool(GetParam());
  std::atomic<int> runs = 0;
  EXPECT_THAT(pool.Run(1000,
                       [&](size_t i) -> absl::Status {
                         ++runs;
                         if (i < 3) return absl::OkStatus();
                         return absl::UnknownError("task " + std::to_string(i));
                       }),
              StatusIs(kUnknown, "task 3"));
  EXPECT_LE(runs, 3 + GetParam());
  EXPECT_OK(pool.Run(10, [](size_t) { return absl::OkStatus(); }));
}

TEST_P(WorkerPoolTest, WhatATaskThrowsIsAStatus) {
  WorkerPool pool(GetParam());
  EXPECT_THAT(
      pool.Run(4,
               [](size_t) -> absl::Status { throw std::runtime_error("x"); }),
      StatusIs(kInternal, "x"));
}

}  // namespace
}  // namespace gavel::testing
