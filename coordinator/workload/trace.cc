#include "coordinator/workload/trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/text_lines.h"
#include "coordinator/workload/toml_reader.h"
#include "core/status.h"
#include "core/text.h"
#include "core/units.h"

namespace gavel {
namespace {

// Far enough for seconds since 1970.
constexpr double kTraceTimeMax_s = 1e11;
constexpr int kTraceScaleFactorMax = 4096;
constexpr int kTraceJobsMax = 1'000'000;  // by `count` of TOML

constexpr NumberRange kTraceDuration = {.above_min = true,
                                        .max = kTraceTimeMax_s};
constexpr NumberRange kTraceArrival = {.max = kTraceTimeMax_s};
constexpr NumberRange kTraceWeight = {.above_min = true, .max = 1e9};
constexpr NumberRange kTraceSlo = {.above_min = true, .max = 1e9};
constexpr NumberRange kTraceLoss = {.max = 1e9};
// The loss of a job that has not begun is finite.
constexpr NumberRange kTraceLossBegin = {.above_min = true, .max = 1e9};

// True when `arrival_s` is before that of the last job of `trace`.
bool IsBeforeLastArrival(const Trace& trace, double arrival_s) {
  return !trace.jobs.empty() && arrival_s < trace.jobs.back().arrival_s;
}

// Counts the rows of a trace that have nothing to run, by the reason.
class IdleRows {
 public:
  void Count(std::string_view what) { ++rows_[std::string(what)]; }
  // "2 rows of 0 steps are left out" for each.
  void Tell(Trace& trace) const {
    for (const auto& [what, rows] : rows_) {
      trace.notices.push_back(StrCat(rows, rows == 1 ? " row" : " rows",
                                     " of 0 ", what, rows == 1 ? " is" : " are",
                                     " left out: there is nothing to run"));
    }
  }

 private:
  std::map<std::string, size_t> rows_;
};

// The apps of a trace by name.
class AppNames {
 public:
  // Borrows the trace, whose apps it adds.
  explicit AppNames(Trace& trace) : trace_(trace) {}

  // Sets `app` to the index of the app, which may be new. Returns the reason
  // if this can't be the name of an app, else an empty text.
  std::string Take(std::string_view name, size_t* app) {
    constexpr size_t kAppBytesMax = 256;
    if (name.empty() || name.size() > kAppBytesMax) {
      return StrCat("the app has ", name.size(), " bytes; write 1 to ",
                    kAppBytesMax, ", or leave it out");
    }
    const auto [found, added] =
        indexes_.try_emplace(std::string(name), trace_.apps.size());
    if (added) trace_.apps.emplace_back(name);
    *app = found->second;
    return "";
  }

 private:
  Trace& trace_;
  std::map<std::string, size_t, std::less<>> indexes_;
};

constexpr std::string_view kTrainingClass = "training";
constexpr std::string_view kInteractiveClass = "interactive";

// Sets `interactive` by the name of a class. Returns the reason if jobs of the
// class are not simulated, else an empty text.
std::string TakeClass(std::string_view name, bool* interactive) {
  *interactive = name == kInteractiveClass;
  if (*interactive || name == kTrainingClass) return "";
  return StrCat("class ", QuoteToml(name), " is not simulated; write \"",
                kTrainingClass, "\" or \"", kInteractiveClass, "\"");
}

// The parsers below take a text with at least one line that is neither blank
// nor a comment, and without a byte order mark. Their result may have no jobs.

// ---- Gavel's own form: columns between tabs ----

// The columns, by the names that the original's parser gives them. Two columns
// of a form are never empty: the type and the last.
//
// The first ten are the original's. A job may have its app behind them, which
// may be empty where its class and its duration follow.
constexpr std::array<std::string_view, 13> kThirteen = {"job_type",
                                                        "command",
                                                        "working_directory",
                                                        "num_steps_arg",
                                                        "needs_data_dir",
                                                        "total_steps",
                                                        "scale_factor",
                                                        "priority_weight",
                                                        "SLO",
                                                        "arrival_time",
                                                        "app",
                                                        "class",
                                                        "duration"};
constexpr std::array<std::string_view, 7> kOldSeven = {
    "job_type",    "command",      "num_steps_arg", "needs_data_dir",
    "total_steps", "arrival_time", "scale_factor"};
// Shockwave's: the mode is how the job changes its batch size.
constexpr std::array<std::string_view, 12> kTwelve = {
    "job_type",        "command",     "working_directory", "num_steps_arg",
    "needs_data_dir",  "total_steps", "scale_factor",      "mode",
    "priority_weight", "SLO",         "duration",          "arrival_time"};
constexpr std::string_view kStaticMode = "static";

// Where each value is; kNone: the form does not have it.
struct Form {
  static constexpr size_t kNone = SIZE_MAX;
  explicit constexpr Form(std::span<const std::string_view> columns)
      : names(columns) {}
  constexpr size_t At(std::string_view name) const {
    const auto found = std::find(names.begin(), names.end(), name);
    return found == names.end() ? kNone
                                : static_cast<size_t>(found - names.begin());
  }

  std::span<const std::string_view> names;
  size_t working_directory = At("working_directory");
  size_t steps_flag = At("num_steps_arg");
  // The last that makes up the template.
  size_t needs_data_directory = At("needs_data_dir");
  size_t steps = At("total_steps");
  size_t scale_factor = At("scale_factor");
  size_t mode = At("mode");
  size_t weight = At("priority_weight");
  size_t slo = At("SLO");
  size_t duration = At("duration");
  size_t arrival = At("arrival_time");
  size_t app = At("app");
  size_t job_class = At("class");
};

constexpr std::array<Form, 5> kForms = {
    Form(std::span(kThirteen).first(10)), Form(kOldSeven), Form(kTwelve),
    Form(std::span(kThirteen).first(11)), Form(kThirteen)};

const Form* FormOf(const std::vector<TextField>& fields) {
  for (const Form& form : kForms) {
    if (form.names.size() == fields.size()) return &form;
  }
  return nullptr;
}

class GavelTraceParser {
 public:
  explicit GavelTraceParser(std::string_view source) : source_(source) {}

  absl::StatusOr<Trace> Parse(std::string_view text) && {
    TextLines lines(text);
    bool first = true;
    while (const std::optional<TextLine> line = lines.Next()) {
      if (IsComment(*line)) continue;
      ReadLine(*line, std::exchange(first, false));
      GAVEL_RETURN_IF_ERROR(status_);
    }
    idle_.Tell(trace_);
    if (adaptive_ > 0) {
      trace_.notices.push_back(
          StrCat(adaptive_, adaptive_ == 1 ? " job changes" : " jobs change",
                 " the batch size by a mode other than ", kStaticMode,
                 "; simulated is the batch size of the type"));
    }
    return std::move(trace_);
  }

 private:
  void ReadLine(const TextLine& line, bool is_first) {
    FieldReader reader(line, source_, status_);
    SplitFields(line.text, '\t', fields_);
    // Spreadsheets put tabs behind the last column.
    while (fields_.size() > 1 && IsBlank(fields_.back().text)) {
      fields_.pop_back();
    }
    const Form* form = FormOf(fields_);
    if (form == nullptr) {
      return reader.FailAtEnd(
          StrCat("the line has ", fields_.size(),
                 " columns; write ten between tabs: type, command, working "
                 "directory, steps flag, needs data directory, steps, scale "
                 "factor, weight, SLO, arrival, and an app as the eleventh if "
                 "the job has one; thirteen with class and duration; seven as "
                 "old traces have, or Shockwave's twelve"));
    }
    if (is_first && IsHeader(*form)) return CheckHeader(*form, reader);
    TraceJob job;
    job.steps_total =
        reader.Number(fields_[form->steps], "steps", {.max = kTraceStepsMax});
    job.scale_factor = reader.Integer(fields_[form->scale_factor],
                                      "scale factor", 1, kTraceScaleFactorMax);
    if (form->weight != Form::kNone) {
      job.weight = reader.Number(fields_[form->weight], "weight", kTraceWeight);
    }
    if (form->slo != Form::kNone) job.slo = ReadSlo(*form, reader);
    if (form->duration != Form::kNone) {
      job.duration_s = reader.Number(fields_[form->duration], "duration",
                                     {.max = kTraceTimeMax_s});
    }
    job.arrival_s = ReadArrival(*form, reader);
    if (form->app != Form::kNone) {
      const TextField& field = fields_[form->app];
      const bool left_out =
          form->job_class != Form::kNone && field.text.empty();
      const std::string wrong =
          left_out ? "" : apps_.Take(field.text, &job.app);
      if (!wrong.empty()) reader.Fail(field, wrong);
    }
    if (form->job_class != Form::kNone) ReadClass(*form, reader, job);
    // The original truncates the steps of short jobs to 0.
    if (status_.ok() && job.steps_total == 0) return idle_.Count("steps");
    job.job_template = TemplateOf(line, *form, reader);
    if (form->mode != Form::kNone && fields_[form->mode].text != kStaticMode) {
      ++adaptive_;
    }
    trace_.jobs.push_back(job);
  }

  // The steps of an interactive job are its seconds, whatever the line says.
  void ReadClass(const Form& form, FieldReader& reader, TraceJob& job) {
    const TextField& field = fields_[form.job_class];
    const std::string wrong = TakeClass(field.text, &job.interactive);
    if (!wrong.empty()) reader.Fail(field, wrong);
    if (!job.interactive) return;
    if (status_.ok() && job.duration_s == 0) {
      reader.Fail(fields_[form.duration],
                  "an interactive job has a duration of 0; write for how many "
                  "seconds it is used");
    }
    job.steps_total = job.duration_s;
  }

  // Names where numbers belong.
  bool IsHeader(const Form& form) const {
    return fields_[form.steps].text == form.names[form.steps] ||
           fields_[0].text == form.names[0];
  }

  void CheckHeader(const Form& form, FieldReader& reader) {
    for (size_t i = 0; i < fields_.size(); ++i) {
      const auto named =
          std::find(form.names.begin(), form.names.end(), fields_[i].text);
      if (named == form.names.end() ||
          named == form.names.begin() + static_cast<long>(i)) {
        continue;
      }
      reader.Fail(fields_[i],
                  StrCat("column ", i + 1, " is named ", *named, ", and ",
                         form.names[i], " belongs there; reorder the columns"));
    }
  }

  // Templates differ by the text of their columns, which come first.
  size_t TemplateOf(const TextLine& line, const Form& form,
                    FieldReader& reader) {
    const TextField& last = fields_[form.needs_data_directory];
    const std::string_view text =
        line.text.substr(0, last.offset + last.text.size());
    if (const auto known = template_of_.find(text);
        known != template_of_.end()) {
      return known->second;
    }
    trace_.templates.push_back(ReadTemplate(form, reader));
    return template_of_[text] = trace_.templates.size() - 1;
  }

  JobTemplate ReadTemplate(const Form& form, FieldReader& reader) {
    JobTemplate result;
    result.type = fields_[0].text;
    if (result.type.empty()) {
      reader.Fail(fields_[0],
                  "the job type is empty; write the name of a row "
                  "of the throughputs");
    }
    result.command = fields_[1].text;
    if (form.working_directory != Form::kNone) {
      result.working_directory = fields_[form.working_directory].text;
    }
    result.steps_flag = fields_[form.steps_flag].text;
    result.needs_data_directory =
        reader.Integer(fields_[form.needs_data_directory],
                       "needs data directory", 0, 1) == 1;
    return result;
  }

  // The original writes -1 for none.
  double ReadSlo(const Form& form, FieldReader& reader) {
    constexpr double kNoSlo = -1;
    const TextField& field = fields_[form.slo];
    NumberRange range = kTraceSlo;
    range.above_min = false;
    range.min = kNoSlo;
    const double slo = reader.Number(field, "SLO", range);
    if (slo == kNoSlo || slo > 0) return slo > 0 ? slo : 0;
    if (status_.ok() && slo != 0) {
      reader.Fail(field, StrCat("SLO is \"", field.text,
                                "\"; write a multiple of the duration above 0, "
                                "or -1 for none"));
    }
    return 0;
  }

  double ReadArrival(const Form& form, FieldReader& reader) {
    const TextField& field = fields_[form.arrival];
    const double arrival_s = reader.Number(field, "arrival", kTraceArrival);
    if (IsBeforeLastArrival(trace_, arrival_s)) {
      reader.Fail(field, StrCat("arrival ", field.text,
                                " is before that of the job ahead; sort the "
                                "jobs by arrival"));
    }
    return arrival_s;
  }

  std::string_view source_;
  absl::Status status_;
  Trace trace_;
  std::vector<TextField> fields_;
  std::map<std::string_view, size_t> template_of_;
  AppNames apps_{trace_};
  IdleRows idle_;
  size_t adaptive_ = 0;  // jobs of another mode than static
};

absl::StatusOr<Trace> ParseGavelTrace(std::string_view text,
                                      std::string_view source) {
  return GavelTraceParser(source).Parse(text);
}

// ---- CSV: duration and accelerators of each job, also under the names that
// the public traces of Philly, Helios, PAI and Acme give them ----

// Names of a column, ours first.
using Names = std::initializer_list<std::string_view>;
const Names kDuration = {"duration_s", "duration", "run_time"};
const Names kAccelerators = {"num_gpus", "num_gpu", "gpu_num", "gpus"};
const Names kArrival = {"arrival_s", "submit_time", "arrival_time",
                        "submitted_time"};
const Names kType = {"type", "job_type", "model"};
const Names kWeight = {"weight", "priority_weight"};
const Names kEntity = {"entity"};
const Names kApp = {"app"};
const Names kClass = {"class"};
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
    app_ = csv_.FindColumn(kApp);
    class_ = csv_.FindColumn(kClass);
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
    if (IsThere(app_, &text)) {
      const std::string wrong = apps_.Take(text, &job.app);
      if (!wrong.empty()) csv_.Fail(app_, wrong);
    }
    if (IsThere(name_)) trace_.names.emplace_back(csv_.Text(name_));
    if (IsThere(class_, &text)) {
      const std::string wrong = TakeClass(text, &job.interactive);
      if (!wrong.empty()) csv_.Fail(class_, wrong);
    }
    std::string_view type;
    // Without a type nothing tells a throughput: 1 step/s, by definition.
    const bool typed = IsThere(type_, &type);
    if (!typed) type = job.interactive ? kInteractiveJobType : kNoJobType;
    if (!typed || job.interactive) job.steps_total = job.duration_s;
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
  AppNames apps_{trace_};
  size_t duration_ = CsvReader::kNoColumn;
  size_t start_ = CsvReader::kNoColumn;
  size_t end_ = CsvReader::kNoColumn;
  size_t accelerators_ = CsvReader::kNoColumn;
  size_t arrival_ = CsvReader::kNoColumn;
  size_t type_ = CsvReader::kNoColumn;
  size_t weight_ = CsvReader::kNoColumn;
  size_t entity_ = CsvReader::kNoColumn;
  size_t app_ = CsvReader::kNoColumn;
  size_t class_ = CsvReader::kNoColumn;
  size_t deadline_ = CsvReader::kNoColumn;
  size_t name_ = CsvReader::kNoColumn;
  bool dated_ = false;
  double first_s_ = 0;  // of the first arrival, since 1970; else 0
  std::map<std::string, size_t, std::less<>> template_of_;  // by type
  std::map<std::string, size_t, std::less<>> entity_of_;
};

// Whether the line names the duration or the accelerators of jobs.
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

// ---- [[job]] and [[entity]] tables of TOML ----

constexpr size_t kTomlTraceBytesMax = 256 * 1024 * 1024;

class TomlTraceParser {
 public:
  TomlTraceParser(const toml::table& root, std::string_view source)
      : root_(root), source_(source) {}

  absl::StatusOr<Trace> Parse() && {
    TomlReader reader(root_, source_, {"job", "entity"}, status_);
    for (const toml::table* table : reader.Tables("entity")) {
      ReadEntity(*table);
    }
    for (const toml::table* table : reader.Tables("job")) {
      ReadJobs(*table);
      GAVEL_RETURN_IF_ERROR(status_);
    }
    GAVEL_RETURN_IF_ERROR(status_);
    return std::move(trace_);
  }

 private:
  void ReadEntity(const toml::table& table) {
    TomlReader reader(table, source_, {"name", "weight", "policy"}, status_);
    TraceEntity entity;
    reader.Require("name", "name = \"vision\"");
    reader.ReadName("name", entity.name);
    reader.Read("weight", entity.weight, kTraceWeight);
    reader.ReadName("policy", entity.policy);
    if (!entity_of_.emplace(entity.name, trace_.entities.size()).second) {
      reader.Fail("name", StrCat("entity \"", entity.name,
                                 "\" is named twice; give each its own name"));
    }
    trace_.entities.push_back(std::move(entity));
  }

  // One table stands for `count` jobs.
  void ReadJobs(const toml::table& table) {
    TomlReader reader(table, source_,
                      {"type", "command", "steps_total", "duration_s", "count",
                       "scale_factor", "scale_factor_min", "scale_factor_max",
                       "weight", "arrival_s", "slo", "entity", "app", "class",
                       "loss_b0", "loss_b1", "loss_b2"},
                      status_);
    TraceJob job;
    job.job_template = ReadTemplate(reader);
    ReadWork(reader, job);
    ReadScaleFactors(reader, job);
    ReadClass(reader, job);
    reader.Read("weight", job.weight, kTraceWeight);
    reader.Read("slo", job.slo, kTraceSlo);
    ReadArrival(reader, job);
    ReadEntityOf(reader, job);
    ReadLoss(reader, job);
    std::string app;
    if (reader.Read("app", app)) {
      const std::string wrong = apps_.Take(app, &job.app);
      if (!wrong.empty()) reader.Fail("app", wrong);
    }
    int count = 1;
    reader.Read("count", count, 1, kTraceJobsMax);
    const size_t jobs = trace_.jobs.size() + static_cast<size_t>(count);
    if (jobs > kTraceJobsMax) {
      return reader.Fail("count", StrCat("the trace has more than ",
                                         kTraceJobsMax, " jobs; lower count"));
    }
    if (status_.ok()) trace_.jobs.resize(jobs, job);
  }

  static void ReadScaleFactors(TomlReader& reader, TraceJob& job) {
    reader.Read("scale_factor", job.scale_factor, 1, kTraceScaleFactorMax);
    reader.Read("scale_factor_min", job.scale_factor_min, 1,
                kTraceScaleFactorMax);
    reader.Read("scale_factor_max", job.scale_factor_max, 1,
                kTraceScaleFactorMax);
    CheckScaleFactors(job.scale_factor_min, job.scale_factor,
                      job.scale_factor_max, reader);
  }

  static void ReadClass(TomlReader& reader, TraceJob& job) {
    std::string name;
    if (!reader.Read("class", name)) return;
    const std::string wrong = TakeClass(name, &job.interactive);
    if (!wrong.empty()) return reader.Fail("class", wrong);
    if (!job.interactive) return;
    if (reader.Has("steps_total") || !reader.Has("duration_s")) {
      reader.Fail("class",
                  "an interactive job has a duration and no steps; write "
                  "duration_s in place of steps_total");
    }
    if (job.LeastWorkers() != job.MostWorkers()) {
      reader.Fail("class",
                  "an interactive job can't be elastic; leave out "
                  "scale_factor_min and scale_factor_max");
    }
    job.steps_total = job.duration_s;
  }

  size_t ReadTemplate(TomlReader& reader) {
    JobTemplate job_template;
    reader.Require("type", "type = \"ResNet-18 (batch size 64)\"");
    if (reader.Read("type", job_template.type) && job_template.type.empty()) {
      reader.Fail("type",
                  "type is empty; write the name of a row of the "
                  "throughputs");
    }
    reader.Read("command", job_template.command);
    const auto [found, added] = template_of_.try_emplace(
        std::pair(job_template.type, job_template.command),
        trace_.templates.size());
    if (added) trace_.templates.push_back(std::move(job_template));
    return found->second;
  }

  void ReadWork(TomlReader& reader, TraceJob& job) {
    if (!reader.Has("duration_s")) {
      reader.Require("steps_total",
                     "steps_total = 10000, or duration_s = 3600");
    }
    reader.Read("steps_total", job.steps_total, kTraceSteps);
    reader.Read("duration_s", job.duration_s, kTraceDuration);
  }

  void ReadArrival(TomlReader& reader, TraceJob& job) {
    reader.Read("arrival_s", job.arrival_s, kTraceArrival);
    if (IsBeforeLastArrival(trace_, job.arrival_s)) {
      reader.Fail("arrival_s",
                  StrCat("arrival_s ", job.arrival_s,
                         " is before that of the job ahead; sort the jobs by "
                         "arrival_s, which is 0 unless written"));
    }
  }

  static void ReadLoss(TomlReader& reader, TraceJob& job) {
    reader.Read("loss_b0", job.loss.b0, kTraceLoss);
    reader.Read("loss_b1", job.loss.b1, kTraceLossBegin);
    reader.Read("loss_b2", job.loss.b2, kTraceLoss);
  }

  void ReadEntityOf(TomlReader& reader, TraceJob& job) {
    std::string name;
    if (!reader.ReadName("entity", name)) return;
    const auto found = entity_of_.find(name);
    if (found == entity_of_.end()) {
      return reader.Fail(
          "entity", StrCat("there is no entity \"", name,
                           "\"; add [[entity]] with name = \"", name, "\""));
    }
    job.entity = found->second;
  }

  const toml::table& root_;
  std::string_view source_;
  absl::Status status_;
  Trace trace_;
  AppNames apps_{trace_};
  std::map<std::string, size_t> entity_of_;
  std::map<std::pair<std::string, std::string>, size_t> template_of_;
};

absl::StatusOr<Trace> ParseTomlTrace(std::string_view text,
                                     std::string_view source) {
  GAVEL_ASSIGN_OR_RETURN(const toml::table root,
                         ParseToml(text, source, kTomlTraceBytesMax));
  return TomlTraceParser(root, source).Parse();
}

// ---- Any of the forms ----

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

absl::Status ErrorOf(std::string_view source, std::string_view what) {
  return absl::InvalidArgumentError(StrCat(source, ":1:1: ", what));
}

absl::Status EmptyError(std::string_view source) {
  return ErrorOf(source,
                 "the trace has no jobs; write one per line as Gavel does, a "
                 "CSV with a header, or [[job]] tables of TOML");
}

absl::StatusOr<Trace> ParseForm(const TextLine& first, std::string_view text,
                                std::string_view source,
                                std::string_view ignored_columns) {
  const std::string_view line = first.text;
  const auto has = [line](char c) {
    return line.find(c) != std::string_view::npos;
  };
  // The first line of TOML may hold tabs and commas, too.
  if (line.starts_with('[')) return ParseTomlTrace(text, source);
  if (IsHeaderOfCsv(line)) return ParseCsvTrace(text, source, ignored_columns);
  if (has('\t')) return ParseGavelTrace(text, source);
  if (has('=')) return ParseTomlTrace(text, source);
  if (has(',')) return ParseCsvTrace(text, source, ignored_columns);
  return absl::InvalidArgumentError(
      StrCat(source, ":", first.number, ":1: a line of no form of a trace; ",
             "write columns between tabs as Gavel does, a CSV with a header, "
             "or [[job]] tables of TOML"));
}

}  // namespace

absl::StatusOr<Trace> ParseTrace(std::string_view text, std::string_view source,
                                 std::string_view ignored_columns) {
  if (text.size() > kTraceBytesMax) {
    return ErrorOf(source, StrCat(text.size(), " bytes exceed the ",
                                  kTraceBytesMax, " allowed; split the trace"));
  }
  if (text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());
  }
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    return ErrorOf(source, "the text is UTF-16; save it as UTF-8");
  }
  TextLines lines(text);
  std::optional<TextLine> first = lines.Next();
  while (first.has_value() && IsComment(*first)) first = lines.Next();
  if (!first.has_value()) return EmptyError(source);
  GAVEL_ASSIGN_OR_RETURN(Trace trace,
                         ParseForm(*first, text, source, ignored_columns));
  if (!trace.jobs.empty()) return trace;
  if (trace.notices.empty()) return EmptyError(source);
  return ErrorOf(source,
                 StrCat("the trace has no jobs, for ", trace.notices.front()));
}

std::string FormatTrace(const Trace& trace) {
  constexpr double kNoSlo = -1;
  std::string text;
  for (const TraceJob& job : trace.jobs) {
    const JobTemplate& of = trace.templates[job.job_template];
    StrAppend(&text, of.type, "\t", of.command, "\t", of.working_directory,
              "\t", of.steps_flag, "\t", of.needs_data_directory ? 1 : 0, "\t",
              static_cast<int64_t>(job.steps_total), "\t", job.scale_factor,
              "\t", static_cast<int64_t>(job.weight));
    absl::StrAppendFormat(&text, "\t%f\t%f", job.slo > 0 ? job.slo : kNoSlo,
                          job.arrival_s);
    const std::string app =
        job.app == TraceJob::kNoApp ? "" : trace.apps[job.app];
    if (job.interactive) {
      absl::StrAppendFormat(&text, "\t%s\t%s\t%f", ToAbsl(app),
                            ToAbsl(kInteractiveClass), job.duration_s);
    } else if (!app.empty()) {
      StrAppend(&text, "\t", app);
    }
    text += '\n';
  }
  return text;
}

}  // namespace gavel
