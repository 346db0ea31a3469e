// Measures the cost of the runtime to a training loop: nanoseconds of
// gavel::Iterator's hook under a lease, with reports and checkpoints armed, of
// Session::Boundary() and of a span, against a read of the steady clock in the
// same run. Also counts the system calls and allocations that the training
// thread makes over a million steps.
//
//   bench_iterator_overhead [--out FILE.json]
//
// System calls are counted with ptrace: the program runs itself again and
// follows the main thread between two signals. Allocations are counted by the
// malloc below, which replaces that of the C library.
#include <ATen/ops/zeros.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/table.h"
#include "gavel/iterator.h"
#include "gavel/profile.h"
#include "gavel/session.h"
#include "tests/support/coordinator_thread.h"

// ---- counted allocations

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* pointer, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

namespace {

using gavel::bench::AtMost;
using gavel::bench::Median;
using gavel::bench::OutFile;
using gavel::bench::Report;
using gavel::bench::Row;
using gavel::bench::ValueAtMost;
thread_local uint64_t allocations = 0;
}  // namespace

extern "C" {
void* malloc(size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* pointer, size_t size) {
  ++allocations;
  return __libc_realloc(pointer, size);
}
void* memalign(size_t alignment, size_t size) {
  ++allocations;
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  return memalign(alignment, size);
}
int posix_memalign(void** pointer, size_t alignment, size_t size) {
  *pointer = memalign(alignment, size);
  return *pointer == nullptr ? ENOMEM : 0;
}
}

namespace {

using gavel::bench::Clock;

constexpr int64_t kSteps = 1'000'000;
constexpr int kRounds = 9;

// ---- a session under a lease, with everything armed

class ArmedSession {
 public:
  explicit ArmedSession(bool with_trace = false) {
    coordinator_.Grant(gavel::testing::TestSlot("bench-slot"));
    gavel::SessionOptions options;
    options.coordinator = coordinator_.endpoint();
    options.job = 1;
    options.incarnation = 1;
    options.run_directory = folder_.path() + "/run";
    options.checkpoint_directory = folder_.path() + "/checkpoints";
    if (with_trace) options.trace_file = folder_.path() + "/trace.json";
    options.log = [](gavel::LogLevel, const std::string&) {};
    session_ = gavel::Session::Create(options);
    session_->Track("tensor", tensor_);
  }
  gavel::Session& session() { return *session_; }

 private:
  const gavel::bench::Folder folder_;
  gavel::testing::CoordinatorThread coordinator_;
  at::Tensor tensor_;
  std::unique_ptr<gavel::Session> session_;
};

// Gives `count` batches that cost nothing themselves.
template <class Batch>
class Repeat {
 public:
  Repeat(Batch& batch, int64_t count) : batch_(batch), count_(count) {}
  struct End {};
  struct Cursor {
    Batch* batch;
    int64_t left;
    Batch& operator*() const { return *batch; }
    Cursor& operator++() { return --left, *this; }
    bool operator!=(End) const { return left != 0; }
  };
  Cursor begin() const { return {&batch_, count_}; }
  End end() const { return {}; }

 private:
  Batch& batch_;
  int64_t count_;
};

void KeepInMind(int64_t value) { asm volatile("" : : "r"(value) : "memory"); }

template <class Batch>
void Loop(gavel::Session& session, Batch batch, int64_t steps, bool report) {
  Repeat<Batch> range(batch, steps);
  double loss = 1;
  for (auto& one : gavel::Iterator(session, range)) {
    KeepInMind(reinterpret_cast<intptr_t>(&one));
    if (report) session.Report("loss", loss += 0.5);
  }
}

// A loop without Iterator, and one that passes boundaries inside a step.
void OwnLoop(gavel::Session& session) {
  for (int64_t i = 0; i < kSteps && session.Boundary(); ++i) session.StepDone();
}
void Evaluate(gavel::Session& session) {
  for (int64_t i = 0; i < kSteps && session.Boundary(); ++i) KeepInMind(i);
}
void Spans(gavel::Session& session) {
  for (int64_t i = 0; i < kSteps; ++i) {
    const gavel::Span span(session, "forward");
    KeepInMind(i);
  }
}

template <class Body>
double NanosecondsPerStep(Body body) {
  const Clock::time_point begin = Clock::now();
  body();
  const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
  return took.count() / static_cast<double>(kSteps);
}

void ReadClock() {
  for (int64_t i = 0; i < kSteps; ++i) {
    KeepInMind(Clock::now().time_since_epoch().count());
  }
}

// ---- counted system calls

constexpr int64_t kControlSteps = 1000;

// Runs in the traced process. Between SIGUSR1 and SIGUSR2 it does no step at
// first, then kSteps steps, then some with a system call in each, as a control.
int RunTraced() {
  ArmedSession armed;
  Loop(armed.session(), 0, 100, true);  // the lease is held, names are known
  ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
  for (const int64_t steps : {int64_t{0}, kSteps, kControlSteps}) {
    Repeat<const int64_t> range(kSteps, steps + 2);
    int64_t step = 0;
    for (auto& one : gavel::Iterator(armed.session(), range)) {
      KeepInMind(one);
      if (step == 0) raise(SIGUSR1);
      if (step == steps) raise(SIGUSR2);
      if (steps == kControlSteps) getppid();
      armed.session().Report("loss", 1.0);
      ++step;
    }
  }
  _exit(0);
}

// Counts the system calls of the kSteps steps; -1 where tracing is not allowed
// or miscounts.
double CountSystemCalls(const char* self) {
  const pid_t child = fork();  // LibTorch has not run anything yet
  if (child == 0) {
    execl("/proc/self/exe", self, "--traced", nullptr);
    _exit(127);
  }
  std::vector<double> counts;
  bool counting = false;
  bool inside = false;
  double calls = 0;
  int status = 0;
  while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    int signal_number = WSTOPSIG(status);
    if (signal_number == (SIGTRAP | 0x80)) {
      inside = !inside;
      calls += inside ? 1 : 0;
      signal_number = 0;
    } else if (signal_number == SIGUSR1) {
      ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD);
      counting = true;
      inside = false;
      calls = 0;
      signal_number = 0;
    } else if (signal_number == SIGUSR2) {
      counts.push_back(calls);
      counting = false;
      signal_number = 0;
    }
    ptrace(counting ? PTRACE_SYSCALL : PTRACE_CONT, child, 0, signal_number);
  }
  const bool sound =
      counts.size() == 3 && counts[2] - counts[0] == kControlSteps;
  return sound ? counts[1] - counts[0] : -1;
}

// ---- results

// The cost of a span beyond its two clock reads, and of a boundary in a traced
// loop.
struct Traced {
  double span_ns = 0;
  double hook_ns = 0;
};
Traced MeasureTraced(bool with_trace) {
  ArmedSession armed(with_trace);
  gavel::Session& session = armed.session();
  Loop(session, 0, kSteps, false);  // warm
  std::vector<double> span;
  std::vector<double> hook;
  for (int i = 0; i < kRounds; ++i) {
    const double clock_ns = NanosecondsPerStep(ReadClock);
    const double span_ns = NanosecondsPerStep([&] { Spans(session); });
    span.push_back(std::max(0.0, span_ns - 2 * clock_ns));
    hook.push_back(
        NanosecondsPerStep([&] { Loop(session, 0, kSteps, false); }));
  }
  session.Finish();
  return {Median(span), Median(hook)};
}

std::vector<Row> Measure(const char* self) {
  const double system_calls = CountSystemCalls(self);
  const Traced untraced = MeasureTraced(false);
  const Traced traced = MeasureTraced(true);
  ArmedSession armed;
  gavel::Session& session = armed.session();
  Loop(session, 0, kSteps, true);  // warm
  const at::Tensor batch = at::zeros({8});
  std::vector<double> clock;
  std::vector<double> hook;
  std::vector<double> hook_and_report;
  std::vector<double> tensor;
  std::vector<double> own;
  std::vector<double> evaluation;
  for (int i = 0; i < kRounds; ++i) {  // interleaved, so that all see the same
    clock.push_back(NanosecondsPerStep(ReadClock));
    hook.push_back(
        NanosecondsPerStep([&] { Loop(session, 0, kSteps, false); }));
    hook_and_report.push_back(
        NanosecondsPerStep([&] { Loop(session, 0, kSteps, true); }));
    tensor.push_back(
        NanosecondsPerStep([&] { Loop(session, batch, kSteps, false); }));
    evaluation.push_back(NanosecondsPerStep([&] { Evaluate(session); }));
    own.push_back(NanosecondsPerStep([&] { OwnLoop(session); }));
  }
  const uint64_t before = allocations;
  Loop(session, 0, 0, true);
  const uint64_t of_a_loop = allocations - before;
  Loop(session, 0, kSteps, true);
  const double allocated =
      static_cast<double>(allocations - before - 2 * of_a_loop);
  // With a lost lease the loops would have ended at once, and very fast.
  gavel::bench::Demand(session.steps_done() == (4 * kRounds + 2) * kSteps,
                       "the session goes on: " + session.status().message());
  session.Finish();

  const std::string peer = "steady_clock read";
  const double clock_ns = Median(clock);
  const double hook_ns = Median(hook);
  return {
      {"boundary hook, reports and checkpoints armed", hook_ns, "ns", peer,
       clock_ns, AtMost(2)},
      {"with the report of a scalar", Median(hook_and_report), "ns", peer,
       clock_ns},
      {"with a tensor as batch, on its device already", Median(tensor), "ns",
       peer, clock_ns},
      {"Boundary() in an evaluation", Median(evaluation), "ns", peer, clock_ns,
       AtMost(2)},
      {"StepDone() and Boundary() of an own loop", Median(own), "ns", peer,
       clock_ns, AtMost(3)},
      {"a span, beyond its two clock reads", untraced.span_ns, "ns", "", 0,
       ValueAtMost(20)},
      {"a traced span, beyond its two clock reads", traced.span_ns, "ns", "", 0,
       ValueAtMost(20)},
      {"traced boundary hook", traced.hook_ns, "ns", peer, clock_ns},
      {"system calls in 1e6 steps", system_calls, "", "", 0, ValueAtMost(0)},
      {"allocations in 1e6 steps", allocated, "", "", 0, ValueAtMost(0)},
  };
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--traced") == 0) return RunTraced();
  const std::string out = OutFile(argc, argv);
  return Report(Measure(argv[0]), out);
}
