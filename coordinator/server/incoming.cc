#include "coordinator/server/incoming.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <utility>
#include <variant>

#include "coordinator/engine/job.h"
#include "coordinator/workload/cluster_spec.h"
#include "core/error_line.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// Names and texts are shown on terminals, and may be any bytes of a user's.
void MakeLine(std::string* text, size_t bytes_max) {
  if (text->size() > bytes_max) text->resize(bytes_max);
  const bool plain =
      std::ranges::all_of(*text, [](char c) { return c >= ' ' && c < '\x7f'; });
  if (!plain) *text = PrintableLine(*text, bytes_max);
}

// 0, which means unknown, for a figure that can't have been measured.
double PlausibleOrZero(double value) {
  return value > 0 && value <= kFigureMax ? value : 0;
}

// A scalar may be NaN: a loss that is, is worth showing.
Progress Bounded(Progress progress) {
  progress.throughput_steps_per_s =
      PlausibleOrZero(progress.throughput_steps_per_s);
  progress.window_s = PlausibleOrZero(progress.window_s);
  progress.pausing_s = PlausibleOrZero(progress.pausing_s);
  for (uint64_t* bytes :
       {&progress.state_bytes, &progress.device_bytes, &progress.host_bytes}) {
    *bytes = std::min(*bytes, kBytesMax);
  }
  if (progress.scalars.size() > kScalarsMax) {
    progress.scalars.resize(kScalarsMax);
  }
  for (auto& [name, value] : progress.scalars) MakeLine(&name, kNameBytesMax);
  return progress;
}

// Printable, so that a name from elsewhere can't write to a user's terminal.
bool IsOpenName(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::ranges::all_of(name,
                             [](char c) { return c > ' ' && c < '\x7f'; });
}

absl::Status CheckServer(std::string_view server) {
  if (IsValidName(server)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the server's name must be 1 to 64 of A-Z a-z 0-9 _ -; give the agent "
      "another with --name");
}

absl::Status CheckAccelerator(const AcceleratorInfo& info) {
  const auto wrong = [&](std::string_view what) {
    return absl::InvalidArgumentError(StrCat(
        "accelerator ", IsOpenName(info.uuid) ? info.uuid : "?", ": ", what));
  };
  if (!IsValidName(info.uuid)) {
    return wrong("its uuid must be 1 to 64 of A-Z a-z 0-9 _ -");
  }
  if (!IsOpenName(info.type)) return wrong("its type is not a name");
  if (!IsOpenName(info.device)) return wrong("its device is not a name");
  if (info.threads < 1) return wrong("threads must be at least 1");
  if (!(info.slow_down_factor >= 1) || !std::isfinite(info.slow_down_factor)) {
    return wrong("slow_down_factor must be at least 1");
  }
  if (!info.group.empty() && !IsValidName(info.group)) {
    return wrong("its group must be 1 to 64 of A-Z a-z 0-9 _ -");
  }
  return absl::OkStatus();
}

absl::Status Check(const AgentHello& hello) {
  GAVEL_RETURN_IF_ERROR(CheckServer(hello.server));
  if (!hello.address.empty() && !IsOpenName(hello.address)) {
    return absl::InvalidArgumentError("the agent's address is none");
  }
  for (const AcceleratorInfo& info : hello.accelerators) {
    GAVEL_RETURN_IF_ERROR(CheckAccelerator(info));
  }
  if (!hello.rack.empty() && !IsValidName(hello.rack)) {
    return absl::InvalidArgumentError(
        StrCat("server ", hello.server,
               ": its rack must be 1 to 64 of A-Z a-z 0-9 _ -"));
  }
  return absl::OkStatus();
}

template <FromAgent T>
absl::Status Check(const T& message) {
  return CheckServer(message.server);
}

template <FromWorker T>
absl::Status Check(const T& message) {
  if (message.worker.job.valid() && message.worker.rank >= 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("there is no such worker");
}

// They are only looked up: the engine knows which apps there are.
template <FromBidder T>
absl::Status Check(const T& message) {
  if (message.bidder.app.size() <= kErrorBytesMax &&
      message.bidder.owner.size() <= kErrorBytesMax) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "the name of an app or of its owner is too long");
}

// ClientRequests checks them itself.
template <ForClients T>
absl::Status Check(const T&) {
  return absl::OkStatus();
}

template <FromCoordinator T>
absl::Status Check(const T&) {
  return absl::OkStatus();
}

std::optional<Event> Convert(WorkerHello message) {
  message.progress = Bounded(std::move(message.progress));
  return event::WorkerJoined{std::move(message)};
}

std::optional<Event> Convert(LeaseRequest message) {
  // The address is passed on to the other ranks unchanged, so it is checked.
  if (!message.gang_address.empty() && !IsOpenName(message.gang_address)) {
    message.gang_address.clear();
  }
  return event::LeaseRequested{std::move(message)};
}

std::optional<Event> Convert(StepReport message) {
  return event::StepsReported{message.worker, message.epoch,
                              Bounded(std::move(message.progress)),
                              message.highest_seen};
}

std::optional<Event> Convert(LeaseReleased message) {
  return event::LeaseEnded{message.worker,
                           message.epoch,
                           WithoutSpeed(Bounded(std::move(message.progress))),
                           /*finished=*/false,
                           message.cause,
                           message.highest_seen};
}

std::optional<Event> Convert(WorkerFinished message) {
  message.progress = Bounded(std::move(message.progress));
  MakeLine(&message.detail, kErrorBytesMax);
  return event::WorkerSaidFinished{std::move(message)};
}

std::optional<Event> Convert(BytesMoved message) {
  return event::WorkerBusy{std::move(message)};
}

std::optional<Event> Convert(AgentHello message) {
  return event::ServerJoined{std::move(message)};
}

std::optional<Event> Convert(AgentHeartbeat message) {
  if (message.health.size() > kAcceleratorsPerServerMax) message.health.clear();
  for (AcceleratorHealth& health : message.health) {
    MakeLine(&health.uuid, kNameBytesMax);
    MakeLine(&health.failure, kErrorBytesMax);
  }
  return event::AgentHeard{std::move(message)};
}

std::optional<Event> Convert(AgentLeaving message) {
  return event::AgentLeaves{std::move(message)};
}

std::optional<Event> Convert(WorkerExited message) {
  MakeLine(&message.launch_error, kErrorBytesMax);
  message.error_line =
      PrintableLine(message.error_line, kErrorLineCharactersMax);
  return event::WorkerGone{std::move(message)};
}

// Its texts are shown to users.
std::optional<Event> Convert(FetchProgress message) {
  MakeLine(&message.waits_for, kErrorBytesMax);
  if (!IsValidName(message.source)) return std::nullopt;
  return event::CheckpointComing{std::move(message)};
}

std::optional<Event> Convert(TerminalActive message) {
  return event::TerminalUsed{std::move(message)};
}

std::optional<Event> Convert(BidderHello message) {
  return event::BidderJoined{std::move(message.bidder)};
}

std::optional<Event> Convert(BidReply message) {
  return event::BidReceived{std::move(message)};
}

std::optional<Event> Convert(DivideReply message) {
  return event::ShareDivided{std::move(message)};
}

std::optional<Event> Convert(WorkerLaunched message) {
  return event::ProcessBegan{std::move(message)};
}

template <class T>
requires ForClients<T> || FromCoordinator<T> std::optional<Event> Convert(
    const T&) {
  return std::nullopt;
}

// A throughput times its window equals a count of steps, up to rounding.
constexpr double kRounding = 1e-6;

// `path` as seen from `directory`; `directory` itself when it is empty.
std::string Resolve(const std::string& directory, const std::string& path) {
  const std::filesystem::path joined =
      std::filesystem::path(directory) / std::filesystem::path(path);
  std::string text = joined.lexically_normal().string();
  if (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

// Variables that agents set for workers (agent_environment.cc;
// engine/workers.cc sets those of the ranks on a server).
constexpr std::string_view kOfAgent[] = {"GAVEL_ADDRESS",
                                         "GAVEL_CHECKPOINT_DIRECTORY",
                                         "GAVEL_CLUSTER",
                                         "GAVEL_COORDINATOR",
                                         "GAVEL_COORDINATOR_KEY",
                                         "GAVEL_INCARNATION",
                                         "GAVEL_JOB",
                                         "GAVEL_JOB_NAME",
                                         "GAVEL_KEY_FILE",
                                         "GAVEL_PROCESS",
                                         "GAVEL_RANK",
                                         "GAVEL_RUN_DIRECTORY",
                                         "GAVEL_SERVER",
                                         "GAVEL_WORLD_SIZE",
                                         "GAVEL_WORKER_COORDINATOR",
                                         "GAVEL_WORLD_SIZE_MIN",
                                         "GAVEL_WORLD_SIZE_MAX",
                                         "GROUP_RANK",
                                         "LOCAL_RANK",
                                         "LOCAL_WORLD_SIZE",
                                         "RANK",
                                         "WORLD_SIZE"};

// Commands would take the name for an id, or for an option. Jobs of earlier
// versions, in the journal, may be called so.
absl::Status CheckJobName(const std::string& source, const std::string& name) {
  // Also "42_7", an element of an array.
  const std::string_view digits = "0123456789";
  const size_t end = std::string_view(name).find_first_not_of(digits);
  const bool number =
      end == std::string::npos ||
      (end > 0 && name[end] == '_' &&
       name.find_first_not_of(digits, end + 1) == std::string::npos);
  if (!number && !name.starts_with('-')) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(source, ": the name \"", name, "\" is taken for ",
             number ? "the id of a job" : "an option",
             " by commands; write one with a letter in front, \"job",
             number ? "-" : "", name, "\" say"));
}

// Other users see the value of this key on their terminals.
absl::Status CheckLabel(const std::string& source, std::string_view key,
                        const std::string& label) {
  if (PrintableLine(label, label.size()) == label) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(source, ": ", key,
             " has control characters, or blanks at its ends; write a name "
             "without them"));
}

absl::Status CheckEnvironment(const std::string& source, const JobSpec& spec) {
  for (const auto& [name, value] : spec.environment) {
    if (std::ranges::find(kOfAgent, name) == std::end(kOfAgent)) continue;
    return absl::InvalidArgumentError(
        StrCat(source, ": [environment] can't set ", name,
               ", which the agent sets; leave it out, or choose another name"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckMessage(const Message& message) {
  return std::visit([](const auto& m) { return Check(m); }, message);
}

std::optional<Event> EventOf(Message message) {
  return std::visit([](auto& m) { return Convert(std::move(m)); }, message);
}

std::optional<WorkerKey> SendingWorker(const Message& message) {
  return std::visit(
      []<class T>(const T& m) -> std::optional<WorkerKey> {
        if constexpr (FromWorker<T>) return m.worker;
        return std::nullopt;
      },
      message);
}

std::optional<JournalPosition> HighestSeen(const Message& message) {
  return std::visit(
      [](const auto& m) -> std::optional<JournalPosition> {
        if constexpr (requires { m.highest_seen; }) return m.highest_seen;
        return std::nullopt;
      },
      message);
}

std::optional<std::string> SendingAgent(const Message& message) {
  return std::visit(
      []<class T>(const T& m) -> std::optional<std::string> {
        if constexpr (FromAgent<T>) return m.server;
        return std::nullopt;
      },
      message);
}

BidderKey* SendingBidder(Message& message) {
  return std::visit(
      []<class T>(T& m) -> BidderKey* {
        if constexpr (FromBidder<T>) return &m.bidder;
        return nullptr;
      },
      message);
}

std::optional<std::string> ReportCheck::Take(Time now, Message* message) {
  if (const auto* hello = std::get_if<WorkerHello>(message)) {
    Saw(now, hello->worker, hello->progress.steps_done);
  } else if (const auto* exited = std::get_if<WorkerExited>(message)) {
    Forget(exited->worker);
  }
  auto* report = std::get_if<StepReport>(message);
  if (report == nullptr || Check(now, report->worker, &report->progress) ||
      !std::has_single_bit(++left_out_)) {
    return std::nullopt;
  }
  return StrCat("job ", report->worker.job.value(), " rank ",
                report->worker.rank,
                ": the speed that it reports does not agree with its steps and "
                "the time, and is left out (",
                left_out_, " reports so far)");
}

bool ReportCheck::Saw(Time now, const WorkerKey& worker, uint64_t steps_done) {
  if (last_.size() >= kWorkersMax && !last_.contains(worker)) last_.clear();
  return last_.try_emplace(worker, Last{steps_done, now}).second;
}

bool ReportCheck::Check(Time now, const WorkerKey& worker, Progress* told) {
  if (Saw(now, worker, told->steps_done)) return true;
  Last& last = last_.at(worker);
  const double steps = static_cast<double>(told->steps_done) -
                       static_cast<double>(last.steps_done);
  const double claimed = told->throughput_steps_per_s * told->window_s;
  // One at a pause tells steps and no speed: the next window reaches back to
  // before it.
  if (told->throughput_steps_per_s == 0 && told->window_s == 0) return true;
  const bool agrees = claimed <= steps * (1 + kRounding) + 1 &&
                      told->window_s <= now - last.at + kSlack_s;
  if (told->steps_done != last.steps_done) last = {told->steps_done, now};
  if (!agrees) told->throughput_steps_per_s = told->window_s = 0;
  return agrees;
}

std::string DefaultCheckpointDirectory(std::string_view state_directory,
                                       std::string_view cluster_id,
                                       std::string_view name, JobId id) {
  return StrCat(state_directory, "/checkpoints/", cluster_id, "-", id.value(),
                "-", name);
}

absl::StatusOr<JobSpec> ReadSubmission(const SubmitRequest& request,
                                       std::string_view state_directory,
                                       std::string_view cluster_id, JobId id) {
  GAVEL_ASSIGN_OR_RETURN(JobSpec spec,
                         ParseJobSpec(request.toml, request.source));
  GAVEL_RETURN_IF_ERROR(CheckJobName(request.source, spec.name));
  GAVEL_RETURN_IF_ERROR(CheckLabel(request.source, "app", spec.app));
  GAVEL_RETURN_IF_ERROR(CheckLabel(request.source, "workload", spec.workload));
  GAVEL_RETURN_IF_ERROR(CheckEnvironment(request.source, spec));
  if (!request.directory.starts_with('/')) {
    return absl::InvalidArgumentError(
        StrCat(request.source, ": the directory of the job file, \"",
               request.directory, "\", is not absolute"));
  }
  spec.working_directory = Resolve(request.directory, spec.working_directory);
  if (!spec.env_file.empty()) {
    spec.env_file = Resolve(request.directory, spec.env_file);
  }
  spec.checkpoint_directory =
      spec.checkpoint_directory.empty()
          ? DefaultCheckpointDirectory(state_directory, cluster_id, spec.name,
                                       id)
          : Resolve(request.directory, spec.checkpoint_directory);
  return spec;
}

}  // namespace gavel
