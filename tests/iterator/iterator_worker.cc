// A worker as an agent starts it, for session_process_test.cc: trains as told
// by the environment, and writes its weights to the file it is given.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "gavel/session.h"
#include "tests/iterator/training.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  gavel::SessionOptions options;
  if (!gavel::ReadEnvironment(&options).ok()) return 2;
  gavel::testing::TrainingOptions training;
  // Slow enough that a report (one a second) is sent before the end.
  const char* const step_ms = std::getenv("STEP_MS");
  training.after_step =
      [wait = std::chrono::milliseconds(
           step_ms == nullptr ? 120 : std::atoi(step_ms))](gavel::Session&) {
        std::this_thread::sleep_for(wait);
      };
  // An evaluation that is longer than the test.
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
