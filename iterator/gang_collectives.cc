// The part of Gang that programs call themselves: collectives of their own.
#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>

#include <chrono>
#include <sstream>
#include <thread>

#include "core/status.h"
#include "core/text.h"
#include "iterator/gang.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

// Ranks that call different things do so from their first steps on.
constexpr uint64_t kComparedMax = 100;
constexpr std::chrono::milliseconds kLookInterval(2);

const char* NameOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "AllReduce(kSum)";
    case ReduceOp::kMean:
      return "AllReduce(kMean)";
    case ReduceOp::kMin:
      return "AllReduce(kMin)";
    case ReduceOp::kMax:
      return "AllReduce(kMax)";
  }
  return "AllReduce";
}

// "AllReduce(kSum) of Float [2, 3]".
std::string TextOf(const std::string& what, const at::Tensor& tensor) {
  std::ostringstream text;
  text << what << " of " << tensor.scalar_type() << ' ' << tensor.sizes();
  return text.str();
}

}  // namespace

absl::Status Gang::AllReduce(at::Tensor tensor, ReduceOp op) {
  return Call(NameOf(op), tensor, [&]() -> absl::Status {
    const at::NoGradGuard no_grad;
    const Reduction reduction = op == ReduceOp::kMin   ? Reduction::kMin
                                : op == ReduceOp::kMax ? Reduction::kMax
                                                       : Reduction::kSum;
    const at::Tensor dense = tensor.detach().contiguous();
    GAVEL_ASSIGN_OR_RETURN(auto pending, group_->AllReduce(dense, reduction));
    GAVEL_RETURN_IF_ERROR(pending->Wait());
    if (op == ReduceOp::kMean) dense.div_(group_->world_size());
    if (!dense.is_alias_of(tensor)) tensor.detach().copy_(dense);
    return absl::OkStatus();
  });
}

absl::Status Gang::Broadcast(at::Tensor tensor) {
  return Call("Broadcast", tensor,
              [&] { return group_->Broadcast({tensor.detach()}); });
}

absl::Status Gang::Barrier() {
  const at::Tensor one = at::ones({1}, plan_.device);
  GAVEL_RETURN_IF_ERROR(AllReduce(one, ReduceOp::kSum));
  return Synchronize();
}

absl::Status Gang::Call(const std::string& what, const at::Tensor& tensor,
                        const std::function<absl::Status()>& collective) {
  if (!joined()) {
    return absl::FailedPreconditionError(
        StrCat(what,
               " was called before the gang had come together; call it "
               "inside the loop"));
  }
  GAVEL_RETURN_IF_ERROR(CheckTensor(what, tensor));
  absl::Status status = CatchAsStatus(what, [&]() -> absl::Status {
    GAVEL_RETURN_IF_ERROR(NeedGroup());
    GAVEL_RETURN_IF_ERROR(CompareCall(TextOf(what, tensor)));
    return collective();
  });
  // All ranks have found the same.
  if (status.ok() || absl::IsInvalidArgument(status)) return status;
  status = Explain(status);
  failure_->Note(status);
  return status;
}

absl::Status Gang::CheckTensor(const std::string& what,
                               const at::Tensor& tensor) const {
  const auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(StrCat(what, " ", why));
  };
  if (!tensor.defined()) return refuse("was given an undefined tensor");
  if (tensor.layout() != at::kStrided) {
    return refuse(
        "takes dense tensors, and this one is sparse; use to_dense()");
  }
  if (tensor.device() != plan_.device) {
    return refuse(StrCat("takes tensors on ", plan_.device.str(),
                         ", this one is on ", tensor.device().str(),
                         "; use session->device()"));
  }
  if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    return refuse(
        "changes the tensor in place, and elements of this one share memory "
        "(expand()); use clone()");
  }
  if (what == NameOf(ReduceOp::kMean) &&
      !at::isFloatingType(tensor.scalar_type())) {
    return refuse(StrCat("of tensors of type ",
                         at::toString(tensor.scalar_type()),
                         " would not be one of them; add them up, or make them "
                         "floating"));
  }
  return absl::OkStatus();
}

// The others may come to their first collective much later.
absl::Status Gang::NeedGroup() {
  if (group_) return absl::OkStatus();
  const auto key = [this](int rank) {
    return StrCat(plan_.prefix, "/calls/", rank);
  };
  GAVEL_RETURN_IF_ERROR(store_->Set(key(plan_.rank), ""));
  std::vector<std::string> keys;
  for (int rank = 0; rank < plan_.world_size; ++rank) keys.push_back(key(rank));
  GAVEL_RETURN_IF_ERROR(WaitForKeys(keys));
  return MakeGroup(*store_, plan_, /*sends_divided=*/false);
}

// With what rank 0 calls.
absl::Status Gang::CompareCall(const std::string& call) {
  if (calls_ >= kComparedMax) return absl::OkStatus();
  const std::string key = StrCat(plan_.prefix, "/call/", ++calls_);
  if (plan_.rank == 0) return store_->Set(key, call);
  GAVEL_RETURN_IF_ERROR(WaitForKeys({key}));
  GAVEL_ASSIGN_OR_RETURN(const std::vector<std::string> of_first,
                         store_->Get({key}));
  if (of_first.front() == call) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat(
      "the workers call different collectives: rank 0 ", of_first.front(),
      ", rank ", plan_.rank, " ", call, ", as call ", calls_,
      " since the gang came together; let all make the same calls in the same "
      "order, with tensors alike"));
}

absl::Status Gang::WaitForKeys(const std::vector<std::string>& keys) {
  while (true) {
    GAVEL_ASSIGN_OR_RETURN(const bool all, store_->Has(keys));
    if (all) return absl::OkStatus();
    if (thread_->broken()) return absl::UnavailableError(thread_->why());
    if (thread_->is_left_behind()) {
      return absl::UnavailableError("the loop of another rank has ended");
    }
    if (plan_.lease_is_over && plan_.lease_is_over()) {
      return absl::UnavailableError("the lease ended during a collective");
    }
    std::this_thread::sleep_for(kLookInterval);
  }
}

}  // namespace gavel::internal
