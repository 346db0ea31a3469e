// A worker without LibTorch, for end-to-end tests of the `gavel` command. It
// holds leases with the real lease machine over the real transport, "trains" by
// sleeping, and keeps its state in small files.
//
//   fake_worker [--steps N] [--step-ms MS] [--checkpoint-every N]
//               [--exit-at STEP CODE] [--hang-at STEP] [--ignore-pauses]
//               [--fail-resume CAUSE] [--log FILE] [--beside-step-ms MS]
//               [--rate R]
//
// Each rank of a gang trains by itself; the state of the first rank is that of
// the job.
//
// A worker that shares its accelerator with another job holds one lock of it,
// and takes --beside-step-ms for a step.
//
// CAUSE is the number of a ReleaseCause: the last rank fails to resume, and so
// gives its lease back with this cause.
//
// If GAVEL_TRACE_FILE is set, it writes its steps to that file, as the runtime
// does.
//
// Its state is the number of steps done and the sum of their numbers: a step
// that is counted twice, or left out, shows in the sum. It exits with 99 when
// it finds another worker on its accelerator.
//
// With --rate its generations are folders with a manifest, as the runtime's,
// which has a "loss" that is the lower the more steps it has done and the
// nearer R is to 0.01.
//
// With --log every incarnation appends its actions to one file, and continues
// only when they are on disk: "NANOSECONDS PID WORD ..."
// (tests/reliability/worker_log.h).
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "core/generation.h"
#include "core/messages.h"
#include "core/text.h"
#include "runtime/generation/manifest.h"
#include "runtime/lease/lease_machine.h"
#include "runtime/transport/dealer_router.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;

constexpr int kExitEvicted = 75;
constexpr int kExitAcceleratorShared = 99;
constexpr double kReportInterval_s = 0.2;
constexpr double kFlush_s = 0.05;  // for the last messages to leave

volatile std::sig_atomic_t terminated = 0;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

uint64_t Number(const std::string& text) {
  return std::strtoull(text.c_str(), nullptr, 10);
}

struct Options {
  uint64_t steps = 100;
  double step_s = 0.01;
  std::optional<double> beside_step_s;
  uint64_t checkpoint_every = 10;
  uint64_t exit_at = 0;  // 0: never
  // From this step on, the first process of the job makes no more steps but
  // still renews its lease and reports. 0: never.
  uint64_t hang_at = 0;
  int exit_code = 0;
  bool ignore_pauses = false;
  std::optional<ReleaseCause> fail_resume;
  std::string log;
  double rate = 0;  // 0: not given
};

Options ParseOptions(int argc, char** argv) {
  Options options;
  if (const std::string steps = Variable("GAVEL_STEPS"); !steps.empty()) {
    options.steps = Number(steps);
  }
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto next = [&] { return Number(i + 1 < argc ? argv[++i] : "0"); };
    if (name == "--steps") options.steps = next();
    if (name == "--step-ms") options.step_s = static_cast<double>(next()) / 1e3;
    if (name == "--beside-step-ms") {
      options.beside_step_s = static_cast<double>(next()) / 1e3;
    }
    if (name == "--checkpoint-every") options.checkpoint_every = next();
    if (name == "--ignore-pauses") options.ignore_pauses = true;
    if (name == "--fail-resume") {
      options.fail_resume = static_cast<ReleaseCause>(next());
    }
    if (name == "--log" && i + 1 < argc) options.log = argv[++i];
    if (name == "--rate" && i + 1 < argc) {
      options.rate = std::strtod(argv[++i], nullptr);
    }
    if (name == "--hang-at") {
      options.hang_at = next();
      continue;
    }
    if (name == "--exit-at") {
      options.exit_at = next();
      options.exit_code = static_cast<int>(next());
    }
  }
  return options;
}

WorkerKey KeyFromEnvironment() {
  return {JobId(Number(Variable("GAVEL_JOB"))),
          static_cast<int>(Number(Variable("GAVEL_RANK"))),
          Number(Variable("GAVEL_INCARNATION"))};
}

struct State {
  uint64_t steps = 0;
  uint64_t sum = 0;  // of the numbers of the steps, from 1
};

// Stores each generation as a file "generation-..." with "STEPS SUM"; with a
// rate, as a folder of that name with the file as its shard.
class Checkpoints {
 public:
  Checkpoints(std::string directory, double rate)
      : directory_(std::move(directory)), rate_(rate) {
    fs::create_directories(directory_);
  }

  State Restore(Generation* latest) const {
    for (const auto& entry : fs::directory_iterator(directory_)) {
      const auto one = ParseGenerationName(entry.path().filename().string());
      if (one && *one > *latest && IsWhole(entry.path())) *latest = *one;
    }
    State state;
    if (*latest == Generation{}) return state;
    std::ifstream(FileOf(*latest)) >> state.steps >> state.sum;
    return state;
  }

  void Save(Generation generation, const State& state) const {
    const fs::path path = FileOf(generation);
    fs::create_directories(path.parent_path());
    const fs::path written = StrCat(path.string(), ".", getpid());
    std::ofstream(written) << state.steps << ' ' << state.sum << '\n';
    fs::rename(written, path);
    if (rate_ > 0) SaveManifest(path.parent_path(), generation, state);
  }

 private:
  fs::path FileOf(Generation generation) const {
    const fs::path path = directory_ / GenerationName(generation);
    return rate_ > 0 ? path / ShardFileName(0) : path;
  }
  bool IsWhole(const fs::path& path) const {
    return rate_ == 0 || fs::exists(path / kManifestFileName);
  }
  void SaveManifest(const fs::path& folder, Generation generation,
                    const State& state) const {
    Manifest manifest;
    manifest.generation = generation;
    manifest.scalars["loss"] = std::abs(std::log10(rate_) + 2) +
                               1 / (1 + static_cast<double>(state.sum));
    std::ofstream(folder / kManifestTemporaryName) << EncodeManifest(manifest);
    fs::rename(folder / kManifestTemporaryName, folder / kManifestFileName);
  }

  fs::path directory_;
  double rate_;
};

class EventLog {
 public:
  explicit EventLog(const std::string& path) {
    if (path.empty()) return;
    file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  }
  template <class... T>
  void Write(const T&... what) const {
    if (file_ < 0) return;
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const std::string line = StrCat(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now).count(), " ",
        getpid(), " ", what..., "\n");
    // A line is one write, so that lines of several processes do not mix.
    if (write(file_, line.data(), line.size()) < 0 || fdatasync(file_) != 0) {
      std::perror("log");
      std::_Exit(1);
    }
  }

 private:
  int file_ = -1;
};

// Collects the steps of a process in the format of GAVEL_TRACE_FILE.
class StepTrace {
 public:
  explicit StepTrace(std::string path) : path_(std::move(path)) {}
  void Begin() { begin_us_ = Now_us(); }
  void End() {
    if (path_.empty()) return;
    const double end_us = Now_us();
    StrAppend(&events_, events_.empty() ? "" : ",",
              "{\"name\":\"step\",\"ph\":\"X\",\"ts\":", Text(begin_us_),
              ",\"dur\":", Text(end_us - begin_us_), "}");
    begin_us_ = end_us;
  }
  void Write() const {
    if (path_.empty()) return;
    std::ofstream(path_) << "{\"traceEvents\":[" << events_
                         << "],\"otherData\":{\"monotonic_origin_us\":0}}";
  }

 private:
  static double Now_us() {
    return std::chrono::duration<double, std::micro>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  static std::string Text(double number) { return std::to_string(number); }

  const std::string path_;
  double begin_us_ = 0;
  std::string events_;
};

class FakeWorker {
 public:
  explicit FakeWorker(const Options& options)
      : options_(options),
        checkpoints_(Variable("GAVEL_CHECKPOINT_DIRECTORY"), options.rate),
        log_(options.log),
        trace_(Variable("GAVEL_TRACE_FILE")),
        machine_(LeaseOptions{KeyFromEnvironment()}) {
    state_ = checkpoints_.Restore(&saved_);
    if (!IsFirstRank()) return;
    log_.Write("start ", saved_.epoch, " ", saved_.step, " ", state_.sum);
  }

  int Run();

 private:
  Time Now() const;
  void Turn();
  void Step(const LeaseEvent& event);
  void Carry(const lease_action::Send& action);
  void Carry(const lease_action::Resume& action);
  void Carry(const lease_action::Extend&) {}
  void Carry(const lease_action::Checkpoint& action);
  void Carry(const lease_action::Pause& action);
  bool IsFirstRank() const { return Variable("GAVEL_RANK") == "0"; }
  bool TakeAccelerator(const std::string& uuid, int slots);
  void ReleaseAccelerator();
  std::string LockNames() const;
  void TrainOneStep();
  void Save();
  void End(int exit_code);
  Progress ProgressNow() const;

  const std::chrono::steady_clock::time_point started_ =
      std::chrono::steady_clock::now();
  const Options options_;
  const Checkpoints checkpoints_;
  const EventLog log_;
  StepTrace trace_;
  LeaseMachine machine_;
  std::unique_ptr<Dealer> dealer_;
  State state_;
  Generation saved_;
  uint64_t epoch_ = 0;
  double step_s_ = 0;
  bool training_ = false;
  bool hung_ = false;
  Time next_step_ = 0;
  Time next_report_ = 0;
  uint64_t pauses_ = 0;
  uint64_t moves_ = 0;
  std::string uuid_;
  std::map<std::string, int> locks_;  // descriptors, by file name
  std::optional<int> exit_code_;
};

Time FakeWorker::Now() const {
  const std::chrono::duration<double> elapsed =
      std::chrono::steady_clock::now() - started_;
  return elapsed.count();
}

Progress FakeWorker::ProgressNow() const {
  Progress progress;
  progress.steps_done = state_.steps;
  progress.last_generation = saved_;
  progress.throughput_steps_per_s = training_ ? 1 / step_s_ : 0;
  progress.window_s = training_ ? kReportInterval_s : 0;
  progress.pauses = pauses_;
  progress.moves = moves_;
  progress.scalars = {{"loss", 1.0 / static_cast<double>(state_.steps + 1)}};
  return progress;
}

int FakeWorker::Run() {
  auto dealer = Dealer::Connect(Variable("GAVEL_WORKER_COORDINATOR"),
                                {CurveClientOfEnvironment().value()});
  if (!dealer.ok()) {
    std::fprintf(stderr, "%s\n", dealer.status().ToString().c_str());
    return 1;
  }
  dealer_ = *std::move(dealer);
  dealer_->WaitUntilConnected(1);
  std::printf("starts at step %llu on %s threads\n",
              static_cast<unsigned long long>(state_.steps),
              Variable("OMP_NUM_THREADS").c_str());
  Step(lease_event::Started{ProgressNow(), getpid()});
  while (!exit_code_) Turn();
  std::printf("ends with %d at step %llu\n", *exit_code_,
              static_cast<unsigned long long>(state_.steps));
  dealer_->Receive(kFlush_s).IgnoreError();
  return *exit_code_;
}

void FakeWorker::Turn() {
  const Time next = training_ ? std::min(next_step_, machine_.NextDeadline())
                              : machine_.NextDeadline();
  const auto message = dealer_->Receive(std::clamp(next - Now(), 0.0, 1.0));
  if (message.ok() && message->has_value()) {
    Step(lease_event::MessageReceived{**message});
  }
  if (Now() >= machine_.NextDeadline()) Step(lease_event::Tick{});
  if (terminated != 0 && !hung_ && !options_.ignore_pauses && !exit_code_) {
    Save();
    return End(kExitEvicted);
  }
  if (training_ && Now() >= next_step_) TrainOneStep();
}

void FakeWorker::TrainOneStep() {
  // The process was started again after its last step.
  if (state_.steps >= options_.steps) return End(0);
  if (state_.steps == options_.hang_at && options_.hang_at > 0 &&
      Variable("GAVEL_INCARNATION") == "1") {
    hung_ = true;
    next_step_ = Now() + kReportInterval_s;
    return Step(lease_event::Progressed{ProgressNow()});
  }
  ++state_.steps;
  state_.sum += state_.steps;
  trace_.End();
  next_step_ = Now() + step_s_;
  if (state_.steps == options_.exit_at) std::_Exit(options_.exit_code);
  if (state_.steps >= options_.steps) {
    Save();
    return End(0);
  }
  if (state_.steps % options_.checkpoint_every == 0) Save();
  if (Now() < next_report_) return;
  next_report_ = Now() + kReportInterval_s;
  Step(lease_event::Progressed{ProgressNow()});
}

void FakeWorker::Save() {
  if (epoch_ == 0 || !IsFirstRank()) return;
  // Never before the one that was restored, which may be another job's.
  saved_ = Generation{std::max(epoch_, saved_.epoch), state_.steps};
  checkpoints_.Save(saved_, state_);
  // This is logged before anybody else hears of the generation.
  log_.Write("commit ", saved_.epoch, " ", saved_.step);
}

void FakeWorker::End(int exit_code) {
  training_ = false;
  exit_code_ = exit_code;
  trace_.Write();
  // The file tells the agent of the end even if the message is lost, as in the
  // runtime.
  if (const std::string end = Variable("GAVEL_END_FILE"); !end.empty()) {
    std::ofstream(end) << exit_code;
  }
  Step(lease_event::Finished{exit_code, "", ProgressNow()});
}

void FakeWorker::Step(const LeaseEvent& event) {
  for (const LeaseAction& action : machine_.Step(Now(), event)) {
    std::visit([this](const auto& a) { Carry(a); }, action);
  }
}

void FakeWorker::Carry(const lease_action::Send& action) {
  dealer_->Send(action.message).IgnoreError();
}

void FakeWorker::Carry(const lease_action::Resume& action) {
  if (options_.fail_resume &&
      Number(Variable("GAVEL_RANK")) + 1 == uint64_t(action.world_size)) {
    return Step(lease_event::ResumeFailed{action.epoch, "as it was told",
                                          *options_.fail_resume});
  }
  if (!TakeAccelerator(action.accelerator.uuid, action.slots)) {
    log_.Write("shared ", action.accelerator.uuid);
    std::printf("accelerator %s is shared\n", action.accelerator.uuid.c_str());
    std::fflush(stdout);
    std::_Exit(kExitAcceleratorShared);
  }
  log_.Write("take", LockNames());
  epoch_ = action.epoch;
  training_ = true;
  trace_.Begin();
  const bool beside = action.slots == 1;
  step_s_ = beside ? options_.beside_step_s.value_or(options_.step_s)
                   : options_.step_s;
  std::printf("runs %s from step %llu\n", beside ? "beside a job" : "alone",
              static_cast<unsigned long long>(state_.steps));
  next_step_ = Now() + step_s_;
  next_report_ = Now();
  // Each rank trains by itself here, but the coordinator waits for the address
  // at which the ranks of a gang would meet.
  if (action.world_size > 1 && IsFirstRank()) {
    Step(lease_event::GangOpened{action.epoch, "127.0.0.1:1"});
  }
  Step(lease_event::Resumed{action.epoch});
}

void FakeWorker::Carry(const lease_action::Pause& action) {
  if (options_.ignore_pauses || hung_) return;
  std::printf("pauses at step %llu: %s\n",
              static_cast<unsigned long long>(state_.steps),
              action.why.c_str());
  std::fflush(stdout);
  const bool held = training_;
  training_ = false;
  if (!locks_.empty()) log_.Write("give ", uuid_);
  ReleaseAccelerator();
  if (!StrongerThan(action.tier, PauseTier::kPark)) {
    ++pauses_;
    if (held) Step(lease_event::Parked{epoch_, ProgressNow()});
    Save();
    trace_.Write();
    return Step(lease_event::Progressed{ProgressNow()});
  }
  if (action.tier == PauseTier::kEvict) Save();
  if (held) Step(lease_event::Parked{epoch_, ProgressNow()});
  End(kExitEvicted);
}

void FakeWorker::Carry(const lease_action::Checkpoint&) {
  Save();
  std::printf("checkpoint at step %llu\n",
              static_cast<unsigned long long>(state_.steps));
  std::fflush(stdout);
  Step(lease_event::Progressed{ProgressNow()});
}

// A worker alone takes both slots; one of a packed pair takes either of them.
bool FakeWorker::TakeAccelerator(const std::string& uuid, int slots) {
  if (!uuid_.empty() && uuid_ != uuid) ++moves_;
  uuid_ = uuid;
  for (int slot = 0; slot < 2 && std::ssize(locks_) < slots; ++slot) {
    const std::string name = StrCat(uuid, ".", slot);
    const std::string path = StrCat(Variable("GAVEL_RUN_DIRECTORY"), "/", name);
    int lock = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    // Root owns the lock files if the agent runs jobs of several users.
    if (lock < 0) lock = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (lock < 0) continue;
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) {
      locks_[name] = lock;
    } else {
      close(lock);
    }
  }
  return std::ssize(locks_) == slots;
}

void FakeWorker::ReleaseAccelerator() {
  for (const auto& [name, lock] : locks_) close(lock);
  locks_.clear();
}

// The names of the locks, each with a blank in front.
std::string FakeWorker::LockNames() const {
  std::string names;
  for (const auto& [name, lock] : locks_) StrAppend(&names, " ", name);
  return names;
}

}  // namespace
}  // namespace gavel

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  struct sigaction action {};
  action.sa_handler = [](int) { gavel::terminated = 1; };
  sigaction(SIGTERM, &action, nullptr);
  return gavel::FakeWorker(gavel::ParseOptions(argc, argv)).Run();
}
