// Gavel's own form of a trace: columns between tabs.
#include <array>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/workload/text_lines.h"
#include "coordinator/workload/trace_forms.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// Where each value is; kNone: the form does not have it.
struct Form {
  static constexpr size_t kNone = SIZE_MAX;
  size_t count;
  size_t working_directory;
  size_t steps_flag;
  size_t needs_data_directory;  // the last that makes up the template
  size_t steps;
  size_t scale_factor;
  size_t weight;
  size_t slo;
  size_t arrival;
};

constexpr std::array<Form, 2> kForms = {Form{.count = 10,
                                             .working_directory = 2,
                                             .steps_flag = 3,
                                             .needs_data_directory = 4,
                                             .steps = 5,
                                             .scale_factor = 6,
                                             .weight = 7,
                                             .slo = 8,
                                             .arrival = 9},
                                        Form{.count = 7,
                                             .working_directory = Form::kNone,
                                             .steps_flag = 2,
                                             .needs_data_directory = 3,
                                             .steps = 4,
                                             .scale_factor = 6,
                                             .weight = Form::kNone,
                                             .slo = Form::kNone,
                                             .arrival = 5}};

const Form* FormOf(const std::vector<TextField>& fields) {
  for (const Form& form : kForms) {
    if (form.count == fields.size()) return &form;
  }
  return nullptr;
}

class GavelTraceParser {
 public:
  explicit GavelTraceParser(std::string_view source) : source_(source) {}

  absl::StatusOr<Trace> Parse(std::string_view text) && {
    TextLines lines(text);
    while (const std::optional<TextLine> line = lines.Next()) {
      ReadLine(*line);
      GAVEL_RETURN_IF_ERROR(status_);
    }
    return std::move(trace_);
  }

 private:
  void ReadLine(const TextLine& line) {
    FieldReader reader(line, source_, status_);
    SplitFields(line.text, '\t', fields_);
    const Form* form = FormOf(fields_);
    if (form == nullptr) {
      return reader.FailAtEnd(
          StrCat("the line has ", fields_.size(),
                 " columns; write ten between tabs: type, command, working "
                 "directory, steps flag, needs data directory, steps, scale "
                 "factor, weight, SLO, arrival"));
    }
    TraceJob job;
    job.job_template = TemplateOf(line, *form, reader);
    job.steps_total = reader.Number(fields_[form->steps], "steps", kTraceSteps);
    job.scale_factor = reader.Integer(fields_[form->scale_factor],
                                      "scale factor", 1, kTraceScaleFactorMax);
    if (form->weight != Form::kNone) {
      job.weight = reader.Number(fields_[form->weight], "weight", kTraceWeight);
    }
    if (form->slo != Form::kNone) job.slo = ReadSlo(*form, reader);
    job.arrival_s = ReadArrival(*form, reader);
    trace_.jobs.push_back(job);
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
};

}  // namespace

absl::StatusOr<Trace> ParseGavelTrace(std::string_view text,
                                      std::string_view source) {
  return GavelTraceParser(source).Parse(text);
}

}  // namespace gavel
