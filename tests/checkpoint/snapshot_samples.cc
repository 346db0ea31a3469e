#include "tests/checkpoint/snapshot_samples.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace gavel::testing {

Snapshot SnapshotOfStep(uint64_t step, int64_t elements) {
  double value = static_cast<double>(step);
  Snapshot snapshot;
  snapshot.tensors = {
      {"model/weight", at::arange(elements, at::kFloat).add(value)},
      {"model/steps", at::full({}, value, at::kLong)},
      {"optimizer/exp_avg", at::full({2, 3}, value / 3, at::kDouble)},
      {"model/mask", at::full({3}, step % 2 == 0, at::kBool)},
  };
  snapshot.bytes = {{"cursor", "position " + std::to_string(step)},
                    {"empty", ""}};
  return snapshot;
}

bool IsSnapshotOfStep(const Snapshot& snapshot, uint64_t step,
                      int64_t elements) {
  Snapshot expected = SnapshotOfStep(step, elements);
  if (snapshot.bytes != expected.bytes ||
      snapshot.tensors.size() != expected.tensors.size()) {
    return false;
  }
  for (const auto& [name, tensor] : expected.tensors) {
    const at::Tensor* found = FindTensor(snapshot, name);
    if (found == nullptr || !SameTensor(*found, tensor)) return false;
  }
  return true;
}

Snapshot SavedByWriter(uint64_t step, int64_t elements) {
  Snapshot snapshot = SnapshotOfStep(step, elements);
  snapshot.tensors.emplace_back("model/frozen", at::full({100}, 0.5));
  return snapshot;
}

bool IsSavedByWriter(const Snapshot& snapshot, uint64_t step,
                     int64_t elements) {
  const at::Tensor* frozen = FindTensor(snapshot, "model/frozen");
  if (frozen == nullptr || !SameTensor(*frozen, at::full({100}, 0.5))) {
    return false;
  }
  Snapshot others = snapshot;
  std::erase_if(others.tensors,
                [](const auto& one) { return one.first == "model/frozen"; });
  return IsSnapshotOfStep(others, step, elements);
}

Snapshot SnapshotWithFrozenLayers(double value, double frozen) {
  Snapshot snapshot;
  for (int layer = 0; layer < 6; ++layer) {
    const std::string name = "layer" + std::to_string(layer);
    snapshot.tensors.emplace_back(name + "/frozen", at::full({1000}, frozen));
    snapshot.tensors.emplace_back(name + "/trained", at::full({1000}, value));
  }
  return snapshot;
}

bool SameTensor(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         a.equal(b);
}

CheckpointFolder::CheckpointFolder() {
  std::string path =
      (std::filesystem::temp_directory_path() / "gavel-checkpoint-XXXXXX")
          .string();
  path_ = ::mkdtemp(path.data());
}

CheckpointFolder::~CheckpointFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace gavel::testing
