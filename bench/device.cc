// Measures the cost of sharing a device: the memory that a parked process keeps
// on it, against a process that has only a context there; and the steps/s of
// two jobs at a time against one job alone, without and with NVIDIA's MPS.
//
//   bench_device_gpu [--device DEVICE] [--seconds S] [--out FILE.json]
#include <ATen/ops/zeros.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/leased_job.h"
#include "bench/pause_workload.h"
#include "bench/table.h"
#include "bench/torch_device.h"
#include "tests/support/process.h"

namespace {

namespace fs = std::filesystem;
using gavel::bench::Add;
using gavel::bench::ChosenDevice;
using gavel::bench::Die;
using gavel::bench::Folder;
using gavel::bench::Row;
using gavel::testing::Process;

constexpr char kWorkload[] = "resnet18";
constexpr int kStepsBefore = 10;
constexpr double kStart_s = 120;  // in which a process has to start
constexpr double kMiB = 1 << 20;

struct Options {
  std::string device = "cuda:0";
  std::string out;
  double seconds = 3;
};

// ---- the children: each prints a line when it is ready

void Tell(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

[[noreturn]] void Stay() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

int RunContext(const std::string& device) {
  const at::Tensor tensor = at::zeros({1}, ChosenDevice(device));
  gavel::bench::Wait(tensor.device());
  Tell("ready");
  Stay();
}

int RunParked(const std::string& device, const std::string& directory) {
  gavel::bench::LeasedJob job(kWorkload, directory, ChosenDevice(device),
                              /*threads=*/1);
  int steps = 0;
  std::thread([&] {
    job.WaitForRelease(0);
    Tell("ready");
  }).detach();
  job.Train([&] {
    if (++steps == kStepsBefore) job.Pause();
    return true;
  });
  return 1;
}

// Trains for `seconds` from the moment at which the file `start` exists, and
// prints the number of steps.
int RunTraining(const std::string& device, const std::string& start,
                double seconds) {
  const auto workload =
      gavel::bench::MakeWorkload(kWorkload, ChosenDevice(device));
  for (int i = 0; i < kStepsBefore; ++i) workload->Step();
  Tell("ready");
  while (!fs::exists(start)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  int steps = 0;
  const auto begin = gavel::bench::Clock::now();
  for (; gavel::bench::SecondsSince(begin) < seconds; ++steps) workload->Step();
  Tell(std::to_string(steps));
  return 0;
}

// ---- the parent

std::unique_ptr<Process> Start(const Folder& folder, int number,
                               std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "/proc/self/exe");
  auto process = std::make_unique<Process>(
      arguments, folder.path() + "/out" + std::to_string(number));
  const auto begin = gavel::bench::Clock::now();
  while (process->output().find("ready") == std::string::npos) {
    if (!gavel::testing::IsAlive(process->pid()) ||
        gavel::bench::SecondsSince(begin) > kStart_s) {
      Die("a process did not get ready: " + process->errors());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return process;
}

double UsedMiB(c10::Device device) {
  const gavel::DeviceMemory memory = gavel::ReadDeviceMemory(device);
  return static_cast<double>(memory.total_bytes - memory.free_bytes) / kMiB;
}

double MemoryLeftMiB(c10::Device device, const std::string& role) {
  const Folder folder;
  const double before = UsedMiB(device);
  const auto process =
      Start(folder, 0, {role, device.str(), folder.path(), "0"});
  return UsedMiB(device) - before;
}

// The total steps/s of `jobs` trainings that run at the same time.
double StepsPerSecond(const Options& options, int jobs) {
  const Folder folder;
  const std::string start = folder.path() + "/start";
  std::vector<std::unique_ptr<Process>> processes;
  processes.reserve(static_cast<size_t>(jobs));
  for (int i = 0; i < jobs; ++i) {
    processes.push_back(Start(
        folder, i,
        {"--train", options.device, start, std::to_string(options.seconds)}));
  }
  std::ofstream(start).put('\n');
  double steps = 0;
  for (const auto& process : processes) {
    if (process->Wait(options.seconds + kStart_s) != 0) Die(process->errors());
    const std::string output = process->output();
    steps += std::atof(output.c_str() + output.find('\n'));
  }
  return steps / options.seconds;
}

// Runs NVIDIA's MPS daemon for this user during the lifetime of the object.
class Mps {
 public:
  Mps() {
    setenv("CUDA_MPS_PIPE_DIRECTORY", folder_.path().c_str(), 1);
    setenv("CUDA_MPS_LOG_DIRECTORY", folder_.path().c_str(), 1);
    runs_ = std::system("nvidia-cuda-mps-control -d >/dev/null 2>&1") == 0;
  }
  ~Mps() {
    if (runs_ && std::system("echo quit | nvidia-cuda-mps-control") != 0) {
      std::fprintf(stderr, "nvidia-cuda-mps-control still runs\n");
    }
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    unsetenv("CUDA_MPS_LOG_DIRECTORY");
  }
  bool runs() const { return runs_; }

 private:
  const Folder folder_;
  bool runs_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc == 5 ? argv[1] : "";
  if (role == "--context") return RunContext(argv[2]);
  if (role == "--parked") return RunParked(argv[2], argv[3]);
  if (role == "--train") return RunTraining(argv[2], argv[3], atof(argv[4]));
  Options options;
  gavel::bench::ReadFlags(argc, argv,
                          {{"--device", &options.device},
                           {"--seconds", &options.seconds},
                           {"--out", &options.out}});
  std::vector<Row> rows;
  {
    const c10::Device device = ChosenDevice(options.device);
    const double context = MemoryLeftMiB(device, "--context");
    const double parked = MemoryLeftMiB(device, "--parked");
    Add(&rows, {"memory left by a parked process", parked, "MiB",
                "a process with a context alone", context});
  }
  const double alone = StepsPerSecond(options, 1);
  const double both = StepsPerSecond(options, 2);
  Add(&rows, {"two jobs on the device", both, "steps/s", "one alone", alone});
  if (const Mps mps; mps.runs()) {
    Add(&rows, {"two jobs with MPS", StepsPerSecond(options, 2), "steps/s",
                "two without", both});
  } else {
    std::fprintf(stderr, "without the row of MPS: it does not start\n");
  }
  return gavel::bench::Report(rows, options.out);
}
