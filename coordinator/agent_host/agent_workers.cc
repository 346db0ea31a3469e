#include "coordinator/agent_host/agent_workers.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "coordinator/agent_host/agent_environment.h"
#include "coordinator/workload/job_spec.h"
#include "core/error_line.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/stopwatch.h"
#include "spdlog/spdlog.h"

namespace gavel {

// ---- Terminals

namespace {

constexpr int kWindowMax = 10'000;

}  // namespace

bool WorkerTerminal::MayRead(Time now) const {
  return !HasClient(now) || end() - std::max(read_, begin_) < kUnreadBytesMax;
}

void WorkerTerminal::Add(Time now, std::string_view output) {
  used_ |= !output.empty();
  kept_ += output;
  const size_t most = HasClient(now) ? kKeptBytesMax : kKeptAloneBytesMax;
  if (kept_.size() <= most) return;
  begin_ += kept_.size() - most;
  kept_.erase(0, kept_.size() - most);
}

void WorkerTerminal::Tell(std::string_view text) {
  StrAppend(&kept_, "\r\n[gavel: ", text, "]\r\n");
}

std::vector<TerminalReply> WorkerTerminal::Ask(Time now, int terminal,
                                               TerminalRequest request) {
  std::vector<TerminalReply> replies;
  const bool is_other = request.client != client_;
  const auto refuse = [&](const TerminalRequest& refused) {
    replies.push_back(ReplyTo(refused));
    replies.back().error =
        "another client has attached to the terminal; `gavel shell --attach` "
        "takes it back";
    replies.back().refused = true;
  };
  if (is_other && !request.attach) {
    refuse(request);
    return replies;
  }
  if (waiting_.has_value()) {
    is_other ? refuse(*waiting_) : replies.push_back(ReplyTo(*waiting_));
  }
  client_ = request.client;
  asked_at_ = now;
  read_ = request.offset;
  SetWindow(terminal, request.rows, request.columns);
  // Input that was sent twice, or does not fit, is left out.
  const uint64_t known =
      input_end_ - std::min(input_end_, request.input_offset);
  if (request.input_offset <= input_end_ && known < request.input.size()) {
    const size_t room =
        kTerminalBytesMax - std::min(kTerminalBytesMax, input_.size());
    const std::string more = request.input.substr(known, room);
    input_ += more;
    input_end_ += more.size();
    used_ |= !more.empty();
  }
  WriteInput(terminal);
  request.input.clear();
  waiting_ = std::move(request);
  return replies;
}

std::optional<TerminalReply> WorkerTerminal::Answer(Time now) {
  if (!waiting_.has_value()) return std::nullopt;
  const bool has_output = end() > std::max(waiting_->offset, begin_);
  if (!has_output && !ended_ && now < asked_at_ + kAnswer_s) {
    return std::nullopt;
  }
  TerminalReply reply = ReplyTo(*waiting_);
  waiting_.reset();
  reply.offset = std::clamp(reply.offset, begin_, end());
  reply.output = kept_.substr(reply.offset - begin_, kTerminalBytesMax);
  reply.ended = ended_ && reply.offset + reply.output.size() == end();
  return reply;
}

bool WorkerTerminal::WriteInput(int terminal) {
  while (!input_.empty()) {
    const ssize_t bytes = write(terminal, input_.data(), input_.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == EAGAIN) return false;
    if (bytes < 0) {
      input_.clear();  // nobody reads it any more
      return true;
    }
    input_.erase(0, static_cast<size_t>(bytes));
  }
  return true;
}

bool WorkerTerminal::TakeActive(Time now) {
  if (!used_ || now < told_active_at_ + kActiveInterval_s) return false;
  used_ = false;
  told_active_at_ = now;
  return true;
}

Time WorkerTerminal::NextDeadline() const {
  Time next = waiting_.has_value() ? asked_at_ + kAnswer_s : kNever;
  if (used_) next = std::min(next, told_active_at_ + kActiveInterval_s);
  return next;
}

// A program hears of a change by SIGWINCH.
void WorkerTerminal::SetWindow(int terminal, int rows, int columns) {
  const bool is_window =
      rows > 0 && columns > 0 && rows <= kWindowMax && columns <= kWindowMax;
  if (!is_window || (rows == rows_ && columns == columns_)) return;
  rows_ = rows;
  columns_ = columns;
  const winsize window{static_cast<unsigned short>(rows),
                       static_cast<unsigned short>(columns), 0, 0};
  ioctl(terminal, TIOCSWINSZ, &window);
}

TerminalReply WorkerTerminal::ReplyTo(const TerminalRequest& request) const {
  TerminalReply reply;
  reply.request = request.request;
  reply.worker = worker_;
  reply.offset = request.offset;
  reply.input_taken = input_end_;
  return reply;
}

// ---- Output

namespace {

// As terminals have been: programs that ask lay out their tables for it.
constexpr winsize kWindow{24, 80, 0, 0};

bool SetRaw(int terminal) {
  termios modes{};
  if (tcgetattr(terminal, &modes) != 0) return false;
  cfmakeraw(&modes);
  return tcsetattr(terminal, TCSANOW, &modes) == 0;
}

std::optional<OutputChannel> OpenTerminal(bool raw) {
  Descriptor reader(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  if (reader.get() < 0 || unlockpt(reader.get()) != 0) return std::nullopt;
  // Not by its name, which may be another's in this mount namespace.
  Descriptor writer(
      ioctl(reader.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (writer.get() < 0 || (raw && !SetRaw(writer.get())) ||
      ioctl(writer.get(), TIOCSWINSZ, &kWindow) != 0) {
    return std::nullopt;
  }
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

// The wait before another look at a terminal that takes no input, or has output
// that its client has not taken.
constexpr double kBehindInterval_s = 0.02;

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

static absl::StatusOr<OutputChannel> GiveTo(
    const std::optional<UnixAccount>& account,
    absl::StatusOr<OutputChannel> channel) {
  if (!channel.ok()) return channel;
  const int writer = channel->writer.get();
  if (account.has_value() && (fchown(writer, account->uid, account->gid) != 0 ||
                              fchmod(writer, 0600) != 0)) {
    return absl::ErrnoToStatus(errno, "the channel of a worker's output");
  }
  return channel;
}

absl::StatusOr<OutputChannel> OpenOutputChannel(
    const std::optional<UnixAccount>& account) {
  std::optional<OutputChannel> terminal = OpenTerminal(/*raw=*/true);
  if (terminal.has_value()) return GiveTo(account, *std::move(terminal));
  return GiveTo(account, OpenPipe());
}

absl::StatusOr<OutputChannel> OpenTerminalChannel(
    const std::optional<UnixAccount>& account) {
  std::optional<OutputChannel> terminal = OpenTerminal(/*raw=*/false);
  if (terminal.has_value()) return GiveTo(account, *std::move(terminal));
  return absl::ResourceExhaustedError(
      "no pseudo-terminal is free on this server; end some, or raise "
      "/proc/sys/kernel/pty/max");
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
    const LogOwner& owner, const std::optional<UnixAccount>& account,
    bool terminal) {
  GAVEL_ASSIGN_OR_RETURN(
      OutputChannel channel,
      terminal ? OpenTerminalChannel(account) : OpenOutputChannel(account));
  mailbox_.Post(OpenRequest{owner, std::move(channel.reader), terminal});
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

void WorkerOutputs::Ask(TerminalRequest request, bool runs) {
  if (reads_++ < kReadsMax) {
    return mailbox_.Post(AskRequest{std::move(request), runs});
  }
  --reads_;
  TerminalReply reply{request.request, request.worker};
  reply.error = "too many ask for terminals of this server; try again";
  mailbox_.Tell(std::move(reply));
}

void WorkerOutputs::TellTerminal(const WorkerKey& worker, std::string text) {
  mailbox_.Post(NoticeRequest{worker, std::move(text)});
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
      } else if (auto* asked = std::get_if<AskRequest>(&request)) {
        --reads_;
        CarryOut(std::move(*asked));
      } else if (auto* notice = std::get_if<NoticeRequest>(&request)) {
        CarryOut(std::move(*notice));
      }
    }
    ServeTerminals();
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
    if (!output.terminal.has_value()) continue;
    if (!output.is_watched) wait_s = std::min(wait_s, kBehindInterval_s);
    wait_s = std::min(wait_s, std::max(0.0, output.terminal->NextDeadline() -
                                                MonotonicNow()));
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
  if (request.terminal) {
    output.terminal.emplace(worker, MonotonicNow());
  }
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

void WorkerOutputs::CarryOut(AskRequest&& asked) {
  TerminalRequest& request = asked.request;
  const auto found = outputs_.find(request.worker);
  const bool runs = found != outputs_.end() && found->second.terminal;
  const auto ended = ended_terminals_.find(request.worker);
  if (!runs && ended == ended_terminals_.end()) {
    TerminalReply reply{request.request, request.worker};
    reply.offset = request.offset;
    if (asked.runs) {
      reply.error = "its process is being started";
    } else {
      reply.ended = true;
    }
    return mailbox_.Tell(std::move(reply));
  }
  WorkerTerminal& terminal = runs ? *found->second.terminal : ended->second;
  const int descriptor = runs ? found->second.reader.get() : -1;
  for (TerminalReply& reply :
       terminal.Ask(MonotonicNow(), descriptor, std::move(request))) {
    mailbox_.Tell(std::move(reply));
  }
  if (std::optional<TerminalReply> reply = terminal.Answer(MonotonicNow())) {
    mailbox_.Tell(*std::move(reply));
  }
}

void WorkerOutputs::CarryOut(NoticeRequest&& request) {
  const auto found = outputs_.find(request.worker);
  if (found == outputs_.end() || !found->second.terminal) return;
  found->second.terminal->Tell(request.text);
}

void WorkerOutputs::ServeTerminals() {
  const Time now = MonotonicNow();
  for (auto& [worker, output] : outputs_) {
    if (!output.terminal.has_value()) continue;
    output.terminal->WriteInput(output.reader.get());
    if (std::optional<TerminalReply> reply = output.terminal->Answer(now)) {
      mailbox_.Tell(*std::move(reply));
    }
    if (output.terminal->TakeActive(now)) {
      mailbox_.Tell(TerminalWasUsed{worker});
    }
  }
}

// A terminal is not read while its client is behind: the program waits then.
bool WorkerOutputs::MayDrain(Output& output) {
  const bool may = !output.terminal.has_value() || output.ends_at != kNever ||
                   output.terminal->MayRead(MonotonicNow());
  if (may != output.is_watched) {
    may ? static_cast<void>(mailbox_.Watch(output.reader.get(), EPOLLIN))
        : mailbox_.Unwatch(output.reader.get());
    output.is_watched = may;
  }
  return may;
}

void WorkerOutputs::EndTerminal(const WorkerKey& worker,
                                WorkerTerminal&& terminal) {
  terminal.End();
  if (std::optional<TerminalReply> reply = terminal.Answer(MonotonicNow())) {
    mailbox_.Tell(*std::move(reply));
  }
  if (ended_terminals_.size() >= kEndedTerminalsMax) {
    ended_terminals_.erase(ended_terminals_.begin());
  }
  ended_terminals_.emplace(worker, std::move(terminal));
}

void WorkerOutputs::DrainAll() {
  for (auto it = outputs_.begin(); it != outputs_.end();) {
    Output& output = it->second;
    const bool closed = MayDrain(output) && Drain(it->first, output);
    const bool over = output.ends_at != kNever &&
                      (closed || MonotonicNow() >= output.ends_at);
    // A channel that is closed stays readable.
    if (closed) mailbox_.Unwatch(output.reader.get());
    if (over) {
      if (output.terminal) EndTerminal(it->first, *std::move(output.terminal));
      mailbox_.Tell(OutputEnded{it->first, LastErrorLine(output.tail),
                                TakeEndFile(output.end_file)});
    }
    it = over ? outputs_.erase(it) : std::next(it);
  }
}

// True when the last writer has closed its end.
bool WorkerOutputs::Drain(const WorkerKey& worker, Output& output) {
  std::array<char, 64 * 1024> data{};
  for (int i = 0; i < kReadsOfATurn; ++i) {
    const ssize_t bytes = read(output.reader.get(), data.data(), data.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == EAGAIN) return false;
    if (bytes <= 0) return true;  // EIO of a terminal, the end of a pipe
    Take(worker, output, {data.data(), static_cast<size_t>(bytes)});
    if (!MayDrain(output)) return false;
  }
  return false;
}

void WorkerOutputs::Take(const WorkerKey& worker, Output& output,
                         std::string_view data) {
  output.tail += data.substr(data.size() - std::min(data.size(), kTailBytes));
  if (output.tail.size() > 2 * kTailBytes) {
    output.tail.erase(0, output.tail.size() - kTailBytes);
  }
  if (output.terminal) output.terminal->Add(MonotonicNow(), data);
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

// ---- Workers

AgentWorkers::AgentWorkers(AgentWorkersOptions options)
    : options_(std::move(options)),
      own_environment_(OwnEnvironment()),
      outputs_({options_.logs_directory, options_.log_limits, options_.notify,
                options_.log}),
      children_(options_.notify, options_.exec_limit_s) {}

AgentWorkers::~AgentWorkers() { End(SIGKILL); }

void AgentWorkers::Launch(const LaunchWorker& launch,
                          const std::string& cluster) {
  live_.insert(launch.worker);
  tasks_.Post([this, launch, cluster] { Prepare(launch, cluster); });
}

void AgentWorkers::Signal(const WorkerKey& worker, int signal) {
  children_.Signal(worker, signal);
}

void AgentWorkers::SignalAll(int signal) { children_.SignalAll(signal); }

void AgentWorkers::End(int signal) {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  children_.SignalAll(signal);
}

void AgentWorkers::Record(std::vector<RunningWorker> running) {
  tasks_.Post([this, running = std::move(running)] {
    const absl::Status written = options_.record->Write(running);
    if (written.ok()) return;
    options_.log->error(
        "agent {}: {}: should this agent be killed, the next one does not know "
        "what to sweep; make room",
        options_.server, ToStd(written.message()));
  });
}

void AgentWorkers::Prepare(const LaunchWorker& launch,
                           const std::string& cluster) {
  const absl::Status prepared = TryPrepare(launch, cluster);
  if (prepared.ok()) return;
  {
    const std::lock_guard lock(mutex_);
    not_prepared_.emplace_back(
        ChildNotStarted{launch.worker, std::string(prepared.message())});
  }
  options_.notify();
}

absl::Status AgentWorkers::TryPrepare(const LaunchWorker& launch,
                                      const std::string& cluster) {
  // It becomes a file name.
  if (!IsValidName(launch.job_name)) {
    return absl::InvalidArgumentError(
        StrCat("\"", launch.job_name, "\" is no job name"));
  }
  if (options_.keys != nullptr && launch.unix_user.empty()) {
    return absl::PermissionDeniedError(
        "the job has no owner; submit it again, with a key");
  }
  WorkerPlace place = options_.place;
  place.cluster = cluster;
  GAVEL_ASSIGN_OR_RETURN(place.account, AccountOfJob(launch.unix_user));
  LaunchWorker here = launch;
  if (options_.checkpoints != nullptr) {
    GAVEL_ASSIGN_OR_RETURN(here.checkpoint_directory,
                           options_.checkpoints->DirectoryFor(
                               launch.checkpoint_directory, place.account));
  }
  if (options_.keys != nullptr) {
    GAVEL_ASSIGN_OR_RETURN(place.key_file,
                           options_.keys->Mint(launch.worker, place.account));
  }
  place.end_file = EndFileOf(launch.worker);
  GAVEL_RETURN_IF_ERROR(MakeEndFile(place.end_file, place.account));
  ProcessSpec spec;
  spec.account = place.account;
  spec.argv = launch.argv;
  spec.working_directory = launch.working_directory;
  spec.env_file = launch.env_file;
  spec.environment = WorkerEnvironment(here, place, own_environment_);
  spec.mark = options_.record->MarkOf(launch.worker);
  spec.environment.push_back(spec.mark);
  GAVEL_ASSIGN_OR_RETURN(
      Descriptor output,
      outputs_.Open({cluster, launch.worker, launch.job_name, launch.unix_user},
                    place.account, launch.terminal));
  spec.output = output.get();
  spec.terminal = launch.terminal;
  const std::lock_guard lock(mutex_);
  if (ending_) return absl::UnavailableError("the agent is ending");
  children_.Start(launch.worker, std::move(spec), std::move(output));
  return absl::OkStatus();
}

void AgentWorkers::ReadLog(const std::string& cluster,
                           const LogRequest& request) {
  const bool runs = std::ranges::any_of(live_, [&](const WorkerKey& worker) {
    return worker.worker() == request.worker;
  });
  outputs_.Read(cluster, request, runs);
}

std::vector<WorkerEvent> AgentWorkers::TakeEvents(Time now) {
  std::vector<WorkerEvent> events;
  std::vector<ChildEvent> not_prepared;
  {
    const std::lock_guard lock(mutex_);
    not_prepared = std::exchange(not_prepared_, {});
  }
  for (ChildEvent& event : not_prepared) Take(now, std::move(event), &events);
  for (ChildEvent& event : children_.TakeEvents()) {
    Take(now, std::move(event), &events);
  }
  for (OutputEvent& event : outputs_.TakeEvents()) {
    Take(std::move(event), &events);
  }
  for (auto it = draining_.begin(); it != draining_.end();) {
    const auto next = std::next(it);
    if (now >= it->second.ends_at) FinishDrained(it, {}, &events);
    it = next;
  }
  return events;
}

void AgentWorkers::Take(Time now, ChildEvent event,
                        std::vector<WorkerEvent>* events) {
  if (const auto* started = std::get_if<ChildStarted>(&event)) {
    events->emplace_back(*started);
    return;
  }
  if (const auto* exit = std::get_if<ChildExit>(&event)) {
    draining_[exit->worker] = {*exit, now + kOutputWait_s};
    ForgetKey(exit->worker);
    outputs_.Finish(exit->worker, EndFileOf(exit->worker));
    return;
  }
  auto& not_started = std::get<ChildNotStarted>(event);
  ForgetKey(not_started.worker);
  outputs_.Finish(not_started.worker, EndFileOf(not_started.worker));
  live_.erase(not_started.worker);
  events->emplace_back(std::move(not_started));
}

void AgentWorkers::Take(OutputEvent event, std::vector<WorkerEvent>* events) {
  if (auto* reply = std::get_if<LogReply>(&event)) {
    events->emplace_back(std::move(*reply));
    return;
  }
  if (auto* answer = std::get_if<TerminalReply>(&event)) {
    events->emplace_back(std::move(*answer));
    return;
  }
  if (auto* used = std::get_if<TerminalWasUsed>(&event)) {
    events->emplace_back(*used);
    return;
  }
  auto& ended = std::get<OutputEnded>(event);
  const auto found = draining_.find(ended.worker);
  if (found == draining_.end()) return;
  FinishDrained(found, std::move(ended), events);
}

void AgentWorkers::FinishDrained(std::map<WorkerKey, Draining>::iterator it,
                                 OutputEnded output,
                                 std::vector<WorkerEvent>* events) {
  live_.erase(it->first);
  events->emplace_back(WorkerEnded{std::move(it->second.exit),
                                   std::move(output.error_line),
                                   output.finished_code});
  draining_.erase(it);
}

std::string AgentWorkers::EndFileOf(const WorkerKey& worker) const {
  return StrCat(options_.ends_directory, "/", worker.job.value(), "-",
                worker.rank, "-", worker.incarnation);
}

void AgentWorkers::ForgetKey(const WorkerKey& worker) {
  if (options_.keys == nullptr) return;
  tasks_.Post([this, worker] { options_.keys->Forget(worker); });
}

Time AgentWorkers::NextDeadline() const {
  Time next = kNever;
  for (const auto& [worker, draining] : draining_) {
    next = std::min(next, draining.ends_at);
  }
  return next;
}

}  // namespace gavel
