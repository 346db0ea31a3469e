// Gavel's own form of a trace: columns between tabs.
#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/workload/text_lines.h"
#include "coordinator/workload/trace_forms.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// The columns, by the names that the original's parser gives them. Two columns
// of a form are never empty: the type and the last.
constexpr std::array<std::string_view, 10> kTen = {
    "job_type",      "command",         "working_directory",
    "num_steps_arg", "needs_data_dir",  "total_steps",
    "scale_factor",  "priority_weight", "SLO",
    "arrival_time"};
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
};

constexpr std::array<Form, 3> kForms = {Form(kTen), Form(kOldSeven),
                                        Form(kTwelve)};

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
                 "factor, weight, SLO, arrival; seven as old traces have, or "
                 "Shockwave's twelve"));
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
    // The original truncates the steps of short jobs to 0.
    if (status_.ok() && job.steps_total == 0) return idle_.Count("steps");
    job.job_template = TemplateOf(line, *form, reader);
    if (form->mode != Form::kNone && fields_[form->mode].text != kStaticMode) {
      ++adaptive_;
    }
    trace_.jobs.push_back(job);
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

  // Templates are told apart by the text of their columns, which come first.
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
  IdleRows idle_;
  size_t adaptive_ = 0;  // jobs of another mode than static
};

}  // namespace

absl::StatusOr<Trace> ParseGavelTrace(std::string_view text,
                                      std::string_view source) {
  return GavelTraceParser(source).Parse(text);
}

}  // namespace gavel
