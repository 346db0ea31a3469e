// The session of one training process. Through it the program declares the
// job's state (Track), reports progress (Report) and ends (Finish).
// gavel/iterator.h drives it from the training loop.
//
//   auto session = gavel::Session::FromEnvironment();
//   session->Track("model", model);
//   session->Track("optimizer", optimizer);
//   for (auto& batch : gavel::Iterator(*session, loader)) { ... }
//   return session->Finish();
//
// Under an agent (GAVEL_WORKER_COORDINATOR) the loop runs while the process
// holds a lease, on the accelerator of that lease. Otherwise the program runs
// alone. The loop continues from the last generation.
//
// Thread-safety: only the training thread calls a session; any thread may call
// status() and steps_done(). A session must outlive its Iterators, and tracked
// objects must live until Finish() has returned. Nothing throws.
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
  // Never returns null. If there was an error, status() returns it, and loops
  // end at once.
  static std::unique_ptr<Session> FromEnvironment();
  static std::unique_ptr<Session> Create(SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Marks a place where the process may pause: in evaluation, in warm-up or in
  // a loop of your own (docs/iterator.md). It costs as much as an Iterator's
  // boundary. A graph for a later backward() must not be kept across the call,
  // nor a tensor on device(), except tracked tensors and the Iterator's batch.
  // Returns false if you must leave the loop: the session failed or was stopped
  // or, without any Iterator, its step budget is used up.
  bool Boundary();
  // Ends a step: all tracked state is as a restart needs it. Call it in loops
  // without an Iterator and, inside one, before an evaluation in the loop's
  // body.
  void StepDone();

  // Makes the gradients of so many batches one step, from the next
  // gavel::Iterator over a gavel::DataLoader on: multiply each batch's mean
  // loss by loss_scale(), and step the optimizer after the last_micro_batch().
  // The last step of an epoch may have fewer. kInvalidArgument: batches < 1;
  // kFailedPrecondition: inside a loop.
  Status Accumulate(int64_t batches);

  // Calls `call` each time that a gavel::Iterator has used up its range: what a
  // program writes behind the loop.
  void OnEpoch(std::function<void()> call);
  // Calls `call` after each step that is a multiple of `every_steps`, and, with
  // 0, before the calls of OnEpoch(). Tracked modules are in evaluation mode
  // meanwhile, without gradients. Call Boundary() between its batches. With
  // SessionOptions::checkpoints_kept_best, a checkpoint follows each
  // evaluation. After a restart an evaluation that was interrupted comes again.
  // kInvalidArgument: every_steps < 0.
  Status OnEvaluate(int64_t every_steps, std::function<void()> call);
  // Puts the tracked modules back to the best checkpoint, by
  // SessionOptions::checkpoints_kept_best; the rest of the state stays. Outside
  // of loops, on all workers. kNotFound: no checkpoint has that scalar.
  Status RestoreBest();

  // Registers a callback for objects on the device that are not tracked: a
  // captured CUDA graph, an AOTInductor package, a prefetched batch. Each pause
  // calls `call` at a boundary, on the training thread. The device is idle
  // then, and its memory is given back afterwards. An exception of `call` ends
  // the loop.
  void OnRelease(std::function<void()> call);
  // Registers a callback for when the process has a device, with the tracked
  // state on it: after each pause and for the first device.
  void OnAcquire(std::function<void(at::Device)> call);

  // Collectives over the job's workers, to be called inside a step. All workers
  // make the same calls in the same order. `tensor` is dense, on device(), and
  // of the same shape on all workers; it is changed in place. With one worker
  // nothing happens.
  // kUnavailable: a worker was lost. Continue to the next boundary, which makes
  // the step void.
  // kInvalidArgument: the tensor is not such a tensor; nothing has happened.
  // kFailedPrecondition: the call was outside of a step; or the workers call
  // different collectives, which is checked in the first calls and ends the
  // job.
  Status AllReduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  Status Broadcast(const at::Tensor& tensor);  // rank 0's
  Status Barrier();

  // Reports the value of a scalar. The last value is sent about once a second.
  // At most 16 names. The learning rates of tracked optimizers are reported by
  // themselves as "lr" (of several, as "NAME.lr") when they change, until the
  // program reports that name. After the first use of a name, a call takes no
  // lock and allocates nothing. A tensor on a GPU is read at most twice a
  // second, because reading it waits for the device.
  void Report(std::string_view name, double value);
  void Report(std::string_view name, const at::Tensor& scalar);

  // Makes the exception that is being handled the status(), which Finish()
  // reports to the coordinator. Call it in a catch block around the loop.
  // `what` says in the message where the exception came from. An uncaught
  // exception is reported only if memory ran out; the job then moves to another
  // type (or out of its pair) and does not count as failed.
  void Fail(std::string_view what = "the training loop") noexcept;

  // Commits the last checkpoint, ends the lease and restores signal handlers.
  // Returns the exit code: 0 done, 75 ended early with its state saved, 1
  // failed.
  int Finish();

  // The device on which to put tensors of your own. It changes at boundaries
  // only.
  at::Device device() const;
  int rank() const;
  int world_size() const;
  // With DataLoaderOptions::global_batch_size: whether the step ends with this
  // batch, and the factor by which to multiply the batch's mean loss
  // (gavel/data_parallel.h).
  bool last_micro_batch() const;
  double loss_scale() const;
  int64_t steps_done() const;  // since the job began, restarts included
  // Whether no more batches will come: the budget is used up, the job was
  // evicted, or status() is an error. For loops around the training loop.
  bool stopped() const;
  // Whether the job is done: the budget is used up, or the loop reached its own
  // end.
  bool finished() const;
  // OK, the reason why the loop ended, or the present problem (kUnavailable:
  // the coordinator can't be reached, and the session keeps trying).
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
