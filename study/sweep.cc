#include "study/sweep.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <concepts>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "coordinator/workload/toml_reader.h"
#include "coordinator/workload/trace.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"
#include "study/simulation_spec.h"

namespace gavel::study {
namespace {

namespace fs = std::filesystem;

// One value of a field.
using Setting = std::function<void(SimulationSpec&)>;
using Settings = std::vector<Setting>;

constexpr int kSweepPointsMax = 10'000;
constexpr NumberRange kRangeEnd = {.max = 1e9};

struct OtherName {
  std::string_view key;
  std::string_view field;
};
constexpr std::array<OtherName, 9> kOtherNames = {
    {{"policies", "policy"},
     {"seeds", "seed"},
     {"clusters", "cluster"},
     {"mechanisms", "mechanism"},
     {"queues", "queue"},
     {"traces", "trace"},
     {"rates", "rate_per_h"},
     {"round_durations", "round_duration_s"},
     {"round_duration", "round_duration_s"}}};
constexpr std::array<std::string_view, 6> kOwnKeys = {
    "window", "record", "limits", "search", "unknown_types", "ignore_columns"};
// A range of these fields leaves out 0, which stands for all jobs at once, or
// for as many as the window needs. The original's scripts leave it out, too.
constexpr std::array<std::string_view, 2> kNotFromZero = {"rate_per_h", "jobs"};

std::string_view FieldOf(std::string_view key) {
  for (const OtherName& other : kOtherNames) {
    if (other.key == key) return other.field;
  }
  return key;
}

std::vector<std::string_view> KnownKeys() {
  std::vector<std::string_view> keys(kOwnKeys.begin(), kOwnKeys.end());
  const SimulationSpec any;
  VisitFields(any,
              [&](const char* name, const auto&) { keys.emplace_back(name); });
  for (const OtherName& other : kOtherNames) keys.push_back(other.key);
  return keys;
}

template <class T>
std::string_view TypeWord() {
  if constexpr (std::same_as<T, std::string>) return "a string";
  if constexpr (std::same_as<T, bool>) return "true or false";
  if constexpr (std::same_as<T, double>) return "a number from 0 on";
  return "a whole number from 0 on";
}

template <class T>
std::optional<T> ValueOf(const toml::node& node) {
  if constexpr (std::same_as<T, std::string> || std::same_as<T, bool>) {
    return node.value_exact<T>();
  } else if constexpr (std::same_as<T, double>) {
    const std::optional<double> value = node.value<double>();
    if (!value || !IsWithin(*value, kNotNegative)) return std::nullopt;
    return value;
  } else {
    const std::optional<int64_t> value = node.value_exact<int64_t>();
    if (!value || *value < 0 || !std::in_range<T>(*value)) return std::nullopt;
    return static_cast<T>(*value);
  }
}

// Reads the fields of a sweep that are fields of its runs.
class RunFieldReader {
 public:
  RunFieldReader(const toml::table& table, std::string_view source,
                 const std::string& directory, absl::Status& status)
      : table_(table),
        source_(source),
        directory_(directory),
        status_(status),
        reader_(table, source, status) {}

  // One list for each field that is given, in the order of fields.
  std::vector<Settings> Read() {
    std::map<std::string, std::string, std::less<>> key_of;
    for (const std::string& key : reader_.Keys()) {
      const auto [other, is_new] =
          key_of.emplace(std::string(FieldOf(key)), key);
      if (!is_new) {
        reader_.Fail(key, StrCat("means the same as ", other->second,
                                 "; keep one of them"));
      }
    }
    std::vector<Settings> fields;
    const SimulationSpec any;
    VisitFields(any, [&](const char* name, const auto& field) {
      const auto it = key_of.find(name);
      if (it == key_of.end()) return;
      fields.push_back(ReadField(it->second, name, field));
    });
    return fields;
  }

 private:
  template <class T>
  Settings ReadField(const std::string& key, const char* name, const T&) {
    const toml::node* node = table_.get(key);
    if constexpr (std::is_arithmetic_v<T> && !std::same_as<T, bool>) {
      if (node->is_table()) {
        return ReadRange<T>(key, name, *node->as_table());
      }
    }
    Settings settings;
    if (const toml::array* list = node->as_array(); list != nullptr) {
      for (const toml::node& element : *list) {
        AddValue(key, name, ValueOf<T>(element), &settings);
      }
      if (list->empty()) reader_.Fail(key, "an empty list; give a value");
    } else {
      AddValue(key, name, ValueOf<T>(*node), &settings);
    }
    return settings;
  }

  template <class T>
  void AddValue(const std::string& key, std::string_view name,
                std::optional<T> value, Settings* settings) {
    if (!value) {
      reader_.Fail(
          key, StrCat(key, " takes ", TypeWord<T>(), ", or a list of such"));
      return;
    }
    if constexpr (std::same_as<T, std::string>) Resolve(name, &*value);
    settings->push_back(
        [name, value = *std::move(value)](SimulationSpec& spec) {
          VisitFields(spec, [&](const char* other, auto& field) {
            using Field = std::remove_cvref_t<decltype(field)>;
            if constexpr (std::same_as<Field, T>) {
              if (name == other) field = value;
            }
          });
        });
  }

  // {from, to, count}: evenly spread; whole numbers are rounded.
  template <class T>
  Settings ReadRange(const std::string& key, std::string_view name,
                     const toml::table& range) {
    TomlReader reader(range, source_, {"from", "to", "count"}, status_);
    double from = 0;
    double to = 0;
    int count = 2;
    reader.Require("to", "to = 6.0");
    reader.Read("from", from, kNotNegative);
    reader.Read("to", to, kRangeEnd);
    reader.Read("count", count, 2, kSweepPointsMax);
    if (to <= from) reader_.Fail(key, "\"to\" must be above \"from\"");
    const bool whole = !std::same_as<T, double>;
    if (whole && to - from < count - 1) {
      reader_.Fail(
          key, StrCat(key, " has ", count, " whole numbers from ",
                      FieldText(from), " to ", FieldText(to), "; lower count"));
    }
    const bool no_zero =
        std::ranges::find(kNotFromZero, name) != kNotFromZero.end();
    Settings settings;
    for (int i = 0; i < count && status_.ok(); ++i) {
      double value = RoundDecimal(from + (to - from) * i / (count - 1));
      if (whole) value = std::round(value);
      if (no_zero && value == 0) continue;
      AddValue(key, name, std::optional<T>(static_cast<T>(value)), &settings);
    }
    return settings;
  }

  // Paths are relative to the file of the sweep.
  void Resolve(std::string_view name, std::string* value) const {
    if (NamesFile(name, *value) && fs::path(*value).is_relative()) {
      *value = (fs::path(directory_) / *value).lexically_normal().string();
    }
  }

  const toml::table& table_;
  std::string_view source_;
  const std::string& directory_;
  absl::Status& status_;
  TomlReader reader_;
};

void RefuseUnknownKeys(TomlReader& reader) {
  const std::vector<std::string_view> known = KnownKeys();
  for (const std::string& key : reader.Keys()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const std::string_view closest = ClosestWord(key, known);
    reader.Fail(key, StrCat("unknown key \"", key, "\"; ",
                            closest.empty()
                                ? "docs/simulator.md lists the keys"
                                : StrCat("did you mean \"", closest, "\"?")));
  }
}

void ReadWindow(TomlReader& reader, SimulationSpec* spec) {
  std::string window;
  if (!reader.Read("window", window)) return;
  const absl::Status status = ParseWindow(window, spec);
  if (!status.ok()) reader.Fail("window", ToStd(status.message()));
}

// The value is true for all unknown columns, or a list of names.
void ReadIgnoredColumns(const toml::table& table, TomlReader& reader,
                        std::string* columns) {
  const toml::node* const node = table.get("ignore_columns");
  if (node == nullptr) return;
  if (const auto all = node->value_exact<bool>()) {
    if (*all) *columns = kAllOtherColumns;
    return;
  }
  std::vector<std::string> names;
  if (reader.Read("ignore_columns", names)) {
    *columns = absl::StrJoin(names, ",");
  }
}

void ReadRecord(TomlReader& reader, SweepRecord* record) {
  std::string word;
  if (!reader.Read("record", word)) return;
  if (word == "none") {
    *record = SweepRecord::kNone;
  } else if (word == "rounds") {
    *record = SweepRecord::kRounds;
  } else if (word != "usage") {
    reader.Fail("record", "record takes \"none\", \"usage\" or \"rounds\"");
  }
}

void ReadLimits(TomlReader& reader, std::string_view source,
                absl::Status& status, SweepSpec* sweep) {
  const toml::table* table = reader.Table("limits");
  if (table == nullptr) return;
  TomlReader limits(*table, source, {"jct_h", "wall_s"}, status);
  double jct_h = sweep->jct_limit_s / 3600;
  limits.Read("jct_h", jct_h, kNotNegative);
  limits.Read("wall_s", sweep->wall_limit_s, kNotNegative);
  sweep->jct_limit_s = jct_h * 3600;
}

void ReadSearch(TomlReader& reader, std::string_view source,
                absl::Status& status, SweepSpec* sweep) {
  const toml::table* table = reader.Table("search");
  if (table == nullptr) return;
  TomlReader search(*table, source,
                    {"rate_min", "rate_max", "precision", "growth_max"},
                    status);
  SweepSearch& read = sweep->search.emplace();
  search.Read("rate_min", read.rate_min, kPositive);
  search.Read("rate_max", read.rate_max, kPositive);
  search.Read("precision", read.precision, kPositive);
  search.Read("growth_max", read.growth_max, {.min = 1});
  if (read.rate_max <= read.rate_min) {
    search.Fail("rate_max", "rate_max must be above rate_min");
  }
  for (const char* key : {"rates", "rate_per_h"}) {
    if (reader.Has(key)) {
      reader.Fail(key, "a [search] chooses the rates; leave one of them out");
    }
  }
}

absl::StatusOr<std::vector<SimulationSpec>> Combine(
    const SimulationSpec& base, const std::vector<Settings>& fields,
    std::string_view source) {
  std::vector<SimulationSpec> runs = {base};
  for (const Settings& settings : fields) {
    if (settings.size() * runs.size() > kSweepRunsMax) {
      return absl::InvalidArgumentError(
          StrCat(source, ": more than ", kSweepRunsMax,
                 " runs; split the sweep or shorten its lists"));
    }
    std::vector<SimulationSpec> product;
    for (const SimulationSpec& run : runs) {
      for (const Setting& set : settings) {
        product.push_back(run);
        set(product.back());
      }
    }
    runs = std::move(product);
  }
  return runs;
}

}  // namespace

absl::StatusOr<SweepSpec> ParseSweep(std::string_view toml,
                                     std::string_view source,
                                     const std::string& directory) {
  GAVEL_ASSIGN_OR_RETURN(const toml::table table,
                         ParseToml(toml, source, kSweepBytesMax));
  absl::Status status;
  TomlReader reader(table, source, status);
  RefuseUnknownKeys(reader);
  SweepSpec sweep;
  SimulationSpec base;
  reader.Require("throughputs", "throughputs = \"FILE.json\"");
  ReadWindow(reader, &base);
  reader.Read("unknown_types", base.unknown_types);
  ReadIgnoredColumns(table, reader, &base.ignore_columns);
  ReadRecord(reader, &sweep.record);
  ReadLimits(reader, source, status, &sweep);
  ReadSearch(reader, source, status, &sweep);
  const std::vector<Settings> fields =
      RunFieldReader(table, source, directory, status).Read();
  GAVEL_RETURN_IF_ERROR(status);
  GAVEL_ASSIGN_OR_RETURN(sweep.runs, Combine(base, fields, source));
  for (SimulationSpec run : sweep.runs) {
    if (sweep.search) run.rate_per_h = sweep.search->rate_min;
    GAVEL_RETURN_IF_ERROR(Annotate(CheckSpec(run), source));
  }
  return sweep;
}

RateSearch::RateSearch(const SweepSearch& search)
    : search_(search),
      last_(static_cast<int64_t>(std::floor(
          (search.rate_max - search.rate_min) / search.precision + 1e-9))),
      high_(last_ + 1) {}

double RateSearch::RateOf(int64_t index) const {
  const double rate =
      search_.rate_min + static_cast<double>(index) * search_.precision;
  return RoundDecimal(rate);
}

// The ends first: then the answer lies between a rate that can be sustained and
// one that can't, or it is known.
int64_t RateSearch::Candidate() const {
  if (low_ < 0) return 0;
  if (high_ > last_) return last_;
  return low_ + (high_ - low_) / 2;
}

std::optional<double> RateSearch::Next() const {
  if (high_ - low_ <= 1) return std::nullopt;
  return RateOf(Candidate());
}

void RateSearch::Answer(bool sustainable) {
  const int64_t candidate = Candidate();
  if (sustainable) {
    low_ = candidate;
  } else {
    high_ = candidate;
  }
}

int RateSearch::tries_max() const {
  return 2 + static_cast<int>(std::bit_width(static_cast<uint64_t>(last_)));
}

// ---- the runs

namespace {

constexpr std::chrono::milliseconds kShowEvery(200);

// Keeps the part of a run that the rest of the sweep needs.
void DropDetails(StoredRun* run) {
  SimulationResult& result = run->run.result;
  result.jobs = {};
  result.apps = {};
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

// ---- the output

namespace {

// The runs of one row: they differ by seed only.
struct SweepRow {
  std::vector<std::string> cells;  // the fields that vary
  std::map<RunStatus, size_t> statuses;
  std::vector<const SimulationResult*> results;
  double cpu_s = 0;
};

double MeanOf(const SweepRow& row, double SimulationResult::*figure) {
  double sum = 0;
  for (const SimulationResult* result : row.results) sum += result->*figure;
  return sum / static_cast<double>(row.results.size());
}

std::string StatusCell(const SweepRow& row) {
  const bool one_status = row.statuses.size() == 1;
  return absl::StrJoin(row.statuses, ", ",
                       [&](std::string* out, const auto& one) {
                         if (!one_status) StrAppend(out, one.second, " ");
                         StrAppend(out, RunStatusName(one.first));
                       });
}

std::vector<std::string> FigureCells(const SweepRow& row, bool with_apps) {
  using Result = SimulationResult;
  const auto hours = [&](double Result::*figure) {
    return FormatNumber(MeanOf(row, figure) / 3600, 2);
  };
  std::vector<std::string> cells = {
      hours(&Result::avg_jct_s), hours(&Result::p99_jct_s),
      hours(&Result::makespan_s),
      FormatNumber(100 * MeanOf(row, &Result::cluster_utilization), 1)};
  if (with_apps) {
    for (const auto figure : {&Result::median_app_rho, &Result::max_app_rho,
                              &Result::app_jain_index}) {
      cells.push_back(FormatNumber(MeanOf(row, figure), 3));
    }
  }
  cells.push_back(FormatNumber(row.cpu_s, 1));
  return cells;
}

bool IsSeed(const std::string& name) { return name == "seed"; }

std::vector<SweepRow> RowsOf(const std::vector<StoredRun>& runs,
                             const RunLabels& labels) {
  std::vector<SweepRow> rows;
  std::map<std::vector<std::string>, size_t> row_of;
  const std::vector<std::string>& names = labels.varying();
  for (const StoredRun& run : runs) {
    std::vector<std::string> cells = labels.Texts(run.spec);
    for (size_t i = cells.size(); i-- > 0;) {
      if (IsSeed(names[i])) cells.erase(cells.begin() + static_cast<long>(i));
    }
    const auto [it, is_new] = row_of.emplace(cells, rows.size());
    if (is_new) rows.push_back({std::move(cells), {}, {}, 0});
    SweepRow& row = rows[it->second];
    ++row.statuses[run.run.status];
    row.cpu_s += run.run.cpu_s;
    if (run.run.status == RunStatus::kOk) {
      row.results.push_back(&run.run.result);
    }
  }
  return rows;
}

std::string RenderRuns(const std::vector<StoredRun>& runs, size_t width) {
  const RunLabels labels(SpecsOf(runs));
  std::vector<Column> columns = {Left("STATUS")};
  for (std::string name : labels.varying()) {
    if (IsSeed(name)) continue;
    std::ranges::transform(name, name.begin(), [](unsigned char letter) {
      return static_cast<char>(std::toupper(letter));
    });
    columns.push_back(Left(name, 34));
  }
  const bool with_apps = HaveApps(runs);
  std::vector<std::string> titles = {"AVG JCT h", "P99 h", "MAKESPAN h",
                                     "BUSY %"};
  if (with_apps) {
    titles.insert(titles.end(), {"MEDIAN APP RHO", "WORST APP RHO", "JAIN"});
  }
  titles.emplace_back("CPU s");
  for (std::string& title : titles) columns.push_back(Right(std::move(title)));
  TableRows cells;
  for (SweepRow& row : RowsOf(runs, labels)) {
    row.cells.insert(row.cells.begin(), StatusCell(row));
    for (std::string& cell : FigureCells(row, with_apps)) {
      row.cells.push_back(std::move(cell));
    }
    cells.push_back(std::move(row.cells));
  }
  return RenderTable(columns, cells, width);
}

std::string RenderSearches(const std::vector<SearchAnswer>& searches,
                           size_t width) {
  const RunLabels labels(SpecsOf(searches));
  TableRows cells;
  for (const SearchAnswer& answer : searches) {
    std::string rate = FieldText(answer.rate_per_h);
    if (answer.rate_per_h <= 0) rate = "below rate_min";
    if (answer.at_upper_end) rate = StrCat("at least ", rate);
    cells.push_back({labels.Scheduler(answer.spec),
                     labels.Workload(answer.spec), StrCat(answer.spec.seed),
                     std::move(rate), FormatNumber(answer.capacity_per_h, 2)});
  }
  std::ranges::sort(cells);
  return RenderTable({Left("SCHEDULER", 40), Left("WORKLOAD", 34),
                      Right("SEED"), Left("HIGHEST JOBS/H"), Right("CAPACITY")},
                     cells, width);
}

}  // namespace

std::string RenderOutcome(const SweepOutcome& outcome, size_t width) {
  if (!outcome.searches.empty()) return RenderSearches(outcome.searches, width);
  return outcome.runs.empty() ? "" : RenderRuns(outcome.runs, width);
}

}  // namespace gavel::study
