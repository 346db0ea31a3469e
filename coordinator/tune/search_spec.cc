#include "coordinator/tune/search_spec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <sstream>
#include <utility>

#include "coordinator/workload/job_array.h"
#include "coordinator/workload/job_section.h"
#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/toml_reader.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::tune {

// ---- The keys

namespace {

constexpr double kStepsMax = 1e15;
constexpr size_t kChoicesMax = 1000;
constexpr size_t kTextBytesMax = 256;

// In the order of Method, of Parameter::Kind, and of SearchSpec::maximise.
constexpr std::string_view kMethodNames[] = {
    "random",     "grid",   "successive_halving", "hyperband", "median",
    "population", "program"};
constexpr std::string_view kKindNames[] = {"uniform", "log_uniform", "integer",
                                           "choice"};
constexpr std::string_view kGoalNames[] = {"min", "max"};

void CheckName(TomlReader& reader, std::string_view key,
               const std::string& name) {
  if (name.size() <= 40) return;
  reader.Fail(key,
              "name is longer than 40 characters; write a shorter one, for the "
              "names of jobs begin with it");
}

void CheckMetric(TomlReader& reader, std::string_view key,
                 const std::string& metric) {
  if (!metric.empty() && metric.size() <= 64) return;
  reader.Fail(
      key,
      "metric is empty or longer than 64 bytes; write the name that the "
      "program reports");
}

void CheckSteps(TomlReader& reader, std::string_view key,
                const uint64_t& steps) {
  if (steps > 0 && static_cast<double>(steps) <= kStepsMax) return;
  reader.Fail(key, StrCat(key, " is ", steps, "; write 1 to 1e15"));
}

void CheckParameterName(TomlReader& reader, std::string_view key,
                        const std::string& name) {
  if (IsIdentifier(name) && name != "trial") return;
  reader.Fail(key, StrCat(QuoteToml(name),
                          " can't name a parameter; write letters, digits and "
                          "_, no digit first, at most 64 (and not \"trial\", "
                          "the number of the trial)"));
}

constexpr std::tuple kSearchKeys = {
    Key("name", &SearchSpec::name,
        {.kind = KeyKind::kName,
         .required = true,
         .example = R"("digits")",
         .meaning =
             "Name of the search: of its app, its jobs and its folder. At "
             "most 40 characters."},
        CheckName),
    Key("method", &SearchSpec::method,
        {.choices = kMethodNames,
         .required = true,
         .example = R"("hyperband")",
         .meaning = "How trials are chosen, continued and stopped."}),
    Key("metric", &SearchSpec::metric,
        {.values = "1 to 64 bytes",
         .required = true,
         .example = R"("loss")",
         .meaning = "The name that the program gives `session->Report`."},
        CheckMetric),
    Key("goal", &SearchSpec::maximise,
        {.kind = KeyKind::kChoice,
         .choices = kGoalNames,
         .default_value = R"("min")",
         .example = R"("max")",
         .meaning = "Which values of the metric are better."}),
    Key("trials", &SearchSpec::trials,
        {.range = {.min = 1, .max = kTrialsMax},
         .otherwise =
             "with `grid` and `hyperband`, which have a number of their "
             "own; else required",
         .example = "27",
         .meaning = "Number of trials; the size of a population."}),
    Key("trials_at_once", &SearchSpec::trials_at_once,
        {.range = {.min = 1, .max = 1000},
         .default_value = "8",
         .example = "16",
         .meaning = "Trials that have a job at the same time."}),
    Key("best_weight", &SearchSpec::best_weight,
        {.range = {.min = 1, .max = 1000},
         .default_value = "1",
         .example = "4",
         .meaning = "The job of the trial that is best so far has so many "
                    "times the weight of the others, while it trains."}),
    Key("steps", &SearchSpec::steps,
        {.range = {.min = 1},
         .required = true,
         .example = "8100",
         .meaning = "Most steps of a trial."},
        CheckSteps),
    Key("steps_min", &SearchSpec::steps_min,
        {.range = {.min = 1},
         .otherwise =
             "with `random` and `grid`, which do not decide before the "
             "end, and `program`, for which it is `steps`; else required",
         .example = "100",
         .meaning = "Steps of the first rung of `successive_halving` and "
                    "`hyperband`; steps between decisions of the others."},
        CheckSteps),
    Key("eta", &SearchSpec::eta,
        {.range = {.min = 2, .max = 1000},
         .default_value = "3",
         .example = "4",
         .meaning =
             "One of so many trials goes on from a rung, for so many times "
             "the steps."}),
    Key("seed", &SearchSpec::seed,
        {.range = kNotNegative,
         .default_value = "0",
         .example = "7",
         .meaning = "Of all that is drawn: equal searches have equal trials."}),
    Key("program", &SearchSpec::program,
        {.values = "1 to 1,024 strings, the first not empty",
         .otherwise = "with all methods but `program`",
         .example = R"(["python3", "optimiser.py"])",
         .meaning = "The optimiser and its arguments; never a shell line."}),
    Key("parameter", &SearchSpec::space,
        {.kind = KeyKind::kTables,
         .required = true,
         .example =
             R"([{ name = "lr", kind = "uniform", min = 0.1, max = 1 }])",
         .meaning = "The space, a table for each parameter, at most 64."}),
    Key("job", &SearchSpec::job,
        {.kind = KeyKind::kTable,
         .otherwise = "no further keys",
         .example = R"({ scale_factor = 2 })",
         .meaning =
             "Further keys of the trials' job files. Not `name`, `command`, "
             "`app`, `steps_total`, `checkpoint_directory` and "
             "`working_directory`, which the search sets."}),
};
constexpr auto kSearchRows = RowsOf(kSearchKeys);

constexpr std::tuple kParameterKeys = {
    Key("name", &Parameter::name,
        {.values = "letters, digits and `_`, no digit first, at most 64",
         .required = true,
         .example = R"("lr")",
         .meaning = "Arguments of the program have its value for `{NAME}`."},
        CheckParameterName),
    Key("kind", &Parameter::kind,
        {.choices = kKindNames,
         .required = true,
         .example = R"("log_uniform")",
         .meaning =
             "What is drawn: a number, a number whose logarithm is uniform, "
             "a whole number, or one of `values`."}),
    Key("min", &Parameter::min,
        {.range = {.min = -1e300, .max = 1e300},
         .otherwise = "of a choice; else required",
         .example = "1e-5",
         .meaning = "Least value; above 0 for `log_uniform`."}),
    Key("max", &Parameter::max,
        {.range = {.min = -1e300, .max = 1e300},
         .otherwise = "of a choice; else required",
         .example = "0.1",
         .meaning = "Largest value, above `min`."}),
    Key("values", &Parameter::values,
        {.values = "1 to 1,000 different strings of at most 256 bytes",
         .otherwise = "of a number",
         .example = R"(["16", "32", "64"])",
         .meaning = "Values of a choice."}),
    Key("points", &Parameter::points,
        {.range = {.min = 2, .max = kTrialsMax},
         .otherwise = "all integers; required of other numbers in a `grid`",
         .example = "5",
         .meaning =
             "Values that a grid takes of a number, from `min` to `max`."}),
};
constexpr auto kParameterRows = RowsOf(kParameterKeys);

constexpr FileTable kSearchTables[] = {
    {"", "At the top of the file, before the first table:", kSearchRows},
    {"[[parameter]]", "Once for each parameter.", kParameterRows},
};

bool HasRungs(Method method) {
  return method != Method::kRandom && method != Method::kGrid;
}

bool HasOwnTrials(Method method) {
  return method == Method::kGrid || method == Method::kHyperBand;
}

void CheckNumbers(const Parameter& parameter, bool grid, TomlReader& reader) {
  reader.Require("min", "min = 0.001");
  reader.Require("max", "max = 0.1");
  if (reader.Has("values")) {
    reader.Fail("values",
                "values are of a choice; write kind = \"choice\", "
                "or leave them out");
  }
  if (!(parameter.min < parameter.max)) {
    reader.Fail("max", StrCat("the space of ", parameter.name,
                              " is empty: max is not above min; write a larger "
                              "max"));
  }
  if (parameter.kind == Parameter::Kind::kLogUniform && parameter.min <= 0) {
    reader.Fail("min",
                "min of a log_uniform parameter is not above 0; write a "
                "larger one, or kind = \"uniform\"");
  }
  if (parameter.kind == Parameter::Kind::kInteger &&
      (parameter.min != std::round(parameter.min) ||
       parameter.max != std::round(parameter.max) ||
       std::max(-parameter.min, parameter.max) > kStepsMax)) {
    reader.Fail("min",
                "min and max of an integer are not whole numbers of at "
                "most 1e15; write whole numbers");
  }
  if (grid && parameter.points == 0 &&
      parameter.kind != Parameter::Kind::kInteger) {
    reader.Require("points", "points = 5");
  }
}

void CheckChoice(const Parameter& parameter, TomlReader& reader) {
  reader.Require("values", "values = [\"16\", \"32\"]");
  for (const char* key : {"min", "max", "points"}) {
    if (!reader.Has(key)) continue;
    reader.Fail(key, StrCat(key, " is of a number; a choice has values"));
  }
  if (parameter.values.empty()) {
    reader.Fail("values", StrCat("the space of ", parameter.name,
                                 " is empty; write at least one value"));
  }
  if (parameter.values.size() > kChoicesMax) {
    reader.Fail("values", StrCat("values has ", parameter.values.size(),
                                 " strings; write at most ", kChoicesMax));
  }
  std::vector<std::string> sorted = parameter.values;
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end()) {
    reader.Fail("values", "two values are equal; write each one once");
  }
  if (std::ranges::any_of(sorted, [](const std::string& value) {
        return value.size() > kTextBytesMax;
      })) {
    reader.Fail("values", StrCat("a value is longer than ", kTextBytesMax,
                                 " bytes; write a shorter one"));
  }
}

Parameter ReadParameter(TomlReader reader, bool grid) {
  Parameter parameter;
  ReadMembers(reader, kParameterKeys, parameter);
  if (parameter.kind == Parameter::Kind::kChoice) {
    CheckChoice(parameter, reader);
  } else {
    CheckNumbers(parameter, grid, reader);
  }
  return parameter;
}

// The keys of [job], as text, for the trials' job files.
std::string ReadJob(TomlReader& reader, std::string_view source,
                    absl::Status& status) {
  const toml::table* job = reader.Table("job");
  if (job == nullptr) return "";
  TomlReader job_reader(*job, source, status);
  for (const char* key : {"name", "command", "app", "steps_total",
                          "checkpoint_directory", "working_directory"}) {
    if (!job->contains(key)) continue;
    job_reader.Fail(key, StrCat("[job] has ", key,
                                ", which the search sets; leave it out"));
  }
  std::ostringstream text;
  text << toml::toml_formatter(*job);
  return text.str();
}

// Reads [job] as that of a trial, so that errors name the line in this file.
void CheckJob(std::string_view toml, std::string_view source,
              const SearchSpec& spec, TomlReader& reader,
              absl::Status& status) {
  const toml::table* job = reader.Table("job");
  if (job == nullptr || !status.ok()) return;
  const JobSetting set_by_search[] = {
      {"name", "name", QuoteToml(spec.name)},
      {"app", "app", QuoteToml(spec.name)},
      {"steps", "steps_total", StrCat(spec.steps)},
      ProgramSetting({"./train"}),
  };
  const absl::StatusOr<JobSpec> parsed =
      ParseJobSection(toml, source, "job", set_by_search);
  status.Update(parsed.status());
  if (!parsed.ok() || !parsed->opaque()) return;
  TomlReader(*job, source, status)
      .Fail("class",
            StrCat("a job of class \"",
                   parsed->interactive() ? "interactive" : "opaque",
                   "\" has no checkpoint, and so no metric; leave class out"));
}

void CheckMethod(const SearchSpec& spec, TomlReader& reader) {
  const std::string_view method = NameOf(spec.method);
  const auto refuse = [&](const char* key) {
    if (!reader.Has(key)) return;
    reader.Fail(key, StrCat(key, " has no effect with method = \"", method,
                            "\"; leave it out"));
  };
  if (HasOwnTrials(spec.method)) {
    refuse("trials");
  } else {
    reader.Require("trials", "trials = 27");
  }
  if (!HasRungs(spec.method)) {
    refuse("steps_min");
  } else if (spec.method != Method::kProgram) {
    reader.Require("steps_min", "steps_min = 100");
  }
  if (spec.method != Method::kSuccessiveHalving &&
      spec.method != Method::kHyperBand) {
    refuse("eta");
  }
  if (spec.steps_min > spec.steps) {
    reader.Fail("steps_min", StrCat("steps_min is above steps, ", spec.steps,
                                    "; write a smaller one"));
  }
  if (spec.method != Method::kProgram) {
    refuse("program");
  } else {
    reader.Require("program", "program = [\"python3\", \"optimiser.py\"]");
  }
  if (reader.Has("program") &&
      (spec.program.empty() || spec.program[0].empty() ||
       spec.program.size() > 1024)) {
    reader.Fail("program",
                "program names no program, or has more than 1,024 "
                "strings; write its path or name first");
  }
  if (spec.method == Method::kPopulation && spec.trials == 1) {
    reader.Fail("trials",
                "a population of one trial has nobody to learn from; "
                "write at least 2");
  }
}

// The methods that decide every steps_min steps keep a value of each.
void CheckRungs(const SearchSpec& spec, TomlReader& reader) {
  constexpr uint64_t kRungsMax = 10'000;
  if (spec.steps_min == 0 || spec.steps / spec.steps_min <= kRungsMax) return;
  if (spec.method == Method::kHyperBand ||
      spec.method == Method::kSuccessiveHalving) {
    return;
  }
  reader.Fail("steps_min", StrCat("steps_min makes more than ", kRungsMax,
                                  " decisions about a trial; write a larger "
                                  "one"));
}

}  // namespace

std::span<const FileTable> SearchFileTables() { return kSearchTables; }

std::string_view NameOf(Parameter::Kind kind) {
  return kKindNames[static_cast<size_t>(kind)];
}
std::string_view NameOf(Method method) {
  return kMethodNames[static_cast<size_t>(method)];
}

absl::StatusOr<SearchSpec> ParseSearchSpec(std::string_view toml,
                                           std::string_view source) {
  GAVEL_ASSIGN_OR_RETURN(const toml::table root,
                         ParseToml(toml, source, kSearchBytesMax));
  absl::Status status;
  TomlReader reader(root, source, kSearchTables, "", status);
  SearchSpec spec;
  ReadMembers(reader, kSearchKeys, spec);
  CheckMethod(spec, reader);
  CheckRungs(spec, reader);
  spec.job = ReadJob(reader, source, status);
  for (const toml::table* table : reader.Tables("parameter")) {
    spec.space.push_back(ReadParameter(
        TomlReader(*table, source, kSearchTables, "[[parameter]]", status),
        spec.method == Method::kGrid));
    const std::string& name = spec.space.back().name;
    const auto same = std::ranges::count(spec.space, name, &Parameter::name);
    if (same > 1) {
      reader.Fail("parameter", StrCat("two parameters are named ", name,
                                      "; give each a name of its own"));
    }
  }
  if (spec.space.size() > kParametersMax) {
    reader.Fail("parameter",
                StrCat("there are ", spec.space.size(),
                       " parameters; write at most ", kParametersMax));
  }
  CheckJob(toml, source, spec, reader, status);
  if (!status.ok()) return status;
  if (spec.method == Method::kProgram && spec.steps_min == 0) {
    spec.steps_min = spec.steps;
  }
  if (spec.method == Method::kGrid) {
    const int size = GridSize(spec);
    if (size > kTrialsMax) {
      reader.Fail("parameter", StrCat("the grid has more than ", kTrialsMax,
                                      " points; write fewer points or values"));
    }
    spec.trials = size;
  }
  if (spec.method == Method::kHyperBand) {
    int64_t trials = 0;
    for (const Bracket& bracket : BracketsOf(spec)) trials += bracket.trials;
    if (trials > kTrialsMax) {
      reader.Fail("steps_min",
                  StrCat("steps_min is so small that hyperband has "
                         "more than ",
                         kTrialsMax, " trials; write a larger one"));
    }
    spec.trials = static_cast<int>(std::min<int64_t>(trials, kTrialsMax));
  }
  if (!status.ok()) return status;
  return spec;
}

// ---- Values

namespace {

std::string ShortestDigits(double value) {
  std::array<char, 32> buffer;
  const auto result =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), result.ptr};
}

double NumberOf(std::string_view text) {
  double value = NAN;
  const auto result =
      std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole =
      result.ec == std::errc() && result.ptr == text.data() + text.size();
  return whole ? value : NAN;
}

// The value at `part` in [0, 1] of the parameter's range.
double At(const Parameter& parameter, double part) {
  if (parameter.kind == Parameter::Kind::kLogUniform) {
    const double low = std::log(parameter.min);
    return std::exp(low + part * (std::log(parameter.max) - low));
  }
  return parameter.min * (1 - part) + parameter.max * part;
}

}  // namespace

std::string FormatValue(const Parameter& parameter, double value) {
  value = std::clamp(value, parameter.min, parameter.max);
  if (parameter.kind == Parameter::Kind::kInteger) {
    return StrCat(static_cast<int64_t>(std::llround(value)));
  }
  return ShortestDigits(value);
}

absl::Status CheckValue(const Parameter& parameter, std::string_view text) {
  const auto refuse = [&](std::string_view remedy) {
    return absl::InvalidArgumentError(StrCat(
        QuoteToml(text), " is not a value of ", parameter.name, "; ", remedy));
  };
  if (parameter.kind == Parameter::Kind::kChoice) {
    const auto found = std::ranges::find(parameter.values, text);
    if (found != parameter.values.end()) return absl::OkStatus();
    return refuse("give one of its values");
  }
  const double value = NumberOf(text);
  if (!(value >= parameter.min && value <= parameter.max)) {
    return refuse(
        StrCat("give a number from ", parameter.min, " to ", parameter.max));
  }
  if (parameter.kind == Parameter::Kind::kInteger &&
      value != std::round(value)) {
    return refuse("give a whole number");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FillIn(std::string_view argument,
                                   std::span<const Parameter> space,
                                   std::span<const std::string> values,
                                   int trial) {
  return FillBraces(
      argument, [&](std::string_view name) -> absl::StatusOr<std::string> {
        const auto found = std::ranges::find(space, name, &Parameter::name);
        if (found != space.end()) {
          return values[static_cast<size_t>(found - space.begin())];
        }
        if (name == "trial") return StrCat(trial);
        return absl::InvalidArgumentError(
            StrCat("{", name,
                   "} in the program's arguments is no parameter of "
                   "the search; write a [[parameter]] with that name"));
      });
}

absl::Status CheckArguments(std::span<const std::string> arguments,
                            std::span<const Parameter> space) {
  if (arguments.empty() || arguments[0].empty()) {
    return absl::InvalidArgumentError(
        "there is no program to train; write it behind --, as in gavel tune "
        "search.toml -- ./train {lr}");
  }
  const std::vector<std::string> none(space.size());
  std::set<std::string> used;
  const auto use = [&](std::string_view name) -> absl::StatusOr<std::string> {
    used.emplace(name);
    return "";
  };
  for (const std::string& argument : arguments) {
    GAVEL_RETURN_IF_ERROR(FillIn(argument, space, none, 0).status());
    GAVEL_RETURN_IF_ERROR(FillBraces(argument, use).status());
  }
  for (const Parameter& parameter : space) {
    if (used.contains(parameter.name)) continue;
    return absl::InvalidArgumentError(
        StrCat("no argument of the program has {", parameter.name,
               "}; write it where the program reads that parameter"));
  }
  return absl::OkStatus();
}

// ---- Samplers

double Draw(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
  // SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), once for each number.
  uint64_t state = 0;
  for (const uint64_t part : {seed, a, b, c}) {
    state = (state ^ part) + 0x9e3779b97f4a7c15;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
    state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
    state ^= state >> 31;
  }
  return static_cast<double>(state >> 11) * 0x1p-53;
}

std::vector<std::string> DrawTrial(const SearchSpec& spec, int trial) {
  std::vector<std::string> values;
  for (size_t i = 0; i < spec.space.size(); ++i) {
    const Parameter& parameter = spec.space[i];
    const double part = Draw(spec.seed, static_cast<uint64_t>(trial), i, 0);
    if (parameter.kind == Parameter::Kind::kChoice) {
      const auto size = static_cast<double>(parameter.values.size());
      values.push_back(parameter.values[static_cast<size_t>(part * size)]);
    } else if (parameter.kind == Parameter::Kind::kInteger) {
      const double count = parameter.max - parameter.min + 1;
      values.push_back(
          FormatValue(parameter, parameter.min + std::floor(part * count)));
    } else {
      values.push_back(FormatValue(parameter, At(parameter, part)));
    }
  }
  return values;
}

static int GridPoints(const Parameter& parameter) {
  if (parameter.kind == Parameter::Kind::kChoice) {
    return static_cast<int>(parameter.values.size());
  }
  if (parameter.kind != Parameter::Kind::kInteger) return parameter.points;
  const double count =
      std::min<double>(kTrialsMax + 1, parameter.max - parameter.min + 1);
  const int integers = static_cast<int>(count);
  return parameter.points > 0 ? std::min(parameter.points, integers) : integers;
}

int GridSize(const SearchSpec& spec) {
  int64_t size = 1;
  for (const Parameter& parameter : spec.space) {
    size = std::min<int64_t>(size * GridPoints(parameter), kTrialsMax + 1);
  }
  return static_cast<int>(size);
}

std::vector<std::string> GridTrial(const SearchSpec& spec, int trial) {
  std::vector<std::string> values(spec.space.size());
  for (size_t i = spec.space.size(); i-- > 0;) {
    const Parameter& parameter = spec.space[i];
    const int points = GridPoints(parameter);
    const int at = trial % points;
    trial /= points;
    if (parameter.kind == Parameter::Kind::kChoice) {
      values[i] = parameter.values[static_cast<size_t>(at)];
    } else if (at == points - 1) {
      values[i] = FormatValue(parameter, parameter.max);
    } else {
      values[i] = FormatValue(
          parameter,
          at == 0 ? parameter.min
                  : At(parameter, static_cast<double>(at) / (points - 1)));
    }
  }
  return values;
}

std::vector<std::string> Perturb(const SearchSpec& spec,
                                 std::span<const std::string> values, int trial,
                                 uint64_t steps) {
  std::vector<std::string> perturbed(values.begin(), values.end());
  for (size_t i = 0; i < spec.space.size(); ++i) {
    const Parameter& parameter = spec.space[i];
    const bool up =
        Draw(spec.seed, static_cast<uint64_t>(trial), i, steps) < 0.5;
    if (parameter.kind == Parameter::Kind::kChoice) {
      const auto last = static_cast<int64_t>(parameter.values.size()) - 1;
      const int64_t at = std::ranges::find(parameter.values, values[i]) -
                         parameter.values.begin();
      const int64_t next = std::clamp<int64_t>(at + (up ? 1 : -1), 0, last);
      perturbed[i] = parameter.values[static_cast<size_t>(next)];
      continue;
    }
    const double before = NumberOf(values[i]);
    double after = before * (up ? 1.2 : 0.8);
    if (parameter.kind == Parameter::Kind::kInteger &&
        std::round(after) == before) {
      after = before + (up ? 1 : -1);
    }
    perturbed[i] = FormatValue(parameter, after);
  }
  return perturbed;
}

std::vector<Bracket> BracketsOf(const SearchSpec& spec) {
  const auto eta = static_cast<uint64_t>(spec.eta);
  // s_max = floor(log_eta(R)), where R = steps / steps_min.
  int most = 0;
  for (uint64_t size = spec.steps / spec.steps_min; size >= eta; size /= eta) {
    ++most;
  }
  const auto bracket = [&](int s, int trials) {
    Bracket made{trials, {}};
    uint64_t rung = spec.steps;
    for (int i = 0; i <= s; ++i, rung /= eta) made.rungs.push_back(rung);
    std::ranges::reverse(made.rungs);
    return made;
  };
  if (spec.method == Method::kSuccessiveHalving) {
    int s = 0;
    for (int left = spec.trials; s < most && left >= spec.eta; ++s) {
      left /= spec.eta;
    }
    return {bracket(s, spec.trials)};
  }
  std::vector<Bracket> brackets;
  for (int s = most; s >= 0; --s) {
    // n = ceil(B / R * eta^s / (s + 1)), where B = (s_max + 1) R.
    const auto rungs = static_cast<uint64_t>(s) + 1;
    uint64_t trials = static_cast<uint64_t>(most) + 1;
    for (int i = 0; i < s; ++i) trials *= eta;
    trials = std::min<uint64_t>((trials + rungs - 1) / rungs, kTrialsMax + 1);
    brackets.push_back(bracket(s, static_cast<int>(trials)));
  }
  return brackets;
}

}  // namespace gavel::tune
