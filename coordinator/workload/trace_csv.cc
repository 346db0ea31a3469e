// A trace as a CSV: duration and accelerators of each job, under the names that
// the public traces of Philly, Helios, PAI and Acme give them, too.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "coordinator/workload/csv_reader.h"
#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/trace_forms.h"
#include "core/status.h"
#include "core/text.h"
#include "core/units.h"

namespace gavel {
namespace {

// Names of a column, ours first.
using Names = std::initializer_list<std::string_view>;
const Names kDuration = {"duration_s", "duration", "run_time"};
const Names kAccelerators = {"num_gpus", "num_gpu", "gpu_num", "gpus"};
const Names kArrival = {"arrival_s", "submit_time", "arrival_time",
                        "submitted_time"};
const Names kType = {"type", "job_type", "model"};
const Names kWeight = {"weight", "priority_weight"};
const Names kEntity = {"entity"};
const Names kDeadline = {"deadline_s", "deadline"};
const Names kName = {"job_id", "jobid", "id", "job_name"};
// In place of a duration.
const Names kStart = {"start_time", "started_time"};
const Names kEnd = {"end_time", "finished_time"};

constexpr double kMinute_s = 60;

// Takes so many digits from the front of `text` as a number.
std::optional<int> TakeDigits(std::string_view& text, size_t count) {
  const std::string_view digits = text.substr(0, count);
  const bool good = digits.size() == count &&
                    digits.find_first_not_of("0123456789") == digits.npos;
  if (!good) return std::nullopt;
  text.remove_prefix(count);
  return ParseInteger(digits);
}

bool Take(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text[0]) == any_of.npos) return false;
  text.remove_prefix(1);
  return true;
}

// "Z", "+08:00", "-0500" or nothing, as seconds that the clock is ahead.
std::optional<double> ParseZone(std::string_view text) {
  Take(text, " ");
  if (text.empty() || text == "Z" || text == "UTC") return 0;
  const double sign = text[0] == '-' ? -1 : 1;
  if (!Take(text, "+-")) return std::nullopt;
  const std::optional<int> hours = TakeDigits(text, 2);
  Take(text, ":");
  const std::optional<int> minutes =
      text.empty() ? std::optional(0) : TakeDigits(text, 2);
  if (!hours || !minutes || !text.empty()) return std::nullopt;
  return sign * (*hours * kHour_s + *minutes * kMinute_s);
}

bool IsLeapYear(int year) {
  return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

// In the Gregorian calendar. Nothing: there is no such day.
std::optional<int> DaysSince1970(int year, int month, int day) {
  constexpr int kDaysBefore[] = {0,   31,  59,  90,  120, 151, 181,
                                 212, 243, 273, 304, 334, 365};
  if (year < 1 || month < 1 || month > 12 || day < 1) return std::nullopt;
  const bool leap = IsLeapYear(year);
  const int days = kDaysBefore[month] - kDaysBefore[month - 1] +
                   (month == 2 && leap ? 1 : 0);
  if (day > days) return std::nullopt;
  const auto leaps_to = [](int last) {
    return last / 4 - last / 100 + last / 400;
  };
  return 365 * (year - 1970) + leaps_to(year - 1) - leaps_to(1969) +
         kDaysBefore[month - 1] + (month > 2 && leap ? 1 : 0) + day - 1;
}

// "2017-10-09 07:09:30.5+08:00" and its beginnings from the day on, with "/"
// for "-" and "T" for the space: seconds since 1970 in UTC.
std::optional<double> ParseDate(std::string_view text) {
  const std::optional<int> year = TakeDigits(text, 4);
  if (!year || !Take(text, "-/")) return std::nullopt;
  const std::optional<int> month = TakeDigits(text, 2);
  if (!month || !Take(text, "-/")) return std::nullopt;
  const std::optional<int> day = TakeDigits(text, 2);
  if (!day) return std::nullopt;
  const std::optional<int> days = DaysSince1970(*year, *month, *day);
  if (!days) return std::nullopt;
  double seconds = *days * 24 * kHour_s;
  if (text.empty()) return seconds;
  if (!Take(text, " T")) return std::nullopt;
  const std::optional<int> hours = TakeDigits(text, 2);
  if (!hours || *hours > 23 || !Take(text, ":")) return std::nullopt;
  const std::optional<int> minutes = TakeDigits(text, 2);
  if (!minutes || *minutes > 59) return std::nullopt;
  seconds += *hours * kHour_s + *minutes * kMinute_s;
  if (Take(text, ":")) {
    const size_t end =
        std::min(text.find_first_not_of("0123456789."), text.size());
    const std::optional<double> part = ParseNumber(text.substr(0, end));
    if (!part || *part >= 61) return std::nullopt;  // with the leap second
    seconds += *part;
    text.remove_prefix(end);
  }
  const std::optional<double> ahead = ParseZone(text);
  if (!ahead) return std::nullopt;
  return seconds - *ahead;
}

struct Moment {
  double seconds = 0;
  bool is_date = false;
};

class CsvTraceParser {
 public:
  CsvTraceParser(std::string_view text, std::string_view source)
      : csv_(text, source, status_) {}

  absl::StatusOr<Trace> Parse(std::string_view ignored_columns) && {
    FindColumns(ignored_columns);
    IdleRows idle;
    while (csv_.NextRow()) {
      const int accelerators =
          csv_.Integer(accelerators_, 0, kTraceScaleFactorMax);
      const double duration_s = ReadDuration();
      if (!status_.ok()) break;
      if (accelerators == 0 || duration_s == 0) {
        idle.Count(accelerators == 0 ? "accelerators" : "seconds");
        continue;
      }
      ReadJob(accelerators, duration_s);
    }
    GAVEL_RETURN_IF_ERROR(status_);
    idle.Tell(trace_);
    return std::move(trace_);
  }

 private:
  static bool IsThere(size_t column) { return column != CsvReader::kNoColumn; }
  bool IsThere(size_t column, std::string_view* text) const {
    if (!IsThere(column)) return false;
    *text = csv_.Text(column);
    return !text->empty();
  }

  void FindColumns(std::string_view ignored_columns) {
    duration_ = csv_.FindColumn(kDuration);
    if (!IsThere(duration_)) {
      start_ = csv_.FindColumn(kStart);
      end_ = csv_.FindColumn(kEnd);
      if (!IsThere(start_) || !IsThere(end_)) csv_.RequireColumn(kDuration);
    }
    accelerators_ = csv_.RequireColumn(kAccelerators);
    arrival_ = csv_.FindColumn(kArrival);
    type_ = csv_.FindColumn(kType);
    weight_ = csv_.FindColumn(kWeight);
    entity_ = csv_.FindColumn(kEntity);
    deadline_ = csv_.FindColumn(kDeadline);
    name_ = csv_.FindColumn(kName);
    const std::vector<std::string> left_out =
        csv_.RefuseOtherColumns(ignored_columns);
    if (left_out.empty()) return;
    trace_.notices.push_back(
        StrCat(left_out.size(), left_out.size() == 1 ? " column" : " columns",
               " left out: ", absl::StrJoin(left_out, ", ")));
  }

  // Reads a cell of the present row. It is an error unless the cell is a
  // number in `range` or a date.
  Moment ReadMoment(size_t column, const NumberRange& range) {
    const std::string_view text = csv_.Text(column);
    if (const auto date = ParseDate(text)) return {*date, true};
    if (ParseNumber(text).has_value()) return {csv_.Number(column, range)};
    csv_.Fail(column,
              StrCat(csv_.NameOf(column), " is ", QuoteToml(text),
                     "; write seconds, or a date such as 2017-10-09 07:09:30"));
    return {};
  }

  double ReadDuration() {
    if (IsThere(duration_)) {
      return csv_.Number(duration_, {.max = kTraceTimeMax_s});
    }
    const Moment start = ReadMoment(start_, kTraceArrival);
    const Moment end = ReadMoment(end_, kTraceArrival);
    const double duration_s = end.seconds - start.seconds;
    if (status_.ok() && (start.is_date != end.is_date || duration_s < 0)) {
      csv_.Fail(end_, StrCat(csv_.NameOf(end_), " ", csv_.Text(end_),
                             " is not after ", csv_.NameOf(start_), " ",
                             csv_.Text(start_), "; correct or remove the row"));
    }
    return duration_s;
  }

  void ReadJob(int accelerators, double duration_s) {
    TraceJob job;
    job.duration_s = duration_s;
    job.scale_factor = accelerators;
    std::string_view text;
    if (IsThere(weight_, &text))
      job.weight = csv_.Number(weight_, kTraceWeight);
    if (IsThere(arrival_)) job.arrival_s = ReadArrival();
    if (IsThere(deadline_, &text)) ReadDeadline(job);
    if (IsThere(entity_, &text)) job.entity = EntityOf(text);
    if (IsThere(name_)) trace_.names.emplace_back(csv_.Text(name_));
    std::string_view type = kNoJobType;
    // Without a type nothing tells a throughput: 1 step/s, by definition.
    if (!IsThere(type_, &type)) {
      type = kNoJobType;
      job.steps_total = job.duration_s;
    }
    const auto [found, added] =
        template_of_.try_emplace(std::string(type), trace_.templates.size());
    if (added) trace_.templates.emplace_back().type = type;
    job.job_template = found->second;
    trace_.jobs.push_back(job);
  }

  // Dates count from the first job's.
  double ReadArrival() {
    const Moment arrival = ReadMoment(arrival_, kTraceArrival);
    if (!status_.ok()) return 0;
    if (trace_.jobs.empty()) {
      dated_ = arrival.is_date;
      if (dated_) first_s_ = arrival.seconds;
    }
    if (arrival.is_date != dated_) {
      csv_.Fail(arrival_,
                StrCat(csv_.NameOf(arrival_), " ", csv_.Text(arrival_), " is ",
                       dated_ ? "no date, and" : "a date, and no",
                       " others are; "
                       "write all as seconds or all as dates"));
    }
    const double arrival_s = arrival.seconds - first_s_;
    if (IsBeforeLastArrival(trace_, arrival_s)) {
      csv_.Fail(arrival_, StrCat("arrival ", csv_.Text(arrival_),
                                 " is before that of the job ahead; sort the "
                                 "jobs by arrival"));
    }
    return arrival_s;
  }

  // Seconds after the arrival, or a date.
  void ReadDeadline(TraceJob& job) {
    const Moment deadline =
        ReadMoment(deadline_, {.above_min = true, .max = kTraceTimeMax_s});
    if (!status_.ok()) return;
    if (deadline.is_date && !dated_) {
      return csv_.Fail(deadline_,
                       StrCat("the deadline is a date, and arrivals are none; "
                              "write seconds after the arrival"));
    }
    const double after_s = deadline.is_date
                               ? deadline.seconds - first_s_ - job.arrival_s
                               : deadline.seconds;
    job.slo = after_s / job.duration_s;
    if (IsWithin(job.slo, kTraceSlo)) return;
    csv_.Fail(deadline_, StrCat("the deadline ", csv_.Text(deadline_),
                                " is not after the arrival; correct it, or "
                                "leave it empty for none"));
  }

  size_t EntityOf(std::string_view name) {
    if (!IsValidName(name)) {
      csv_.Fail(entity_, StrCat("entity ", QuoteToml(name),
                                " is no name; write 1 to 64 of A-Z, a-z, 0-9, "
                                "_ and -, or nothing"));
    }
    const auto [found, added] =
        entity_of_.try_emplace(std::string(name), trace_.entities.size());
    if (added) trace_.entities.push_back({.name = std::string(name)});
    return found->second;
  }

  absl::Status status_;
  CsvReader csv_;
  Trace trace_;
  size_t duration_ = CsvReader::kNoColumn;
  size_t start_ = CsvReader::kNoColumn;
  size_t end_ = CsvReader::kNoColumn;
  size_t accelerators_ = CsvReader::kNoColumn;
  size_t arrival_ = CsvReader::kNoColumn;
  size_t type_ = CsvReader::kNoColumn;
  size_t weight_ = CsvReader::kNoColumn;
  size_t entity_ = CsvReader::kNoColumn;
  size_t deadline_ = CsvReader::kNoColumn;
  size_t name_ = CsvReader::kNoColumn;
  bool dated_ = false;
  double first_s_ = 0;  // of the first arrival, since 1970; else 0
  std::map<std::string, size_t, std::less<>> template_of_;  // by type
  std::map<std::string, size_t, std::less<>> entity_of_;
};

}  // namespace

bool IsHeaderOfCsv(std::string_view line) {
  std::vector<TextField> fields;
  for (const char separator : {',', ';', '\t'}) {
    SplitFields(line, separator, fields);
    for (const TextField& field : fields) {
      std::string name = ColumnName(field.text);
      std::erase_if(name, [](char c) { return c == '"' || c == '#'; });
      if (std::ranges::find(kAccelerators, name) != kAccelerators.end()) {
        return true;
      }
    }
  }
  return false;
}

absl::StatusOr<Trace> ParseCsvTrace(std::string_view text,
                                    std::string_view source,
                                    std::string_view ignored_columns) {
  return CsvTraceParser(text, source).Parse(ignored_columns);
}

}  // namespace gavel
