// Trains one model on all workers of a gang: one line before the loop.
//
//   gavel::DataParallel parallel(*session, model);
//   for (auto& batch : gavel::Iterator(*session, loader)) {
//     optimizer.zero_grad();
//     ...
//     loss.backward();  // gradients are the gang's averages when it returns
//     optimizer.step();
//   }
//
// Parameters and buffers are rank 0's from the first step on, buffers (batch
// statistics) again after each step, unless DataParallelOptions says otherwise.
// Gradients are averaged in buckets while backward() still runs, over Gloo on
// CPUs and NCCL on GPUs. A parameter that a step does not use counts as zero;
// sparse gradients are refused. With one worker nothing happens, so the same
// program runs alone.
//
// The same loop on any number of workers, with the same samples in each step
// (DataLoaderOptions::global_batch_size):
//
//   (loss * session->loss_scale()).backward();  // mean over the micro-batch
//   if (!session->last_micro_batch()) continue;  // gradients add up
//   optimizer.step();
//   optimizer.zero_grad();
//
// Between two steps and after the loop a rank may be busy alone for as long as
// it likes, say with an evaluation on rank 0: the others wait in their next
// backward(), or in Finish(), while it lives and the lease is renewed. They
// pause when it is back; ranks that all evaluate pause at any boundary there.
//
// When a rank dies, the others' step is void: their loops end at its boundary
// (under an agent their processes do, with code 75), nothing of it is kept, and
// the gang starts again from the last generation. Every worker has to make the
// same backward passes over the model; one whose loop ends early breaks the
// gang half a minute later.
//
// Thread-safety: one thread, the one that trains. The session must live longer.
#ifndef GAVEL_DATA_PARALLEL_H_
#define GAVEL_DATA_PARALLEL_H_

#include <memory>
#include <utility>

#include "gavel/session.h"

namespace gavel {

struct DataParallelOptions {
  // False: for buffers that a step leaves alone, or changes alike on all
  // workers (tables, masks); it saves sending them after each step. A
  // checkpoint has each of them from one worker.
  bool broadcast_buffers = true;
};

class GAVEL_EXPORT DataParallel {
 public:
  // Before the first loop; what is wrong is in session.status().
  DataParallel(Session& session, std::shared_ptr<torch::nn::Module> module,
               DataParallelOptions options = {});
  // Any ModuleHolder (what TORCH_MODULE makes).
  template <class Holder, class = decltype(std::declval<Holder&>().ptr())>
  DataParallel(Session& session, Holder& holder,
               DataParallelOptions options = {})
      : DataParallel(session, std::shared_ptr<torch::nn::Module>(holder.ptr()),
                     options) {}
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

 private:
  internal::SessionState& state_;
  std::shared_ptr<torch::nn::Module> module_;
};

}  // namespace gavel

#endif  // GAVEL_DATA_PARALLEL_H_
