#include "coordinator/cli/doctor_run.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "coordinator/agent_host/agent_environment.h"
#include "coordinator/agent_host/agent_process.h"
#include "coordinator/cli/processes.h"
#include "coordinator/cli/pytorch_files.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/files.h"
#include "runtime/files/stopwatch.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/manifest.h"
#include "runtime/transport/lease_granter.h"

namespace gavel {

// ---- Reports and accounts ----

namespace {

using Values = std::vector<std::string>;
using ReportKey = std::pair<uint64_t, std::string>;  // step, name

// Leaves out a last line without its end.
template <class Take>
void ForEachLine(std::string_view text, const Take& take) {
  for (size_t end = text.find('\n'); end != std::string_view::npos;
       end = text.find('\n')) {
    take(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
}

std::optional<ReportedValue> ParseLine(std::string_view line) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  ReportedValue value;
  if (first == std::string_view::npos || first == last ||
      !absl::SimpleAtoi(ToAbsl(line.substr(0, first)), &value.step)) {
    return std::nullopt;
  }
  value.name = line.substr(first + 1, last - first - 1);
  value.value = line.substr(last + 1);
  return value;
}

std::map<ReportKey, Values> ByStepAndName(
    const std::vector<ReportedValue>& values, uint64_t from_step) {
  std::map<ReportKey, Values> found;
  for (const ReportedValue& one : values) {
    if (one.step >= from_step) found[{one.step, one.name}].push_back(one.value);
  }
  return found;
}

// Steps and names in the order of the runs: `expected`'s first.
std::vector<ReportKey> KeysInOrder(const std::vector<ReportedValue>& expected,
                                   const std::vector<ReportedValue>& found,
                                   uint64_t from_step) {
  std::vector<ReportKey> keys;
  std::set<ReportKey> seen;
  for (const auto* values : {&expected, &found}) {
    for (const ReportedValue& one : *values) {
      ReportKey key{one.step, one.name};
      if (one.step < from_step || !seen.insert(key).second) continue;
      keys.push_back(std::move(key));
    }
  }
  std::stable_sort(
      keys.begin(), keys.end(),
      [](const ReportKey& a, const ReportKey& b) { return a.first < b.first; });
  return keys;
}

bool IsClose(const std::optional<std::string>& a,
             const std::optional<std::string>& b, double tolerance) {
  if (a == b) return true;
  if (!a || !b || tolerance <= 0) return false;
  const double x = std::strtod(a->c_str(), nullptr);
  const double y = std::strtod(b->c_str(), nullptr);
  return std::abs(x - y) <= tolerance * std::max(std::abs(x), std::abs(y));
}

// The first value that differs; at the first step `found` may begin with more.
std::optional<ReportDifference> Differ(const ReportKey& key,
                                       const Values& expected,
                                       const Values& found, bool is_first_step,
                                       double tolerance) {
  size_t skip = 0;
  if (is_first_step && found.size() > expected.size()) {
    skip = found.size() - expected.size();
  }
  const size_t count = std::max(expected.size(), found.size() - skip);
  for (size_t i = 0; i < count; ++i) {
    ReportDifference difference{key.first, key.second, {}, {}};
    if (i < expected.size()) difference.expected = expected[i];
    if (i + skip < found.size()) difference.found = found[i + skip];
    if (!IsClose(difference.expected, difference.found, tolerance)) {
      return difference;
    }
  }
  return std::nullopt;
}

std::string DescribeValue(const std::optional<std::string>& value) {
  if (!value) return "not reported";
  return absl::StrFormat("%.9g (%s)", std::strtod(value->c_str(), nullptr),
                         *value);
}

// Without the end of an epoch in sight.
constexpr uint64_t kMoreSteps = 4;

// Takes the word before the first blank; both are removed from `line`.
std::string_view TakeWord(std::string_view* line) {
  const size_t end = std::min(line->find(' '), line->size());
  const std::string_view word = line->substr(0, end);
  line->remove_prefix(std::min(end + 1, line->size()));
  return word;
}

void TakeLine(std::string_view line, DoctorAccount* account) {
  const std::string_view word = TakeWord(&line);
  uint64_t step = 0;
  if (!absl::SimpleAtoi(ToAbsl(TakeWord(&line)), &step)) return;
  if (word == "tracked") {
    const std::string_view name = TakeWord(&line);
    account->tracked.push_back(StrCat(name, " (", line, ")"));
  } else if (word == "loop-begin") {
    ++account->loops_begun;
  } else if (word == "loop-end") {
    account->epoch_ends.push_back(step);
  } else if (word == "loop-break") {
    account->breaks.push_back(step);
  } else if (word == "evaluation") {
    account->evaluations.push_back(step);
  } else if (word == "untracked") {
    const std::string_view kind = TakeWord(&line);
    account->untracked.push_back({step, std::string(kind), std::string(line)});
  }
}

}  // namespace

std::vector<ReportedValue> ParseReport(std::string_view text) {
  std::vector<ReportedValue> values;
  ForEachLine(text, [&](std::string_view line) {
    if (auto value = ParseLine(line)) values.push_back(*std::move(value));
  });
  return values;
}

std::vector<std::string> NamesOf(const std::vector<ReportedValue>& values) {
  std::set<std::string> names;
  for (const ReportedValue& one : values) names.insert(one.name);
  return {names.begin(), names.end()};
}

std::optional<ReportedValue> FirstNan(
    const std::vector<ReportedValue>& values) {
  const auto it = std::ranges::find_if(values, [](const ReportedValue& one) {
    return std::isnan(std::strtod(one.value.c_str(), nullptr));
  });
  return it == values.end() ? std::nullopt : std::optional(*it);
}

bool AnyVaries(const std::vector<ReportedValue>& values) {
  std::map<std::string_view, std::string_view> first;
  return std::ranges::any_of(values, [&](const ReportedValue& one) {
    return first.emplace(one.name, one.value).first->second != one.value;
  });
}

std::vector<ReportDifference> CompareReports(
    const std::vector<ReportedValue>& expected,
    const std::vector<ReportedValue>& found, uint64_t from_step,
    double tolerance) {
  std::map<ReportKey, Values> left = ByStepAndName(expected, from_step);
  std::map<ReportKey, Values> right = ByStepAndName(found, from_step);
  std::vector<ReportDifference> differences;
  std::set<std::string> names;
  for (const ReportKey& key : KeysInOrder(expected, found, from_step)) {
    if (names.contains(key.second)) continue;
    auto difference =
        Differ(key, left[key], right[key], key.first == from_step, tolerance);
    if (!difference) continue;
    names.insert(key.second);
    differences.push_back(*std::move(difference));
  }
  return differences;
}

std::string DescribeDifference(const ReportDifference& difference,
                               std::string_view other_run) {
  return StrCat(difference.name, " at step ", difference.step, ": ",
                DescribeValue(difference.expected), " undisturbed, ",
                DescribeValue(difference.found), " ", other_run);
}

std::vector<uint64_t> DoctorAccount::LoopEnds() const {
  std::vector<uint64_t> ends = epoch_ends;
  ends.insert(ends.end(), breaks.begin(), breaks.end());
  std::ranges::sort(ends);
  return ends;
}

bool DoctorAccount::CountsSomething() const {
  return std::ranges::any_of(tracked, [](const std::string& one) {
    return absl::StrContains(one, " number of ") ||
           absl::EndsWith(one, "(text)") || absl::EndsWith(one, "(bytes)");
  });
}

std::vector<std::string> DoctorAccount::TrackedAs(std::string_view kind) const {
  std::vector<std::string> names;
  for (const std::string& one : tracked) {
    if (!one.ends_with(StrCat(" (", kind, ")"))) continue;
    names.push_back(one.substr(0, one.find(' ')));
  }
  return names;
}

const UntrackedItem* DoctorAccount::Lost() const {
  const auto found =
      std::ranges::find_if(untracked, [](const UntrackedItem& one) {
        return one.kind == "module" || one.kind == "average";
      });
  return found == untracked.end() ? nullptr : &*found;
}

DoctorAccount ParseAccount(std::string_view text) {
  DoctorAccount account;
  ForEachLine(text, [&](std::string_view line) { TakeLine(line, &account); });
  return account;
}

uint64_t StepsForEpochs(const DoctorAccount& account, uint64_t steps) {
  if (account.loops_begun == 0) return 0;
  const std::vector<uint64_t> ends = account.LoopEnds();
  if (ends.empty()) return kMoreSteps * steps;
  const uint64_t epoch = std::max<uint64_t>(ends.front(), 1);
  const uint64_t wanted = 2 * epoch + std::max<uint64_t>(epoch / 4, 2);
  return wanted > steps ? wanted : 0;
}

// ---- Checkpoints ----

namespace {

namespace fs = std::filesystem;

double Seconds(const statx_timestamp& time) {
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

// Entries of iterator/training_state.h.
constexpr std::string_view kBegunAnew[] = {"gavel/loop/batches",
                                           "gavel/loop/random"};

}  // namespace

std::vector<DoctorCheckpoint> ListCheckpoints(const std::string& directory) {
  std::vector<DoctorCheckpoint> found;
  const absl::StatusOr<Attempts> attempts =
      ListAttempts(FileSystem::Posix(), directory);
  if (!attempts.ok()) return found;  // nothing is there yet
  for (const Attempt& attempt : attempts->committed) {
    found.push_back(
        {attempt.generation, StrCat(directory, "/", AttemptName(attempt))});
  }
  return found;
}

std::optional<DoctorCheckpoint> LastCheckpoint(const std::string& directory) {
  std::vector<DoctorCheckpoint> found = ListCheckpoints(directory);
  if (found.empty()) return std::nullopt;
  return found.back();
}

absl::Status VerifyCheckpoint(const std::string& path) {
  FileSystem& disk = FileSystem::Posix();
  const absl::StatusOr<Manifest> manifest = ReadManifest(path);
  if (!manifest.ok()) return manifest.status();
  for (size_t i = 0; i < manifest->shards.size(); ++i) {
    const std::string shard = StrCat(path, "/", ShardFileName(i));
    const uint64_t size_bytes = manifest->shards[i].size_bytes;
    const auto opened = disk.OpenFile(shard, FileAccess::kBuffered);
    if (opened.ok() && (*opened)->size_bytes() == size_bytes) continue;
    return absl::DataLossError(
        StrCat(shard, ": ",
               opened.ok() ? StrCat((*opened)->size_bytes(), " bytes, not the ",
                                    size_bytes, " bytes of its manifest")
                           : std::string(opened.status().message())));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> DifferingState(
    const std::string& path, const std::string& other_path) {
  GAVEL_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(path));
  GAVEL_ASSIGN_OR_RETURN(const Manifest other, ReadManifest(other_path));
  std::vector<std::string> names = DifferingTensors(manifest, other);
  std::erase_if(names, [](const std::string& name) {
    return std::ranges::any_of(kBegunAnew, [&](std::string_view one) {
      return std::string_view(name).ends_with(one);
    });
  });
  return names;
}

uint64_t BytesIn(const std::string& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error)) {
    const uint64_t size = entry->file_size(error);
    if (!error) bytes += size;
    error.clear();
  }
  return bytes;
}

std::optional<double> SaveTime_s(const std::string& path) {
  struct statx folder {};
  struct statx manifest {};
  const std::string file = StrCat(path, "/", kManifestFileName);
  if (statx(AT_FDCWD, path.c_str(), 0, STATX_BTIME, &folder) != 0 ||
      statx(AT_FDCWD, file.c_str(), 0, STATX_MTIME, &manifest) != 0 ||
      (folder.stx_mask & STATX_BTIME) == 0) {
    return std::nullopt;
  }
  return std::max(0.0, Seconds(manifest.stx_mtime) - Seconds(folder.stx_btime));
}

// ---- The run ----

namespace {

// A step of a small model takes about this long, its next commit longer.
constexpr auto kPollInterval = std::chrono::microseconds(100);
// Shorter steps can't be told apart at that interval.
constexpr double kStepMin_s = 1e-3;
constexpr size_t kReportBytesMax = 16 << 20;
constexpr int64_t kTailBytes = 2048;
constexpr size_t kTailLines = 10;
constexpr size_t kProgram = 0;  // of the granter: the program's

// Our own environment without the variables of a job or a gang.
std::vector<std::string> EnvironmentOf(
    const std::map<std::string, std::string>& run) {
  std::vector<std::string> environment;
  for (const auto& [name, value] : OwnEnvironment()) {
    const bool of_gang = name == "RANK" || name == "WORLD_SIZE";
    const bool of_job = name.starts_with("GAVEL_") && name != "GAVEL_DEVICE";
    if (!of_gang && !of_job) environment.push_back(StrCat(name, "=", value));
  }
  for (const auto& [name, value] : run) {
    environment.push_back(StrCat(name, "=", value));
  }
  return environment;
}

// Fails as SpawnProcess would, with a message that suits a command line.
absl::Status CheckInPath(const ProcessSpec& spec) {
  const std::string& program = spec.argv.front();
  for (const std::string& path : ProgramCandidates(spec)) {
    std::error_code error;
    if (fs::exists(path, error)) return absl::OkStatus();
  }
  return absl::NotFoundError(
      StrCat(program, ": command not found; ",
             program.find('/') == std::string::npos
                 ? StrCat("give a path, such as ./", program)
                 : std::string("build it, or correct the path")));
}

// Reads what a program reports while it runs, for the times of its steps.
class ReportTail {
 public:
  explicit ReportTail(std::string path) : path_(std::move(path)) {}

  void Read(double now_s) {
    if (!file_.is_open()) file_.open(path_, std::ios::binary);
    if (!file_.is_open()) return;
    file_.clear();  // the end of file of the last read
    for (std::string part; std::getline(file_, part);) {
      line_ += part;
      if (file_.eof()) return;  // the rest of the line is to come
      Take(line_ + "\n", now_s);
      line_.clear();
    }
  }
  const std::vector<StepTime>& times() const { return times_; }

 private:
  void Take(const std::string& line, double now_s) {
    for (const ReportedValue& value : ParseReport(line)) {
      if (times_.empty() || value.step > times_.back().step) {
        times_.push_back({value.step, now_s});
      }
    }
  }

  const std::string path_;
  std::ifstream file_;
  std::string line_;
  std::vector<StepTime> times_;
};

// One program from its start to its end.
class Watch {
 public:
  Watch(const DoctorProgram& program, const DoctorRunOptions& options)
      : program_(program),
        options_(options),
        report_path_(StrCat(program.folder, "/", options.name, ".report")),
        account_path_(StrCat(program.folder, "/", options.name, ".account")),
        tail_(report_path_) {
    run_.checkpoint_directory =
        StrCat(program.folder, "/", options.checkpoints);
    run_.log_path = StrCat(program.folder, "/", options.name, ".log");
  }

  absl::StatusOr<DoctorRun> Run() {
    std::error_code error;
    fs::create_directories(run_.checkpoint_directory, error);
    GAVEL_RETURN_IF_ERROR(OpenLeases());
    const ProcessSpec spec = Spec();
    GAVEL_RETURN_IF_ERROR(CheckInPath(spec));
    GAVEL_ASSIGN_OR_RETURN(const pid_t pid, SpawnProcess(spec));
    ChildProcess child(pid);
    GAVEL_RETURN_IF_ERROR(WaitForEnd(&child));

    run_.last_checkpoint = LastCheckpoint(run_.checkpoint_directory);
    run_.step_times = tail_.times();
    if (fs::exists(account_path_, error)) {
      GAVEL_ASSIGN_OR_RETURN(const std::string account,
                             ReadFile(account_path_, kReportBytesMax));
      run_.account = ParseAccount(account);
    }
    if (!fs::exists(report_path_, error)) return run_;
    GAVEL_ASSIGN_OR_RETURN(const std::string text,
                           ReadFile(report_path_, kReportBytesMax));
    run_.values = ParseReport(text);
    return run_;
  }

 private:
  ProcessSpec Spec() const {
    std::map<std::string, std::string> variables = {
        {"GAVEL_STEPS", StrCat(options_.steps)},
        {"GAVEL_CHECKPOINT_DIRECTORY", run_.checkpoint_directory},
        {"GAVEL_CHECKPOINT_INTERVAL_STEPS",
         StrCat(options_.checkpoint_interval_steps)},
        {"GAVEL_CHECKPOINT_INTERVAL_S", "0"},
        {"GAVEL_CHECKPOINTS_KEPT", StrCat(options_.checkpoints_kept)},
        {"GAVEL_REPORT_FILE", report_path_},
        {"GAVEL_EXAMINATION_FILE", account_path_},
        {"GAVEL_DEVICE", program_.device},
        {"OMP_NUM_THREADS", StrCat(program_.threads)},
        {"OMP_WAIT_POLICY", "PASSIVE"},
    };
    if (granter_ != nullptr) {
      variables.merge(std::map<std::string, std::string>{
          {"GAVEL_WORKER_COORDINATOR", granter_->endpoint()},
          {"GAVEL_JOB", "1"},
          {"GAVEL_INCARNATION", "1"},
          {"GAVEL_RANK", "0"},
          {"GAVEL_WORLD_SIZE", "1"},
          {"GAVEL_RUN_DIRECTORY", program_.folder},
      });
    }
    ProcessSpec spec;
    spec.argv = program_.argv;
    spec.output_path = run_.log_path;
    spec.environment = EnvironmentOf(variables);
    return spec;
  }

  // Until the program has ended or was killed.
  absl::Status WaitForEnd(ChildProcess* child) {
    const uint64_t kill_at = options_.kill_at_step;
    const double timeout_s =
        options_.timeout_s > 0 ? options_.timeout_s : program_.timeout_s;
    while (!child->Ended()) {
      const double now_s = Now_s();
      tail_.Read(now_s);
      TurnLeases(now_s);
      MayInterrupt(now_s);
      const uint64_t committed = kill_at > 0 ? StepsCommitted() : 0;
      run_.killed = committed > 0 && committed <= kill_at;
      run_.timed_out = now_s > timeout_s;
      if (program_.stop != nullptr && *program_.stop) {
        return absl::CancelledError("interrupted; nothing is known yet");
      }
      if (run_.killed || run_.timed_out) {
        child->Kill();
        break;
      }
      std::this_thread::sleep_for(kPollInterval);
    }
    run_.exit_code = child->Collect();
    run_.duration_s = Now_s();
    tail_.Read(run_.duration_s);
    TurnLeases(run_.duration_s);
    // It may have ended before the signal arrived.
    if (run_.exit_code != -SIGKILL) run_.killed = false;
    return absl::OkStatus();
  }

  absl::Status OpenLeases() {
    if (!options_.leases) return absl::OkStatus();
    GAVEL_ASSIGN_OR_RETURN(granter_, LeaseGranter::Open());
    LeasedJob job;
    job.terms.places = {options_.leases->front()};
    granter_->Begin({job});
    return absl::OkStatus();
  }

  void TurnLeases(double now_s) {
    if (granter_ == nullptr) return;
    granter_->Turn(now_s, 0);
    const LeasedJob& job = granter_->jobs()[kProgram];
    DoctorLeases& leases = run_.leases;
    leases.asked = job.heard;
    leases.granted |= job.granted_at >= 0;
    leases.lost_s = job.pausing_s;
    if (leases.released) {
      leases.resumed |= job.runs;
    } else if (job.released_at >= 0) {
      leases.released = true;
      leases.paused_after_step = job.steps_done;
      if (leases.interrupted) leases.pause_s = job.released_at - job.asked_at;
      granter_->terms(kProgram).places = {options_.leases->back()};
      granter_->GrantNext(kProgram);
    }
  }

  void MayInterrupt(double now_s) {
    DoctorLeases& leases = run_.leases;
    if (!leases.granted || leases.interrupted || leases.released ||
        StepsDone() < options_.interrupt_after_step) {
      return;
    }
    leases.interrupted = true;
    granter_->TakeBack(now_s, kProgram, PauseTier::kPark);
  }

  uint64_t StepsCommitted() const {
    const auto last = LastCheckpoint(run_.checkpoint_directory);
    return last ? last->generation.step : 0;
  }

  // A step reports before it is counted: a value at step 9 belongs to the tenth
  // step.
  uint64_t StepsDone() const {
    const uint64_t reported =
        tail_.times().empty() ? 0 : tail_.times().back().step + 1;
    return std::max(reported, StepsCommitted());
  }
  double Now_s() const { return clock_.elapsed_s(); }

  const DoctorProgram& program_;
  const DoctorRunOptions& options_;
  const std::string report_path_;
  const std::string account_path_;
  const Stopwatch clock_;
  ReportTail tail_;
  std::unique_ptr<LeaseGranter> granter_;  // null: it runs alone
  DoctorRun run_;
};

}  // namespace

std::optional<double> DoctorRun::StepDuration_s(uint64_t end_step) const {
  std::vector<double> durations_s;
  for (size_t i = 2; i < step_times.size(); ++i) {
    const StepTime& last = step_times[i - 1];
    const StepTime& one = step_times[i];
    if (one.step == last.step + 1 && one.step < end_step) {
      durations_s.push_back(one.at_s - last.at_s);
    }
  }
  if (durations_s.empty()) return std::nullopt;
  const auto middle =
      durations_s.begin() + static_cast<int64_t>(durations_s.size() / 2);
  std::nth_element(durations_s.begin(), middle, durations_s.end());
  if (*middle < kStepMin_s) return std::nullopt;
  return *middle;
}

absl::StatusOr<DoctorRun> RunUnderDoctor(const DoctorProgram& program,
                                         const DoctorRunOptions& options) {
  return Watch(program, options).Run();
}

std::string TailOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const int64_t size = file ? static_cast<int64_t>(file.tellg()) : 0;
  file.seekg(std::max<int64_t>(0, size - kTailBytes));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  const size_t begin =
      lines.size() > kTailLines ? lines.size() - kTailLines : 0;
  std::string tail;
  for (size_t i = begin; i < lines.size(); ++i) {
    StrAppend(&tail, "    | ", lines[i], "\n");
  }
  return tail;
}

}  // namespace gavel
