// checkpoint_writer DIRECTORY EPOCH ELEMENTS [RANK WORLD_SIZE]: restores, then
// commits step after step until it is killed, at most kSteps, and prints each
// acknowledged step. It saves the state of SavedByWriter. Before the first save
// it looks for a file "first-save", by which a trace shows where saves begin.
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "runtime/checkpoint/generation_store.h"
#include "tests/checkpoint/snapshot_samples.h"

namespace {

constexpr int kSteps = 5000;

int Fail(const absl::Status& status) {
  std::cerr << status << std::endl;
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 6) return 2;
  uint64_t epoch = std::strtoull(argv[2], nullptr, 10);
  int64_t elements = std::strtoll(argv[3], nullptr, 10);
  gavel::CommitOptions options;
  options.gang_wait_s = 2;  // the other rank may be killed
  if (argc == 6) {
    options.rank = std::atoi(argv[4]);
    options.world_size = std::atoi(argv[5]);
  }
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
  restored = absl::CancelledError("its memory is free for saves");
  if (::access("first-save", F_OK) == 0) return 2;
  for (int i = 0; i < kSteps; ++i) {
    ++step;
    absl::Status status = store->Commit(
        {epoch, step}, gavel::testing::SavedByWriter(step, elements), options);
    if (!status.ok()) return Fail(status);
    std::cout << step << std::endl;
  }
  return 3;
}
