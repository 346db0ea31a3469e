// Steps per second of each workload through gavel::Iterator, with its session,
// state tracked and loss reported, against the same loop without any of it, and
// against the same model in Python with the PyTorch whose libraries this links.
// All run on one thread by default, in short turns in the same run. The fastest
// turn of each counts, because other work of the machine only makes turns
// slower. On a busy machine --clock cpu counts processor time, of all threads.
//
//   bench_workloads [--workload NAME] [--turns N] [--threads N]
//                   [--clock wall|cpu] [--device DEVICE] [--out FILE.json]
//
// On a GPU (--device cuda:0) the ratios have to reach 0.98 and 0.95.
#include <ATen/Parallel.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/table.h"
#include "bench/torch_device.h"
#include "bench/workload_steps.h"
#include "gavel/iterator.h"
#include "gavel/session.h"

extern char** environ;

namespace {

using gavel::bench::AtLeast;
using gavel::bench::Die;
using gavel::bench::MakeWorkloadSteps;
using gavel::bench::PrintNow;
using gavel::bench::Row;
using gavel::bench::Wait;
using gavel::bench::WorkloadSteps;
using gavel::models::Example;

constexpr double kTurn_s = 0.3;  // about
constexpr int kStepsWarm = 3;    // of each, first

struct Options {
  std::string workload;  // empty: all
  std::string out;
  int turns = 15;
  int threads = 1;
  std::string device = "cpu";
  bool cpu_time = false;
};

struct Elapsed {
  double wall_s = 0;
  double cpu_s = 0;  // of the process
};

Elapsed Timed(const std::function<void()>& body) {
  const auto start = gavel::bench::Clock::now();
  const double cpu_s = gavel::bench::CpuSeconds();
  body();
  return {gavel::bench::SecondsSince(start),
          gavel::bench::CpuSeconds() - cpu_s};
}

// Gives the same batch for ever.
struct Forever {
  struct End {};
  struct Cursor {
    const Example* batch;
    const Example& operator*() const { return *batch; }
    Cursor& operator++() { return *this; }
    bool operator!=(End) const { return true; }
  };
  Cursor begin() const { return {&batch}; }
  End end() const { return {}; }

  Example batch;
};

// One way to train, which does the given number of steps at a time.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual Elapsed Train(int steps) = 0;
};

class Bare : public Peer {
 public:
  Bare(std::unique_ptr<WorkloadSteps> steps, c10::Device device)
      : steps_(std::move(steps)), device_(device) {}
  Elapsed Train(int steps) override {
    return Timed([&] {
      for (int i = 0; i < steps; ++i) steps_->step(steps_->batch);
      Wait(device_);
    });
  }

 private:
  std::unique_ptr<WorkloadSteps> steps_;
  const c10::Device device_;
};

class Wrapped : public Peer {
 public:
  Wrapped(std::unique_ptr<WorkloadSteps> steps, c10::Device device)
      : steps_(std::move(steps)), device_(device), range_{steps_->batch} {
    gavel::SessionOptions options;
    options.device = device.str();
    options.log = [](gavel::LogLevel, const std::string&) {};
    session_ = gavel::Session::Create(options);
    session_->Track("model", steps_->model);
    int number = 0;
    for (const auto& optimizer : steps_->optimizers) {
      session_->Track("optimizer" + std::to_string(number++), *optimizer);
    }
    iterator_.emplace(*session_, range_);
    cursor_.emplace(iterator_->begin());
    if (!(*cursor_ != iterator_->end())) Die(session_->status().message());
  }
  Elapsed Train(int steps) override {
    return Timed([&] {
      for (int i = 0; i < steps; ++i, ++*cursor_) {
        session_->Report("loss", steps_->step(**cursor_));
      }
      Wait(device_);
    });
  }

 private:
  std::unique_ptr<WorkloadSteps> steps_;
  const c10::Device device_;
  Forever range_;
  std::unique_ptr<gavel::Session> session_;
  std::optional<gavel::Iterator<Forever&>> iterator_;
  std::optional<gavel::Iterator<Forever&>::Cursor> cursor_;
};

// Runs workload_steps.py in a process of its own and sends it commands.
class Python : public Peer {
 public:
  Python(const std::string& name, int threads, std::string device) {
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) Die("no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    for (const int end : {to[0], to[1], from[0], from[1]}) {
      posix_spawn_file_actions_addclose(&actions, end);
    }
    std::string script = GAVEL_WORKLOAD_STEPS;
    std::string python = GAVEL_PYTHON;
    std::string workload = name, count = std::to_string(threads);
    char* argv[] = {python.data(), script.data(), workload.data(),
                    count.data(),  device.data(), nullptr};
    const int error =
        posix_spawn(&pid_, GAVEL_PYTHON, &actions, nullptr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) Die("python: " + std::string(std::strerror(error)));
    close(to[0]);
    close(from[1]);
    to_ = fdopen(to[1], "w");
    from_ = fdopen(from[0], "r");
    parameters_ = static_cast<int64_t>(Answer());
  }
  ~Python() override {
    std::fclose(to_);
    std::fclose(from_);
    waitpid(pid_, nullptr, 0);
  }
  Elapsed Train(int steps) override {
    std::fprintf(to_, "%d\n", steps);
    std::fflush(to_);
    const double wall_s = Answer();
    return {wall_s, Answer()};
  }
  int64_t parameters() const { return parameters_; }

 private:
  double Answer() {
    double number = 0;
    if (std::fscanf(from_, "%lf", &number) != 1) {
      Die(std::string(GAVEL_WORKLOAD_STEPS) + " failed; see above");
    }
    return number;
  }

  pid_t pid_ = 0;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
  int64_t parameters_ = 0;
};

// Steps per second in the fastest turn of each peer, in the order of `peers`.
std::vector<double> StepsPerSecond(
    const std::vector<std::unique_ptr<Peer>>& peers, const Options& options) {
  double step_s = 0;
  for (const auto& peer : peers) {
    peer->Train(kStepsWarm);
    step_s = peer->Train(1).wall_s;
  }
  const int steps = std::clamp(static_cast<int>(kTurn_s / step_s), 1, 1000);
  std::vector<double> fastest(peers.size(), 0);
  for (int turn = 0; turn < options.turns; ++turn) {
    for (size_t place = 0; place < peers.size(); ++place) {
      // The peers take turns at being first, because the first one finds the
      // other's data in the caches.
      const size_t i = (place + static_cast<size_t>(turn)) % peers.size();
      const Elapsed elapsed = peers[i]->Train(steps);
      const double turn_s = options.cpu_time ? elapsed.cpu_s : elapsed.wall_s;
      fastest[i] = std::max(fastest[i], steps / turn_s);
    }
  }
  return fastest;
}

std::vector<Row> Measure(const std::string& name, const Options& options) {
  const c10::Device device = gavel::bench::ChosenDevice(options.device);
  auto steps = MakeWorkloadSteps(name, device);
  if (steps == nullptr) Die("there is no workload " + name);
  const int64_t parameters = steps->ParameterCount();
  std::vector<std::unique_ptr<Peer>> peers;
  peers.push_back(std::make_unique<Wrapped>(std::move(steps), device));
  peers.push_back(
      std::make_unique<Bare>(MakeWorkloadSteps(name, device), device));
  const bool has_python = access(GAVEL_PYTHON, X_OK) == 0 && !device.is_hpu();
  if (has_python) {
    auto python =
        std::make_unique<Python>(name, options.threads, options.device);
    if (python->parameters() != parameters) {
      Die(std::string(GAVEL_WORKLOAD_STEPS) + " has another model " + name);
    }
    peers.push_back(std::move(python));
  }
  const std::vector<double> speed = StepsPerSecond(peers, options);
  std::vector<Row> rows = {{name, speed[0], "1/s", "the same loop without it",
                            speed[1], AtLeast(device.is_cpu() ? 0.95 : 0.98)}};
  if (has_python) {
    rows.push_back({name + " and Python", speed[0], "1/s", "PyTorch in Python",
                    speed[2], AtLeast(device.is_cpu() ? 0.9 : 0.95)});
  }
  for (const Row& row : rows) PrintNow(row);
  return rows;
}

Options Parse(int argc, char** argv) {
  Options options;
  std::string clock = "wall";
  gavel::bench::ReadFlags(argc, argv,
                          {{"--workload", &options.workload},
                           {"--turns", &options.turns},
                           {"--threads", &options.threads},
                           {"--clock", &clock},
                           {"--device", &options.device},
                           {"--out", &options.out}});
  options.cpu_time = clock == "cpu";
  if (options.turns < 1 || options.threads < 1) Die("no turns or no threads");
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  at::set_num_threads(options.threads);
  std::vector<Row> rows;
  for (const std::string& name : gavel::bench::WorkloadNames()) {
    if (!options.workload.empty() && options.workload != name) continue;
    for (Row& row : Measure(name, options)) rows.push_back(std::move(row));
  }
  if (rows.empty()) Die("there is no workload " + options.workload);
  return gavel::bench::Report(rows, options.out);
}
