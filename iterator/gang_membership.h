// This process as one rank of its job's gang, when the job has several: how it
// joins, which calls it has received while the gang has not stopped yet, and
// how it leaves. Without a gang (one worker) nothing is joined, and every save
// is this process's own.
//
// Only the training thread calls it, except where "any thread" is written.
#ifndef GAVEL_ITERATOR_GANG_MEMBERSHIP_H_
#define GAVEL_ITERATOR_GANG_MEMBERSHIP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "iterator/boundary_gate.h"
#include "iterator/coordinator_link.h"
#include "iterator/gang.h"
#include "iterator/session_context.h"

namespace gavel::internal {

class GangMembership {
 public:
  // Borrows `context` and `link`, which must live longer. The functions as of
  // Gang.
  GangMembership(SessionContext& context, CoordinatorLink& link,
                 std::function<bool()> averages,
                 std::function<bool(const at::Tensor&)> is_part);

  // ---- Joining.
  // As of Gang.
  void Add(std::shared_ptr<torch::nn::Module> module, bool broadcast_buffers);
  void Remove(const torch::nn::Module* module) { gang_.Remove(module); }
  // How the gang of this lease (of two workers at least) comes together.
  GangPlan PlanLeased(const lease_action::Resume& lease);
  // The same without a coordinator. INVALID_ARGUMENT: the options don't say
  // where.
  absl::StatusOr<GangPlan> PlanAlone() const;
  // Errors as of Gang::Join.
  absl::Status Join(GangPlan plan, at::Device device,
                    const DividedTensors& divided);
  std::vector<at::Tensor> Gradients() const { return gang_.Gradients(); }
  // A gang that keeps its size can share its state out while it is paused.
  bool KeepsSize() const;
  bool joined() const { return gang_.joined(); }
  // The size of the gang in the present lease, or in the last one.
  int world_size() const { return world_size_; }
  void SetWorldSize(int world_size) { world_size_ = world_size; }

  // ---- Steps and stops.
  // As of Gang.
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
  // As of Gang; gives up when the lease is over.
  StopMember::Passage Pass(bool begins);
  // All ranks are at the step where the gang stops. As of Gang.
  absl::Status Stop();
  // As of Gang.
  absl::Status Synchronize() { return gang_.Synchronize(); }
  // Why this rank pauses after a Stop().
  lease_action::Pause TakePause();

  // ---- Leaving.
  void End() { gang_.End(); }
  void Leave(Leaving how) { gang_.Leave(how); }
  // In the middle of a step that not all ranks will finish.
  void LeaveBroken();
  void WaitForOthers() { gang_.WaitForOthers(); }

  // ---- Saves, any thread. As of Gang.
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

#endif  // GAVEL_ITERATOR_GANG_MEMBERSHIP_H_
