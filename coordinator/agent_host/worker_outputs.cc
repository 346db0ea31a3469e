#include "coordinator/agent_host/worker_outputs.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "core/error_line.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/stopwatch.h"
#include "spdlog/spdlog.h"

namespace gavel {
namespace {

// As terminals have been: programs that ask lay out their tables for it.
constexpr winsize kWindow{24, 80, 0, 0};

bool SetRaw(int terminal) {
  termios modes{};
  if (tcgetattr(terminal, &modes) != 0) return false;
  cfmakeraw(&modes);
  return tcsetattr(terminal, TCSANOW, &modes) == 0 &&
         ioctl(terminal, TIOCSWINSZ, &kWindow) == 0;
}

std::optional<OutputChannel> OpenTerminal() {
  Descriptor reader(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  if (reader.get() < 0 || unlockpt(reader.get()) != 0) return std::nullopt;
  // Not by its name, which may be another's in this mount namespace.
  Descriptor writer(
      ioctl(reader.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (writer.get() < 0 || !SetRaw(writer.get())) return std::nullopt;
  return OutputChannel{std::move(reader), std::move(writer)};
}

absl::StatusOr<OutputChannel> OpenPipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "a pipe for a worker's output");
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return OutputChannel{Descriptor(ends[0]), Descriptor(ends[1])};
}

// Read of one channel before it is the next one's turn.
constexpr int kReadsOfATurn = 16;
// To look again at a channel whose last bytes may be on their way.
constexpr double kDrainInterval_s = 0.005;

// The end file holds one exit code as text.
constexpr size_t kEndBytesMax = 8;

std::optional<int> TakeEndFile(const std::string& path) {
  std::array<char, kEndBytesMax> text{};
  ssize_t bytes = 0;
  {
    const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.get() >= 0) bytes = read(file.get(), text.data(), text.size());
  }
  unlink(path.c_str());
  int code = 0;
  const bool told =
      bytes > 0 &&
      absl::SimpleAtoi(ToAbsl({text.data(), static_cast<size_t>(bytes)}),
                       &code);
  return told ? std::optional(code) : std::nullopt;
}

}  // namespace

absl::StatusOr<OutputChannel> OpenOutputChannel(
    const std::optional<UnixAccount>& account) {
  std::optional<OutputChannel> terminal = OpenTerminal();
  absl::StatusOr<OutputChannel> channel =
      terminal.has_value() ? absl::StatusOr<OutputChannel>(*std::move(terminal))
                           : OpenPipe();
  if (!channel.ok()) return channel;
  const int writer = channel->writer.get();
  if (account.has_value() && (fchown(writer, account->uid, account->gid) != 0 ||
                              fchmod(writer, 0600) != 0)) {
    return absl::ErrnoToStatus(errno, "the channel of a worker's output");
  }
  return channel;
}

absl::Status MakeEndFile(const std::string& path,
                         const std::optional<UnixAccount>& account) {
  const Descriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (file.get() < 0 || (account.has_value() &&
                         fchown(file.get(), account->uid, account->gid) != 0)) {
    return absl::ErrnoToStatus(errno, ToAbsl(path));
  }
  return absl::OkStatus();
}

WorkerOutputs::WorkerOutputs(WorkerOutputsOptions options)
    : options_(std::move(options)),
      mailbox_(options_.notify),
      thread_([this] { Work(); }) {}

WorkerOutputs::~WorkerOutputs() {
  mailbox_.Stop();
  thread_.join();
}

absl::StatusOr<Descriptor> WorkerOutputs::Open(
    const LogOwner& owner, const std::optional<UnixAccount>& account) {
  GAVEL_ASSIGN_OR_RETURN(OutputChannel channel, OpenOutputChannel(account));
  mailbox_.Post(OpenRequest{owner, std::move(channel.reader)});
  return std::move(channel.writer);
}

void WorkerOutputs::Finish(const WorkerKey& worker, std::string end_file) {
  mailbox_.Post(FinishRequest{worker, std::move(end_file)});
}

void WorkerOutputs::Read(const std::string& cluster, const LogRequest& request,
                         bool runs) {
  if (reads_++ < kReadsMax) {
    return mailbox_.Post(ReadRequest{cluster, request, runs});
  }
  --reads_;
  LogReply reply;
  reply.request = request.request;
  reply.next_offset = request.offset;
  reply.error = "too many read logs of this server; try again";
  mailbox_.Tell(std::move(reply));
}

void WorkerOutputs::Work() {
  while (!mailbox_.IsOver()) {
    std::vector<Request> requests = mailbox_.Wait(WaitTime());
    // Open requests are handled first, so that the outputs which other requests
    // name exist. Outputs are read next, so that a log contains everything that
    // was written before it was requested.
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
        --reads_;
        CarryOut(std::move(*read));
      }
    }
    if (MonotonicNow() >= prune_at_ ||
        unpruned_bytes_ >= options_.limits.total_bytes / kPruneShare) {
      Prune();
    }
  }
  DrainAll();
}

double WorkerOutputs::WaitTime() const {
  double wait_s = std::max(0.0, prune_at_ - MonotonicNow());
  for (const auto& [worker, output] : outputs_) {
    if (output.ends_at != kNever) wait_s = std::min(wait_s, kDrainInterval_s);
  }
  return wait_s;
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
  mailbox_.Watch(output.reader.get(), EPOLLIN);
  outputs_.emplace(worker, std::move(output));
}

void WorkerOutputs::CarryOut(FinishRequest&& request) {
  const auto found = outputs_.find(request.worker);
  if (found == outputs_.end()) {
    return mailbox_.Tell(
        OutputEnded{request.worker, "", TakeEndFile(request.end_file)});
  }
  found->second.ends_at = MonotonicNow() + kDrain_s;
  found->second.end_file = std::move(request.end_file);
}

void WorkerOutputs::CarryOut(ReadRequest&& request) {
  const bool open = std::ranges::any_of(outputs_, [&](const auto& entry) {
    return entry.first.worker() == request.request.worker;
  });
  mailbox_.Tell(ReadWorkerLog(options_.logs_directory, request.cluster,
                              request.request, request.runs || open));
}

void WorkerOutputs::DrainAll() {
  for (auto it = outputs_.begin(); it != outputs_.end();) {
    Output& output = it->second;
    const bool closed = Drain(it->first, output);
    const bool over = output.ends_at != kNever &&
                      (closed || MonotonicNow() >= output.ends_at);
    // A channel that is closed stays readable.
    if (closed) mailbox_.Unwatch(output.reader.get());
    if (over) {
      mailbox_.Tell(OutputEnded{it->first, LastErrorLine(output.tail),
                                TakeEndFile(output.end_file)});
    }
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
  prune_at_ = MonotonicNow() + kPruneInterval_s;
  unpruned_bytes_ = 0;
  PruneLogs(options_.logs_directory, options_.limits);
}

}  // namespace gavel
