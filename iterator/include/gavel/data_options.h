// How the batches of a training are read (DataLoaderOptions), and where a loop
// continues after a restart (Resume). Part of gavel/data_loader.h and
// gavel/iterator.h.
#ifndef GAVEL_DATA_OPTIONS_H_
#define GAVEL_DATA_OPTIONS_H_

#include <cstdint>

namespace gavel {

struct DataLoaderOptions {
  // Samples in a batch of one worker; with a global batch size, at most.
  int64_t batch_size = 1;
  // The order is a function of (seed, epoch).
  uint64_t seed = 0;
  bool shuffle = true;
  // Leaves out the last step of an epoch if it has fewer samples than others.
  bool drop_last = false;
  // Samples in a step of all workers together; 0: batch_size of each worker.
  int64_t global_batch_size = 0;
  // Threads that read and stack the batches of the next steps while the
  // present one trains; 0: the training thread reads.
  int reading_threads = 0;
};

// Where a gavel::Iterator continues after a restart in the middle of its loop.
//
// kAuto: a range with SavePosition() and LoadPosition(), such as
//   gavel::DataLoader, continues exactly where it was. Any other range is begun
//   again, with LibTorch's generator as it was at the loop's begin, and the
//   batches that were trained on are skipped. If its first batch is then not
//   the one of before, the loop ends with kFailedPrecondition. Loaders of
//   torch::data with a sampler or a stateful dataset of your own, or that give
//   batches in any order, are refused before the first step.
// kForward: the same for a sampler of your own, whose order must depend on
//   LibTorch's generator alone and be drawn when the loop begins.
// kRestart: the epoch begins again from its first batch.
enum class Resume { kAuto, kForward, kRestart };

}  // namespace gavel

#endif  // GAVEL_DATA_OPTIONS_H_
