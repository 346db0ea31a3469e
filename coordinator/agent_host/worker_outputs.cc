#include "coordinator/agent_host/worker_outputs.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <utility>

#include "coordinator/agent_host/output_channel.h"
#include "core/error_line.h"
#include "core/status.h"
#include "core/text.h"
#include "spdlog/spdlog.h"

namespace gavel {
namespace {

// Read of one channel before it is the next one's turn.
constexpr int kReadsOfATurn = 16;
// To look again at a channel whose last bytes may be on their way.
constexpr double kDrainInterval_s = 0.005;

double OutputClock() {
  const std::chrono::duration<double> now =
      std::chrono::steady_clock::now().time_since_epoch();
  return now.count();
}

}  // namespace

WorkerOutputs::WorkerOutputs(WorkerOutputsOptions options)
    : options_(std::move(options)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake_.get();
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  thread_ = std::thread([this] { Work(); });
}

WorkerOutputs::~WorkerOutputs() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
  thread_.join();
}

absl::StatusOr<Descriptor> WorkerOutputs::Open(
    const LogOwner& owner, const std::optional<UnixAccount>& account) {
  GAVEL_ASSIGN_OR_RETURN(OutputChannel channel, OpenOutputChannel(account));
  Post(OpenRequest{owner, std::move(channel.reader)});
  return std::move(channel.writer);
}

void WorkerOutputs::Finish(const WorkerKey& worker) {
  Post(FinishRequest{worker});
}

void WorkerOutputs::Read(const std::string& cluster, const LogRequest& request,
                         bool runs) {
  {
    const std::lock_guard lock(mutex_);
    if (reads_ < kReadsMax) {
      ++reads_;
      requests_.emplace_back(ReadRequest{cluster, request, runs});
    } else {
      LogReply reply;
      reply.request = request.request;
      reply.next_offset = request.offset;
      reply.error = "too many read logs of this server; try again";
      events_.emplace_back(std::move(reply));
      return options_.notify();
    }
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
}

void WorkerOutputs::Post(Request request) {
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(std::move(request));
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
}

std::vector<OutputEvent> WorkerOutputs::TakeEvents() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

void WorkerOutputs::Tell(OutputEvent event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  options_.notify();
}

void WorkerOutputs::Work() {
  while (true) {
    WaitForWork();
    std::vector<Request> requests;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_ && requests_.empty()) break;
      requests = std::exchange(requests_, {});
      reads_ = 0;
    }
    // Opened first, so that what is asked for below is there; then read, so
    // that a log shows what was written before it was asked for.
    for (Request& request : requests) {
      if (auto* open = std::get_if<OpenRequest>(&request)) {
        CarryOut(std::move(*open));
      }
    }
    DrainAll();
    for (Request& request : requests) {
      if (auto* finish = std::get_if<FinishRequest>(&request)) {
        CarryOut(std::move(*finish));
      } else if (auto* read = std::get_if<ReadRequest>(&request)) {
        CarryOut(std::move(*read));
      }
    }
    if (OutputClock() >= prune_at_ ||
        unpruned_bytes_ >= options_.limits.total_bytes / kPruneShare) {
      Prune();
    }
  }
  DrainAll();
}

void WorkerOutputs::WaitForWork() const {
  double wait_s = std::max(0.0, prune_at_ - OutputClock());
  for (const auto& [worker, output] : outputs_) {
    if (output.ends_at != kNever) wait_s = std::min(wait_s, kDrainInterval_s);
  }
  epoll_event event{};
  epoll_wait(epoll_.get(), &event, 1,
             static_cast<int>(std::ceil(wait_s * 1000)));
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t bytes =
      read(wake_.get(), &count, sizeof count);
}

void WorkerOutputs::CarryOut(OpenRequest&& request) {
  const WorkerKey& worker = request.owner.worker;
  // Never two that append to one log.
  std::erase_if(outputs_, [&](const auto& entry) {
    return entry.first.worker() == worker.worker();
  });
  Output output{std::move(request.reader), std::nullopt, false, ""};
  absl::StatusOr<WorkerLog> log =
      WorkerLog::Open(options_.logs_directory, request.owner, options_.limits);
  if (log.ok()) {
    output.log.emplace(*std::move(log));
  } else {
    output.loss_told = true;
    TellLoss(worker, log.status());
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = output.reader.get();
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, output.reader.get(), &event);
  outputs_.emplace(worker, std::move(output));
}

void WorkerOutputs::CarryOut(FinishRequest&& request) {
  const auto found = outputs_.find(request.worker);
  if (found == outputs_.end()) {
    return Tell(OutputEnded{request.worker, ""});
  }
  found->second.ends_at = OutputClock() + kDrain_s;
}

void WorkerOutputs::CarryOut(ReadRequest&& request) {
  const bool open = std::ranges::any_of(outputs_, [&](const auto& entry) {
    return entry.first.worker() == request.request.worker;
  });
  Tell(ReadWorkerLog(options_.logs_directory, request.cluster, request.request,
                     request.runs || open));
}

void WorkerOutputs::DrainAll() {
  for (auto it = outputs_.begin(); it != outputs_.end();) {
    Output& output = it->second;
    const bool closed = Drain(it->first, output);
    const bool over =
        output.ends_at != kNever && (closed || OutputClock() >= output.ends_at);
    // A channel that is closed stays readable.
    if (closed) {
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, output.reader.get(), nullptr);
    }
    if (over) Tell(OutputEnded{it->first, LastErrorLine(output.tail)});
    it = over ? outputs_.erase(it) : std::next(it);
  }
}

// True when nobody can write to it any more.
bool WorkerOutputs::Drain(const WorkerKey& worker, Output& output) {
  std::array<char, 64 * 1024> data{};
  for (int i = 0; i < kReadsOfATurn; ++i) {
    const ssize_t bytes = read(output.reader.get(), data.data(), data.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == EAGAIN) return false;
    if (bytes <= 0) return true;  // EIO of a terminal, the end of a pipe
    Take(worker, output, {data.data(), static_cast<size_t>(bytes)});
  }
  return false;
}

void WorkerOutputs::Take(const WorkerKey& worker, Output& output,
                         std::string_view data) {
  output.tail += data.substr(data.size() - std::min(data.size(), kTailBytes));
  if (output.tail.size() > 2 * kTailBytes) {
    output.tail.erase(0, output.tail.size() - kTailBytes);
  }
  unpruned_bytes_ += data.size();
  const absl::Status written =
      output.log.has_value() ? output.log->Append(data) : absl::OkStatus();
  if (written.ok() || output.loss_told) return;
  output.loss_told = true;
  TellLoss(worker, written);
}

void WorkerOutputs::TellLoss(const WorkerKey& worker,
                             const absl::Status& why) const {
  if (options_.log == nullptr) return;
  options_.log->error(
      "job {} rank {}: its output can't be written and is lost: {}; make room, "
      "or correct the state directory",
      worker.job.value(), worker.rank, ToStd(why.message()));
}

void WorkerOutputs::Prune() {
  prune_at_ = OutputClock() + kPruneInterval_s;
  unpruned_bytes_ = 0;
  PruneLogs(options_.logs_directory, options_.limits);
}

}  // namespace gavel
