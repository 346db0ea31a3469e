#include "study/simulation/sweep_spec.h"

#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <filesystem>
#include <functional>
#include <map>
#include <type_traits>
#include <utility>

#include "absl/strings/str_join.h"
#include "coordinator/workload/toml_reader.h"
#include "coordinator/workload/trace.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::study {
namespace {

namespace fs = std::filesystem;

// One value that a field takes.
using Setting = std::function<void(SimulationSpec&)>;
using Settings = std::vector<Setting>;

constexpr int kPointsMax = 10'000;
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
// 0 of these is no point of a range: all jobs at once, or as many as the window
// needs. The original's scripts leave it out, too.
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
class FieldReader {
 public:
  FieldReader(const toml::table& table, std::string_view source,
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
    reader.Read("count", count, 2, kPointsMax);
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

// true for all that are not known, or a list of names.
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
      FieldReader(table, source, directory, status).Read();
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

}  // namespace gavel::study
