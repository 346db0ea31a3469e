// The trainers of this folder share the flags, the session's start and the loss
// of a step, so that each program is about its model.
#ifndef GAVEL_EXAMPLES_TRAINING_H_
#define GAVEL_EXAMPLES_TRAINING_H_

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <errno.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gavel/data_loader.h"
#include "gavel/session.h"
#include "models/dataset.h"

namespace gavel::examples {

struct TrainingFlags {
  std::string data;  // empty: generated, and labelled synthetic
  bool synthetic = false;
  int64_t epochs = 10;
  int64_t steps = 0;
  int64_t batch_size = 32;
  int64_t global_batch_size = 0;
  double learning_rate = 0.01;
  uint64_t seed = 1;
};

// Adds the flags that every trainer has.
inline void AddTrainingFlags(CLI::App& app, TrainingFlags& flags) {
  app.option_defaults()->always_capture_default();
  app.add_option("--steps", flags.steps, "end after so many; 0: no limit")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--lr", flags.learning_rate, "learning rate")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", flags.seed, "of weights, order and all else random");
}

// Adds the flags of a trainer that reads a dataset. `data` describes the form
// of the data, `samples` names its items; both are for the help text.
inline void AddDataFlags(CLI::App& app, TrainingFlags& flags,
                         const std::string& data, const std::string& samples) {
  app.add_option("--data", flags.data, data);
  app.add_flag("--synthetic", flags.synthetic,
               "use the first batch over and over, as GavelIterator does");
  app.add_option("--epochs", flags.epochs, "times to go through the data")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--batch-size", flags.batch_size,
                 samples + " per step and worker")
      ->check(CLI::PositiveNumber);
}

// Adds the flags of a trainer that runs on any number of workers.
inline void AddGangFlags(CLI::App& app, TrainingFlags& flags) {
  app.add_option("--global-batch-size", flags.global_batch_size,
                 "samples per step of all workers, at most --batch-size at"
                 " once; 0: --batch-size on each")
      ->check(CLI::NonNegativeNumber);
}

// The default data of a trainer may not exist. The trainer then generates data,
// as with --data "".
inline void UseDefaultData(CLI::App& app, TrainingFlags& flags) {
  const bool told = app.get_option("--data")->count() > 0;
  std::error_code error;
  if (!told && !std::filesystem::exists(flags.data, error)) flags.data.clear();
}

// The label in the last line, so that nobody takes a result on generated data
// for a real one.
inline const char* DataLabel(const TrainingFlags& flags) {
  if (flags.data.empty()) return "synthetic";
  return flags.synthetic ? "synthetic (first batch)" : "real";
}

// Prints with one write, since several threads may call it.
inline void PrintWarning(const std::string& message) {
  std::cerr << program_invocation_short_name + (": " + message + "\n");
}

// Ends the program before it has begun to train.
[[noreturn]] inline void Fail(const std::string& message) {
  PrintWarning(message);
  std::exit(1);
}

template <class Value>
Value OrFail(absl::StatusOr<Value> value) {
  if (!value.ok()) Fail(std::string(value.status().message()));
  return *std::move(value);
}

// Seeds LibTorch; call it before the model is made.
inline void Seed(const TrainingFlags& flags) {
  torch::manual_seed(flags.seed);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
}

// A loader over the dataset, or over its first batch.
template <class Dataset>
auto LoaderOf(Dataset dataset, const TrainingFlags& flags,
              DataLoaderOptions options = {}) {
  options.batch_size = flags.batch_size;
  options.global_batch_size = flags.global_batch_size;
  options.seed = flags.seed;
  options.shuffle = options.shuffle && !flags.synthetic;
  const int64_t first =
      std::max(flags.batch_size, flags.global_batch_size) * flags.synthetic;
  return DataLoader(models::FirstBatch(std::move(dataset), first), options);
}

// Session options from the environment. GAVEL_STEPS overrides --steps.
inline SessionOptions SessionOptionsOf(const TrainingFlags& flags) {
  SessionOptions options;
  options.steps_total = flags.steps;
  const Status status = ReadEnvironment(&options);
  if (!status.ok()) Fail(status.message());
  return options;
}

inline std::unique_ptr<Session> OpenSession(const TrainingFlags& flags) {
  return Session::Create(SessionOptionsOf(flags));
}

// Makes the tokens part of the state. If the vocabulary differs from the
// checkpoint's, the weights would mean other words, and the program ends.
inline void TrackVocabulary(Session& session,
                            const std::vector<std::string>& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token + "\n";
  session.Track(
      "vocabulary", [all] { return all; },
      [all](const std::string& saved) {
        if (saved == all) return;
        Fail(
            "the data has another vocabulary than the checkpoint; give the "
            "same data and --vocabulary, or another checkpoint directory");
      });
}

// Reports the mean loss of a step at its end, summed over its micro-batches.
// The average over the ranks of a gang is the same for any number of workers.
class StepLoss {
 public:
  explicit StepLoss(Session& session) : session_(session) {}

  // `loss` is the mean over the current micro-batch.
  void Add(const at::Tensor& loss) {
    const at::Tensor share = loss.detach() * session_.loss_scale();
    sum_ = sum_.defined() ? sum_ + share : share;
    if (!session_.last_micro_batch()) return;
    session_.Report("loss", sum_);
    sum_.reset();
  }

 private:
  Session& session_;
  at::Tensor sum_;
};

}  // namespace gavel::examples

#endif  // GAVEL_EXAMPLES_TRAINING_H_
