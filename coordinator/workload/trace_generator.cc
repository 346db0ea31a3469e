#include "coordinator/workload/trace_generator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/workload/toml_reader.h"
#include "core/ids.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {

// ---- Steps and durations

namespace {

// steps/s alone on the reference type; 0: it cannot run there, or the table
// does not tell.
double ReferenceStepsPerSecond(const ThroughputTable& throughputs,
                               ThroughputTable::Row row) {
  const std::optional<size_t> type = throughputs.FindType(kReferenceType);
  if (!type.has_value()) return 0;
  return throughputs.Alone(row, *type).value_or(0);
}

absl::Status FillSteps(double steps_per_s, TraceJob& job) {
  if (steps_per_s <= 0) {
    return absl::InvalidArgumentError(
        StrCat("only its duration is known, and the throughputs have none of "
               "it on the ",
               kReferenceType, "; add it, or write steps_total"));
  }
  job.steps_total = job.duration_s * steps_per_s;
  if (IsWithin(job.steps_total, kTraceSteps)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("its duration of ", job.duration_s, " s makes ", job.steps_total,
             " steps; write a duration that makes ", Describe(kTraceSteps)));
}

absl::Status Complete(const ThroughputTable& throughputs,
                      std::string_view job_type, TraceJob& job) {
  const std::optional<ThroughputTable::Row> row =
      throughputs.FindRow(job_type, job.scale_factor);
  const double steps_per_s =
      row.has_value() ? ReferenceStepsPerSecond(throughputs, *row) : 1;
  if (job.steps_total == 0) return FillSteps(steps_per_s, job);
  if (row.has_value() && steps_per_s > 0) {
    job.duration_s = job.steps_total / steps_per_s;
  }
  return absl::OkStatus();
}

// "did you mean "A3C"?", or the scale factors of a type that is there.
std::string ClosestRow(const ThroughputTable& throughputs,
                       std::string_view job_type) {
  std::vector<std::string_view> types;
  std::string scale_factors;
  for (ThroughputTable::Row row = 0; row < throughputs.rows(); ++row) {
    const auto& [type, scale_factor] = throughputs.NameOf(row);
    types.push_back(type);
    if (type != job_type) continue;
    StrAppend(&scale_factors, scale_factors.empty() ? "" : ", ", scale_factor);
  }
  if (!scale_factors.empty()) {
    return StrCat("it has the type at scale factors ", scale_factors);
  }
  const std::string_view closest = ClosestWord(job_type, types);
  if (!closest.empty()) return StrCat("did you mean \"", closest, "\"?");
  return types.empty() ? std::string("it has no rows")
                       : StrCat("its types are such as \"", types[0], "\"");
}

}  // namespace

absl::Status RequireKnownTypes(const ThroughputTable& throughputs,
                               const Trace& trace) {
  for (size_t number = 0; number < trace.jobs.size(); ++number) {
    const TraceJob& job = trace.jobs[number];
    const std::string& type = trace.templates[job.job_template].type;
    if (type == kNoJobType || job.interactive) continue;
    if (throughputs.FindRow(type, job.scale_factor).has_value()) continue;
    return absl::InvalidArgumentError(
        StrCat("job ", number, ": the throughput file has no row of type \"",
               type, "\" at scale factor ", job.scale_factor, " (",
               ClosestRow(throughputs, type),
               "); correct the type, add the row, or let jobs without one be "
               "equally fast on all accelerators: --unknown-types equal, or "
               "unknown_types = \"equal\" in a sweep"));
  }
  return absl::OkStatus();
}

std::optional<ThroughputTable> ScaleRows(const ThroughputTable& throughputs,
                                         Trace& trace) {
  std::map<std::string_view, std::map<int, ThroughputTable::Row>> rows_of;
  for (ThroughputTable::Row row = 0; row < throughputs.rows(); ++row) {
    const auto& [type, scale_factor] = throughputs.NameOf(row);
    rows_of[type][scale_factor] = row;
  }
  struct Scaled {
    ThroughputTable::Row from;
    double times;
  };
  std::map<std::pair<std::string_view, int>, Scaled> scaled;
  size_t jobs = 0;
  size_t first = 0;
  for (size_t number = 0; number < trace.jobs.size(); ++number) {
    const TraceJob& job = trace.jobs[number];
    const std::string& type = trace.templates[job.job_template].type;
    const auto known = rows_of.find(type);
    if (job.interactive || known == rows_of.end() ||
        known->second.contains(job.scale_factor)) {
      continue;
    }
    if (jobs++ == 0) first = number;
    // The next smaller scale factor, or the smallest.
    auto nearest = known->second.lower_bound(job.scale_factor);
    if (nearest != known->second.begin()) --nearest;
    scaled.try_emplace(
        std::pair(known->first, job.scale_factor),
        Scaled{nearest->second,
               static_cast<double>(job.scale_factor) / nearest->first});
  }
  if (jobs == 0) return std::nullopt;
  ThroughputTable::Figures figures = throughputs.ToFigures();
  const size_t tables = figures.types.size() * 2;
  // Adds the new rows to each of the tables.
  const auto extended = [&](const std::vector<double>& known) {
    std::vector<double> all;
    for (size_t begin = 0; begin < known.size(); begin += throughputs.rows()) {
      const std::span rows(known.data() + begin, throughputs.rows());
      all.insert(all.end(), rows.begin(), rows.end());
      for (const auto& [name, one] : scaled) {
        const double steps_per_s = rows[one.from];
        all.push_back(steps_per_s > 0 ? steps_per_s * one.times : steps_per_s);
      }
    }
    return all;
  };
  std::vector<std::vector<std::pair<uint64_t, std::pair<double, double>>>>
      partners;
  for (size_t table = 0; table < tables; ++table) {
    const size_t begin = table * throughputs.rows();
    for (size_t row = 0; row < throughputs.rows(); ++row) {
      partners.push_back(std::move(figures.partners[begin + row]));
    }
    partners.resize(partners.size() + scaled.size());
  }
  for (const auto& [name, one] : scaled) figures.names.emplace_back(name);
  figures.alone = extended(figures.alone);
  figures.alone_at = extended(figures.alone_at);
  figures.partners = std::move(partners);
  const TraceJob& job = trace.jobs[first];
  trace.notices.push_back(StrCat(
      jobs, jobs == 1 ? " job has a scale factor" : " jobs have scale factors",
      " that the throughput file has no row for (job ", first, ": \"",
      trace.templates[job.job_template].type, "\" at ", job.scale_factor,
      "); their speeds are those of the next smaller one, in proportion"));
  return ThroughputTable::FromFigures(std::move(figures)).value();
}

void EqualizeUnknownTypes(const ThroughputTable& throughputs, Trace& trace) {
  size_t jobs = 0;
  std::string example;
  for (TraceJob& job : trace.jobs) {
    const std::string& type = trace.templates[job.job_template].type;
    if (job.duration_s > 0 ||
        throughputs.FindRow(type, job.scale_factor).has_value()) {
      continue;
    }
    if (jobs++ == 0) example = type;
    job.duration_s = job.steps_total;
  }
  if (jobs == 0) return;
  trace.notices.push_back(
      StrCat(jobs, jobs == 1 ? " job has a type" : " jobs have types",
             " without a row in the throughput file, and no duration (such as "
             "\"",
             example, "\"); 1 step/s is assumed on every accelerator type"));
}

absl::Status CompleteTrace(const ThroughputTable& throughputs, Trace& trace) {
  for (size_t number = 0; number < trace.jobs.size(); ++number) {
    TraceJob& job = trace.jobs[number];
    if (job.steps_total > 0 && job.duration_s > 0) continue;
    const std::string& type = trace.templates[job.job_template].type;
    GAVEL_RETURN_IF_ERROR(
        Annotate(Complete(throughputs, type, job),
                 StrCat("job ", number, " (", type, ", scale factor ",
                        job.scale_factor, ")")));
  }
  return absl::OkStatus();
}

// ---- Drawing jobs

// ---- Python's generator ----

namespace {

constexpr size_t kStateWords = std::mt19937::state_size;
constexpr size_t kWordBits = 32;

// The first state of the generator as init_genrand() and init_by_array() of its
// authors make it (Matsumoto and Nishimura 2002), which is how CPython seeds:
// std::mt19937 takes the words of generate() as its state.
class InitByArray {
 public:
  using result_type = uint32_t;

  explicit InitByArray(uint64_t seed)
      : key_{static_cast<uint32_t>(seed),
             static_cast<uint32_t>(seed >> kWordBits)},
        key_size_(key_[1] == 0 ? 1 : 2) {}

  template <class Iterator>
  void generate(Iterator begin, [[maybe_unused]] Iterator end) const {
    assert(std::distance(begin, end) == kStateWords);
    const std::array<uint32_t, kStateWords> state = State();
    std::copy(state.begin(), state.end(), begin);
  }

 private:
  // One step of the recurrences: word `i` mixed with the one before it.
  static uint32_t Mixed(const std::array<uint32_t, kStateWords>& state,
                        size_t i, uint32_t factor) {
    const uint32_t before = state[i - 1];
    return state[i] ^ ((before ^ (before >> 30)) * factor);
  }

  // Word 0 is the last one's copy when the walk comes round.
  static void Advance(std::array<uint32_t, kStateWords>& state, size_t& i) {
    if (++i < kStateWords) return;
    state[0] = state[kStateWords - 1];
    i = 1;
  }

  std::array<uint32_t, kStateWords> State() const {
    std::array<uint32_t, kStateWords> state{19650218};
    for (uint32_t i = 1; i < kStateWords; ++i) {
      state[i] = (state[i - 1] ^ (state[i - 1] >> 30)) * 1812433253 + i;
    }
    size_t i = 1;
    uint32_t j = 0;
    for (size_t k = 0; k < kStateWords; ++k) {
      state[i] = Mixed(state, i, 1664525) + key_[j] + j;
      j = (j + 1) % key_size_;
      Advance(state, i);
    }
    for (size_t k = 1; k < kStateWords; ++k) {
      state[i] = Mixed(state, i, 1566083941) - static_cast<uint32_t>(i);
      Advance(state, i);
    }
    state[0] = 0x80000000;
    return state;
  }

  std::array<uint32_t, 2> key_;
  uint32_t key_size_;
};

std::mt19937 SeededEngine(uint64_t seed) {
  InitByArray words(seed);
  return std::mt19937(words);
}

// getrandbits(): whole words from the lowest on, then the high bits of one.
uint64_t RandomBits(std::mt19937& engine, size_t count) {
  uint64_t bits = 0;
  for (size_t done = 0; done < count; done += kWordBits) {
    const size_t wanted = std::min(count - done, kWordBits);
    const uint64_t word = engine() >> (kWordBits - wanted);
    bits |= word << done;
  }
  return bits;
}

}  // namespace

PythonRandom::PythonRandom(uint64_t seed) : engine_(SeededEngine(seed)) {}

double PythonRandom::Random() {
  const auto high = static_cast<double>(engine_() >> 5);  // 27 bits
  const auto low = static_cast<double>(engine_() >> 6);   // 26 bits
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

double PythonRandom::Uniform(double a, double b) {
  return a + (b - a) * Random();
}

size_t PythonRandom::Below(size_t size) {
  assert(size > 0);
  const auto bits = static_cast<size_t>(std::bit_width(size));
  uint64_t drawn = RandomBits(engine_, bits);
  while (drawn >= size) drawn = RandomBits(engine_, bits);
  return drawn;
}

// ---- The job types ----

namespace {

// Job types that differ in their batch size only.
struct Family {
  std::string_view model;
  std::string_view command;  // before the batch size
  std::string_view command_end;
  std::string_view working_directory;
  std::string_view steps_flag;
  bool distributed;
  std::vector<int> batch_sizes;
};

std::vector<Family> Families() {
  return {
      {.model = "ResNet-18",
       .command = "python3 main.py --data_dir=%s/cifar10 --batch_size ",
       .command_end = "",
       .working_directory = "image_classification/cifar10",
       .steps_flag = "--num_steps",
       .distributed = true,
       .batch_sizes = {16, 32, 64, 128, 256}},
      {.model = "ResNet-50",
       .command = "python3 main.py -j 8 -a resnet50 -b ",
       .command_end = " %s/imagenet/",
       .working_directory = "image_classification/imagenet",
       .steps_flag = "--num_minibatches",
       .distributed = true,
       .batch_sizes = {16, 32, 64, 128}},
      {.model = "Transformer",
       .command = "python3 train.py -data "
                  "%s/translation/multi30k.atok.low.pt -batch_size ",
       .command_end = " -proj_share_weight",
       .working_directory = "translation",
       .steps_flag = "-step",
       .distributed = true,
       .batch_sizes = {16, 32, 64, 128, 256}},
      {.model = "LM",
       .command = "python main.py --cuda --data %s/wikitext2 --batch_size ",
       .command_end = "",
       .working_directory = "language_modeling",
       .steps_flag = "--steps",
       .distributed = true,
       .batch_sizes = {5, 10, 20, 40, 80}},
      {.model = "Recommendation",
       .command = "python3 train.py --data_dir %s/ml-20m/pro_sg/ --batch_size ",
       .command_end = "",
       .working_directory = "recommendation",
       .steps_flag = "-n",
       .distributed = false,
       .batch_sizes = {512, 1024, 2048, 4096, 8192}},
  };
}

JobTemplate TemplateOf(const Family& family, int batch_size) {
  return {.type = StrCat(family.model, " (batch size ", batch_size, ")"),
          .command = StrCat(family.command, batch_size, family.command_end),
          .working_directory = std::string(family.working_directory),
          .steps_flag = std::string(family.steps_flag),
          .needs_data_directory = true,
          .distributed = family.distributed};
}

std::vector<JobTemplate> MakeJobTable() {
  std::vector<JobTemplate> table;
  for (const Family& family : Families()) {
    for (const int batch_size : family.batch_sizes) {
      table.push_back(TemplateOf(family, batch_size));
    }
  }
  table.push_back({.type = "A3C",
                   .command = "python3 main.py --env PongDeterministic-v4 "
                              "--workers 4 --amsgrad True",
                   .working_directory = "rl",
                   .steps_flag = "--max-steps",
                   .needs_data_directory = false,
                   .distributed = false});
  table.push_back({.type = "CycleGAN",
                   .command = "python3 cyclegan.py --dataset_path "
                              "%s/monet2photo --decay_epoch 0",
                   .working_directory = "cyclegan",
                   .steps_flag = "--n_steps",
                   .needs_data_directory = true,
                   .distributed = false});
  return table;
}

}  // namespace

std::span<const JobTemplate> GavelJobTable() {
  static const std::vector<JobTemplate> table = MakeJobTable();
  return table;
}

// ---- The generator ----

namespace {

constexpr int kAppJobsMax = 10'000;
constexpr std::array<int, 4> kScaleFactors = {1, 2, 4, 8};

absl::Status CheckOptions(const GeneratorOptions& options) {
  constexpr double kDurationMax_s = 1e9;  // so that steps can be counted
  const auto is_duration = [](double value) {
    return value >= 0 && value <= kDurationMax_s;
  };
  if (!is_duration(options.interarrival_s)) {
    return absl::InvalidArgumentError(
        StrCat("the mean time between arrivals is ", options.interarrival_s,
               " s; give a number from 0 to ", kDurationMax_s));
  }
  if (!is_duration(options.fixed_duration_s)) {
    return absl::InvalidArgumentError(
        StrCat("the fixed duration is ", options.fixed_duration_s,
               " s; give a number above 0 to ", kDurationMax_s,
               ", or 0 for drawn durations"));
  }
  if (options.app_jobs_max < 0 || options.app_jobs_max > kAppJobsMax) {
    return absl::InvalidArgumentError(
        StrCat("the most jobs of an app are ", options.app_jobs_max,
               "; give 1 to ", kAppJobsMax, ", or 0 for jobs without apps"));
  }
  if (!(options.interactive >= 0 && options.interactive <= 1)) {
    return absl::InvalidArgumentError(
        StrCat("the share of interactive jobs is ", options.interactive,
               "; give a number from 0 to 1"));
  }
  if (!(options.interactive_shortest_s >= 1 &&
        options.interactive_shortest_s <= options.interactive_longest_s &&
        is_duration(options.interactive_longest_s))) {
    return absl::InvalidArgumentError(
        StrCat("interactive jobs take from ", options.interactive_shortest_s,
               " to ", options.interactive_longest_s,
               " s; give a shortest duration of 1 or more and a longest one "
               "from there to ",
               kDurationMax_s));
  }
  if (options.scale_factor_max < 1) {
    return absl::InvalidArgumentError(StrCat("the largest scale factor is ",
                                             options.scale_factor_max,
                                             "; give 1 or more"));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> StepsPerSecondOf(const JobTemplate& job_template,
                                        int scale_factor, size_t type,
                                        const ThroughputTable& throughputs) {
  const std::optional<ThroughputTable::Row> row =
      throughputs.FindRow(job_template.type, scale_factor);
  const double steps_per_s =
      row.has_value() ? throughputs.Alone(*row, type).value_or(0) : 0;
  if (steps_per_s > 0) return steps_per_s;
  return absl::InvalidArgumentError(
      StrCat("the throughputs have none of \"", job_template.type,
             "\" at scale factor ", scale_factor, " on the ", kReferenceType,
             ", which jobs are drawn by; add it"));
}

}  // namespace

absl::StatusOr<TraceGenerator> TraceGenerator::Create(
    const GeneratorOptions& options, const ThroughputTable& throughputs) {
  GAVEL_RETURN_IF_ERROR(CheckOptions(options));
  const std::optional<size_t> type = throughputs.FindType(kReferenceType);
  if (!type.has_value()) {
    return absl::InvalidArgumentError(
        StrCat("the throughputs have no accelerator type ", kReferenceType,
               ", which jobs are drawn by; add it"));
  }
  std::vector<StepsPerSecond> steps_per_s;
  for (const JobTemplate& job_template : GavelJobTable()) {
    steps_per_s.emplace_back();
    for (const int scale_factor : kScaleFactors) {
      if (scale_factor > 1 && !(options.multi_gpu && job_template.distributed &&
                                scale_factor <= options.scale_factor_max)) {
        continue;
      }
      GAVEL_ASSIGN_OR_RETURN(
          steps_per_s.back()[scale_factor],
          StepsPerSecondOf(job_template, scale_factor, *type, throughputs));
    }
  }
  return TraceGenerator(options, std::move(steps_per_s));
}

TraceGenerator::TraceGenerator(const GeneratorOptions& options,
                               std::vector<StepsPerSecond> steps_per_s)
    : options_(options),
      steps_per_s_(std::move(steps_per_s)),
      jobs_(options.seed + 2),
      arrivals_(options.seed + 3),
      slos_(options.seed + 6),
      apps_(options.seed + 9),
      interactive_(options.seed + 10) {}

int TraceGenerator::DrawScaleFactor() {
  // Drawn even when it is not used, so that durations are the same either way.
  const double drawn = jobs_.Uniform(0, 1);
  if (!options_.multi_gpu || drawn < 0.7) return 1;
  if (drawn < 0.8) return 2;
  return drawn < 0.95 ? 4 : 8;
}

double TraceGenerator::DrawDuration() {
  if (options_.fixed_duration_s > 0) return options_.fixed_duration_s;
  const bool is_long = jobs_.Random() >= 0.8;
  const double exponent = is_long ? jobs_.Uniform(3, 4) : jobs_.Uniform(1.5, 3);
  return 60 * std::pow(10.0, exponent);
}

size_t TraceGenerator::DrawTemplate(int scale_factor) {
  const std::span<const JobTemplate> table = GavelJobTable();
  size_t drawn = jobs_.Below(table.size());
  while (scale_factor > 1 && !table[drawn].distributed) {
    drawn = jobs_.Below(table.size());
  }
  return drawn;
}

double TraceGenerator::DrawSlo() {
  const double drawn = slos_.Uniform(0, 1);
  if (drawn < 0.33) return 1.2;
  return drawn < 0.67 ? 2.0 : 10.0;
}

double TraceGenerator::DrawArrival() {
  if (!std::exchange(first_, false)) arrival_s_ += DrawInterarrival();
  return arrival_s_;
}

double TraceGenerator::DrawInterarrival() {
  if (options_.interarrival_s == 0) return 0;
  // Poisson arrivals: the times between are exponential. Divided by the rate,
  // not multiplied by the mean, which rounds differently.
  const double rate = 1 / options_.interarrival_s;
  return -std::log(1 - arrivals_.Random()) / rate;
}

TraceJob TraceGenerator::Draw() {
  TraceJob job;
  job.scale_factor = DrawScaleFactor();
  job.duration_s = DrawDuration();
  job.job_template = DrawTemplate(job.scale_factor);
  if (options_.multi_priority) {
    job.weight = jobs_.Uniform(0, 1) <= 0.2 ? 5 : 1;
  }
  if (options_.slos) job.slo = DrawSlo();
  job.arrival_s = DrawArrival();
  return job;
}

TraceJob TraceGenerator::DrawInteractive() {
  TraceJob job;
  job.interactive = true;
  job.job_template = GavelJobTable().size();
  job.duration_s =
      options_.interactive_shortest_s *
      std::pow(options_.interactive_longest_s / options_.interactive_shortest_s,
               interactive_.Random());
  job.steps_total = job.duration_s;
  job.arrival_s = DrawArrival();
  return job;
}

TraceJob TraceGenerator::DrawOfApp() {
  if (app_jobs_left_ == 0) {
    app_job_ = Draw();
    if (app_job_.scale_factor > options_.scale_factor_max) return app_job_;
    app_job_.app = app_++;
    const double most = options_.app_jobs_max;
    app_jobs_left_ = static_cast<int>(std::pow(most, apps_.Random()) + 0.5);
  } else {
    app_job_.duration_s = DrawDuration();
  }
  --app_jobs_left_;
  return app_job_;
}

TraceJob TraceGenerator::Next() {
  // Jobs of one app arrive together.
  if (options_.interactive > 0 && app_jobs_left_ == 0 &&
      interactive_.Random() < options_.interactive) {
    return DrawInteractive();
  }
  const auto draw = [this] {
    return options_.app_jobs_max > 0 ? DrawOfApp() : Draw();
  };
  TraceJob job = draw();
  while (job.scale_factor > options_.scale_factor_max) job = draw();
  job.steps_total =
      job.duration_s * steps_per_s_[job.job_template].at(job.scale_factor);
  return job;
}

Trace TraceGenerator::Take(size_t count) {
  Trace trace;
  const std::span<const JobTemplate> table = GavelJobTable();
  trace.templates.assign(table.begin(), table.end());
  trace.templates.emplace_back().type = kInteractiveJobType;
  trace.jobs.reserve(count);
  for (size_t i = 0; i < count; ++i) trace.jobs.push_back(Next());
  for (size_t i = 0; i < app_; ++i) trace.apps.push_back(StrCat("app-", i));
  return trace;
}

}  // namespace gavel
