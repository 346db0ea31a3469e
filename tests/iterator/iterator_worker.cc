// A worker as an agent starts it, for session_process_test.cc. It trains as the
// environment says, and writes its weights to the given file.
#include <c10/util/Exception.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "gavel/session.h"
#include "tests/iterator/training.h"

namespace {

// The exception that a step throws and nobody catches, as the environment says.
struct Thrown {
  int64_t step = 0;  // 0: none
  void (*what)() = nullptr;
};

Thrown ThrownIn() {
  if (const char* step = std::getenv("OUT_OF_MEMORY_IN")) {
    return {std::atoll(step), [] {
              TORCH_CHECK_WITH(OutOfMemoryError, false,
                               "CUDA out of memory. Tried to allocate 2 GiB");
            }};
  }
  if (const char* step = std::getenv("THROWS_IN")) {
    return {std::atoll(step), [] { TORCH_CHECK(false, "no such operator"); }};
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  gavel::SessionOptions options;
  if (!gavel::ReadEnvironment(&options).ok()) return 2;
  gavel::testing::TrainingOptions training;
  // Steps are so slow that a report (one a second) is sent before the end.
  const char* const step_ms = std::getenv("STEP_MS");
  training.after_step = [wait = std::chrono::milliseconds(
                             step_ms == nullptr ? 120 : std::atoi(step_ms)),
                         thrown_in = ThrownIn()](gavel::Session& session) {
    std::this_thread::sleep_for(wait);
    if (session.steps_done() + 1 == thrown_in.step) thrown_in.what();
  };
  // The evaluation lasts longer than the test.
  if (const char* steps = std::getenv("EVALUATE_AFTER")) {
    training.after_epoch = [steps = std::atoll(steps)](gavel::Session& session,
                                                       torch::nn::Module&) {
      for (int i = 0; session.steps_done() == steps && i < 1000; ++i) {
        if (!session.Boundary()) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    };
  }
  std::atexit([] { std::puts("atexit"); });
  std::printf("a line that is not flushed;");
  const gavel::testing::Outcome outcome =
      gavel::testing::Train(options, training);
  std::printf("after the loop\n");
  std::ofstream(argv[1], std::ios::binary) << outcome.weights;
  return outcome.exit_code;
}
