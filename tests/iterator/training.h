// A small training with all kinds of state that must survive a pause: dropout
// (the generator's state), Adam (its moments), a shuffled data loader (its
// position), batch norm (buffers). Its result depends on the seed alone, to the
// bit.
#ifndef GAVEL_TESTS_ITERATOR_TRAINING_H_
#define GAVEL_TESTS_ITERATOR_TRAINING_H_

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gavel/session.h"

namespace torch::nn {
class Module;
}

namespace gavel::testing {

// Collects the log of a session.
class Lines {
 public:
  std::function<void(LogLevel, const std::string&)> Sink();
  bool Contain(const std::string& part) const { return Count(part) > 0; }
  int Count(const std::string& part) const;
  std::string Text() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(TemporaryFolder&& other) noexcept {
    *this = std::move(other);
  }
  TemporaryFolder& operator=(TemporaryFolder&& other) noexcept {
    path_.swap(other.path_);
    return *this;
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

struct TrainingOptions {
  int64_t epochs = 4;  // of 6 steps each
  bool track_optimizer = true;
  // Called before the first loop.
  std::function<void(Session&)> before_loop;
  // Called after each step, before the boundary.
  std::function<void(Session&)> after_step;
  // Called between two loops, where a program would evaluate its model.
  std::function<void(Session&, torch::nn::Module& model)> after_epoch;
};

// The result of a run.
struct Outcome {
  std::string weights;  // the bytes of all parameters and buffers
  std::vector<double> losses;
  int64_t steps_done = 0;
  int64_t epoch = 0;
  int exit_code = -1;
  bool finished = false;
  Status status;
  at::Device device{at::kCPU};  // at the last step
};

Outcome Train(SessionOptions options, const TrainingOptions& training = {});

// The outcome of Train without a coordinator and without a pause.
const Outcome& Uninterrupted();

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_ITERATOR_TRAINING_H_
