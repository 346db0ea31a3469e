#include "iterator/gang.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "iterator/gang_meeting.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

constexpr std::chrono::milliseconds kMeetingInterval(20);

constexpr char kGangKey[] = "gavel/gang";  // whose store it is

std::string HereKey(const GangPlan& plan, int rank) {
  return StrCat(plan.prefix, "/here/", rank);
}

std::vector<std::string> HereKeys(const GangPlan& plan) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < plan.world_size; ++rank) {
    keys.push_back(HereKey(plan, rank));
  }
  return keys;
}

// With a version of its own: to the program nothing has changed.
at::Tensor ValuesOf(const at::Tensor& tensor) { return tensor.variable_data(); }

absl::Status AnnotateRank(const absl::Status& status, const GangPlan& plan) {
  return absl::Status(
      status.code(),
      StrCat("rank ", plan.rank, " of ", plan.world_size, ", gang's store at ",
             plan.endpoint, ": ", status.message()));
}

}  // namespace

void Gang::Add(std::shared_ptr<torch::nn::Module> module,
               bool broadcast_buffers) {
  modules_.push_back({std::move(module), broadcast_buffers});
}

void Gang::Remove(const torch::nn::Module* module) {
  std::erase_if(modules_, [&](const Trained& trained) {
    return trained.module.get() == module;
  });
}

absl::Status Gang::Join(const GangPlan& given) {
  WaitForOthers();
  GangPlan plan = given;
  absl::StatusOr<std::unique_ptr<GangStore>> store =
      plan.hosts ? GangStore::Host(plan.address, plan.port, kRendezvousMax_s)
                 : GangStore::Connect(plan.endpoint, kRendezvousMax_s);
  if (!store.ok()) return AnnotateRank(store.status(), plan);
  store_ = *std::move(store);
  failure_ = std::make_shared<Failure>();
  current_group_ = std::make_shared<CurrentGroup>();
  absl::Status status = Refuse(*store_, plan);
  if (status.ok() && plan.hosts) {
    plan.endpoint = store_->endpoint();
    if (plan.opened) plan.opened(plan.endpoint);
  }
  bool sends = false;
  if (status.ok()) {
    const absl::StatusOr<bool> met = Meet(*store_, plan);
    status = met.status();
    sends = met.value_or(false);
  }
  if (status.ok() && (sends || !modules_.empty())) {
    status = MakeGroup(*store_, plan, sends);
  }
  if (status.ok()) {
    auto thread = GangThread::Start(
        store_, {plan.rank, plan.world_size, plan.prefix, plan.steps_done,
                 [current = current_group_] {
                   std::shared_ptr<ProcessGroup> alive;
                   {
                     const std::lock_guard lock(current->mutex);
                     alive = current->group.lock();
                   }
                   if (alive) alive->Abort();
                 },
                 plan.lease_is_over});
    status = thread.status();
    std::lock_guard<std::mutex> lock(mutex_);
    if (thread.ok()) thread_ = *std::move(thread);
  }
  if (status.ok()) {
    plan_ = std::move(plan);
    plan_.divided = nullptr;
    calls_ = 0;
    return status;
  }
  buckets_.clear();
  group_.reset();
  store_.reset();
  return AnnotateRank(status, plan);
}

// A store is of one gang: a rank whose lease is of another epoch must neither
// wait in it nor count there. Without a host among the ranks, whoever opened it
// may keep it for several.
absl::Status Gang::Refuse(GangStore& store, const GangPlan& plan) {
  if (plan.hosts) return store.Set(kGangKey, plan.prefix);
  GAVEL_ASSIGN_OR_RETURN(const bool is_named, store.Has({kGangKey}));
  if (!is_named) return absl::OkStatus();
  GAVEL_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                         store.Get({kGangKey}));
  if (names.front() == plan.prefix) return absl::OkStatus();
  return absl::UnavailableError(
      StrCat("it is of the gang ", names.front(), ", this rank is of ",
             plan.prefix, "; it has to ask for a lease of the present one"));
}

// Returns when all ranks have said that they are there, and with which state.
absl::StatusOr<bool> Gang::Meet(GangStore& store, const GangPlan& plan) {
  GAVEL_RETURN_IF_ERROR(GangThread::Announce(
      store,
      {plan.rank, plan.world_size, plan.prefix, plan.steps_done, {}, {}}));
  GAVEL_RETURN_IF_ERROR(store.Set(HereKey(plan, plan.rank), TextOfState(plan)));
  const std::vector<std::string> keys = HereKeys(plan);
  const Time give_up = Now() + kRendezvousMax_s;
  while (true) {
    GAVEL_ASSIGN_OR_RETURN(const bool all, store.Has(keys));
    if (all) break;
    if (plan.gives_up && plan.gives_up()) {
      return absl::UnavailableError(
          "told to stop before the gang had come together");
    }
    if (Now() > give_up) {
      return absl::UnavailableError(
          StrCat("not all of the gang came within ", kRendezvousMax_s,
                 " s; see the logs of the other ranks"));
    }
    std::this_thread::sleep_for(kMeetingInterval);
  }
  GAVEL_ASSIGN_OR_RETURN(const std::vector<std::string> texts, store.Get(keys));
  return CompareStates(plan, texts);
}

absl::Status Gang::MakeGroup(GangStore& store, const GangPlan& plan,
                             bool sends_divided) {
  ProcessGroupOptions options;
  options.rank = plan.rank;
  options.world_size = plan.world_size;
  options.device = plan.device;
  options.address = plan.address;
  options.prefix = StrCat(plan.prefix, "/group");
  options.timeout_s = plan.meeting_timeout_s;
  GAVEL_ASSIGN_OR_RETURN(group_, ProcessGroup::Create(store, options));
  if (sends_divided) {
    GAVEL_RETURN_IF_ERROR(SendDivided(*plan.divided, plan.world_size));
  }
  GAVEL_RETURN_IF_ERROR(group_->Broadcast(AllTensors()));
  group_->SetTimeout(kCollectiveMax_s);
  {
    const std::lock_guard lock(current_group_->mutex);
    current_group_->group = group_;
  }
  // The thread had no group to abort then.
  if (thread_ && thread_->broken()) group_->Abort();
  return MakeBuckets();
}

// Each owner's values to all. Waits for them, as a gang that breaks meanwhile
// still has what its owners have.
absl::Status Gang::SendDivided(const DividedTensors& divided, int world_size) {
  for (int owner = 0; owner < world_size; ++owner) {
    std::vector<at::Tensor> tensors;
    for (const OwnedTensor& one : divided.owned()) {
      if (one.owner == owner) tensors.push_back(ValuesOf(one.tensor));
    }
    GAVEL_RETURN_IF_ERROR(group_->Broadcast(tensors, owner));
  }
  return group_->Synchronize();
}

absl::Status Gang::MakeBuckets() {
  for (const auto& [module, broadcast_buffers] : modules_) {
    const std::vector<at::Tensor> parameters = TrainedParameters(*module);
    if (parameters.empty()) continue;
    GradientBucketsOptions options;
    options.averages = averages_;
    options.failed = [failure = failure_](const absl::Status& status) {
      failure->Note(status);
    };
    GAVEL_ASSIGN_OR_RETURN(
        auto buckets, GradientBuckets::Create(parameters, *group_, options));
    buckets_.push_back(std::move(buckets));
  }
  return absl::OkStatus();
}

std::vector<at::Tensor> Gang::TrainedParameters(
    const torch::nn::Module& module) const {
  std::vector<at::Tensor> parameters;
  std::set<c10::TensorImpl*> seen;  // one may be in a module twice
  for (const at::Tensor& parameter : module.parameters()) {
    if (!parameter.requires_grad() || IsPart(parameter)) continue;
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    parameters.push_back(parameter);
  }
  return parameters;
}

std::vector<at::Tensor> Gang::Gradients() const {
  std::vector<at::Tensor> gradients;
  for (const Trained& trained : modules_) {
    for (const at::Tensor& parameter : TrainedParameters(*trained.module)) {
      if (parameter.grad().defined()) gradients.push_back(parameter.grad());
    }
  }
  return gradients;
}

std::vector<at::Tensor> Gang::AllTensors() const {
  std::vector<at::Tensor> tensors;
  for (const Trained& trained : modules_) {
    for (const auto& some :
         {trained.module->buffers(), trained.module->parameters()}) {
      for (const at::Tensor& tensor : some) {
        if (!IsPart(tensor)) tensors.push_back(ValuesOf(tensor));
      }
    }
  }
  return tensors;
}

std::vector<at::Tensor> Gang::ChangingBuffers() const {
  std::vector<at::Tensor> tensors;
  for (const Trained& trained : modules_) {
    if (!trained.broadcast_buffers) continue;
    for (const at::Tensor& buffer : trained.module->buffers()) {
      if (!IsPart(buffer)) tensors.push_back(buffer);
    }
  }
  return tensors;
}

absl::Status Gang::EndStep() {
  // First, as it knows whom the collectives waited for.
  if (thread_->broken()) return absl::UnavailableError(thread_->why());
  {
    std::lock_guard<std::mutex> lock(failure_->mutex);
    if (!failure_->status.ok()) return Explain(failure_->status);
  }
  if (group_ && group_->aborted()) {
    return Explain(
        absl::UnavailableError("the collectives of the step were ended"));
  }
  for (const auto& buckets : buckets_) {
    if (!buckets->unfinished()) continue;
    return absl::UnavailableError(
        "a backward pass did not come to its end on this rank, and the others "
        "wait for it; let what it throws end the loop");
  }
  if (group_ == nullptr) return absl::OkStatus();
  const std::vector<at::Tensor> buffers = ChangingBuffers();
  return buffers.empty() ? absl::OkStatus()
                         : Explain(group_->Broadcast(buffers));
}

absl::Status Gang::Explain(const absl::Status& failure) const {
  if (failure.ok() || !thread_->is_left_behind()) return failure;
  return absl::UnavailableError(
      "the loop of another rank has ended, and this one waits for it in a "
      "step; let all ranks take equally many steps");
}

absl::Status Gang::Synchronize() {
  if (group_ == nullptr) return absl::OkStatus();
  return Wait([this] { return group_->Synchronize(); });
}

absl::Status Gang::Wait(const std::function<absl::Status()>& wait) {
  thread_->SetWaiting(true);
  absl::Status status = wait();
  thread_->SetWaiting(false);
  return Explain(status);
}

void Gang::Leave(Leaving how) {
  if (!joined()) return;
  thread_->Leave(how);
  if (group_ && how == Leaving::kBroken) group_->Abort();
  // Nobody tells any more whether the others live.
  if (group_ && how != Leaving::kBroken) {
    group_->Finish(plan_.leave_timeout_s).IgnoreError();
  }
  Retire();
}

absl::Status Gang::Stop(uint64_t steps_done) {
  if (!joined()) return absl::OkStatus();
  // While the thread still ends what waits for a lost rank.
  if (group_) {
    GAVEL_RETURN_IF_ERROR(Wait([this] { return group_->Finish(); }));
  }
  thread_->Rest();
  Retire();
  std::lock_guard<std::mutex> lock(mutex_);
  stopped_at_ = steps_done;
  return absl::OkStatus();
}

void Gang::Retire() {
  buckets_.clear();
  // One on an accelerator has memory there, which the next job may need.
  if (group_ && group_->on_host()) last_group_ = group_;
  group_.reset();
  store_.reset();
  std::lock_guard<std::mutex> lock(mutex_);
  last_thread_ = std::move(thread_);
}

void Gang::End() {
  if (joined()) thread_->End();
}

void Gang::BeginSave(const Save& save) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (thread() != nullptr) thread()->BeginSave(save);
}

bool Gang::AllHaveBegun(const Save& save) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return thread() == nullptr || thread()->all_have_begun(save);
}

void Gang::FailSave(const Save& save) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (thread() != nullptr) thread()->FailSave(save);
}

absl::Status Gang::SaveStatus(const Save& save) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (thread() == nullptr) return absl::OkStatus();
  if (thread()->broken()) {
    return absl::CancelledError("a rank of the gang is lost");
  }
  const int rank = thread()->failed_rank(save);
  if (rank < 0) return absl::OkStatus();
  return absl::AbortedError(
      StrCat("rank ", rank, " can't write its part; its log says why"));
}

bool Gang::Settle(uint64_t steps_done, bool written) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (last_thread_ == nullptr || steps_done != stopped_at_) return true;
  // Rank 0 gives a generation up after it has said which rank is lost.
  if (!written) last_thread_->Listen();
  last_thread_->Leave(Leaving::kDone);
  return !last_thread_->broken();
}

std::string Gang::why_broken() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return thread() == nullptr ? "" : thread()->why();
}

void Gang::WaitForOthers() {
  std::unique_ptr<GangThread> last;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    last = std::move(last_thread_);
  }
  last.reset();
  last_group_.reset();
}

}  // namespace gavel::internal
