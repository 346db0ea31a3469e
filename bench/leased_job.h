// A training loop that is paused and resumed, for benchmarks. Header only.
#ifndef GAVEL_BENCH_LEASED_JOB_H_
#define GAVEL_BENCH_LEASED_JOB_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "bench/pause_workload.h"
#include "bench/program.h"
#include "gavel/iterator.h"
#include "gavel/session.h"
#include "tests/support/coordinator_thread.h"

namespace gavel::bench {

// An endless range of nothing: the batch is the workload's own.
struct Forever {
  struct End {};
  struct Cursor {
    int operator*() const { return 0; }
    Cursor& operator++() { return *this; }
    bool operator!=(End) const { return true; }
  };
  Cursor begin() const { return {}; }
  End end() const { return {}; }
};

// Trains a workload under a coordinator of its own, in this process.
class LeasedJob {
 public:
  LeasedJob(const std::string& name, const std::string& directory,
            c10::Device device, int threads)
      : workload_(MakeWorkload(name, device)) {
    slot_ = testing::TestSlot("bench-slot");
    slot_.device = device.str();
    slot_.threads = threads;
    coordinator_.Grant(slot_);
    SessionOptions options;
    options.coordinator = coordinator_.endpoint();
    options.job = 1;
    options.incarnation = 1;
    options.run_directory = directory + "/run";
    options.checkpoint_directory = directory + "/checkpoints-" + name;
    options.checkpoint_interval_s = 0;
    options.trace_file = directory + "/trace.json";
    options.log = [](LogLevel level, const std::string& line) {
      if (level != LogLevel::kInfo) {
        std::fprintf(stderr, "%s\n", line.c_str());
      }
    };
    session_ = Session::Create(options);
    session_->Track("model", workload_->model);
    session_->Track("optimizer", *workload_->optimizer);
  }

  // Calls after_step after each step until that returns false.
  void Train(const std::function<bool()>& after_step) {
    Forever range;
    for (auto&& none : Iterator(*session_, range)) {
      static_cast<void>(none);
      workload_->Step();
      if (!after_step()) break;
    }
    if (!session_->status().ok()) Die(session_->status().message());
  }

  size_t releases() const { return coordinator_.Heard<LeaseReleased>().size(); }
  // Until the lease is back; `before` releases were heard before.
  void WaitForRelease(size_t before) const {
    if (!coordinator_.Wait([&] { return releases() > before; })) {
      Die("the job does not pause");
    }
  }
  void Pause() { coordinator_.Pause(); }
  void Grant() { coordinator_.Grant(slot_); }
  double StateMegabytes() const {
    return static_cast<double>(workload_->StateBytes()) * 1e-6;
  }

 private:
  AcceleratorInfo slot_;
  testing::CoordinatorThread coordinator_;
  std::unique_ptr<Workload> workload_;
  std::unique_ptr<Session> session_;
};

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_LEASED_JOB_H_
