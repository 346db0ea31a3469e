// The memory that checkpoints pass through, and when it is pinned: by a fake.
#include "runtime/checkpoint/arena.h"

#include "runtime/generation/file_system.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

constexpr uint64_t kSize = 100'000;

// Counts what it has pinned.
struct FakeDevice {
  int pieces = 0;
  uint64_t bytes = 0;
  uint64_t bytes_max = ~uint64_t{0};

  Pinning pinning() {
    return {[this](void*, uint64_t size_bytes) {
              if (bytes + size_bytes > bytes_max) return false;
              ++pieces;
              bytes += size_bytes;
              return true;
            },
            [this](void*) { --pieces; }};
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

TEST(Arena, PinsNothingBeforeADeviceIsHeld) {
  FakeDevice device;
  Arena arena;
  const char* const data = Take(arena)->data();
  WorkerPool pool(2);
  EXPECT_OK(arena.Fault(kSize, pool));
  EXPECT_EQ(device.pieces, 0);
  arena.AllowPinned(device.pinning());
  EXPECT_EQ(Take(arena)->data(), data) << "which does not wait for pinning";
  EXPECT_EQ(device.pieces, 0);
  EXPECT_OK(arena.Fault(kSize, pool));
  EXPECT_EQ(device.bytes, Take(arena)->size_bytes());
  arena.Pin();
  EXPECT_EQ(device.pieces, 1) << "once";
}

TEST(Arena, MemoryIsPinnedAsAWholeOrNotAtAll) {
  FakeDevice device;
  device.bytes_max = uint64_t{600} << 20;
  {
    Arena arena;
    arena.AllowPinned(device.pinning());
    const auto too_large = Take(arena, uint64_t{700} << 20);
    arena.Pin();
    EXPECT_FALSE(too_large->is_pinned());
    const auto block = Take(arena, uint64_t{500} << 20);
    arena.Pin();
    EXPECT_TRUE(block->is_pinned());
    EXPECT_EQ(device.pieces, 1);
  }
  EXPECT_EQ(device.pieces, 0) << "all is given back";
}

TEST(Arena, MemoryThatIsFarTooLargeIsGivenBack) {
  Arena arena;
  Take(arena, uint64_t{500} << 20);
  Take(arena, uint64_t{300} << 20);
  EXPECT_GE(arena.size_bytes(), uint64_t{500} << 20);
  Take(arena, kSize);
  EXPECT_LT(arena.size_bytes(), uint64_t{1} << 20);
}

TEST(Arena, WhatSomebodyStillLooksIntoIsLeftToThem) {
  Arena arena;
  const std::shared_ptr<ArenaBlock> first = Take(arena);
  EXPECT_NE(Take(arena)->data(), first->data());
}

}  // namespace
}  // namespace gavel::testing
