#include "coordinator/workload/throughput_table.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_replace.h"
#include "core/status.h"
#include "core/text.h"
#include "nlohmann/json.hpp"

namespace gavel {

// The figures of a throughput file as a list, of which the table is made.
struct ThroughputFigures {
  struct Alone {
    size_t worker_type;
    size_t row;
    double steps_per_s;
  };
  struct Pair {
    size_t worker_type;
    size_t row;
    size_t other;
    std::pair<double, double> steps_per_s;
  };
  std::vector<std::string> worker_types;           // as written, unique
  std::vector<std::pair<std::string, int>> names;  // of rows, unique
  std::vector<Alone> alone;                        // (worker_type, row) unique
  std::vector<Pair> pairs;  // (worker_type, row, other) unique
};

namespace {

// ---- The reader ----

using Json = nlohmann::json;

constexpr std::string_view kAloneKey = "null";  // Python's None as a key

// ('JOB TYPE', SCALE), as Python prints a tuple: between double quotes where
// the job type has an apostrophe, with backslashes where it has both quotes.
std::optional<std::pair<std::string, int>> ParseRowName(std::string_view text) {
  if (text.size() < 2 || text[0] != '(' || !text.ends_with(')')) {
    return std::nullopt;
  }
  const char quote = text[1];
  if (quote != '\'' && quote != '"') return std::nullopt;
  const std::string middle = StrCat(std::string(1, quote), ", ");
  const size_t end = text.rfind(middle);
  if (end == std::string_view::npos || end <= 2) return std::nullopt;
  std::string_view digits = text.substr(end + middle.size());
  digits.remove_suffix(1);
  int scale_factor = 0;
  const auto [rest, error] = std::from_chars(
      digits.data(), digits.data() + digits.size(), scale_factor);
  if (error != std::errc() || rest != digits.data() + digits.size() ||
      scale_factor < 1 || digits[0] == '0') {
    return std::nullopt;
  }
  return std::pair(
      absl::StrReplaceAll(ToAbsl(text.substr(2, end - 2)),
                          {{"\\\\", "\\"}, {"\\'", "'"}, {"\\\"", "\""}}),
      scale_factor);
}

// Python's json writes NaN and Infinity, which JSON does not have.
bool IsNotFinite(std::string_view rest) {
  return rest.starts_with("NaN") || rest.starts_with("Infinity");
}

// "LINE:COLUMN" of the last of the first `position` bytes.
std::string PlaceOf(std::string_view text, size_t position) {
  const std::string_view read = text.substr(0, position);
  const auto line = 1 + std::count(read.begin(), read.end(), '\n');
  const size_t newline = read.rfind('\n');
  const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
  return StrCat(line, ":", std::max<size_t>(1, read.size() - begin));
}

// The parser of nlohmann::json calls it for each token. Every callback returns
// false to stop, after it has set status().
class FigureReader : public nlohmann::json_sax<Json> {
 public:
  FigureReader(std::string_view text, std::string_view source)
      : text_(text), source_(source) {}

  const absl::Status& status() const { return status_; }
  ThroughputFigures TakeFigures() && { return std::move(figures_); }

  bool start_object(size_t) override {
    if (depth_ >= kRowDepth || in_pair_) return Misplaced("an object");
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ != kRowDepth || in_pair_ || key_ == kAloneKey) {
      return Misplaced("an array");
    }
    in_pair_ = true;
    pair_.clear();
    return true;
  }
  bool end_array() override {
    in_pair_ = false;
    return AddPair();
  }
  bool key(std::string& name) override {
    if (depth_ == 1) return BeginWorkerType(name);
    if (depth_ == 2) return BeginRow(name);
    key_ = name;
    return true;
  }

  bool null() override { return Misplaced("null"); }
  bool boolean(bool) override { return Misplaced("a boolean"); }
  bool string(std::string&) override { return Misplaced("a string"); }
  bool binary(Json::binary_t&) override { return Misplaced("bytes"); }
  bool number_integer(int64_t value) override {
    return AddNumber(static_cast<double>(value));
  }
  bool number_unsigned(uint64_t value) override {
    return AddNumber(static_cast<double>(value));
  }
  bool number_float(double value, const std::string&) override {
    return AddNumber(value);
  }
  bool parse_error(size_t position, const std::string&,
                   const Json::exception& error) override {
    std::string_view what = error.what();
    if (const size_t id = what.find("] "); id != std::string_view::npos) {
      what.remove_prefix(id + 2);
    }
    const size_t place = what.find("column ");
    const size_t colon = what.find(": ", place);
    if (place != std::string_view::npos && colon != std::string_view::npos) {
      what.remove_prefix(colon + 2);
    }
    const bool not_finite =
        position > 0 && IsNotFinite(text_.substr(position - 1));
    status_ = absl::InvalidArgumentError(StrCat(
        source_, ":", PlaceOf(text_, position), ": not JSON", Where(), ": ",
        not_finite
            ? "a throughput that is no number; write steps/s, 0 for what "
              "cannot run there, or leave the row out"
            : StrCat(what, "; correct it here or just before")));
    return false;
  }

 private:
  static constexpr int kRowDepth = 3;  // inside { "v100": { "(..)": {

  // ", in v100, row ('A3C', 1)" as far as it has come.
  std::string Where() const {
    std::string where;
    if (!worker_type_.empty()) where = StrCat(" in ", worker_type_);
    if (depth_ >= 2 && !row_.empty()) StrAppend(&where, ", row ", row_);
    if (depth_ >= kRowDepth && !key_.empty() && key_ != kAloneKey) {
      StrAppend(&where, ", with ", key_);
    }
    return where;
  }

  bool Fail(std::string_view what) {
    status_ = absl::InvalidArgumentError(StrCat(source_, ":", Where(), what));
    return false;
  }

  bool Misplaced(std::string_view what) {
    if (depth_ == 0) {
      return Fail(StrCat(" the file is ", what,
                         "; write an object of accelerator types"));
    }
    if (depth_ < kRowDepth) {
      return Fail(StrCat(" is ", what, "; write an object"));
    }
    if (in_pair_) {
      return Fail(StrCat(": throughput is ", what, "; write a number"));
    }
    return Fail(StrCat(": throughput is ", what, "; write ",
                       key_ == kAloneKey ? "a number" : "[number, number]"));
  }

  bool BeginWorkerType(const std::string& name) {
    worker_type_ = name;
    row_.clear();
    auto& all = figures_.worker_types;
    if (name.empty()) return Fail(" an accelerator type has no name; name it");
    const std::optional<TypeAt> at = SplitTypeName(name);
    if (!at.has_value()) {
      return Fail(
          StrCat(" is at an unknown level of locality; ", kTypeNameRemedy));
    }
    without_pairs_ =
        at->level == Locality::kGroup || at->level == Locality::kRack;
    if (std::find(all.begin(), all.end(), name) != all.end()) {
      return Fail(" is there twice; remove one");
    }
    all.push_back(name);
    rows_seen_.clear();
    return true;
  }

  bool BeginRow(const std::string& name) {
    row_ = name;
    key_.clear();
    const std::optional<size_t> row = RowOf(name);
    if (!row.has_value()) return RefuseRowName(name);
    row_number_ = *row;
    keys_seen_.clear();
    if (rows_seen_.insert(*row).second) return true;
    return Fail(" is there twice; remove one");
  }

  bool RefuseRowName(std::string_view name) {
    return Fail(StrCat(": \"", name,
                       "\" names no row; write ('JOB TYPE', SCALE) with a "
                       "scale factor from 1, e.g. ('A3C', 1)"));
  }

  // Its number; each name is parsed once.
  std::optional<size_t> RowOf(const std::string& name) {
    if (const auto known = row_of_.find(name); known != row_of_.end()) {
      return known->second;
    }
    std::optional<std::pair<std::string, int>> parsed = ParseRowName(name);
    if (!parsed.has_value()) return std::nullopt;
    row_of_[name] = figures_.names.size();
    figures_.names.push_back(*std::move(parsed));
    return figures_.names.size() - 1;
  }

  bool AddNumber(double value) {
    if (depth_ != kRowDepth) return Misplaced("a number");
    if (!(value >= 0 && value <= kStepsPerSecondMax)) {
      return Fail(StrCat(": throughput is ", value,
                         "; write steps/s from 0 to ", kStepsPerSecondMax,
                         ", 0 for what cannot run there"));
    }
    if (in_pair_) {
      pair_.push_back(value);
      return pair_.size() <= 2 || AddPair();
    }
    if (key_ != kAloneKey) return Misplaced("a number");
    if (!keys_seen_.insert(kAlone).second) return Fail(": null is there twice");
    figures_.alone.push_back(
        {figures_.worker_types.size() - 1, row_number_, value});
    return true;
  }

  bool AddPair() {
    if (pair_.size() != 2) {
      return Fail(
          StrCat(": ", pair_.size() < 2 ? "too few" : "too many",
                 " throughputs; write [of the row, of the one it is with]"));
    }
    const std::optional<size_t> other = RowOf(key_);
    if (!other.has_value()) return RefuseRowName(key_);
    if (!keys_seen_.insert(*other).second) {
      return Fail(" is there twice; remove one");
    }
    if (without_pairs_) {
      return Fail(
          ": pairs have no throughputs of groups and racks; take it "
          "out");
    }
    figures_.pairs.push_back({figures_.worker_types.size() - 1,
                              row_number_,
                              *other,
                              {pair_[0], pair_[1]}});
    return true;
  }

  static constexpr size_t kAlone = SIZE_MAX;  // among keys_seen_

  std::string_view text_;
  std::string_view source_;
  absl::Status status_;
  ThroughputFigures figures_;
  std::map<std::string, size_t> row_of_;  // by the text of its name

  int depth_ = 0;
  std::string worker_type_;
  bool without_pairs_ = false;  // worker_type_ is at a level that has none
  std::string row_;
  size_t row_number_ = 0;
  std::string key_;
  bool in_pair_ = false;
  std::vector<double> pair_;
  std::set<size_t> rows_seen_;  // of this worker type
  std::set<size_t> keys_seen_;  // of this row
};

// As ThroughputTable::Parse().
absl::StatusOr<ThroughputFigures> ReadThroughputs(std::string_view json,
                                                  std::string_view source) {
  if (json.size() > kThroughputBytesMax) {
    return absl::InvalidArgumentError(StrCat(source, ":1:1: ", json.size(),
                                             " bytes exceed the ",
                                             kThroughputBytesMax, " allowed"));
  }
  FigureReader reader(json, source);
  if (!Json::sax_parse(json.begin(), json.end(), &reader)) {
    return reader.status();
  }
  ThroughputFigures figures = std::move(reader).TakeFigures();
  if (figures.alone.empty()) {
    return absl::InvalidArgumentError(
        StrCat(source, ": there are no throughputs; write e.g. {\"v100\": ",
               "{\"('LM (batch size 5)', 1)\": {\"null\": 67.8}}}"));
  }
  return figures;
}

}  // namespace

// ---- The table ----

namespace {

constexpr double kNoFigure = -1;

// Splits a name that the reader has checked.
TypeAt Split(std::string_view worker_type) {
  return SplitTypeName(worker_type).value_or(TypeAt{worker_type});
}

}  // namespace

absl::StatusOr<ThroughputTable> ThroughputTable::Parse(
    std::string_view json, std::string_view source) {
  GAVEL_ASSIGN_OR_RETURN(ThroughputFigures figures,
                         ReadThroughputs(json, source));
  return ThroughputTable(std::move(figures));
}

ThroughputTable::ThroughputTable(ThroughputFigures figures)
    : names_(std::move(figures.names)) {
  std::set<std::string_view> types;
  bool levels = false;  // other than the two of Gavel
  for (const std::string& name : figures.worker_types) {
    const auto [type, level] = Split(name);
    types.insert(type);
    has_unconsolidated_ |= level == Locality::kCluster;
    levels |= !IsGavels(level);
  }
  types_.assign(types.begin(), types.end());
  for (Row row = 0; row < names_.size(); ++row) row_of_[names_[row]] = row;

  std::vector<size_t> table_of;  // by worker type, as TableOf()
  std::vector<std::vector<double>*> alone_of;
  for (const std::string& name : figures.worker_types) {
    const auto [type, level] = Split(name);
    table_of.push_back(TableOf(*FindType(type), level));
    alone_of.push_back(IsGavels(level) ? &alone_ : &alone_at_);
  }
  alone_.assign(types_.size() * 2 * rows(), kNoFigure);
  if (levels) alone_at_ = alone_;
  for (const ThroughputFigures::Alone& figure : figures.alone) {
    (*alone_of[figure.worker_type])[table_of[figure.worker_type] * rows() +
                                    figure.row] = figure.steps_per_s;
  }
  partners_.resize(types_.size() * 2 * rows());
  for (const ThroughputFigures::Pair& figure : figures.pairs) {
    partners_[table_of[figure.worker_type] * rows() + figure.row].push_back(
        {figure.other, figure.steps_per_s});
  }
  for (std::vector<Partner>& partners : partners_) {
    std::sort(partners.begin(), partners.end(),
              [](const Partner& a, const Partner& b) { return a.row < b.row; });
  }
  has_pairs_ = !figures.pairs.empty();
}

std::optional<ThroughputTable::Row> ThroughputTable::FindRow(
    std::string_view job_type, int scale_factor) const {
  const auto found = row_of_.find(std::pair(job_type, scale_factor));
  if (found == row_of_.end()) return std::nullopt;
  return found->second;
}

std::optional<size_t> ThroughputTable::FindType(std::string_view type) const {
  const auto found = std::lower_bound(types_.begin(), types_.end(), type);
  if (found == types_.end() || *found != type) return std::nullopt;
  return static_cast<size_t>(found - types_.begin());
}

std::optional<double> ThroughputTable::Alone(Row row, size_t type,
                                             Locality level) const {
  if (!IsGavels(level) && !has_levels()) return std::nullopt;
  const std::vector<double>& alone = IsGavels(level) ? alone_ : alone_at_;
  const double steps_per_s = alone[TableOf(type, level) * rows() + row];
  if (steps_per_s == kNoFigure) return std::nullopt;
  return steps_per_s;
}

std::optional<double> ThroughputTable::AloneAsAt(Row row, size_t type,
                                                 Locality level) const {
  std::optional<double> known = Alone(row, type, level);
  while (!known.has_value() && level != Locality::kServer) {
    level = SubstituteFor(level);
    known = Alone(row, type, level);
  }
  return known;
}

std::optional<std::pair<double, double>> ThroughputTable::Together(
    Row row, Row other, size_t type, bool consolidated) const {
  const std::vector<Partner>& partners =
      partners_[TableOf(type,
                        consolidated ? Locality::kServer : Locality::kCluster) *
                    rows() +
                row];
  const auto found = std::lower_bound(
      partners.begin(), partners.end(), other,
      [](const Partner& partner, Row wanted) { return partner.row < wanted; });
  if (found == partners.end() || found->row != other) return std::nullopt;
  const auto& [own, others] = found->steps_per_s;
  if (own == 0 || others == 0) return {{0, 0}};
  return found->steps_per_s;
}

ThroughputTable::Figures ThroughputTable::ToFigures() const {
  Figures figures{types_, names_, alone_, {}, has_unconsolidated_, alone_at_};
  for (const std::vector<Partner>& partners : partners_) {
    auto& row = figures.partners.emplace_back();
    for (const Partner& partner : partners) {
      row.emplace_back(partner.row, partner.steps_per_s);
    }
  }
  return figures;
}

absl::StatusOr<ThroughputTable> ThroughputTable::FromFigures(Figures figures) {
  ThroughputTable table;
  const size_t rows = figures.names.size();
  const size_t cells = figures.types.size() * 2 * rows;
  const bool match =
      figures.alone.size() == cells && figures.partners.size() == cells &&
      (figures.alone_at.empty() || figures.alone_at.size() == cells) &&
      std::is_sorted(figures.types.begin(), figures.types.end());
  if (!match) {
    return absl::InvalidArgumentError(
        "a throughput table whose figures do not match its rows");
  }
  for (const auto& row : figures.partners) {
    std::vector<Partner>& partners = table.partners_.emplace_back();
    for (const auto& [other, steps_per_s] : row) {
      if (other >= rows ||
          (!partners.empty() && partners.back().row >= other)) {
        return absl::InvalidArgumentError(
            "a throughput table with a pair that is not there");
      }
      partners.push_back({static_cast<Row>(other), steps_per_s});
      table.has_pairs_ = true;
    }
  }
  table.types_ = std::move(figures.types);
  table.names_ = std::move(figures.names);
  table.alone_ = std::move(figures.alone);
  table.alone_at_ = std::move(figures.alone_at);
  table.has_unconsolidated_ = figures.has_unconsolidated;
  for (Row row = 0; row < rows; ++row) table.row_of_[table.names_[row]] = row;
  return table;
}

// ---- The writer ----

namespace {

using OrderedJson = nlohmann::ordered_json;

// As Python prints a tuple of the two.
std::string RowName(const std::pair<std::string, int>& name) {
  const bool apostrophe = name.first.find('\'') != std::string::npos;
  const bool quotes = name.first.find('"') != std::string::npos;
  const char* const quote = apostrophe && !quotes ? "\"" : "'";
  std::string type = absl::StrReplaceAll(name.first, {{"\\", "\\\\"}});
  if (apostrophe && quotes) type = absl::StrReplaceAll(type, {{"'", "\\'"}});
  return StrCat("(", quote, type, quote, ", ", name.second, ")");
}

// All rows of one of Gavel's tables: of a type, consolidated or not.
OrderedJson TableJson(const ThroughputTable::Figures& figures, size_t table) {
  const size_t rows = figures.names.size();
  OrderedJson json = OrderedJson::object();
  for (size_t row = 0; row < rows; ++row) {
    const size_t cell = table * rows + row;
    OrderedJson of_row = OrderedJson::object();
    if (figures.alone[cell] >= 0) of_row["null"] = figures.alone[cell];
    for (const auto& [other, steps_per_s] : figures.partners[cell]) {
      of_row[RowName(figures.names[other])] = {steps_per_s.first,
                                               steps_per_s.second};
    }
    if (!of_row.empty()) json[RowName(figures.names[row])] = std::move(of_row);
  }
  return json;
}

// The same of a group or a rack.
OrderedJson LevelJson(const ThroughputTable::Figures& figures, size_t table) {
  const size_t rows = figures.names.size();
  OrderedJson json = OrderedJson::object();
  for (size_t row = 0; row < rows && !figures.alone_at.empty(); ++row) {
    const double steps_per_s = figures.alone_at[table * rows + row];
    if (steps_per_s < 0) continue;
    json[RowName(figures.names[row])]["null"] = steps_per_s;
  }
  return json;
}

}  // namespace

std::string WriteThroughputs(const ThroughputTable::Figures& figures) {
  OrderedJson json = OrderedJson::object();
  for (size_t type = 0; type < figures.types.size(); ++type) {
    for (const Locality level : kAllLocalities) {
      const size_t table = ThroughputTable::TableOf(type, level);
      OrderedJson rows = ThroughputTable::IsGavels(level)
                             ? TableJson(figures, table)
                             : LevelJson(figures, table);
      if (rows.empty()) continue;
      json[TypeNameAt(figures.types[type], level)] = std::move(rows);
    }
  }
  return json.dump(1) + "\n";
}

}  // namespace gavel
