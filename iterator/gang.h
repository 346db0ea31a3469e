// The gang that this process is one rank of, while it holds a lease: how the
// ranks meet at the store and compare their states, the process group with the
// models that are trained together, and the thread that agrees with the other
// ranks on where to stop.
//
// GangMembership, at the end, drives it.
#ifndef GAVEL_ITERATOR_GANG_H_
#define GAVEL_ITERATOR_GANG_H_

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gavel/session.h"
#include "iterator/coordinator_link.h"
#include "iterator/parked_tensors.h"
#include "iterator/session_context.h"
#include "runtime/device/process_group.h"
#include "runtime/lease/stop_agreement.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace gavel::internal {

// The thread of a process that is in a gang: it carries the words of the stop
// agreement between this process and the gang's store, over a connection of its
// own, about fifty times a second. The training thread asks it at each boundary
// whether it may go on, which takes a lock and no word of the store.
//
// When the gang stops, the thread of rank 0 stays until all others have left,
// since they need the store that it hosts.
//
// Thread-safety: all functions may be called by any thread, Pass() by the
// training thread. Nothing throws.
class GangThread {
 public:
  struct Options {
    int rank = 0;
    int world_size = 1;
    std::string prefix;  // of the gang's keys
    uint64_t steps_done = 0;
    // Called by the thread to end collectives, more than once: when the gang is
    // broken, or, during a step or a wait, the lease is over or another rank's
    // loop has ended.
    std::function<void()> abort;
    // Asked by the thread during a step or a wait, never after Leave(); may be
    // empty.
    std::function<bool()> lease_is_over;
  };

  // Writes this rank's first message, so that the others can read it. Call it
  // before they hear that this rank is there.
  static absl::Status Announce(GangStore& store, const Options& options);
  // Begins to talk: all ranks are there. `store` is kept until all have left,
  // when rank 0 hosts it.
  static absl::StatusOr<std::unique_ptr<GangThread>> Start(
      std::shared_ptr<GangStore> store, Options options);
  // Waits for the thread, but not for long: one that is stuck in the network is
  // left to itself.
  ~GangThread();
  GangThread(const GangThread&) = delete;
  GangThread& operator=(const GangThread&) = delete;

  // At the boundary after `steps_done` steps: waits while it may become the
  // stop, unless `gives_up`, which is asked some twenty times a second.
  // kMissed: the gang is broken, or it gave up; why() tells. For `begins` see
  // StopMember.
  StopMember::Passage Pass(uint64_t steps_done, bool begins,
                           const std::function<bool()>& gives_up);
  void Want(StopKind kind);
  // Whether this rank waits for its device, at a boundary, too: a collective of
  // a step that is done may run there still.
  void SetWaiting(bool waiting);
  // No step is under way; until Pass() lets one begin.
  void Rest();
  // The loop has come to its end.
  void End();
  // The loop of another rank has, for long, and this one's has not.
  bool is_left_behind() const;
  void BeginSave(const Save& save);
  bool all_have_begun(const Save& save) const;
  // Tells the others that this rank can't write its part of it.
  void FailSave(const Save& save);
  // The rank that said so; -1: none yet.
  int failed_rank(const Save& save) const;
  // Returns when the last word of rank 0 has been heard, or can't be any more.
  void Listen();
  // The last word of this rank. The thread ends when it may.
  void Leave(Leaving how);
  // From any thread: the gang can't go on, and the first reason why.
  bool broken() const;
  std::string why() const;

 private:
  struct Shared;
  explicit GangThread(std::shared_ptr<Shared> shared);

  std::shared_ptr<Shared> shared_;  // the thread's, too
};

// How long the ranks of a gang wait for each other to come together.
inline constexpr double kRendezvousMax_s = 30;
// A collective waits while the other ranks live, which their words tell within
// seconds: one may evaluate alone between two steps. The bound is LibTorch's.
inline constexpr double kCollectiveMax_s = 7 * 24 * 3600;

// How this rank finds the others and meets them.
struct GangPlan {
  int rank = 0;
  int world_size = 2;
  // Rank 0 opens the store at `address`:`port` when it is the host, the others
  // (or all) find it at `endpoint`.
  bool hosts = false;
  std::string endpoint;
  std::string address;
  int port = 0;
  std::string prefix;  // of this gang's keys in the store
  at::Device device{at::kCPU};
  uint64_t steps_done = 0;
  // The state that the gang shares out while it has no accelerator. It is
  // borrowed until Join() returns, which sends the missing values. Null: none.
  const DividedTensors* divided = nullptr;
  // For making the process group, with the first values from rank 0.
  double meeting_timeout_s = 30;
  std::function<void(const std::string& endpoint)> opened;  // by the host
  std::function<bool()> gives_up;  // asked while others are waited for
  // Asked from another thread while a step is under way, or its collectives are
  // waited for: ends them. May be empty.
  std::function<bool()> lease_is_over;
  // When this rank is done: how long others may be late to leave.
  double leave_timeout_s = 10;
};

// The gang that this process is one rank of, while it holds a lease: rendezvous
// at the store, the process group with the models that are trained together,
// and the stop agreement. Made anew by each Join(). Training thread only,
// except for functions marked "from any thread".
class Gang {
 public:
  // `averages`: whether the backward pass that begins is the step's last.
  // `is_part`: whether each rank has its own part of a tensor, of a module or
  // not; empty: of none.
  explicit Gang(std::function<bool()> averages,
                std::function<bool(const at::Tensor&)> is_part = nullptr)
      : averages_(std::move(averages)), is_part_(std::move(is_part)) {}
  ~Gang() { Leave(Leaving::kBroken); }

  // Keeps the parameters and buffers of `module` the same on all ranks, except
  // for parts. Buffers are sent again after each step, unless
  // `broadcast_buffers` is false.
  void Add(std::shared_ptr<torch::nn::Module> module,
           bool broadcast_buffers = true);
  void Remove(const torch::nn::Module* module);
  // The gradients of all modules' parameters. After a step they are the same on
  // all ranks.
  std::vector<at::Tensor> Gradients() const;

  // UNAVAILABLE: not all came in time, or it gave up. ABORTED: this rank is at
  // another step than rank 0, or nobody can send its missing values, so it has
  // to begin again from the last generation. FAILED_PRECONDITION: not possible
  // in this build. Then nothing is held.
  absl::Status Join(const GangPlan& plan);
  bool joined() const { return thread_ != nullptr; }
  // Whether the ranks of the present gang have met in a collective.
  bool has_group() const { return group_ != nullptr; }

  // After a step: rank 0's buffers into those of the others, and whether the
  // step counts. UNAVAILABLE: a rank was lost, the step is void. Others: what
  // is wrong with the model.
  absl::Status EndStep();
  // Collectives of the program, which all ranks call in the same order: see
  // Session. FAILED_PRECONDITION: the gang has not come together. The first
  // calls are compared between the ranks: where they differ, EndStep() says so.
  absl::Status AllReduce(at::Tensor tensor, ReduceOp op);
  absl::Status Broadcast(at::Tensor tensor);
  absl::Status Barrier();
  // See GangThread.
  StopMember::Passage Pass(uint64_t steps_done, bool begins,
                           const std::function<bool()>& gives_up) {
    return thread_->Pass(steps_done, begins, gives_up);
  }
  void Want(StopKind kind) { thread_->Want(kind); }

  // Returns when the collectives of all steps are done: on an accelerator they
  // may run on after a step. UNAVAILABLE: they were ended because a rank was
  // lost or the lease is over; the tensors are not those of a step.
  absl::Status Synchronize();
  // Ends the gang and frees its memory on the accelerator. The store stays
  // until the others have left, too.
  void Leave(Leaving how);
  // The same at a stop that all agreed on, of which a generation is to be
  // written: the ranks hear each other until Settle(), so that none waits for
  // the part of one that is lost. Returns the errors of Synchronize(); then the
  // gang is to be left as broken.
  absl::Status Stop(uint64_t steps_done);
  // The loop has come to its end: this rank takes part in no further step.
  void End();
  // From any thread. All ranks begin the same saves; where there is no gang,
  // all have begun.
  void BeginSave(const Save& save);
  bool AllHaveBegun(const Save& save) const;
  // From any thread: this rank can't write its part of `save`, which ends it
  // for all.
  void FailSave(const Save& save);
  // OK until a rank was lost or has said that it can't write its part.
  absl::Status SaveStatus(const Save& save) const;
  // From any thread: what was to be written of the stop at this step is, or
  // can't be (not `written`). False: a rank of it was lost.
  bool Settle(uint64_t steps_done, bool written);
  // From any thread: a rank was lost, also after Stop() and before Settle();
  // and which.
  bool broken() const { return !why_broken().empty(); }
  std::string why_broken() const;
  // Waits for the other ranks: before the process ends, and before the next
  // gang.
  void WaitForOthers();

 private:
  // The present one or the last; null: none. Under mutex_.
  GangThread* thread() const {
    return thread_ ? thread_.get() : last_thread_.get();
  }
  absl::Status Refuse(GangStore& store, const GangPlan& plan);
  void Retire();
  // True: a rank is missing values.
  absl::StatusOr<bool> Meet(GangStore& store, const GangPlan& plan);
  absl::Status MakeGroup(GangStore& store, const GangPlan& plan,
                         bool sends_divided);
  // A collective of the program: `what` names it. Where it fails the step is
  // void.
  absl::Status Call(const std::string& what, const at::Tensor& tensor,
                    const std::function<absl::Status()>& collective);
  absl::Status CheckTensor(const std::string& what,
                           const at::Tensor& tensor) const;
  // A gang that trains no model makes its group when it is first needed.
  absl::Status NeedGroup();
  absl::Status CompareCall(const std::string& call);
  // Until all are set; UNAVAILABLE once the gang is broken or has no lease.
  absl::Status WaitForKeys(const std::vector<std::string>& keys);
  absl::Status SendDivided(const DividedTensors& divided, int world_size);
  absl::Status MakeBuckets();
  // Calls `wait`, which the thread of the gang ends when that is over.
  absl::Status Wait(const std::function<absl::Status()>& wait);
  absl::Status Explain(const absl::Status& failure) const;
  // The tensors of all modules, and those buffers that steps change.
  std::vector<at::Tensor> AllTensors() const;
  std::vector<at::Tensor> TrainedParameters(
      const torch::nn::Module& module) const;
  std::vector<at::Tensor> ChangingBuffers() const;

  // The error of a backward pass or collective, which the boundary reads. It
  // may come from another thread.
  struct Failure {
    void Note(const absl::Status& what) {
      const std::lock_guard lock(mutex);
      status.Update(what);
    }
    std::mutex mutex;
    absl::Status status;
  };

  bool IsPart(const at::Tensor& tensor) const {
    return is_part_ && is_part_(tensor);
  }

  const std::function<bool()> averages_;
  const std::function<bool(const at::Tensor&)> is_part_;
  struct Trained {
    std::shared_ptr<torch::nn::Module> module;
    bool broadcast_buffers = true;
  };
  std::vector<Trained> modules_;
  std::shared_ptr<GangStore> store_;
  // The group of the present gang, for its thread to abort.
  struct CurrentGroup {
    std::mutex mutex;
    std::weak_ptr<ProcessGroup> group;
  };

  GangPlan plan_;                        // of the present gang
  std::shared_ptr<ProcessGroup> group_;  // null: not needed yet
  std::shared_ptr<CurrentGroup> current_group_;
  std::vector<std::unique_ptr<GradientBuckets>> buckets_;
  std::shared_ptr<Failure> failure_;
  uint64_t calls_ = 0;        // collectives of the program
  mutable std::mutex mutex_;  // of the two threads, and stopped_at_
  std::unique_ptr<GangThread> thread_;
  // The thread of the previous gang: another rank may still read the last
  // message of this one.
  std::unique_ptr<GangThread> last_thread_;
  uint64_t stopped_at_ = 0;
  std::shared_ptr<ProcessGroup> last_group_;
};

// The ranks of a gang compare their states when they meet. Gang::Join calls
// these functions, which have no side effects.

// The steps that this rank has done, and the tensors that are divided among the
// gang.
std::string TextOfState(const GangPlan& plan);

// `texts`: of all ranks; each finds the same. True: a rank is missing values,
// and the others have them. Returns the errors of Gang::Join.
absl::StatusOr<bool> CompareStates(const GangPlan& plan,
                                   const std::vector<std::string>& texts);

// This process as one rank of its job's gang, when the job has several: how it
// joins, which calls it has received while the gang has not stopped yet, and
// how it leaves. Without a gang (one worker) nothing is joined, and every save
// is this process's own.
//
// Only the training thread calls it, except where "any thread" is written.
class GangMembership {
 public:
  // Borrows `context` and `link`, which must live longer. `averages` and
  // `is_part` are those of Gang.
  GangMembership(SessionContext& context, CoordinatorLink& link,
                 std::function<bool()> averages,
                 std::function<bool(const at::Tensor&)> is_part);

  // ---- Joining.
  // Add and Remove are those of Gang.
  void Add(std::shared_ptr<torch::nn::Module> module, bool broadcast_buffers);
  void Remove(const torch::nn::Module* module) { gang_.Remove(module); }
  // How the gang of this lease (of two workers at least) comes together.
  GangPlan PlanLeased(const lease_action::Resume& lease);
  // The same without a coordinator. INVALID_ARGUMENT: the options don't say
  // where.
  absl::StatusOr<GangPlan> PlanAlone() const;
  // Returns the errors of Gang::Join.
  absl::Status Join(GangPlan plan, at::Device device,
                    const DividedTensors& divided);
  std::vector<at::Tensor> Gradients() const { return gang_.Gradients(); }
  // A gang that keeps its size can share its state out while it is paused.
  bool KeepsSize() const;
  bool joined() const { return gang_.joined(); }
  bool has_group() const { return gang_.has_group(); }
  // The size of the gang in the present lease, or in the last one.
  int world_size() const { return world_size_; }
  void SetWorldSize(int world_size) { world_size_ = world_size; }

  // ---- Steps and stops.
  // EndStep and the collectives are those of Gang.
  absl::Status EndStep() { return gang_.EndStep(); }
  absl::Status AllReduce(const at::Tensor& tensor, ReduceOp op) {
    return world_size_ < 2 ? absl::OkStatus() : gang_.AllReduce(tensor, op);
  }
  absl::Status Broadcast(const at::Tensor& tensor) {
    return world_size_ < 2 ? absl::OkStatus() : gang_.Broadcast(tensor);
  }
  absl::Status Barrier() {
    return world_size_ < 2 ? absl::OkStatus() : gang_.Barrier();
  }
  // Takes a call to pause or to stop this rank, for which the gang shall stop.
  void TakeCalls(const BoundaryGate::Calls& calls);
  // Wants a stop when there was such a call or the lease ends soon.
  void WantStopIfDue(int64_t now_ns);
  void WantCheckpoint() { gang_.Want(StopKind::kCheckpoint); }
  // Gang::Pass, which gives up when the lease is over.
  StopMember::Passage Pass(bool begins);
  // All ranks are at the step where the gang stops: see Gang::Stop.
  absl::Status Stop();
  absl::Status Synchronize() { return gang_.Synchronize(); }
  // Why this rank pauses after a Stop().
  lease_action::Pause TakePause();

  // ---- Leaving.
  void End() { gang_.End(); }
  void Leave(Leaving how) { gang_.Leave(how); }
  // In the middle of a step that not all ranks will finish.
  void LeaveBroken();
  void WaitForOthers() { gang_.WaitForOthers(); }

  // ---- Saves, any thread: the functions of Gang.
  void BeginSave(const Save& save) { gang_.BeginSave(save); }
  bool AllHaveBegun(const Save& save) const { return gang_.AllHaveBegun(save); }
  void FailSave(const Save& save) { gang_.FailSave(save); }
  // CANCELLED once this rank has left a broken gang.
  absl::Status SaveStatus(const Save& save) const;
  bool Settle(uint64_t steps_done, bool written) {
    return gang_.Settle(steps_done, written);
  }
  bool broken() const { return gang_.broken(); }
  std::string why_broken() const { return gang_.why_broken(); }

 private:
  SessionContext& context_;
  CoordinatorLink& link_;
  Gang gang_;
  int world_size_;
  // The call that this rank answers once the gang stops.
  std::optional<lease_action::Pause> pause_;
  double lease_s_ = 0;           // when this gang was planned
  int64_t longest_step_ns_ = 0;  // of the last ones
  std::atomic<bool> left_broken_{false};
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_GANG_H_
