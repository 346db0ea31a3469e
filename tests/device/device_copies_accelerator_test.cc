// Copies between an accelerator and host memory of all kinds: the bytes are
// those of the tensors, whatever goes together.
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros_like.h>

#include "runtime/device/device_move.h"
#include "tests/support/accelerator_test.h"

namespace gavel::testing {
namespace {

using Direction = DeviceCopies::Direction;

class DeviceCopiesTest : public AcceleratorTest {
 protected:
  // Small ones, one that is not grouped, one of several pieces, and none at
  // all.
  std::vector<at::Tensor> MakeTensors() const {
    std::vector<at::Tensor> tensors;
    for (const int64_t size : {1, 3, 1000, 0, 77, 1 << 18, 5, 9 << 20, 6}) {
      const auto type = tensors.size() % 3 == 1 ? at::kChar : at::kFloat;
      tensors.push_back(
          at::randint(-100, 100, {size}, at::device(device_).dtype(type)));
    }
    // Dense, but not in the order of its dimensions.
    tensors.push_back(at::randint(9, {7, 5}, at::device(device_)).t());
    return tensors;
  }

  // Out to `arena` and back into other tensors. Host memory without gaps, or
  // with some.
  void ExpectThereAndBack(Arena& arena, uint64_t gap_bytes) {
    const std::vector<at::Tensor> tensors = MakeTensors();
    uint64_t size = 0;
    for (const at::Tensor& tensor : tensors)
      size += tensor.nbytes() + gap_bytes;
    ASSERT_OK_AND_ASSIGN(const std::shared_ptr<ArenaBlock> block,
                         arena.Take(size));
    std::vector<at::Tensor> back;
    DeviceCopies out(device_, Direction::kToHost, &arena);
    DeviceCopies in(device_, Direction::kFromHost, &arena);
    char* host = block->data();
    for (const at::Tensor& tensor : tensors) {
      back.push_back(at::zeros_like(tensor));
      out.Add(tensor, host);
      in.Add(back.back(), host);
      host += tensor.nbytes() + gap_bytes;
    }
    out.Run();
    host = block->data();
    for (const at::Tensor& tensor : tensors) {
      const at::Tensor copy =
          at::from_blob(host, tensor.sizes(), tensor.strides(),
                        at::device(at::kCPU).dtype(tensor.scalar_type()));
      EXPECT_TRUE(copy.equal(tensor.cpu())) << tensor.sizes();
      host += tensor.nbytes() + gap_bytes;
    }
    in.Run();
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_TRUE(back[i].cpu().equal(tensors[i].cpu())) << tensors[i].sizes();
    }
  }
};

TEST_F(DeviceCopiesTest, BytesComeAndGoThroughThePieces) {
  Arena arena;
  ExpectThereAndBack(arena, /*gap_bytes=*/0);
  ExpectThereAndBack(arena, /*gap_bytes=*/64);
}

TEST_F(DeviceCopiesTest, BytesComeAndGoInPinnedMemory) {
  Arena arena;
  arena.AllowPinned(PinningOf(device_.type()));
  ASSERT_OK(arena.Fault(uint64_t{64} << 20));
  EXPECT_GE(arena.pinned_bytes(), uint64_t{64} << 20);
  ExpectThereAndBack(arena, /*gap_bytes=*/0);
  ExpectThereAndBack(arena, /*gap_bytes=*/64);
}

TEST_F(DeviceCopiesTest, ADeviceWithoutRoomForTheBufferIsNoFailure) {
  Arena arena;
  const std::vector<at::Tensor> tensors = {
      at::randint(9, {1000}, at::device(device_).dtype(at::kLong)),
      at::randint(9, {500}, at::device(device_).dtype(at::kLong))};
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<ArenaBlock> block,
                       arena.Take(12'000));
  ASSERT_OK(LimitMemory(device_, 1));  // nothing more
  DeviceCopies out(device_, Direction::kToHost, &arena);
  out.Add(tensors[0], block->data());
  out.Add(tensors[1], block->data() + tensors[0].nbytes());
  out.Run();
  ASSERT_OK(LimitMemory(device_, 0));
  EXPECT_TRUE(
      at::from_blob(block->data(), {1000}, at::kLong).equal(tensors[0].cpu()));
}

}  // namespace
}  // namespace gavel::testing
