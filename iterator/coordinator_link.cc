#include "iterator/coordinator_link.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>
#include <variant>

#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "iterator/step_profile.h"
#include "runtime/files/files.h"
#include "runtime/files/worker_thread.h"

namespace gavel::internal {
namespace {

// For the agent, which tells it with the end of the process: the message may be
// lost, and the shell that runs this program may end with another code. Without
// an agent's file, or where it can't be reached, the message alone tells.
constexpr char kNotEnded[] = "-1";  // the session has begun

void LeaveWord(const std::string& text) {
  const char* path = std::getenv("GAVEL_END_FILE");
  if (path == nullptr) return;
  const Descriptor file(open(path, O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (file.get() < 0) return;
  [[maybe_unused]] const ssize_t written =
      write(file.get(), text.data(), text.size());
}

constexpr double kReportInterval_s = 1;
constexpr double kBytesInterval_s = 5;
constexpr double kConnectWait_s = 1;
constexpr std::chrono::milliseconds kFailureWait(100);
// A queued message is on the wire within a millisecond when the peer is there.
constexpr std::chrono::milliseconds kFlushTime(50);

}  // namespace

// Before the first loop: the restore and the program's own data may take long.
absl::Status CoordinatorLink::Start() {
  if (!context_.managed()) return absl::OkStatus();
  const SessionOptions& options = context_.options;
  LeaseOptions lease;
  lease.worker = {JobId(options.job), options.rank, options.incarnation};
  GAVEL_ASSIGN_OR_RETURN(thread_,
                         LeaseThread::Start(options.coordinator, lease,
                                            {context_.gate, context_.stats,
                                             context_.board, context_.log}));
  LeaveWord(kNotEnded);
  Post(lease_event::Began{getpid()});
  return absl::OkStatus();
}

void CoordinatorLink::Post(LeaseEvent event) {
  if (thread_) thread_->Post(std::move(event));
}

void CoordinatorLink::Finish(const lease_event::Finished& finished) {
  if (!thread_) return;
  LeaveWord(std::to_string(finished.exit_code));
  thread_->Finish(finished);
}

void CoordinatorLink::SetSaving(bool saving) {
  if (thread_) thread_->SetSaving(saving);
}

bool CoordinatorWatch::Heard() {
  unanswered_since_ = kNever;
  return std::exchange(silent_, false);
}

bool CoordinatorWatch::IsSilent(Time now) {
  if (silent_ || now < unanswered_since_ + kSilenceMax_s) return false;
  silent_ = true;
  return true;
}

absl::StatusOr<std::unique_ptr<LeaseThread>> LeaseThread::Start(
    const std::string& coordinator, const LeaseOptions& options,
    Shared shared) {
  const SignalsBlocked blocked;  // inherited by ZeroMQ's threads and ours
  GAVEL_ASSIGN_OR_RETURN(std::optional<CurveClient> keys,
                         CurveClientOfEnvironment());
  const std::string public_key = keys ? keys->own.public_key : "";
  GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<Dealer> dealer,
                         Dealer::Connect(coordinator, {std::move(keys)}));
  std::unique_ptr<LeaseThread> thread(
      new LeaseThread(std::move(dealer), coordinator, options, shared));
  thread->public_key_ = public_key;
  thread->thread_ = std::thread([raw = thread.get()] { raw->Run(); });
  return thread;
}

LeaseThread::LeaseThread(std::unique_ptr<Dealer> dealer,
                         std::string coordinator, const LeaseOptions& options,
                         Shared shared)
    : dealer_(std::move(dealer)),
      coordinator_(std::move(coordinator)),
      machine_(options),
      shared_(shared) {}

LeaseThread::~LeaseThread() { Stop(); }

void LeaseThread::Post(LeaseEvent event) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    posted_.push_back(std::move(event));
  }
  dealer_->waker().Wake();
}

void LeaseThread::Finish(const lease_event::Finished& finished) {
  if (!thread_.joinable()) return;
  Post(finished);
  std::this_thread::sleep_for(kFlushTime);
  Stop();
  std::this_thread::sleep_for(kFlushTime);
}

void LeaseThread::Stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_release);
  dealer_->waker().Wake();
  thread_.join();
}

void LeaseThread::Run() {
  // Else the first messages are lost and repeated a second later.
  WaitUntilConnected([this] { return stopping_.load(); });
  while (!stopping_.load(std::memory_order_acquire)) Turn();
  Turn();  // what was posted last
}

void LeaseThread::WaitUntilConnected(const std::function<bool()>& stop) {
  const Time give_up = Now() + kConnectWait_s;
  // A Wake ends one wait.
  while (!dealer_->WaitUntilConnected(std::max(0.0, give_up - Now())) &&
         Now() < give_up && !stop()) {
  }
}

void LeaseThread::Turn() {
  const bool last = stopping_.load(std::memory_order_acquire);
  const double wait_s =
      last ? 0 : std::clamp(NextDeadline() - Now(), 0.0, 3600.0);
  absl::StatusOr<std::optional<Message>> message = dealer_->Receive(wait_s);
  if (!message.ok()) std::this_thread::sleep_for(kFailureWait);
  if (!message.ok() && !dealer_failed_) {
    dealer_failed_ = true;
    shared_.log.Error(
        StrCat("coordinator ", coordinator_, ": ", message.status().message()));
    shared_.board.SetCoordinator(message.status());
  }
  if (message.ok() && message->has_value()) {
    if (watch_.Heard()) {
      shared_.log.Info(StrCat("coordinator ", coordinator_, " answers again"));
      shared_.board.SetCoordinator(absl::OkStatus());
    }
    if (const auto* no = std::get_if<WorkerRejected>(&**message)) {
      shared_.log.Warning(
          StrCat("the coordinator does not want this process: ", no->reason));
    }
    Step(lease_event::MessageReceived{**std::move(message)});
  }
  std::vector<LeaseEvent> posted;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    posted.swap(posted_);
  }
  for (const LeaseEvent& event : posted) Step(event);
  const Time now = Now();
  if (now >= machine_.NextDeadline()) Step(lease_event::Tick{});
  if (now >= next_report_) ReportProgress();
  if (now >= next_bytes_) ReportBytes();
  if (watch_.IsSilent(now)) ReportSilence();
  ReportRefusal();
  if (shared_.gate.stop_requested()) shared_.gate.NotifyStop();
}

Time LeaseThread::NextDeadline() const {
  return std::min({machine_.NextDeadline(), watch_.NextDeadline(), next_report_,
                   next_bytes_});
}

void LeaseThread::Step(const LeaseEvent& event) {
  for (const LeaseAction& action : machine_.Step(Now(), event)) {
    std::visit([this](const auto& one) { Do(one); }, action);
  }
}

void LeaseThread::Do(const lease_action::Send& send) {
  if (std::holds_alternative<LeaseRequest>(send.message)) watch_.Sent(Now());
  // A message that can't be sent is like a lost one and is repeated. But the
  // last one is sent only once, and the coordinator may be renewing the
  // connection at this moment.
  if (std::holds_alternative<WorkerFinished>(send.message)) {
    WaitUntilConnected([] { return false; });
  }
  dealer_->Send(send.message).IgnoreError();
}

void LeaseThread::Do(const lease_action::Resume& resume) {
  shared_.gate.Grant(resume);
}

void LeaseThread::Do(const lease_action::Extend& extend) {
  shared_.gate.Extend(extend);
}

void LeaseThread::Do(const lease_action::Pause& pause) {
  if (pause.rejected) rejected_.store(true, std::memory_order_release);
  shared_.gate.Pause(pause);
}

void LeaseThread::Do(const lease_action::Checkpoint&) {
  shared_.gate.WantCheckpoint();
}

void LeaseThread::ReportProgress() {
  next_report_ = Now() + kReportInterval_s;
  // Steps before a restore were not done by this process.
  if (!machine_.started()) return;
  Progress progress = shared_.stats.Read();
  window_.Measure(shared_.stats, &progress);
  Step(lease_event::Progressed{std::move(progress)});
}

void LeaseThread::ReportBytes() {
  next_bytes_ = Now() + kBytesInterval_s;
  Step(lease_event::BytesCounted{ProcessBytes(),
                                 saving_.load(std::memory_order_relaxed)});
}

void LeaseThread::ReportRefusal() {
  const Link& link = dealer_->link();
  if (link.refused() == std::exchange(refused_, link.refused())) return;
  if (!refused_) return;
  const std::string line = LinkText(link, coordinator_, public_key_);
  shared_.log.Warning(line);
  shared_.board.SetCoordinator(absl::UnavailableError(line));
}

void LeaseThread::ReportSilence() {
  if (refused_) return;
  const std::string line =
      dealer_->link().closed()
          ? LinkText(dealer_->link(), coordinator_, public_key_)
          : StrCat("coordinator ", coordinator_,
                   " does not answer; start it (gavel coordinator) or correct "
                   "GAVEL_WORKER_COORDINATOR, or unset that to run alone; "
                   "trying again until then");
  shared_.log.Warning(line);
  shared_.board.SetCoordinator(absl::UnavailableError(line));
}

}  // namespace gavel::internal
