#include "study/profile/profile_results.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/text.h"

namespace gavel::study {
namespace {

constexpr std::string_view kTitles =
    "workload,scale_factor,accelerator,placement,beside,steps_per_s,ci95,"
    "samples,seconds,note";
constexpr size_t kColumns = 10;
constexpr char kSpread[] = "spread";
constexpr char kConsolidated[] = "consolidated";

// The 0.975 quantile of Student's t.
double Quantile(size_t degrees_of_freedom) {
  static constexpr std::array<double, 30> kValues = {
      12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
      2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
      2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  return degrees_of_freedom <= kValues.size() ? kValues[degrees_of_freedom - 1]
                                              : 1.96;
}

// A note is one cell of one line.
std::string Plain(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return c == ',' || static_cast<unsigned char>(c) < ' '; },
      ' ');
  return text;
}

std::string LineOf(const ProfileKey& key, const ProfileFigure& figure) {
  const std::string measured =
      figure.steps_per_s < 0 ? ""
                             : absl::StrFormat("%.17g", figure.steps_per_s);
  return absl::StrJoin(
      std::vector<std::string>{
          key.workload, StrCat(key.scale_factor), key.accelerator,
          key.spread ? kSpread : kConsolidated, key.beside, measured,
          absl::StrFormat("%.6g", figure.half_width), StrCat(figure.samples),
          absl::StrFormat("%.1f", figure.seconds), Plain(figure.note)},
      ",");
}

bool ReadNumber(const std::string& text, double* value) {
  return absl::SimpleAtod(text, value) && std::isfinite(*value) && *value >= 0;
}

// Empty when the line is good, else what is wrong with it.
std::string ReadLine(const std::vector<std::string>& cells, ProfileKey* key,
                     ProfileFigure* figure) {
  if (cells.size() != kColumns) {
    return StrCat("has ", cells.size(), " cells, not ", kColumns);
  }
  key->workload = cells[0];
  key->accelerator = cells[2];
  key->spread = cells[3] == kSpread;
  key->beside = cells[4];
  figure->note = cells[9];
  if (!absl::SimpleAtoi(cells[1], &key->scale_factor) ||
      key->scale_factor < 1) {
    return StrCat("\"", cells[1], "\" is no scale factor");
  }
  if (!key->spread && cells[3] != kConsolidated) {
    return StrCat("\"", cells[3], "\" is neither ", kConsolidated, " nor ",
                  kSpread);
  }
  if (key->workload.empty() || key->accelerator.empty()) {
    return "names no workload or no accelerator";
  }
  if (!cells[5].empty() && (!ReadNumber(cells[5], &figure->steps_per_s) ||
                            figure->steps_per_s > kStepsPerSecondMax)) {
    return StrCat("\"", cells[5], "\" is no throughput");
  }
  if (!ReadNumber(cells[6], &figure->half_width) ||
      !absl::SimpleAtoi(cells[7], &figure->samples) ||
      !ReadNumber(cells[8], &figure->seconds)) {
    return "has no confidence interval, samples or seconds";
  }
  return "";
}

}  // namespace

absl::StatusOr<ProfileResults> ProfileResults::Parse(std::string_view csv,
                                                     std::string_view source) {
  ProfileResults results;
  int number = 0;
  for (const absl::string_view text : absl::StrSplit(ToAbsl(csv), '\n')) {
    ++number;
    if (text.empty() || (number == 1 && ToStd(text) == kTitles)) continue;
    const std::vector<std::string> cells = absl::StrSplit(text, ',');
    ProfileKey key;
    ProfileFigure figure;
    const std::string wrong = ReadLine(cells, &key, &figure);
    if (number == 1 || !wrong.empty()) {
      return absl::InvalidArgumentError(
          StrCat(source, ":", number, ": ",
                 number == 1 ? "is no line of titles" : wrong,
                 "; it is no table of `gavel profile`, name another file"));
    }
    results.figures_[std::move(key)] = std::move(figure);
  }
  return results;
}

std::string ProfileResults::ToCsv() const {
  std::string csv = StrCat(kTitles, "\n");
  for (const auto& [key, figure] : figures_) {
    StrAppend(&csv, LineOf(key, figure), "\n");
  }
  return csv;
}

void ProfileResults::Set(const ProfileKey& key, ProfileFigure figure) {
  figures_[key] = std::move(figure);
}

const ProfileFigure* ProfileResults::Find(const ProfileKey& key) const {
  const auto found = figures_.find(key);
  if (found == figures_.end() || found->second.steps_per_s < 0) return nullptr;
  return &found->second;
}

absl::StatusOr<ThroughputTable> ProfileResults::ToTable() const {
  ThroughputTable::Figures figures;
  std::set<std::string> types;
  std::map<std::pair<std::string, int>, size_t> rows;
  for (const auto& [key, figure] : figures_) {
    if (figure.steps_per_s < 0) continue;
    types.insert(key.accelerator);
    rows.try_emplace({key.workload, key.scale_factor}, 0);
    figures.has_unconsolidated |= key.spread;
  }
  if (rows.empty()) {
    return absl::FailedPreconditionError("nothing has been measured");
  }
  figures.types.assign(types.begin(), types.end());
  for (auto& [name, row] : rows) {
    row = figures.names.size();
    figures.names.push_back(name);
  }
  const size_t cells = figures.types.size() * 2 * rows.size();
  figures.alone.assign(cells, -1);
  figures.partners.resize(cells);
  // By key, and so the partners of a row come in the order of their rows.
  for (const auto& [key, figure] : figures_) {
    if (figure.steps_per_s < 0) continue;
    const auto type = static_cast<size_t>(
        std::lower_bound(figures.types.begin(), figures.types.end(),
                         key.accelerator) -
        figures.types.begin());
    const size_t row = rows.at({key.workload, key.scale_factor});
    const size_t cell = (type * 2 + (key.spread ? 1 : 0)) * rows.size() + row;
    if (key.beside.empty()) {
      figures.alone[cell] = figure.steps_per_s;
      continue;
    }
    const ProfileFigure* const other =
        Find({key.beside, key.scale_factor, key.accelerator, key.spread,
              key.workload});
    const auto other_row = rows.find({key.beside, key.scale_factor});
    if (other == nullptr || other_row == rows.end()) continue;
    figures.partners[cell].push_back(
        {other_row->second, {figure.steps_per_s, other->steps_per_s}});
  }
  return ThroughputTable::FromFigures(std::move(figures));
}

ProfileFigure FigureOf(const std::vector<ProfileSample>& samples) {
  ProfileFigure figure;
  double sum = 0;
  for (const ProfileSample& sample : samples) {
    sum += sample.steps_per_s * sample.weight_s;
    figure.seconds += sample.weight_s;
  }
  if (!(figure.seconds > 0)) return figure;
  figure.steps_per_s = sum / figure.seconds;
  figure.samples = static_cast<int>(samples.size());
  if (samples.size() < 2) return figure;
  double squares = 0;
  for (const ProfileSample& sample : samples) {
    const double apart = sample.steps_per_s - figure.steps_per_s;
    squares += apart * apart;
  }
  const auto n = static_cast<double>(samples.size());
  figure.half_width =
      Quantile(samples.size() - 1) * std::sqrt(squares / (n - 1) / n);
  return figure;
}

}  // namespace gavel::study
