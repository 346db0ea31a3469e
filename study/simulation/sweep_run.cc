#include "study/simulation/sweep_run.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "core/status.h"
#include "core/text.h"

namespace gavel::study {
namespace {

constexpr std::chrono::milliseconds kShowEvery(200);

// What the rest of the sweep needs to know of it.
void DropDetails(StoredRun* run) {
  SimulationResult& result = run->run.result;
  result.jobs = {};
  result.usage = {};
  result.leases = {};
}

}  // namespace

Sweep::Sweep(SweepSpec spec, const SweepOptions& options,
             SimulationStore& store, SimulationInputCache& inputs,
             MakeSimulation make)
    : spec_(std::move(spec)),
      labels_(spec_.runs),
      options_(options),
      store_(store),
      inputs_(inputs),
      make_(std::move(make)) {}

// A search has no rate in its own specs.
std::string Sweep::LabelOf(const SimulationSpec& spec) const {
  const std::string label = labels_.Run(spec);
  return spec_.search ? StrCat(label, ", ", LoadLabel(spec)) : label;
}

bool Sweep::IsSettled(const StoredRun& run) const {
  return !options_.retry || run.run.status == RunStatus::kOk ||
         run.run.status == RunStatus::kCannotDrain;
}

absl::Status Sweep::Prepare() {
  GAVEL_ASSIGN_OR_RETURN(std::vector<StoredRun> runs, store_.Runs());
  const std::lock_guard lock(mutex_);
  for (StoredRun& run : runs) {
    if (IsSettled(run)) known_.emplace(run.key, std::move(run));
  }
  if (spec_.search) {
    tasks_ = spec_.runs;
    const int tries = RateSearch(*spec_.search).tries_max();
    total_ = tasks_.size() * static_cast<size_t>(tries);
    return absl::OkStatus();
  }
  std::set<std::string> keys;
  for (const SimulationSpec& spec : spec_.runs) {
    GAVEL_ASSIGN_OR_RETURN(const std::string key, inputs_.KeyOf(spec));
    if (!keys.insert(key).second) continue;
    if (known_.count(key) > 0) {
      ++skipped_;
    } else {
      tasks_.push_back(spec);
    }
  }
  total_ = tasks_.size();
  return absl::OkStatus();
}

void Sweep::Fail(const absl::Status& status) {
  if (error_.ok()) error_ = status;
  stop_ = true;
}

Watched Sweep::RunWatched(const SimulationSpec& spec, Active* active) {
  absl::StatusOr<SimulationInputs> inputs = inputs_.Load(spec);
  if (!inputs.ok()) {
    Watched failed;
    failed.run.detail = ToStd(inputs.status().message());
    return failed;
  }
  // Whether waiting jobs grow tells a search whether a rate is sustained.
  inputs->options.record_rounds =
      spec_.record != SweepRecord::kNone || spec_.search.has_value();
  RunControl control;
  control.goes_on = [this, active](double fraction, Time) {
    const std::lock_guard lock(mutex_);
    active->fraction = fraction;
    return !stop_;
  };
  control.jct_limit_s = spec_.jct_limit_s;
  control.wall_limit_s = spec_.wall_limit_s;
  return RunSimulation(*inputs, make_, control);
}

std::optional<StoredRun> Sweep::Simulate(const SimulationSpec& spec,
                                         const std::string& key) {
  Active active{LabelOf(spec), 0};
  {
    const std::lock_guard lock(mutex_);
    active_.insert(&active);
  }
  Watched watched = RunWatched(spec, &active);
  const std::lock_guard lock(mutex_);
  active_.erase(&active);
  if (watched.stopped) return std::nullopt;
  StoredRun run{0, key, spec, std::move(watched.run)};
  if (spec_.record != SweepRecord::kRounds) run.run.result.leases = {};
  if (spec_.record == SweepRecord::kNone) run.run.result.usage = {};
  if (const absl::Status status = store_.Append(run); !status.ok()) {
    Fail(status);
    return std::nullopt;
  }
  DropDetails(&run);
  known_.insert_or_assign(key, run);
  ended_.push_back({active.label, run});
  ++done_;
  return run;
}

std::optional<StoredRun> Sweep::Obtain(const SimulationSpec& spec) {
  const absl::StatusOr<std::string> key = inputs_.KeyOf(spec);
  {
    const std::lock_guard lock(mutex_);
    if (!key.ok()) {
      Fail(key.status());
      return std::nullopt;
    }
    if (const auto known = known_.find(*key); known != known_.end()) {
      ++skipped_;
      --total_;
      return known->second;
    }
  }
  return Simulate(spec, *key);
}

void Sweep::Search(SimulationSpec spec) {
  RateSearch search(*spec_.search);
  int tries_left = search.tries_max();
  // The jobs are the same at each rate.
  spec.rate_per_h = spec_.search->rate_min;
  const absl::StatusOr<SimulationInputs> inputs = inputs_.Load(spec);
  const double capacity_per_h = inputs.ok()
                                    ? inputs->capacity_per_h
                                    : std::numeric_limits<double>::infinity();
  while (const std::optional<double> rate = search.Next()) {
    if (*rate > capacity_per_h * kOfferedLoadMax) {
      search.Answer(false);
      continue;
    }
    spec.rate_per_h = *rate;
    const std::optional<StoredRun> run = Obtain(spec);
    if (!run) return;
    --tries_left;
    search.Answer(IsSustainable(run->run, spec_.search->growth_max));
  }
  spec.rate_per_h = 0;
  const std::lock_guard lock(mutex_);
  total_ -= static_cast<size_t>(tries_left);
  answers_.push_back(
      {spec, search.highest(), search.at_upper_end(), capacity_per_h});
}

void Sweep::Work() {
  while (!stop_) {
    const size_t task = next_++;
    if (task >= tasks_.size()) break;
    if (spec_.search) {
      Search(tasks_[task]);
    } else {
      Obtain(tasks_[task]);
    }
  }
  const std::lock_guard lock(mutex_);
  --working_;
  idle_.notify_one();
}

SweepProgress Sweep::Look() {
  const std::lock_guard lock(mutex_);
  SweepProgress progress;
  progress.runs = total_;
  progress.done = done_;
  progress.skipped = skipped_;
  double done = static_cast<double>(done_);
  for (const Active* active : active_) {
    done += active->fraction;
    progress.active.push_back(StrCat(
        active->label, "  ", static_cast<int>(100 * active->fraction), " %"));
  }
  progress.fraction =
      total_ > 0 ? std::min(1.0, done / static_cast<double>(total_)) : 1;
  progress.ended = std::exchange(ended_, {});
  return progress;
}

absl::StatusOr<SweepOutcome> Sweep::Outcome() {
  const std::lock_guard lock(mutex_);
  GAVEL_RETURN_IF_ERROR(error_);
  SweepOutcome outcome;
  outcome.searches = answers_;
  // A Stop() after the last run has stopped nothing.
  const bool all_done =
      spec_.search ? answers_.size() == tasks_.size() : done_ == total_;
  outcome.stopped = stop_ && !all_done;
  if (spec_.search) return outcome;
  std::set<std::string> keys;
  for (const SimulationSpec& spec : spec_.runs) {
    GAVEL_ASSIGN_OR_RETURN(const std::string key, inputs_.KeyOf(spec));
    if (!keys.insert(key).second) continue;
    const auto run = known_.find(key);
    if (run != known_.end()) outcome.runs.push_back(run->second);
  }
  return outcome;
}

absl::StatusOr<SweepOutcome> Sweep::Run(
    const std::function<void(const SweepProgress&)>& show) {
  GAVEL_RETURN_IF_ERROR(Prepare());
  const auto count = std::clamp<size_t>(static_cast<size_t>(options_.threads),
                                        1, std::max<size_t>(1, tasks_.size()));
  {
    const std::lock_guard lock(mutex_);
    working_ = static_cast<int>(count);
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) threads.emplace_back([this] { Work(); });
  bool over = false;
  while (!over) {
    {
      std::unique_lock lock(mutex_);
      over = idle_.wait_for(lock, kShowEvery, [this] { return working_ == 0; });
    }
    show(Look());
  }
  for (std::thread& thread : threads) thread.join();
  return Outcome();
}

}  // namespace gavel::study
