#include "iterator/gang_membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"

namespace gavel::internal {
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
