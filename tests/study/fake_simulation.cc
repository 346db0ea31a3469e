#include "tests/study/fake_simulation.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <utility>
#include <vector>

#include "tests/workload/sample_throughputs.h"

namespace gavel::testing {

using namespace study;
namespace {

class FakeSimulation : public TraceSimulation {
 public:
  FakeSimulation(const FakeSimulationOptions& fake, SimulationOptions options,
                 const Trace& trace)
      : fake_(fake), options_(std::move(options)) {
    Time free_at_s = 0;
    const size_t end = std::min<size_t>(options_.window_end, trace.jobs.size());
    for (size_t i = 0; i < trace.jobs.size(); ++i) {
      SimulatedJob job;
      job.job = i;
      job.type = trace.templates[trace.jobs[i].job_template].type;
      job.arrival_s = trace.jobs[i].arrival_s;
      free_at_s =
          std::max(free_at_s, job.arrival_s) + 3600 / fake_.capacity_per_h;
      job.completion_s = free_at_s;
      job.jct_s = job.completion_s - job.arrival_s;
      all_.push_back(job);
      if (i >= options_.window_begin && i < end) window_.push_back(job);
    }
  }

  bool Run(uint64_t) override {
    now_ += fake_.time_step_s;
    return now_ >= options_.time_limit_s || jobs_ended() == jobs_in_window();
  }
  Time now() const override { return now_; }
  uint64_t jobs_ended() const override {
    return static_cast<uint64_t>(std::ranges::count_if(
        window_, [this](const auto& job) { return Ended(job); }));
  }
  uint64_t jobs_in_window() const override { return window_.size(); }

  absl::StatusOr<std::string> Checkpoint() const override {
    return std::to_string(now_);
  }
  absl::Status Resume(std::string_view checkpoint) override {
    const std::string text(checkpoint);
    char* end = nullptr;
    now_ = std::strtod(text.c_str(), &end);
    return *end == '\0' ? absl::OkStatus() : absl::DataLossError("damaged");
  }

  SimulationResult Result() const override {
    SimulationResult result;
    result.policy = options_.policy;
    result.types = {"v100"};
    double sum_s = 0;
    for (SimulatedJob job : window_) {
      if (!Ended(job)) job.completion_s = kNever;
      sum_s += Ended(job) ? job.jct_s : 0;
      result.jobs.push_back(job);
    }
    const auto ended = static_cast<double>(jobs_ended());
    result.avg_jct_s = ended > 0 ? sum_s / ended : std::nan("");
    result.makespan_s = now_;
    result.complete = jobs_ended() == jobs_in_window();
    if (!result.complete) result.stopped = "the time limit was reached";
    if (options_.record_rounds) AddRecords(&result);
    return result;
  }

 private:
  bool Ended(const SimulatedJob& job) const { return job.completion_s <= now_; }
  void AddRecords(SimulationResult* result) const {
    for (Time time_s = 0; time_s < now_; time_s += 7200) {
      const auto waiting = std::ranges::count_if(all_, [&](const auto& job) {
        return job.arrival_s <= time_s && job.completion_s > time_s;
      });
      result->usage.push_back({time_s, {0.5}, static_cast<double>(waiting)});
    }
    result->leases.push_back({0, 1, 0, 3600});
  }

  const FakeSimulationOptions fake_;
  const SimulationOptions options_;
  std::vector<SimulatedJob> all_;
  std::vector<SimulatedJob> window_;
  Time now_ = 0;
};

}  // namespace

MakeSimulation FakeSimulations(FakeSimulationOptions options) {
  return [fake = std::move(options)](SimulationOptions asked,
                                     const Trace& trace, const ThroughputTable&)
             -> absl::StatusOr<std::unique_ptr<TraceSimulation>> {
    if (!fake.error.empty()) return absl::InvalidArgumentError(fake.error);
    return std::make_unique<FakeSimulation>(fake, std::move(asked), trace);
  };
}

std::string WriteSampleThroughputs(const std::string& folder) {
  const std::string path = folder + "/throughputs.json";
  std::ofstream(path) << SampleThroughputs();
  return path;
}

}  // namespace gavel::testing
