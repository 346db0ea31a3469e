// A training program without LibTorch that honours what the runtime does of
// the environment (docs/iterator.md): a step budget, a file of reports,
// checkpoints as folders with a manifest, leases. For tests of `gavel doctor`.
//
//   fake_trainer [MODE]... [--steps N] [--step-ms MS] [--epoch-steps N]
//
// Its model is two numbers, of which "loss" reports one, and a third that has
// no effect. It does eight epochs of five steps, evaluates after each, and
// gives an account of that. Without a mode it resumes exactly. Modes: forgets
// (the second number is not saved), random, timed (reports a time, too),
// silent, stateless (no checkpoints), restarts (from nothing), fails (at the
// end), fails-resumed, late (a checkpoint at its end only), unused (does
// nothing), hangs, loopless (reports, no step counts), asks (for arguments),
// damages (its checkpoints), leaseless (asks for none), deaf (does not give it
// back), hangs-paused (the same, and does not end), loses-paused (the second
// number), constant and diverges (what it reports), forgets-quietly (the third
// number), uncounted (the epoch is not saved), endless (one epoch), breaks
// (leaves epochs so), average and schedule (nobody tracks them, says the
// account), patient (ends after five epochs, three of which brought nothing),
// impatient (the same, and their number is not saved), slows (its rate changes
// after 30 steps of the process, which are not saved), unending (it never comes
// to an end of its own).
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "core/generation.h"
#include "core/text.h"
#include "runtime/generation/manifest.h"
#include "tests/support/fake_lease.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;

const std::string kShard = ShardFileName(0);

struct Options {
  std::set<std::string> modes;
  uint64_t steps = 1000;
  uint64_t epoch_steps = 5;
  int step_ms = 3;
  bool Is(const char* mode) const { return modes.contains(mode); }
};

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

uint64_t Number(const std::string& text) {
  return std::strtoull(text.c_str(), nullptr, 10);
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--steps" && i + 1 < argc) {
      options.steps = Number(argv[++i]);
    } else if (word == "--step-ms" && i + 1 < argc) {
      options.step_ms = static_cast<int>(Number(argv[++i]));
    } else if (word == "--epoch-steps" && i + 1 < argc) {
      options.epoch_steps = Number(argv[++i]);
    } else {
      options.modes.insert(word);
    }
  }
  const uint64_t budget = Number(Variable("GAVEL_STEPS"));
  if (budget > 0) options.steps = std::min(options.steps, budget);
  return options;
}

struct State {
  uint64_t step = 0;
  double weight = 1;
  double momentum = 0;
  double quiet = 0;
  uint64_t epoch = 0;
  uint64_t epoch_steps_done = 0;
  uint64_t epochs_in_vain = 0;
};

class Trainer {
 public:
  explicit Trainer(const Options& options)
      : options_(options),
        directory_(Variable("GAVEL_CHECKPOINT_DIRECTORY")),
        interval_(Number(Variable("GAVEL_CHECKPOINT_INTERVAL_STEPS"))),
        report_(std::fopen(Variable("GAVEL_REPORT_FILE").c_str(), "a")),
        account_(std::fopen(Variable("GAVEL_EXAMINATION_FILE").c_str(), "a")) {}

  int Run() {
    if (!options_.Is("restarts")) Restore();
    TakeLease();
    if (state_.step > 0 && options_.Is("fails-resumed")) {
      std::printf("the checkpoint does not fit\n");
      return 4;
    }
    Account("tracked", "weight floating-point number of 8 bytes");
    if (options_.Is("average")) Account("untracked", "average a tensor of [2]");
    if (options_.Is("schedule")) Account("untracked", "schedule of its rate");
    while (!IsOver() && state_.step < options_.steps) Epoch();
    Save();
    const int code = options_.Is("fails") ? 3 : 0;
    if (code != 0) std::printf("no such data set\n");
    if (lease_) lease_->Finish(code);
    return code;
  }

 private:
  static constexpr uint64_t kEpochs = 8;
  static constexpr uint64_t kEpochsOfUse = 2;
  static constexpr uint64_t kPatience = 3;
  static constexpr uint64_t kSlowAfter = 30;

  bool IsOver() const {
    const bool may_stop = options_.Is("patient") || options_.Is("impatient");
    if (may_stop && state_.epochs_in_vain >= kPatience) return true;
    return state_.epoch >= kEpochs && !options_.Is("unending");
  }

  void Account(const char* word, const char* text) {
    if (account_ == nullptr || options_.Is("loopless")) return;
    std::fprintf(account_, "%s %llu %s\n", word,
                 static_cast<unsigned long long>(state_.step), text);
    std::fflush(account_);
  }

  void Epoch() {
    Account("loop-begin", "-");
    while (options_.Is("endless") ||
           state_.epoch_steps_done < options_.epoch_steps) {
      if (state_.step >= options_.steps) return;
      Step();
    }
    Account(options_.Is("breaks") ? "loop-break" : "loop-end", "-");
    Account("evaluation", "-");
    ++state_.epoch;
    state_.epoch_steps_done = 0;
    if (state_.epoch > kEpochsOfUse) ++state_.epochs_in_vain;
  }

  void TakeLease() {
    const std::string coordinator = Variable("GAVEL_WORKER_COORDINATOR");
    if (coordinator.empty() || options_.Is("leaseless")) return;
    lease_ = std::make_unique<testing::FakeLease>(coordinator, [this] {
      if (options_.Is("loses-paused")) state_.momentum = 0;
    });
    lease_->Boundary(state_.step);
  }

  void Step() {
    const bool hears = !options_.Is("deaf") && !options_.Is("hangs-paused");
    if (lease_ && hears) lease_->Boundary(state_.step);
    while (lease_ && options_.Is("hangs-paused") &&
           state_.step + 5 > options_.steps) {
      sleep(1);
    }
    const double factor = lease_ ? lease_->slow_down_factor() : 1;
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(
        options_.step_ms +
        (factor - 1) * std::max<double>(options_.step_ms, 0.1)));
    const bool slow = options_.Is("slows") && ++process_steps_ > kSlowAfter;
    state_.momentum =
        0.9 * state_.momentum - (slow ? 0.01 : 0.1) * std::sin(state_.weight);
    state_.weight += state_.momentum;
    double loss = state_.weight * state_.weight;
    if (options_.Is("constant")) loss = 1;
    if (options_.Is("diverges") && state_.step >= 4) loss = NAN;
    Report("loss", loss);
    if (options_.Is("random")) Report("noise", random_());
    if (options_.Is("timed")) Report("step time", random_());
    state_.quiet += 1;
    ++state_.epoch_steps_done;
    ++state_.step;
    if (interval_ > 0 && state_.step % interval_ == 0 && !options_.Is("late")) {
      Save();
    }
  }

  void Report(const char* name, double value) {
    if (report_ == nullptr || options_.Is("silent")) return;
    std::fprintf(report_, "%llu %s %a\n",
                 static_cast<unsigned long long>(
                     options_.Is("loopless") ? 0 : state_.step),
                 name, value);
    std::fflush(report_);
  }

  void Restore() {
    Generation latest;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      const auto one = ParseGenerationName(entry.path().filename().string());
      if (one && fs::exists(entry.path() / kManifestFileName)) {
        latest = std::max(latest, *one);
      }
    }
    if (latest == Generation{}) return;
    State read;
    std::ifstream(directory_ / GenerationName(latest) / kShard,
                  std::ios::binary)
        .read(reinterpret_cast<char*>(&read), sizeof read);
    if (options_.Is("forgets")) read.momentum = 0;
    if (options_.Is("forgets-quietly")) read.quiet = 0;
    if (options_.Is("uncounted")) read.epoch = 0;
    if (options_.Is("impatient")) read.epochs_in_vain = 0;
    state_ = read;
  }

  void Save() {
    if (options_.Is("stateless") || options_.Is("loopless")) return;
    const fs::path folder = directory_ / GenerationName({0, state_.step});
    fs::create_directories(folder);
    std::ofstream(folder / kShard, std::ios::binary)
        .write(reinterpret_cast<const char*>(&state_), sizeof state_);
    Manifest manifest;
    manifest.generation = {0, state_.step};
    manifest.shards.resize(1);
    manifest.shards[0].size_bytes =
        sizeof state_ + (options_.Is("damages") ? 1 : 0);
    for (const auto& [name, value] : {std::pair("momentum", state_.momentum),
                                      std::pair("quiet", state_.quiet),
                                      std::pair("weight", state_.weight)}) {
      manifest.shards[0].tensors.push_back(
          {name, std::bit_cast<uint64_t>(value)});
    }
    std::ofstream(folder / kManifestTemporaryName) << EncodeManifest(manifest);
    fs::rename(folder / kManifestTemporaryName, folder / kManifestFileName);
  }

  const Options options_;
  const fs::path directory_;
  const uint64_t interval_;
  std::FILE* const report_;
  std::FILE* const account_;
  State state_;
  uint64_t process_steps_ = 0;
  std::unique_ptr<testing::FakeLease> lease_;
  std::random_device random_;
};

int Main(const Options& options) {
  if (options.Is("unused")) return 0;
  if (options.Is("asks")) {
    std::printf("usage: fake_trainer DATA\n");
    return 2;
  }
  if (options.Is("hangs")) std::this_thread::sleep_for(std::chrono::hours(1));
  return Trainer(options).Run();
}

}  // namespace
}  // namespace gavel

int main(int argc, char** argv) {
  return gavel::Main(gavel::ParseOptions(argc, argv));
}
