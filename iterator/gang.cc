#include "iterator/gang.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "runtime/device/torch_errors.h"
#include "runtime/files/worker_thread.h"

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

// The state of a rank, as it publishes it.
struct Here {
  std::string steps_done;
  std::string divided;  // fingerprint
  bool is_missing = false;
};

absl::StatusOr<Here> ParseHere(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  if (parts.size() != 3) {
    return absl::InternalError(
        StrCat("'", text, "' is not what a rank says of its state"));
  }
  return Here{parts[0], parts[1], !parts[2].empty()};
}

absl::Status CompareSteps(const GangPlan& plan, const std::vector<Here>& all) {
  if (all[static_cast<size_t>(plan.rank)].steps_done != all[0].steps_done) {
    return absl::AbortedError(StrCat("this rank is at step ", plan.steps_done,
                                     ", rank 0 at ", all[0].steps_done));
  }
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].steps_done == all[0].steps_done) continue;
    return absl::UnavailableError(
        StrCat("rank ", rank, " is at step ", all[rank].steps_done,
               ", this one at ", plan.steps_done, "; it has to begin again"));
  }
  return absl::OkStatus();
}

constexpr std::chrono::milliseconds kTalkInterval(20);
constexpr std::chrono::milliseconds kGiveUpInterval(50);
// For the last word, and for rank 0 until the others have said theirs: a rank
// that is lost meanwhile is known to be by then.
constexpr std::chrono::milliseconds kEndWait(2000);
constexpr std::chrono::milliseconds kEndWaitOfHost(8000);

std::string MemberKey(const std::string& prefix, int rank) {
  return StrCat(prefix, "/member/", rank);
}
std::string LeaderKey(const std::string& prefix) {
  return StrCat(prefix, "/leader");
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

// A store belongs to one gang: a rank with a lease of another epoch must
// neither wait in it nor count there. Without a host among the ranks, the
// process that opened the store may keep it for several gangs.
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
  // From here on nothing tells whether the other ranks are alive.
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

// ---- The part of Gang that programs call themselves: collectives of their
// own.

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

// ---- What the ranks compare when they meet.

std::string TextOfState(const GangPlan& plan) {
  if (plan.divided == nullptr) return StrCat(plan.steps_done, ",,");
  return StrCat(plan.steps_done, ",", plan.divided->Fingerprint(), ",",
                plan.divided->is_missing() ? "missing" : "");
}

absl::StatusOr<bool> CompareStates(const GangPlan& plan,
                                   const std::vector<std::string>& texts) {
  std::vector<Here> all;
  for (const std::string& text : texts) {
    GAVEL_ASSIGN_OR_RETURN(all.emplace_back(), ParseHere(text));
  }
  GAVEL_RETURN_IF_ERROR(CompareSteps(plan, all));
  const bool is_missing = std::ranges::any_of(all, &Here::is_missing);
  const bool is_same = std::ranges::all_of(all, [&](const Here& here) {
    return !here.divided.empty() && here.divided == all[0].divided;
  });
  if (!is_missing || is_same) return is_missing;
  const std::string why =
      "a rank began again while the others' state was divided among them";
  return all[static_cast<size_t>(plan.rank)].is_missing
             ? absl::AbortedError(why)
             : absl::UnavailableError(why);
}

// ---- The thread of a rank.

struct GangThread::Shared {
  Shared(Options given, Time now)
      : options(std::move(given)), member(options.steps_done, now) {}

  void Run(std::shared_ptr<GangStore> host, std::unique_ptr<GangStore> store);
  // Rank 0 when `leader`. An error: the store can't be reached.
  absl::Status Talk(GangStore& store, StopLeader* leader);
  absl::StatusOr<LeaderWord> Lead(GangStore& store, StopLeader& leader);
  absl::StatusOr<LeaderWord> Follow(GangStore& store) const;
  void Break(const std::string& why);
  void EndStuckWait();

  const Options options;
  mutable std::mutex mutex;
  std::condition_variable changed;
  StopMember member;
  Leaving leaving = Leaving::kNo;
  bool in_step = false;
  bool waiting = false;  // for the device
  bool broken = false;
  std::string why;
  uint64_t talks = 0;  // rounds of words so far
  bool ended = false;
};

absl::Status GangThread::Announce(GangStore& store, const Options& options) {
  if (options.rank == 0) {
    GAVEL_RETURN_IF_ERROR(
        store.Set(LeaderKey(options.prefix), EncodeWord(LeaderWord())));
  }
  MemberWord word;
  word.step_begun = options.steps_done;
  return store.Set(MemberKey(options.prefix, options.rank), EncodeWord(word));
}

absl::StatusOr<std::unique_ptr<GangThread>> GangThread::Start(
    std::shared_ptr<GangStore> store, Options options) {
  GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<GangStore> own, store->Clone());
  auto shared = std::make_shared<Shared>(std::move(options), Now());
  const SignalsBlocked blocked;
  GAVEL_RETURN_IF_ERROR(CatchAsStatus("the gang's thread", [&] {
    std::thread([shared, host = std::move(store),
                 own = std::move(own)]() mutable {
      shared->Run(std::move(host), std::move(own));
    }).detach();
    return absl::OkStatus();
  }));
  return std::unique_ptr<GangThread>(new GangThread(std::move(shared)));
}

GangThread::GangThread(std::shared_ptr<Shared> shared)
    : shared_(std::move(shared)) {}

GangThread::~GangThread() {
  Leave(Leaving::kBroken);  // unless it has left in another way
  std::unique_lock<std::mutex> lock(shared_->mutex);
  shared_->changed.wait_for(
      lock, shared_->options.rank == 0 ? kEndWaitOfHost : kEndWait,
      [this] { return shared_->ended; });
}

StopMember::Passage GangThread::Pass(uint64_t steps_done, bool begins,
                                     const std::function<bool()>& gives_up) {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  shared_->in_step = false;
  while (!shared_->broken) {
    const StopMember::Passage passage =
        shared_->member.Pass(steps_done, begins);
    if (passage == StopMember::Passage::kMissed) {
      shared_->broken = true;
      shared_->why = "a step was counted without a boundary behind it";
    }
    shared_->in_step = begins && passage == StopMember::Passage::kGoOn;
    if (passage != StopMember::Passage::kWait) return passage;
    shared_->changed.wait_for(lock, kGiveUpInterval);
    if (!gives_up()) continue;
    shared_->broken = true;
    shared_->why = "the lease ended before all ranks agreed on a step";
  }
  return StopMember::Passage::kMissed;
}

void GangThread::Want(StopKind kind) {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->member.Want(kind);
}

void GangThread::SetWaiting(bool waiting) {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->waiting = waiting;
}

void GangThread::Rest() {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->in_step = false;
}

void GangThread::End() {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->in_step = false;
  shared_->member.End();
}

bool GangThread::is_left_behind() const {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->member.is_left_behind(Now());
}

void GangThread::BeginSave(const Save& save) {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->member.BeginSave(save);
}

bool GangThread::all_have_begun(const Save& save) const {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->member.all_have_begun(save);
}

void GangThread::FailSave(const Save& save) {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->member.FailSave(save);
}

int GangThread::failed_rank(const Save& save) const {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->member.failed_rank(save);
}

void GangThread::Listen() {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  // The first may have been under way.
  const uint64_t enough = shared_->talks + 2;
  shared_->changed.wait_for(lock, kEndWait, [&] {
    return shared_->talks >= enough || shared_->broken || shared_->ended;
  });
}

void GangThread::Leave(Leaving how) {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  if (shared_->leaving != Leaving::kNo) return;
  shared_->leaving = how;
  shared_->in_step = false;
  shared_->member.Leave(how);
  shared_->changed.notify_all();
}

bool GangThread::broken() const {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->broken;
}

std::string GangThread::why() const {
  std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->why;
}

void GangThread::Shared::Run(std::shared_ptr<GangStore> host,
                             std::unique_ptr<GangStore> store) {
  std::optional<StopLeader> leader;
  if (options.rank == 0) leader.emplace(options.world_size, Now());
  bool last = false;
  while (!last) {
    {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait_for(lock, kTalkInterval);
      // A message after this is the last one.
      last = leaving != Leaving::kNo;
    }
    const absl::Status status = Talk(*store, leader ? &*leader : nullptr);
    if (!status.ok()) {
      Break(StrCat("the store at ", store->endpoint(),
                   " is gone: ", status.message()));
      break;
    }
    if (leader && !leader->all_left()) last = false;
  }
  store.reset();
  host.reset();
  std::lock_guard<std::mutex> lock(mutex);
  ended = true;
  changed.notify_all();
}

absl::Status GangThread::Shared::Talk(GangStore& store, StopLeader* leader) {
  MemberWord word;
  {
    std::lock_guard<std::mutex> lock(mutex);
    word = member.Word();
  }
  GAVEL_RETURN_IF_ERROR(
      store.Set(MemberKey(options.prefix, options.rank), EncodeWord(word)));
  GAVEL_ASSIGN_OR_RETURN(const LeaderWord heard,
                         leader ? Lead(store, *leader) : Follow(store));
  int lost = -1;
  {
    std::lock_guard<std::mutex> lock(mutex);
    member.Hear(Now(), heard);
    if (leaving == Leaving::kNo) lost = member.lost_rank(Now());
    if (lost < 0) ++talks;  // else Break() says so
    changed.notify_all();
  }
  if (lost >= 0) {
    Break(StrCat("rank ", lost, " of ", options.world_size,
                 " is gone or does not answer"));
  }
  EndStuckWait();
  return absl::OkStatus();
}

absl::StatusOr<LeaderWord> GangThread::Shared::Lead(GangStore& store,
                                                    StopLeader& leader) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < options.world_size; ++rank) {
    keys.push_back(MemberKey(options.prefix, rank));
  }
  GAVEL_ASSIGN_OR_RETURN(const std::vector<std::string> texts, store.Get(keys));
  std::vector<std::optional<MemberWord>> words;
  for (const std::string& text : texts) words.push_back(DecodeMemberWord(text));
  words.resize(static_cast<size_t>(options.world_size));
  const LeaderWord word = leader.Hear(Now(), words);
  GAVEL_RETURN_IF_ERROR(store.Set(LeaderKey(options.prefix), EncodeWord(word)));
  return word;
}

absl::StatusOr<LeaderWord> GangThread::Shared::Follow(GangStore& store) const {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                         store.Get({LeaderKey(options.prefix)}));
  if (texts.empty()) return LeaderWord();
  return DecodeLeaderWord(texts.front()).value_or(LeaderWord());
}

void GangThread::Shared::Break(const std::string& reason) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (broken || leaving != Leaving::kNo) return;
    broken = true;
    why = reason;
    changed.notify_all();
  }
  if (options.abort) options.abort();
}

// Ends a wait for a collective that can't complete, or must not any more.
void GangThread::Shared::EndStuckWait() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    // Or who answers below may be gone.
    if (leaving != Leaving::kNo || (!in_step && !waiting)) return;
    const bool is_over = options.lease_is_over && options.lease_is_over();
    if (!is_over && !member.is_left_behind(Now())) return;
  }
  if (options.abort) options.abort();
}

// ---- This process as a rank of its job.

namespace {

// The ranks must have given up before the lease ends.
constexpr double kMeetingTimeoutMin_s = 1;
constexpr double kMeetingTimeoutMax_s = 30;
constexpr char kLoopback[] = "127.0.0.1";

}  // namespace

GangMembership::GangMembership(SessionContext& context, CoordinatorLink& link,
                               std::function<bool()> averages,
                               std::function<bool(const at::Tensor&)> is_part)
    : context_(context),
      link_(link),
      gang_(std::move(averages), std::move(is_part)),
      world_size_(context.options.world_size) {}

void GangMembership::Add(std::shared_ptr<torch::nn::Module> module,
                         bool broadcast_buffers) {
  gang_.Add(std::move(module), broadcast_buffers);
}

GangPlan GangMembership::PlanLeased(const lease_action::Resume& lease) {
  const SessionOptions& options = context_.options;
  GangPlan plan;
  plan.hosts = options.rank == 0;
  plan.endpoint = lease.gang_address;
  plan.address = options.address.empty() ? kLoopback : options.address;
  plan.prefix = StrCat("gavel/", options.job, "/", lease.epoch);
  plan.world_size = lease.world_size;
  const double left_s = lease.deadline - Now();
  plan.meeting_timeout_s =
      std::clamp(left_s / 2, kMeetingTimeoutMin_s, kMeetingTimeoutMax_s);
  plan.opened = [this, epoch = lease.epoch](const std::string& endpoint) {
    link_.Post(lease_event::GangOpened{epoch, endpoint});
  };
  plan.gives_up = [this] { return context_.gate.has_calls(); };
  plan.lease_is_over = [this] {
    return context_.gate.IsDeadlineOver(Now_ns());
  };
  lease_s_ = left_s;
  return plan;
}

absl::StatusOr<GangPlan> GangMembership::PlanAlone() const {
  const SessionOptions& options = context_.options;
  const GangOptions& gang = options.gang;
  const size_t colon = gang.store.rfind(':');
  int port = 0;
  if (colon == std::string::npos ||
      !absl::SimpleAtoi(gang.store.substr(colon + 1), &port)) {
    return absl::InvalidArgumentError(
        StrCat("rank ", options.rank, " of ", world_size_,
               ", but where rank 0 is to be found is not said; start with "
               "torchrun, or set MASTER_ADDR and MASTER_PORT"));
  }
  GangPlan plan;
  plan.hosts = options.rank == 0 && !gang.launcher_hosts;
  plan.endpoint = gang.store;
  plan.address = options.address;
  const std::string host = gang.store.substr(0, colon);
  if (host == "localhost" || host == kLoopback) plan.address = kLoopback;
  if (plan.hosts && plan.address.empty()) plan.address = host;
  plan.port = port;
  plan.prefix = StrCat("gavel/", gang.name);
  plan.world_size = world_size_;
  plan.gives_up = [this] { return context_.gate.stop_requested(); };
  return plan;
}

bool GangMembership::KeepsSize() const {
  return world_size_ > 1 && world_size_ == context_.options.world_size &&
         context_.options.world_size_max == 0;
}

absl::Status GangMembership::Join(GangPlan plan, at::Device device,
                                  const DividedTensors& divided) {
  plan.divided = &divided;
  plan.rank = context_.options.rank;
  plan.device = device;
  plan.steps_done = context_.stats.steps_done();
  pause_.reset();
  GAVEL_RETURN_IF_ERROR(gang_.Join(plan));
  context_.log.Info(StrCat("rank ", plan.rank, " of a gang of ",
                           plan.world_size, " on ", plan.device.str()));
  return absl::OkStatus();
}

void GangMembership::TakeCalls(const BoundaryGate::Calls& calls) {
  if (calls.pause &&
      (!pause_ || StrongerThan(calls.pause->tier, pause_->tier))) {
    pause_ = calls.pause;
  }
  if (calls.stop) pause_ = {PauseTier::kEvict, "ended by a signal"};
}

void GangMembership::WantStopIfDue(int64_t now_ns) {
  // One that was long counts for less and less.
  longest_step_ns_ = std::max(context_.stats.last_step_ns(),
                              longest_step_ns_ - longest_step_ns_ / 8);
  const double ahead_s =
      GangStopAhead({lease_s_, context_.gate.extension_lead_s(),
                     static_cast<double>(longest_step_ns_) / 1e9});
  if (pause_ || context_.gate.IsDeadlineOver(now_ns + ToNanoseconds(ahead_s))) {
    gang_.Want(StopKind::kStop);
  }
}

StopMember::Passage GangMembership::Pass(bool begins) {
  return gang_.Pass(context_.stats.steps_done(), begins,
                    [this] { return context_.gate.IsDeadlineOver(Now_ns()); });
}

absl::Status GangMembership::Stop() {
  return gang_.Stop(context_.stats.steps_done());
}

lease_action::Pause GangMembership::TakePause() {
  if (pause_) return *std::exchange(pause_, std::nullopt);
  return {PauseTier::kPark, "another rank of the gang was told to"};
}

void GangMembership::LeaveBroken() {
  left_broken_.store(true, std::memory_order_release);
  gang_.Leave(Leaving::kBroken);
}

absl::Status GangMembership::SaveStatus(const Save& save) const {
  if (!left_broken_.load(std::memory_order_acquire)) {
    return gang_.SaveStatus(save);
  }
  return absl::CancelledError("the gang is broken");
}

}  // namespace gavel::internal
