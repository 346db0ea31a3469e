#include "coordinator/cli/tune_run.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/processes.h"
#include "coordinator/cli/pytorch_files.h"
#include "coordinator/cli/table.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/toml_reader.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"
#include "runtime/files/files.h"
#include "runtime/files/stopwatch.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/manifest.h"
#include "study/report_page.h"

namespace gavel {

using tune::Outcome;
using tune::Segment;
using tune::TrialSegment;

// ---- The optimiser that is a program

OptimiserProgram::OptimiserProgram(std::string name, pid_t pid,
                                   Descriptor socket, double timeout_s)
    : name_(std::move(name)),
      pid_(pid),
      socket_(std::move(socket)),
      timeout_s_(timeout_s) {}

absl::StatusOr<std::unique_ptr<OptimiserProgram>> OptimiserProgram::Start(
    const std::vector<std::string>& argv, double timeout_s) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, "no socket for the optimiser");
  }
  Descriptor ours(ends[0]);
  const Descriptor its(ends[1]);
  fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  std::vector<char*> words;
  for (const std::string& word : argv) {
    words.push_back(const_cast<char*>(word.c_str()));
  }
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, its.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, its.get(), STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0].c_str(), &actions, &attributes,
                                 words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return absl::ErrnoToStatus(
        error, StrCat("the optimiser ", argv[0], " can't be started"));
  }
  return std::unique_ptr<OptimiserProgram>(
      new OptimiserProgram(argv[0], pid, std::move(ours), timeout_s));
}

OptimiserProgram::~OptimiserProgram() {
  kill(-pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

absl::Status OptimiserProgram::Wait(short events, double until_s) const {
  while (true) {
    const double left_s = until_s - MonotonicNow();
    pollfd item{socket_.get(), events, 0};
    const int ready =
        left_s <= 0 ? 0 : poll(&item, 1, static_cast<int>(left_s * 1000) + 1);
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno == EINTR) continue;
    return absl::DeadlineExceededError(absl::StrFormat(
        "the optimiser %s did not %s within %.0f s; run it by "
        "hand to see why, then run this command again",
        name_, events == POLLIN ? "answer" : "read", timeout_s_));
  }
}

absl::Status OptimiserProgram::Write(const std::string& line) {
  const std::string text = line + "\n";
  const double until_s = MonotonicNow() + timeout_s_;
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t count = send(socket_.get(), text.data() + sent,
                               text.size() - sent, MSG_NOSIGNAL);
    if (count > 0) {
      sent += static_cast<size_t>(count);
    } else if (errno == EAGAIN || errno == EINTR) {
      GAVEL_RETURN_IF_ERROR(Wait(POLLOUT, until_s));
    } else {
      return absl::UnavailableError(
          StrCat("the optimiser ", name_,
                 " has ended; see what it wrote above, then run this command "
                 "again"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> OptimiserProgram::Read() {
  const double until_s = MonotonicNow() + timeout_s_;
  while (true) {
    const size_t end = read_.find('\n');
    if (end != std::string::npos) {
      std::string line = read_.substr(0, end);
      read_.erase(0, end + 1);
      return line;
    }
    if (read_.size() > tune::kAnswerBytesMax) {
      return absl::ResourceExhaustedError(
          StrCat("the optimiser ", name_, " wrote a line of more than ",
                 tune::kAnswerBytesMax,
                 " bytes; its standard output is for answers only"));
    }
    char buffer[4096];
    const ssize_t count = recv(socket_.get(), buffer, sizeof buffer, 0);
    if (count > 0) {
      read_.append(buffer, static_cast<size_t>(count));
    } else if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
      GAVEL_RETURN_IF_ERROR(Wait(POLLIN, until_s));
    } else {
      return absl::UnavailableError(
          StrCat("the optimiser ", name_,
                 " has ended without an answer; see what it wrote above, then "
                 "run this command again"));
    }
  }
}

// ---- The search

namespace {

namespace fs = std::filesystem;

constexpr double kLookInterval_s = 0.5;
constexpr size_t kRecordBytesMax = size_t{256} << 20;
// So many failures and no success end a search: something is wrong with all.
constexpr int kFailuresMax = 3;

std::string RecordIn(const std::string& folder) {
  return folder + "/search.json";
}

std::string NewId() {
  return absl::StrFormat("%06x", std::random_device()() & 0xffffff);
}

// The folder of the newest committed generation at that step.
absl::StatusOr<std::string> GenerationAt(const std::string& directory,
                                         uint64_t step) {
  GAVEL_ASSIGN_OR_RETURN(const Attempts attempts,
                         ListAttempts(FileSystem::Posix(), directory));
  for (size_t i = attempts.committed.size(); i-- > 0;) {
    const Attempt& attempt = attempts.committed[i];
    if (attempt.generation.step == step) {
      return StrCat(directory, "/", AttemptName(attempt));
    }
  }
  const uint64_t last = attempts.committed.empty()
                            ? 0
                            : attempts.committed.back().generation.step;
  return absl::NotFoundError(
      StrCat(directory, " has no checkpoint at step ", step,
             last > 0 ? StrCat(", the last is of step ", last) : "",
             "; the program must train until the session stops it, and the "
             "directory be on a disk that this machine shares"));
}

}  // namespace

TuneRun::TuneRun(Options options, tune::SearchSpec spec,
                 tune::SearchState state, FileLock lock)
    : options_(std::move(options)),
      spec_(std::move(spec)),
      state_(std::move(state)),
      lock_(std::move(lock)) {}

absl::StatusOr<std::unique_ptr<TuneRun>> TuneRun::Open(Options options) {
  GAVEL_ASSIGN_OR_RETURN(tune::SearchSpec spec,
                         tune::ParseSearchSpec(options.text, options.source));
  GAVEL_RETURN_IF_ERROR(tune::CheckArguments(options.command, spec.space));
  GAVEL_RETURN_IF_ERROR(MakeDirectory(options.folder));
  std::error_code error;
  options.folder = fs::canonical(options.folder, error).string();
  const std::string path = RecordIn(options.folder);
  GAVEL_ASSIGN_OR_RETURN(FileLock lock, FileLock::Take(path + ".lock"));
  tune::SearchState state;
  if (fs::exists(path, error)) {
    GAVEL_ASSIGN_OR_RETURN(const std::string text,
                           ReadFile(path, kRecordBytesMax));
    absl::StatusOr<tune::SearchState> read = tune::DecodeState(text);
    if (!read.ok()) {
      return absl::DataLossError(
          StrCat(path, " can't be read: ", read.status().message(),
                 "; restore it from a copy, or give another --folder and "
                 "search anew"));
    }
    state = *std::move(read);
    if (state.file != options.text || state.command != options.command) {
      return absl::FailedPreconditionError(StrCat(
          options.folder, " is of a search with another ",
          state.file != options.text ? "search file" : "command",
          "; give both as they were to continue it, or another --folder"));
    }
  } else {
    state = {NewId(), options.text, options.command, {}, {}};
  }
  std::unique_ptr<TuneRun> run(new TuneRun(std::move(options), std::move(spec),
                                           std::move(state), std::move(lock)));
  const Segment first{0, 0, run->spec_.steps, 0,
                      tune::DrawTrial(run->spec_, 0)};
  GAVEL_ASSIGN_OR_RETURN(const std::string job, run->JobText(first));
  GAVEL_ASSIGN_OR_RETURN(const JobSpec spec_of_job,
                         ParseJobSpec(job, run->options_.source));
  run->base_weight_ = spec_of_job.weight;
  GAVEL_RETURN_IF_ERROR(run->Save());
  return run;
}

std::string TuneRun::JobName(int trial) const {
  return StrCat(spec_.name, "-", state_.id, "-", trial);
}

// The step at which the checkpoints of the segment's directory begin: where the
// trial last continued another one's.
uint64_t TuneRun::LifeOf(const Segment& segment) const {
  if (segment.source != segment.trial) return segment.from_steps;
  uint64_t life = 0;
  for (const TrialSegment& one : state_.segments) {
    if (one.segment.trial != segment.trial) continue;
    if (one.segment.source == one.segment.trial) continue;
    if (one.segment.to_steps <= segment.from_steps) {
      life = std::max(life, one.segment.from_steps);
    }
  }
  return life;
}

std::string TuneRun::DirectoryOf(int trial, uint64_t steps) const {
  for (const TrialSegment& one : state_.segments) {
    if (one.segment.trial != trial || one.segment.to_steps != steps) continue;
    return StrCat(options_.folder, "/trials/", trial, "/", LifeOf(one.segment));
  }
  return StrCat(options_.folder, "/trials/", trial, "/0");
}

absl::StatusOr<std::string> TuneRun::JobText(const Segment& segment) const {
  std::vector<std::string> argv;
  for (const std::string& argument : options_.command) {
    GAVEL_ASSIGN_OR_RETURN(
        std::string filled,
        tune::FillIn(argument, spec_.space, segment.values, segment.trial));
    argv.push_back(std::move(filled));
  }
  std::error_code error;
  const std::string text = StrCat(
      "name = ", QuoteToml(JobName(segment.trial)),
      "\napp = ", QuoteToml(spec_.name), "\nsteps_total = ", segment.to_steps,
      "\nworking_directory = ", QuoteToml(fs::current_path(error).string()),
      "\ncheckpoint_directory = ",
      QuoteToml(StrCat(options_.folder, "/trials/", segment.trial, "/",
                       LifeOf(segment))),
      "\n", spec_.job, "\n");
  // ParseSearchSpec has read [job] already, and named its mistakes.
  const JobSetting program = ProgramSetting(argv);
  GAVEL_ASSIGN_OR_RETURN(JobSpec job,
                         ParseJobSpec(text, StrCat(options_.source, " [job]"),
                                      std::span(&program, 1)));
  // The options of an optimizer are in the checkpoint of the other trial: those
  // of the command line count.
  if (spec_.method == tune::Method::kPopulation) {
    const std::pair<std::string, std::string> keep = {
        "GAVEL_KEEP_PROGRAM_OPTIONS", "1"};
    const auto at = std::ranges::lower_bound(job.environment, keep);
    if (at == job.environment.end() || at->first != keep.first) {
      job.environment.insert(at, keep);
    }
  }
  return FormatJobSpec(job);
}

absl::Status TuneRun::Save() const {
  return ReplaceFile(RecordIn(options_.folder), tune::EncodeState(state_));
}

absl::Status TuneRun::Ask(const tune::Question& question) {
  if (!program_) {
    GAVEL_ASSIGN_OR_RETURN(
        program_, OptimiserProgram::Start(spec_.program,
                                          OptimiserProgram::kAnswerTimeout_s));
    GAVEL_RETURN_IF_ERROR(program_->Write(tune::StartLine(spec_, state_)));
  }
  const std::string line = tune::QuestionLine(question);
  GAVEL_RETURN_IF_ERROR(program_->Write(line));
  GAVEL_ASSIGN_OR_RETURN(const std::string read, program_->Read());
  absl::StatusOr<tune::Answer> answer =
      tune::ParseAnswer(spec_, question, read);
  if (!answer.ok()) {
    return Annotate(answer.status(),
                    StrCat("the optimiser's answer to ", line));
  }
  state_.answers.push_back(*std::move(answer));
  return Save();
}

absl::Status TuneRun::Begin(const std::vector<Segment>& next) {
  for (const Segment& segment : next) {
    if (segment.source == segment.trial) continue;
    GAVEL_RETURN_IF_ERROR(CopySource(segment));
  }
  auto running = std::ranges::count(state_.segments, Outcome::kRunning,
                                    &TrialSegment::outcome);
  bool changed = false;
  for (const Segment& segment : next) {
    if (running++ >= spec_.trials_at_once) break;
    TrialSegment begun;
    begun.segment = segment;
    state_.segments.push_back(std::move(begun));
    changed = true;
  }
  return changed ? Save() : absl::OkStatus();
}

// Commits the generation of the other trial in the directory of this one: its
// files, the manifest last. Shards do not change once they are written, so a
// link is as good as a copy.
absl::Status TuneRun::CopySource(const Segment& segment) const {
  const std::string from = DirectoryOf(segment.source, segment.from_steps);
  const std::string to = StrCat(options_.folder, "/trials/", segment.trial, "/",
                                segment.from_steps);
  if (fs::exists(to)) {
    if (GenerationAt(to, segment.from_steps).ok()) return absl::OkStatus();
  }
  GAVEL_ASSIGN_OR_RETURN(const std::string generation,
                         GenerationAt(from, segment.from_steps));
  const std::string copy =
      StrCat(to, "/", fs::path(generation).filename().string());
  GAVEL_RETURN_IF_ERROR(CreateDirectories(FileSystem::Posix(), copy));
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(generation, error)) {
    const std::string name = entry.path().filename().string();
    if (!ParseShardFileName(name)) continue;
    const fs::path target = fs::path(copy) / name;
    fs::remove(target, error);
    fs::create_hard_link(entry.path(), target, error);
    if (error) fs::copy_file(entry.path(), target, error);
    if (error) {
      return absl::UnknownError(StrCat(target.string(), ": ", error.message(),
                                       "; free the disk or allow it, then run "
                                       "this command again"));
    }
  }
  const std::string manifest = StrCat("/", kManifestFileName);
  GAVEL_ASSIGN_OR_RETURN(
      const std::string text,
      ReadFile(generation + manifest, kManifestSizeBytesMax));
  return ReplaceFile(copy + manifest, text, kSharedMode);
}

absl::Status TuneRun::Run(const std::atomic<bool>& stop,
                          const std::function<void()>& show) {
  while (!stop) {
    const tune::Plan plan = tune::Decide(spec_, state_.begun(), state_.answers);
    if (plan.question) {
      GAVEL_RETURN_IF_ERROR(Ask(*plan.question));
      continue;
    }
    over_ = plan.over;
    if (over_) break;
    GAVEL_RETURN_IF_ERROR(Begin(plan.next));
    absl::Status looked = LookAtJobs();
    if (looked.ok()) looked = TellGoal();
    if (!looked.ok() && !absl::IsUnavailable(looked)) return looked;
    trouble_ = looked.ok() ? weight_refused_ : std::string(looked.message());
    if (!looked.ok()) {
      client_.reset();
      told_.reset();
    }
    show();
    if (const absl::Status failed = CheckFailures(); !failed.ok()) {
      CancelJobs().status().IgnoreError();
      return failed;
    }
    if (client_) {
      client_->Sleep(kLookInterval_s);
    } else {
      usleep(static_cast<useconds_t>(kLookInterval_s * 1e6));
    }
  }
  if (!over_) {
    return absl::CancelledError(
        "the search was stopped here, and its jobs go on; the same command "
        "continues it, and with --cancel it ends the jobs");
  }
  EndApp();
  GAVEL_RETURN_IF_ERROR(WritePage());
  show();
  if (tune::BestOf(spec_, state_.begun())) return absl::OkStatus();
  return CheckFailures();
}

absl::Status TuneRun::CheckFailures() const {
  int failures = 0;
  const TrialSegment* first = nullptr;
  for (const TrialSegment& one : state_.segments) {
    if (one.outcome == Outcome::kDone) return absl::OkStatus();
    if (one.outcome != Outcome::kFailed) continue;
    if (failures++ == 0) first = &one;
  }
  if (first == nullptr || (failures < kFailuresMax && !over_)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      StrCat("the search ends, as none of its first ", failures,
             " trials came to an end; trial ", first->segment.trial, ": ",
             first->why, "; then begin anew with another --folder"));
}

absl::StatusOr<std::vector<QueueRow>> TuneRun::RowsOf(Json filter) {
  GAVEL_ASSIGN_OR_RETURN(
      const Json json,
      client_->Query(QueryKind::kQueue, JobId(), filter.dump()));
  return ParseQueue(json);
}

absl::Status TuneRun::LookAtJobs() {
  if (!client_) {
    GAVEL_ASSIGN_OR_RETURN(client_, options_.connection.Connect());
  }
  // Only the latest ended jobs: ours are among them.
  GAVEL_ASSIGN_OR_RETURN(
      const std::vector<QueueRow> rows,
      RowsOf({{"app", spec_.name},
              {"ended_max", 100 + 4 * uint64_t(spec_.trials_at_once)}}));
  std::map<uint64_t, QueueRow> by_id;
  for (const QueueRow& row : rows) by_id.emplace(row.id, row);
  steps_now_.clear();
  bool changed = false;
  for (TrialSegment& one : state_.segments) {
    if (one.outcome != Outcome::kRunning) continue;
    const Segment& segment = one.segment;
    const QueueRow* row = nullptr;
    if (const auto at = by_id.find(one.job); at != by_id.end()) {
      row = &at->second;
    } else {
      // It may have been submitted, which is not in the record.
      GAVEL_ASSIGN_OR_RETURN(const std::vector<QueueRow> named,
                             RowsOf({{"name", JobName(segment.trial)}}));
      for (const QueueRow& other : named) {
        if (other.steps_total != segment.to_steps) continue;
        if (other.state == "CA") continue;  // see CancelJobs
        row = &(by_id[other.id] = other);
      }
    }
    if (row == nullptr) {
      GAVEL_RETURN_IF_ERROR(Submit(one));
      changed = true;
      continue;
    }
    changed |= one.job != row->id;
    one.job = row->id;
    steps_now_[segment.trial] = row->steps_done;
    if (!row->Ended()) continue;
    TakeEnd(*row, one);
    changed = true;
    if (row->Over()) continue;
    // It is held after failures, and nobody releases it.
    client_->Command(CommandKind::kCancel, JobId(row->id)).IgnoreError();
  }
  FavourBest(by_id);
  if (!changed) return absl::OkStatus();
  GAVEL_RETURN_IF_ERROR(Save());
  return WritePage();
}

void TuneRun::FavourBest(const std::map<uint64_t, QueueRow>& by_id) {
  const std::optional<tune::Best> best = tune::BestOf(spec_, state_.begun());
  const double raised = base_weight_ * spec_.best_weight;
  weight_refused_.clear();
  if (!best || raised == base_weight_) return;
  for (const TrialSegment& one : state_.segments) {
    const auto row = by_id.find(one.job);
    if (one.outcome != Outcome::kRunning || row == by_id.end() ||
        row->second.Ended()) {
      continue;
    }
    const double now = row->second.weight;
    const double wanted =
        one.segment.trial == best->trial ? raised : base_weight_;
    // Another weight is one that the user gave the job since.
    if (now == wanted || (now != base_weight_ && now != raised)) continue;
    CommandRequest command;
    command.kind = CommandKind::kUpdate;
    command.job = JobId(one.job);
    command.update.weight = wanted;
    const absl::Status updated = client_->Command(std::move(command));
    if (updated.ok() || absl::IsUnavailable(updated)) continue;
    weight_refused_ = StrCat("the weight of trial ", one.segment.trial,
                             " stays ", now, ": ", updated.message());
  }
}

// Tells the coordinator the work left, when that has changed. A refusal is no
// reason to end the search: the app may be over, until its next job comes.
absl::Status TuneRun::TellGoal() {
  const AppGoal goal = tune::GoalOf(spec_, state_.begun(), state_.answers);
  if (told_ == goal) return absl::OkStatus();
  const absl::Status told = client_->SetGoal(goal);
  if (!told.ok() && !absl::IsFailedPrecondition(told)) return told;
  told_ = goal;
  return absl::OkStatus();
}

// A search that was over before has told it, or the app has ended by now.
void TuneRun::EndApp() {
  if (!client_) return;
  AppGoal goal;
  goal.app = spec_.name;
  goal.ended = true;
  client_->SetGoal(goal, Client::kReplyTimeout_s).IgnoreError();
}

absl::Status TuneRun::WritePage() const {
  return WriteFile(options_.folder + "/report.html", TrialsPage(*this));
}

absl::Status TuneRun::Submit(TrialSegment& segment) {
  GAVEL_ASSIGN_OR_RETURN(const std::string text, JobText(segment.segment));
  std::error_code error;
  absl::StatusOr<JobId> job =
      client_->Submit(options_.source, text, fs::current_path(error).string());
  if (!job.ok()) return job.status();
  segment.job = job->value();
  segment.begun_s = WallClockNow();
  return absl::OkStatus();
}

void TuneRun::TakeEnd(const QueueRow& row, TrialSegment& segment) const {
  segment.begun_s = row.submitted_at_s;
  segment.ended_s = row.ended_at_s.value_or(WallClockNow());
  segment.outcome = Outcome::kFailed;
  if (row.state == "CA") {
    segment.why = StrCat("its job ", row.id, " was cancelled");
    return;
  }
  if (row.state == "F") {
    segment.why = StrCat("its job ", row.id, " failed: ", row.reason,
                         "; `gavel logs ", row.id, "` shows its output");
    return;
  }
  const absl::StatusOr<double> value = ReadMetric(segment.segment);
  if (!value.ok()) {
    segment.why = std::string(value.status().message());
    return;
  }
  segment.outcome = Outcome::kDone;
  segment.value = *value;
}

absl::StatusOr<double> TuneRun::ReadMetric(const Segment& segment) const {
  GAVEL_ASSIGN_OR_RETURN(
      const std::string folder,
      GenerationAt(DirectoryOf(segment.trial, segment.to_steps),
                   segment.to_steps));
  GAVEL_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(folder));
  const auto found = manifest.scalars.find(spec_.metric);
  if (found != manifest.scalars.end()) return found->second;
  std::string names;
  for (const auto& [name, value] : manifest.scalars) {
    StrAppend(&names, names.empty() ? "" : ", ", name);
  }
  return absl::NotFoundError(StrCat(
      "it has no value of \"", spec_.metric, "\" at step ", segment.to_steps,
      ": it reported none, or the last one was NaN or infinite",
      names.empty() ? "" : StrCat(" (it reported ", names, ")"),
      "; call session->Report(\"", spec_.metric,
      "\", value) in each step, keep the training from diverging, as with a "
      "lower learning rate, or set metric of the search file to a name that it "
      "reports"));
}

absl::StatusOr<int> TuneRun::CancelJobs() {
  GAVEL_ASSIGN_OR_RETURN(client_, options_.connection.Connect());
  // The record then has all jobs that were submitted, and those that ended.
  GAVEL_RETURN_IF_ERROR(LookAtJobs());
  int cancelled = 0;
  for (const TrialSegment& one : state_.segments) {
    if (one.outcome != Outcome::kRunning) continue;
    GAVEL_RETURN_IF_ERROR(
        client_->Command(CommandKind::kCancel, JobId(one.job)));
    ++cancelled;
  }
  EndApp();
  // The same command trains them again, from their last checkpoints.
  std::erase_if(state_.segments, [](const TrialSegment& one) {
    return one.outcome == Outcome::kRunning;
  });
  GAVEL_RETURN_IF_ERROR(Save());
  return cancelled;
}

uint64_t TuneRun::StepsNow(int trial) const {
  const auto found = steps_now_.find(trial);
  return found == steps_now_.end() ? 0 : found->second;
}

// ---- The trials as a table, as JSON and as a page.

using tune::Method;
using tune::Outcome;
using tune::TrialSegment;

namespace {

std::string ValuesText(const tune::SearchSpec& spec,
                       const std::vector<std::string>& values) {
  std::string text;
  for (size_t i = 0; i < spec.space.size(); ++i) {
    StrAppend(&text, i == 0 ? "" : " ", spec.space[i].name, "=", values[i]);
  }
  return text;
}

// The best first; then those without a metric.
void SortByMetric(bool maximise, std::vector<TrialRow>& rows) {
  std::ranges::stable_sort(rows, [&](const TrialRow& a, const TrialRow& b) {
    if (a.value.has_value() != b.value.has_value()) return a.value.has_value();
    if (a.value_steps != b.value_steps) return a.value_steps > b.value_steps;
    if (!a.value || *a.value == *b.value) return false;
    return (*a.value > *b.value) == maximise;
  });
}

std::string FirstText(const TrialRow& row) {
  return row.first_s ? FormatDuration(*row.first_s) : "-";
}

study::ReportTable TableOf(const TuneRun& run) {
  std::vector<TrialRow> rows = TrialRows(run);
  SortByMetric(run.spec().maximise, rows);
  study::ReportTable table;
  table.titles = {
      "Trial",      "State", "Steps", run.spec().metric, "First rung after",
      "Parameters", "Why"};
  for (const TrialRow& row : rows) {
    table.rows.push_back({StrCat(row.trial), row.state, StrCat(row.steps),
                          row.value ? absl::StrFormat("%.6g", *row.value) : "-",
                          FirstText(row), row.values, row.why});
  }
  return table;
}

}  // namespace

std::vector<TrialRow> TrialRows(const TuneRun& run) {
  std::map<int, TrialRow> by_trial;
  std::map<int, double> begun_s;
  for (const TrialSegment& one : run.state().segments) {
    TrialRow& row = by_trial[one.segment.trial];
    row.trial = one.segment.trial;
    row.values = ValuesText(run.spec(), one.segment.values);
    switch (one.outcome) {
      case Outcome::kRunning:
        row.state = "running";
        row.steps = std::max(one.segment.from_steps, run.StepsNow(row.trial));
        break;
      case Outcome::kFailed:
        row.state = "failed";
        row.why = one.why;
        break;
      case Outcome::kDone:
        row.steps = row.value_steps = one.segment.to_steps;
        row.state = row.steps == run.spec().steps ? "done"
                    : run.over()                  ? "stopped"
                                                  : "paused";
        row.value = one.value;
        row.curve.emplace_back(row.steps, one.value);
        row.directory = run.DirectoryOf(row.trial, row.steps);
    }
    begun_s.emplace(row.trial, one.begun_s);
    if (one.segment.from_steps == 0 && one.outcome == Outcome::kDone) {
      row.first_s = one.ended_s - begun_s[row.trial];
    }
  }
  std::vector<TrialRow> rows;
  for (auto& [trial, row] : by_trial) rows.push_back(std::move(row));
  return rows;
}

uint64_t StepsPlanned(const tune::SearchSpec& spec) {
  if (spec.method != Method::kHyperBand &&
      spec.method != Method::kSuccessiveHalving) {
    return static_cast<uint64_t>(spec.trials) * spec.steps;
  }
  uint64_t steps = 0;
  for (const tune::Bracket& bracket : tune::BracketsOf(spec)) {
    auto trials = static_cast<uint64_t>(bracket.trials);
    uint64_t from = 0;
    for (const uint64_t rung : bracket.rungs) {
      steps += trials * (rung - from);
      trials /= static_cast<uint64_t>(spec.eta);
      from = rung;
    }
  }
  return steps;
}

uint64_t StepsTaken(const TuneRun& run) {
  uint64_t steps = 0;
  for (const TrialSegment& one : run.state().segments) {
    const tune::Segment& segment = one.segment;
    uint64_t until = segment.to_steps;
    if (one.outcome == Outcome::kRunning) {
      until = std::max(segment.from_steps, run.StepsNow(segment.trial));
    }
    if (one.outcome == Outcome::kFailed) until = segment.from_steps;
    steps += until - segment.from_steps;
  }
  return steps;
}

std::string RenderTrials(const TuneRun& run, size_t width) {
  std::vector<TrialRow> rows = TrialRows(run);
  SortByMetric(run.spec().maximise, rows);
  TableRows cells;
  for (const TrialRow& row : rows) {
    cells.push_back(
        {StrCat(row.trial), row.state, FormatSteps(row.steps, run.spec().steps),
         row.value ? FormatScalar(*row.value) : "-", FirstText(row),
         row.why.empty() ? row.values : StrCat(row.values, ": ", row.why)});
  }
  return RenderTable({Right("TRIAL"), Left("STATE"), Right("STEPS"),
                      Right("METRIC"), Right("FIRST"), Left("PARAMETERS")},
                     cells, width);
}

std::string RenderBest(const TuneRun& run) {
  const auto best = tune::BestOf(run.spec(), run.state().begun());
  if (!best) return "";
  std::string values;
  for (const TrialSegment& one : run.state().segments) {
    if (one.segment.trial != best->trial) continue;
    if (one.segment.to_steps != best->steps) continue;
    values = ValuesText(run.spec(), one.segment.values);
  }
  return StrCat("Best: trial ", best->trial, ", ", run.spec().metric, " ",
                absl::StrFormat("%.6g", best->value), " at step ", best->steps,
                " (", values, "), checkpoints in ",
                run.DirectoryOf(best->trial, best->steps), "\n");
}

Json TrialsJson(const TuneRun& run) {
  Json trials = Json::array();
  for (const TrialRow& row : TrialRows(run)) {
    trials.push_back({{"trial", row.trial},
                      {"values", row.values},
                      {"state", row.state},
                      {"steps", row.steps},
                      {"value", row.value ? Json(*row.value) : Json()},
                      {"first_s", row.first_s ? Json(*row.first_s) : Json()},
                      {"why", row.why},
                      {"checkpoint_directory", row.directory},
                      {"curve", row.curve}});
  }
  Json json = {{"name", run.spec().name},
               {"method", tune::NameOf(run.spec().method)},
               {"metric", run.spec().metric},
               {"over", run.over()},
               {"best", nullptr},
               {"trials", std::move(trials)}};
  if (const auto best = tune::BestOf(run.spec(), run.state().begun())) {
    json["best"] = {
        {"trial", best->trial},
        {"steps", best->steps},
        {"value", best->value},
        {"checkpoint_directory", run.DirectoryOf(best->trial, best->steps)}};
  }
  return json;
}

std::string TrialsPage(const TuneRun& run) {
  const tune::SearchSpec& spec = run.spec();
  study::Plot plot;
  plot.title = StrCat(spec.metric, " by steps");
  plot.x.label = "steps";
  plot.y.label = spec.metric;
  plot.y.from_zero = false;
  constexpr size_t kSeriesMax = 10;
  std::vector<TrialRow> rows = TrialRows(run);
  SortByMetric(spec.maximise, rows);
  for (const TrialRow& row : rows) {
    if (row.curve.empty() || plot.series.size() == kSeriesMax) break;
    study::PlotSeries series;
    series.name = StrCat("trial ", row.trial);
    series.color = plot.series.size();
    for (const auto& [steps, value] : row.curve) {
      series.points.push_back({static_cast<double>(steps), value, row.values});
    }
    plot.series.push_back(std::move(series));
  }
  study::ReportSection section;
  section.id = "trials";
  section.title = "Trials";
  section.text = StrCat(
      "The trials of the search, the best first; the plot "
      "has the best ",
      kSeriesMax, " of them.");
  if (!plot.series.empty()) section.figures = {std::move(plot)};
  section.table = TableOf(run);
  section.csv = study::Csv(section.table);
  study::ReportPage page;
  page.title = StrCat("Search ", spec.name);
  page.summary =
      StrCat(tune::NameOf(spec.method), ", ", run.over() ? "over" : "under way",
             ". ", RenderBest(run));
  page.sections = {std::move(section)};
  return study::RenderPage(page);
}

// ---- The options of `gavel tune`, and its output while a search runs.

namespace {

struct TuneOptions : ClientOptions {
  std::string search;
  std::vector<std::string> program;
  std::string folder;
  bool cancel = false;
};

// On a terminal the table with a bar below it; else a line for each segment
// that has ended.
class TuneScreen {
 public:
  TuneScreen(const TuneRun& run, bool quiet) : run_(run), quiet_(quiet) {}

  void Show() {
    if (quiet_) return;
    if (!terminal_.is_terminal()) return ShowLines();
    const uint64_t planned = StepsPlanned(run_.spec());
    const uint64_t taken = StepsTaken(run_);
    if (first_taken_ == kNone) first_taken_ = taken;
    const double part =
        static_cast<double>(taken) / static_cast<double>(planned);
    const double begun =
        static_cast<double>(first_taken_) / static_cast<double>(planned);
    // The bar expects the remaining steps to take as long, each, as the steps
    // since the command began.
    const double elapsed_s =
        part > begun ? clock_.elapsed_s() * part / (part - begun) : 0;
    terminal_.Show(StrCat(RenderTrials(run_, terminal_.width()),
                          run_.over()
                              ? RenderBest(run_)
                              : RenderBar(run_.spec().name, part, elapsed_s,
                                          run_.trouble(), terminal_.width())));
  }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};

  void ShowLines() {
    const std::vector<tune::TrialSegment>& all = run_.state().segments;
    shown_.resize(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const tune::TrialSegment& one = all[i];
      if (shown_[i] || one.outcome == tune::Outcome::kRunning) continue;
      shown_[i] = true;
      const std::string what = one.outcome == tune::Outcome::kDone
                                   ? StrCat(run_.spec().metric, " ", one.value,
                                            " at step ", one.segment.to_steps)
                                   : StrCat("failed: ", one.why);
      std::printf("trial %d: %s\n", one.segment.trial, what.c_str());
    }
    if (run_.trouble() != trouble_) {
      trouble_ = run_.trouble();
      if (!trouble_.empty()) PrintNotices({trouble_});
    }
    if (run_.over()) std::printf("%s", RenderBest(run_).c_str());
    std::fflush(stdout);
  }

  const TuneRun& run_;
  const bool quiet_;
  Terminal terminal_;
  Stopwatch clock_;
  uint64_t first_taken_ = kNone;
  std::vector<bool> shown_;
  std::string trouble_;
};

absl::Status Tune(const TuneOptions& options) {
  const StopFlag stop;
  TuneRun::Options run_options{options, options.search, "", options.program,
                               options.folder};
  GAVEL_ASSIGN_OR_RETURN(run_options.text,
                         ReadFile(options.search, tune::kSearchBytesMax));
  if (run_options.folder.empty()) {
    GAVEL_ASSIGN_OR_RETURN(
        const tune::SearchSpec spec,
        tune::ParseSearchSpec(run_options.text, options.search));
    run_options.folder = "gavel-results/" + spec.name;
  }
  const std::string record = run_options.folder + "/search.json";
  std::error_code error;
  if (options.cancel && !std::filesystem::exists(record, error)) {
    return absl::NotFoundError(StrCat(record,
                                      " is not there; give --folder as "
                                      "the search had it"));
  }
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<TuneRun> run,
                         TuneRun::Open(std::move(run_options)));
  if (options.cancel) {
    GAVEL_ASSIGN_OR_RETURN(const int cancelled, run->CancelJobs());
    if (!options.json) {
      absl::PrintF("Cancelled %d jobs of the search\n", cancelled);
    }
    return absl::OkStatus();
  }
  TuneScreen screen(*run, options.json);
  const absl::Status status =
      run->Run(*stop.get(), [&screen] { screen.Show(); });
  if (options.json) std::printf("%s\n", TrialsJson(*run).dump(2).c_str());
  return status;
}

}  // namespace

void AddTuneCommand(CLI::App& app, std::vector<std::string> program,
                    int* exit_code) {
  auto [command, options] = AddCommand<TuneOptions>(
      app, exit_code, "tune",
      "Searches hyperparameters: its trials are jobs of one app, which are "
      "stopped, continued and forked between two steps. Called again, it "
      "continues",
      Tune);
  options.program = std::move(program);
  command.footer(
      "Called as: gavel tune search.toml [OPTIONS] -- ./train {lr} {depth}\n"
      "docs/tune.md explains the file and the methods.");
  AddClientOptions(command, &options);
  AddOption(command, "search", options.search, "SEARCH.toml", "the search file")
      ->required();
  AddOption(command, "--folder", options.folder, "FOLDER",
            "for its record, checkpoints and report, on a disk that all "
            "servers share (default gavel-results/NAME)");
  command.add_flag("--cancel", options.cancel,
                   "cancels the jobs of the search, and ends");
}

}  // namespace gavel
