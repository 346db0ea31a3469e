// The memory that checkpoints and pauses pass through, and when it is pinned:
// by a fake.
#include "runtime/device/host_memory.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

constexpr uint64_t kSize = 100'000;
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kMib = uint64_t{1} << 20;

// Counts the pinned bytes.
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
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*block)->data()) % kPageBytes, 0u);
  (*block)->data()[size_bytes - 1] = 1;
  return *std::move(block);
}

TEST(Arena, PinsNothingBeforeADeviceIsHeld) {
  FakeDevice device;
  Arena arena;
  const char* const data = Take(arena)->data();
  EXPECT_OK(arena.Fault(kSize));
  EXPECT_EQ(device.pieces, 0);
  EXPECT_EQ(arena.pieces(), nullptr);
  arena.AllowPinned(device.pinning());
  EXPECT_EQ(Take(arena)->data(), data) << "which does not wait for pinning";
  EXPECT_EQ(device.pieces, 0);
  EXPECT_OK(arena.Fault(kSize));
  EXPECT_EQ(device.bytes, Take(arena)->size_bytes());
  EXPECT_EQ(arena.pinned_bytes(), device.bytes);
  arena.Pin();
  EXPECT_EQ(device.pieces, 1) << "once";
}

TEST(Arena, MemoryIsPinnedAsAWholeOrNotAtAll) {
  FakeDevice device;
  device.bytes_max = 600 * kMib;
  {
    Arena arena;
    arena.AllowPinned(device.pinning());
    const auto too_large = Take(arena, 700 * kMib);
    arena.Pin();
    EXPECT_FALSE(too_large->is_pinned());
    const auto block = Take(arena, 500 * kMib);
    arena.Pin();
    EXPECT_TRUE(block->is_pinned());
    EXPECT_EQ(device.pieces, 1);
  }
  EXPECT_EQ(device.pieces, 0) << "all is given back";
}

TEST(Arena, MemoryThatIsFarTooLargeIsGivenBack) {
  Arena arena;
  Take(arena, 500 * kMib);
  Take(arena, 300 * kMib);
  EXPECT_GE(arena.size_bytes(), 500 * kMib);
  Take(arena, kSize);
  EXPECT_LT(arena.size_bytes(), kMib);
}

TEST(Arena, WhatSomebodyStillLooksIntoIsLeftToThem) {
  Arena arena;
  const std::shared_ptr<ArenaBlock> first = Take(arena);
  EXPECT_NE(Take(arena)->data(), first->data());
}

TEST(Arena, AnAcceleratorHasASecondBlockForWhatMovesBesideAWrite) {
  FakeDevice device;
  Arena arena(100 * kMib);
  arena.AllowPinned(device.pinning());
  arena.ExpectMove(8 * kMib);
  EXPECT_OK(arena.Fault(4 * kMib));
  EXPECT_EQ(arena.pinned_bytes(), 12 * kMib);
  const auto written = Take(arena, 4 * kMib);
  EXPECT_EQ(written->size_bytes(), 4 * kMib);
  const auto moved = Take(arena, 8 * kMib);
  EXPECT_TRUE(written->is_pinned() && moved->is_pinned());
  // A third is not kept.
  EXPECT_FALSE(Take(arena, 4 * kMib)->is_pinned());
  EXPECT_OK(arena.Fault(4 * kMib));
  EXPECT_EQ(arena.size_bytes(), 12 * kMib);
}

TEST(Arena, TheLimitForbidsTheSecondBlockFirst) {
  FakeDevice device;
  Arena arena(10 * kMib);
  arena.AllowPinned(device.pinning());
  arena.ExpectMove(8 * kMib);
  EXPECT_OK(arena.Fault(4 * kMib));
  EXPECT_EQ(arena.size_bytes(), 4 * kMib);
  EXPECT_EQ(arena.refused_bytes(), 8 * kMib);
  ASSERT_NE(arena.pieces(), nullptr) << "which are always there";
  EXPECT_TRUE(arena.pieces()->is_pinned());
  EXPECT_EQ(arena.pinned_bytes(),
            4 * kMib + Arena::kPieces * Arena::kPieceBytes);
}

TEST(Arena, ADeviceThatCanNotPinHasNoPieces) {
  FakeDevice device;
  device.bytes_max = 0;
  Arena arena;
  arena.AllowPinned(device.pinning());
  EXPECT_EQ(arena.pieces(), nullptr);
  EXPECT_EQ(arena.pinned_bytes(), 0u);
}

TEST(HostMemory, IsTheMachinesOrTheLimitOfTheGroup) {
  const std::string machine = "MemTotal:       24689000 kB\nMemFree: 1 kB\n";
  EXPECT_EQ(ParseHostMemory(machine, "max\n"), uint64_t{24'689'000} << 10);
  EXPECT_EQ(ParseHostMemory(machine, "1000000000\n"), 1'000'000'000u);
  EXPECT_EQ(ParseHostMemory(machine, "99000000000000\n"),
            uint64_t{24'689'000} << 10);
  EXPECT_EQ(ParseHostMemory("", ""), 0u);
}

}  // namespace
}  // namespace gavel::testing
