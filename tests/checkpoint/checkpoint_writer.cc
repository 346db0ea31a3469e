// checkpoint_writer DIRECTORY EPOCH ELEMENTS: restores, then commits step after
// step until it is killed, and prints each step that was acknowledged.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "runtime/checkpoint/generation_store.h"
#include "tests/checkpoint/snapshot_samples.h"

int Fail(const absl::Status& status) {
  std::cerr << status << std::endl;
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  uint64_t epoch = std::strtoull(argv[2], nullptr, 10);
  int64_t elements = std::strtoll(argv[3], nullptr, 10);
  auto store =
      gavel::GenerationStore::Open(argv[1], {.shard_size_bytes_max = 100});
  if (!store.ok()) return Fail(store.status());
  uint64_t step = 0;
  absl::StatusOr<gavel::Restored> restored = store->Restore();
  if (restored.ok()) {
    step = restored->generation.step;
  } else if (!absl::IsNotFound(restored.status())) {
    return Fail(restored.status());
  }
  while (true) {
    ++step;
    absl::Status status = store->Commit(
        {epoch, step}, gavel::testing::SnapshotOfStep(step, elements));
    if (!status.ok()) return Fail(status);
    std::cout << step << std::endl;
  }
}
