// The memory that checkpoints pass through, and when it is pinned. The
// allocator of pinned memory is a fake: no GPU is needed.
#include "runtime/checkpoint/arena.h"

#include <ATen/ops/empty.h>

#include "runtime/generation/file_system.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

constexpr uint64_t kSize = 100'000;

struct FakeGpu {
  int calls = 0;
  bool has_memory = true;
  PinnedAllocator Allocator() {
    return [this](uint64_t size_bytes) {
      ++calls;
      return has_memory
                 ? at::empty({static_cast<int64_t>(size_bytes)}, at::kByte)
                 : at::Tensor();
    };
  }
};

std::shared_ptr<ArenaBlock> Take(Arena& arena, uint64_t size_bytes = kSize) {
  absl::StatusOr<std::shared_ptr<ArenaBlock>> block = arena.Take(size_bytes);
  EXPECT_OK(block.status());
  EXPECT_GE((*block)->size_bytes(), size_bytes);
  EXPECT_EQ(
      reinterpret_cast<uintptr_t>((*block)->data()) % kDirectAlignmentBytes,
      0u);
  (*block)->data()[size_bytes - 1] = 1;
  return *std::move(block);
}

TEST(Arena, TouchesNoGpuBeforeOneIsHeld) {
  FakeGpu gpu;
  Arena arena(gpu.Allocator());
  EXPECT_FALSE(Take(arena)->pinned());
  WorkerPool pool(2);
  EXPECT_OK(arena.Fault(2 * kSize, pool));
  EXPECT_EQ(gpu.calls, 0);
  arena.AllowPinned();
  EXPECT_EQ(gpu.calls, 0);
  // It was large enough, but copies from it are slower.
  EXPECT_TRUE(Take(arena)->pinned());
  EXPECT_TRUE(Take(arena)->pinned());
  EXPECT_EQ(gpu.calls, 1);
}

TEST(Arena, WithoutPinnedMemoryItAsksOnce) {
  FakeGpu gpu;
  gpu.has_memory = false;
  Arena arena(gpu.Allocator());
  arena.AllowPinned();
  const char* const data = Take(arena)->data();
  EXPECT_EQ(Take(arena)->data(), data);
  EXPECT_FALSE(Take(arena, 2 * kSize)->pinned());
  EXPECT_EQ(gpu.calls, 1);
}

TEST(Arena, WhatSomebodyStillLooksIntoIsLeftToThem) {
  Arena arena;
  const std::shared_ptr<ArenaBlock> first = Take(arena);
  EXPECT_NE(Take(arena)->data(), first->data());
}

}  // namespace
}  // namespace gavel::testing
