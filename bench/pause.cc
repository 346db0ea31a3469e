// Measures the cost of a pause to a job, against the original Gavel's way:
// save, end the process, start another, load. That way is measured with
// torch::save in C++, and in Python, the original's language, with the PyTorch
// whose libraries this links. All times are from the boundary to the end of the
// first step afterwards, without the time in between in which another job has
// the accelerator. They are taken in turns in the same run, with a warm page
// cache. Also measures how long the coordinator's request takes to free the
// accelerator of a job that trains.
//
//   bench_pause [--directory PATH] [--rounds N] [--restarts N] [--pauses N]
//               [--python 0] [--out FILE.json] [--device DEVICE]
//
// --restarts: how often the job is restarted for comparison, by default once
// per pause (a program with CUDA takes seconds to start). --python 0: restarts
// in C++ only.
//
// A CPU slot is paused as a GPU is: the state is copied into host memory and
// back, though the CPU could leave it where it is.
#include <ATen/Parallel.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/leased_job.h"
#include "bench/pause_workload.h"
#include "bench/table.h"
#include "bench/torch_device.h"
#include "runtime/transport/dealer_router.h"
#include "tests/support/process.h"

namespace {

using gavel::bench::Add;
using gavel::bench::AtMost;
using gavel::bench::ChosenDevice;
using gavel::bench::Die;
using gavel::bench::Goal;
using gavel::bench::LeasedJob;
using gavel::bench::Median;
using gavel::bench::Report;
using gavel::bench::Row;

namespace fs = std::filesystem;
using gavel::bench::MakeWorkload;
using gavel::bench::Workload;

// Both sides use all cores of this machine.
const int kThreads =
    std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
constexpr int kStepsBefore = 10;  // a job that is warm
constexpr int kPingsPerPause = 10;
constexpr char kStartedAnew[] = "GAVEL_BENCH_PAUSE_STARTED";

struct Options {
  std::string directory = fs::temp_directory_path().string();
  std::string out;
  std::string device = "cpu";
  int rounds = 7;
  int restarts = -1;  // < 0: as many as rounds
  int pauses = 200;
  int python = 1;
};

// All processes of a machine share this clock.
double Now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Sleep(double ms) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
}

double Quantile(std::vector<double> values, double fraction) {
  if (values.empty()) Die("nothing was measured");
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(std::ceil(fraction * last))];
}

// ---- theirs: two processes

// Trains, saves and ends; or loads, does one step and ends. Prints the time of
// the boundary, or of the end of the step.
int RunChild(const std::string& name, const std::string& file,
             const std::string& device, bool loads) {
  at::set_num_threads(kThreads);
  std::unique_ptr<Workload> workload = MakeWorkload(name, ChosenDevice(device));
  if (loads) workload->Load(file);
  for (int i = 0; i < (loads ? 1 : kStepsBefore); ++i) workload->Step();
  std::printf("%.6f %llu\n", Now_ms(),
              static_cast<unsigned long long>(workload->StateBytes()));
  std::fflush(stdout);
  if (!loads) workload->Save(file);
  return 0;
}

struct Printed {
  double at_ms = 0;
  uint64_t state_bytes = 0;
};

// Runs the program to its end and returns its output.
Printed RunProcess(const std::vector<std::string>& argv) {
  const gavel::bench::Folder folder;
  gavel::testing::Process process(argv, folder.path() + "/out");
  siginfo_t end;
  waitid(P_PID, static_cast<id_t>(process.pid()), &end, WEXITED | WNOWAIT);
  if (process.Wait() != 0) Die(process.errors());
  const std::string text = process.output();
  char* rest = nullptr;
  const double at_ms = std::strtod(text.c_str(), &rest);
  return {at_ms, std::strtoull(rest, nullptr, 10)};
}

struct Restart {
  double cpp_ms = 0;
  double python_ms = 0;
};

// Measures restarts in C++ and Python, or in C++ alone.
Restart MeasureRestart(const std::string& name, const std::string& file,
                       const std::string& device, bool in_python) {
  const auto cpp = [&](const char* role) {
    return RunProcess({"/proc/self/exe", role, name, file, device});
  };
  Restart restart;
  double boundary_ms = cpp("--save").at_ms;
  const Printed cpp_step = cpp("--load");
  restart.cpp_ms = cpp_step.at_ms - boundary_ms;
  if (!in_python) return restart;
  const auto python = [&](const char* role) {
    return RunProcess({GAVEL_PYTHON, GAVEL_PAUSE_RESTART, role, name, file,
                       std::to_string(kThreads), device});
  };
  boundary_ms = python("save").at_ms;
  const Printed python_step = python("load");
  restart.python_ms = python_step.at_ms - boundary_ms;
  if (python_step.state_bytes != cpp_step.state_bytes) {
    Die(std::string(GAVEL_PAUSE_RESTART) + " has another model " + name);
  }
  return restart;
}

// ---- ours: a session under a coordinator

bool HasPython() {
  const bool there = access(GAVEL_PYTHON, X_OK) == 0;
  if (!there) {
    std::fprintf(stderr, "bench_pause: without the rows of Python: no %s\n",
                 GAVEL_PYTHON);
  }
  return there;
}

struct PauseTimes {
  std::vector<double> leave_ms, resume_ms, sum_ms, step_ms;
};

// Pauses the job at boundaries after the request has arrived. `between` is
// called while another job has the accelerator.
PauseTimes MeasurePauses(LeasedJob& job, const std::function<void()>& between,
                         int rounds) {
  PauseTimes times;
  double boundary = 0, left = 0, word = 0, begin = Now_ms();
  int steps = 0;
  std::thread other;
  job.Train([&] {
    const double now = Now_ms();
    if (other.joinable()) {  // the first step after a pause
      other.join();
      times.leave_ms.push_back(left - boundary);
      times.resume_ms.push_back(now - word);
      times.sum_ms.push_back(left - boundary + now - word);
      if (static_cast<int>(times.sum_ms.size()) == rounds) return false;
    } else if (steps > 1) {
      times.step_ms.push_back(now - begin);
    }
    if (++steps % (kStepsBefore + 1) == 0) {
      const size_t before = job.releases();
      job.Pause();
      Sleep(100);  // until the flag is set
      other = std::thread([&, before] {
        job.WaitForRelease(before);
        left = Now_ms();
        // The write to disk also falls into the other job's time.
        between();
        word = Now_ms();
        job.Grant();
      });
      boundary = Now_ms();
    }
    begin = Now_ms();
    return true;
  });
  return times;
}

// ---- results

void AddModel(const Options& options, const std::string& name,
              double times_faster, std::vector<Row>* rows) {
  const std::string file = options.directory + "/theirs";
  LeasedJob job(name, options.directory, ChosenDevice(options.device),
                kThreads);
  const bool in_python = options.python != 0 && HasPython();
  if (options.restarts != 1) {  // warms the page cache
    MeasureRestart(name, file, options.device, in_python);
  }
  std::vector<double> cpp, python;
  const auto restart = [&] {
    if (options.restarts >= 0 &&
        static_cast<int>(cpp.size()) >= options.restarts) {
      return;
    }
    const Restart one = MeasureRestart(name, file, options.device, in_python);
    cpp.push_back(one.cpp_ms);
    if (in_python) python.push_back(one.python_ms);
  };
  const PauseTimes ours = MeasurePauses(job, restart, options.rounds);
  char label[64];
  std::snprintf(label, sizeof(label), "%s, %.0f MB", name.c_str(),
                job.StateMegabytes());
  const std::string peer = "save, exec, load, step";
  const double restart_ms = Median(cpp);
  const auto add = [&](const std::string& what, double value, Goal goal = {}) {
    Add(rows, {label + (": " + what), value, "ms", peer, restart_ms, goal});
  };
  const double sum_ms = Median(ours.sum_ms);
  add("pause, resume, step", sum_ms, AtMost(1 / times_faster));
  if (!python.empty()) {
    Add(rows, {std::string(label) + ": the same", sum_ms, "ms",
               peer + " in Python", Median(python), AtMost(1 / times_faster)});
  }
  add("  to the lock released", Median(ours.leave_ms));
  add("  resume and first step", Median(ours.resume_ms));
  const double step_ms = Median(ours.step_ms);
  add("  a step alone", step_ms);
  Add(rows, {std::string(label) + ": all but that step", sum_ms - step_ms, "ms",
             "all but a step", restart_ms - step_ms});
}

// ---- the latency of the coordinator's request

// Round trips of one message during the training, through sockets of their own.
class Echo {
 public:
  Echo() {
    auto router = gavel::Router::Bind("tcp://127.0.0.1:0");
    if (!router.ok()) Die(std::string(router.status().message()));
    router_ = *std::move(router);
    auto dealer = gavel::Dealer::Connect(router_->endpoint());
    if (!dealer.ok()) Die(std::string(dealer.status().message()));
    dealer_ = *std::move(dealer);
    thread_ = std::thread([this] {
      while (!stopping_) {
        if (auto incoming = router_->Receive(1)) {
          router_->Send(incoming->peer, incoming->message).IgnoreError();
        }
      }
    });
    if (!dealer_->WaitUntilConnected(10)) Die("no connection to itself");
  }
  ~Echo() {
    stopping_ = true;
    router_->waker().Wake();
    thread_.join();
  }
  double RoundTripMs() {
    const double begin = Now_ms();
    const bool sent = dealer_->Send(gavel::LeaseNotice{}).ok();
    const auto answer = dealer_->Receive(10);
    if (!sent || !answer.ok() || !answer->has_value()) Die("a ping was lost");
    return Now_ms() - begin;
  }

 private:
  std::unique_ptr<gavel::Router> router_;
  std::unique_ptr<gavel::Dealer> dealer_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// Milliseconds of each copy that a pause made, from the session's own trace.
std::vector<double> CopyTimes(const std::string& trace_file) {
  std::ifstream file(trace_file);
  const nlohmann::json trace = nlohmann::json::parse(file, nullptr, false);
  if (trace.is_discarded()) Die(trace_file + " is no trace");
  std::vector<double> copies;
  for (const auto& event : trace["traceEvents"]) {
    if (event.value("name", "") == "checkpoint copy") {
      copies.push_back(event.value("dur", 0.0) * 1e-3);
    }
  }
  return copies;
}

void AddLatency(const Options& options, std::vector<Row>* rows) {
  const std::string folder = options.directory + "/latency";
  fs::create_directory(folder);
  LeasedJob job("lstm", folder, ChosenDevice(options.device), kThreads);
  Echo echo;
  std::vector<double> latency, steps, pings;
  std::atomic<bool> done{false}, running{false};
  std::thread coordinator([&] {
    std::mt19937 random(1);
    while (!running) Sleep(1);
    for (int i = 0; i < options.pauses; ++i) {
      // The request comes at any moment of a step, when the last save is on
      // disk.
      Sleep(100 + static_cast<double>(random() % 100'000) * 1e-3);
      for (int ping = 0; ping < kPingsPerPause; ++ping) {
        pings.push_back(echo.RoundTripMs());
      }
      const size_t before = job.releases();
      const double word = Now_ms();
      job.Pause();
      job.WaitForRelease(before);
      latency.push_back(Now_ms() - word);
      running = false;
      job.Grant();
      while (!running) Sleep(1);
    }
    done = true;
  });
  double begin = 0;
  job.Train([&] {
    const double now = Now_ms();
    // A step that contains a pause is not counted.
    if (running.exchange(true)) steps.push_back(now - begin);
    begin = Now_ms();
    return !done;
  });
  coordinator.join();
  const auto p99 = [](const std::vector<double>& v) {
    return Quantile(v, 0.99);
  };
  const double step = p99(steps), copy = p99(CopyTimes(folder + "/trace.json")),
               ping = p99(pings), value = p99(latency);
  char text[96];
  std::snprintf(text, sizeof(text), "p99 step %.1f + copy %.1f + 2 x %.2f",
                step, copy, ping);
  const double bound = step + copy + 2 * ping;
  Add(rows, {"lstm: p99 of word to lock released", value, "ms", text, bound,
             AtMost(1)});
  Add(rows, {"lstm: median of the same", Median(latency), "ms", "step",
             Median(steps)});
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  gavel::bench::ReadFlags(argc, argv,
                          {{"--directory", &options.directory},
                           {"--out", &options.out},
                           {"--device", &options.device},
                           {"--rounds", &options.rounds},
                           {"--restarts", &options.restarts},
                           {"--python", &options.python},
                           {"--pauses", &options.pauses}});
  options.rounds = std::max(1, options.rounds);
  if (options.restarts == 0) options.restarts = 1;
  options.pauses = std::max(1, options.pauses);
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc == 5 ? argv[1] : "";
  if (role == "--save" || role == "--load") {
    return RunChild(argv[2], argv[3], argv[4], role == "--load");
  }
  Options options = ParseOptions(argc, argv);
  // As agents do for jobs: OpenMP threads that spin would take the cores from
  // the other processes here. OpenMP reads the variable when a program is
  // loaded.
  if (setenv("OMP_WAIT_POLICY", "PASSIVE", /*overwrite=*/0) == 0 &&
      getenv(kStartedAnew) == nullptr && setenv(kStartedAnew, "1", 1) == 0) {
    execv("/proc/self/exe", argv);
    Die("the program can't run itself again");
  }
  const gavel::bench::Folder folder(options.directory);
  options.directory = folder.path();
  std::vector<Row> rows;
  AddModel(options, "resnet18", 20, &rows);
  AddModel(options, "lstm", 20, &rows);
  AddModel(options, "embedding", 5, &rows);
  AddLatency(options, &rows);
  return Report(rows, options.out);
}
