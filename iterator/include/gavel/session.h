// One training process as the runtime sees it: the job's state (Track), its
// progress (Report), and its end (Finish). gavel/iterator.h drives it from the
// training loop.
//
//   auto session = gavel::Session::FromEnvironment();
//   session->Track("model", model);
//   session->Track("optimizer", optimizer);
//   for (auto& batch : gavel::Iterator(*session, loader)) { ... }
//   return session->Finish();
//
// Under an agent (GAVEL_WORKER_COORDINATOR) the loop runs while the process
// holds a lease, on its accelerator; else alone. It goes on from the last
// generation.
//
// Thread-safety: one thread, the one that trains; status() and steps_done()
// from any. A session must outlive its Iterators, and what is tracked must live
// until Finish() has returned. Nothing throws.
#ifndef GAVEL_SESSION_H_
#define GAVEL_SESSION_H_

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "gavel/session_options.h"
#include "gavel/status.h"
#include "gavel/tracking.h"

namespace gavel {

struct Profile;

enum class ReduceOp : uint8_t { kSum, kMean, kMin, kMax };

namespace internal {
class BatchOwner;
class RangePosition;
struct LoopPlan;
class SessionState;
}  // namespace internal

class GAVEL_EXPORT Session : public Tracking {
 public:
  // Never returns null. An error is in status(); loops then end at once.
  static std::unique_ptr<Session> FromEnvironment();
  static std::unique_ptr<Session> Create(SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Where the process may pause: in evaluation, warm-up or a loop of your own
  // (docs/iterator.md). It costs as much as an Iterator's boundary. No graph
  // for a later backward() is kept over it, and no tensor on device() except
  // for tracked ones and Iterator's batch. False: leave this loop, the session
  // failed or was stopped (or, without any Iterator, its step budget is used
  // up).
  bool Boundary();
  // The step is done, all that is tracked is as a restart needs it. For loops
  // without Iterator; inside one, before an evaluation in the loop's body.
  void StepDone();

  // For objects on the device that are not tracked: a captured CUDA graph, an
  // AOTInductor package, a prefetched batch. Each pause calls `call` at a
  // boundary, on the training thread: the device is idle, and its memory is
  // given back afterwards. An exception of `call` ends the loop.
  void OnRelease(std::function<void()> call);
  // The same when a device is there again with the tracked state on it, and at
  // the first one of the process.
  void OnAcquire(std::function<void(at::Device)> call);

  // Collectives over the job's workers, inside a step; all of them make the
  // same calls in the same order. `tensor`: dense, on device(), of the same
  // shape on all; changed in place. With one worker nothing happens.
  // kUnavailable: a worker was lost; go on to the next boundary, which ends the
  // step as void.
  // kInvalidArgument: not such a tensor; nothing has happened.
  // kFailedPrecondition: outside of a step; or the workers call different
  // things, which is looked at in the first calls and ends the job.
  Status AllReduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  Status Broadcast(const at::Tensor& tensor);  // rank 0's
  Status Barrier();

  // The last value of a scalar, sent about once a second. At most 16 names; no
  // allocation and no lock after the first use of a name. A tensor on a GPU is
  // read at most twice a second, since that waits for the device.
  void Report(std::string_view name, double value);
  void Report(std::string_view name, const at::Tensor& scalar);

  // Call it in a catch block around the loop: the exception becomes status(),
  // and Finish() reports it to the coordinator. `what` says in the message
  // where it came from. Of uncaught exceptions only a lack of memory is
  // reported; the job then goes to another type (or out of its pair) without
  // having failed.
  void Fail(std::string_view what = "the training loop") noexcept;

  // Commits the last checkpoint, ends the lease and restores signal handlers.
  // The exit code: 0 done, 75 ended early with its state saved, 1 failed.
  int Finish();

  // Where to put tensors of your own; changes at boundaries only.
  at::Device device() const;
  int rank() const;
  int world_size() const;
  // With DataLoaderOptions::global_batch_size: whether the step ends with this
  // batch, and what to multiply its mean loss by (gavel/data_parallel.h).
  bool last_micro_batch() const;
  double loss_scale() const;
  int64_t steps_done() const;  // since the job began, restarts included
  // No more batches will be handed out: the budget is used up, the job was
  // evicted, or status() is an error. For loops around the loop.
  bool stopped() const;
  // The job is done: the budget is used up, or the loop came to its own end.
  bool finished() const;
  // OK, or why the loop ended, or the present trouble (kUnavailable: the
  // coordinator is away, and the session keeps trying).
  Status status() const;
  Profile profile() const;  // gavel/profile.h

 private:
  template <class Range>
  friend class Iterator;
  friend class DataParallel;
  friend class Span;
  explicit Session(std::unique_ptr<internal::SessionState> state);
  // For Iterator and Span; see there.
  internal::LoopPlan EnterLoop(internal::RangePosition* range,
                               internal::BatchOwner* batch);
  bool LoopForwarded();
  void FirstBatch(uint64_t fingerprint);
  bool StepBoundary(bool after_step);
  void BatchReady();
  void EndSpan(const char* name, std::chrono::steady_clock::time_point begin,
               std::chrono::steady_clock::time_point end);
  void LeaveLoop(bool at_step_end);
};

}  // namespace gavel

#endif  // GAVEL_SESSION_H_
