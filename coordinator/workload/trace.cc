#include "coordinator/workload/trace.h"

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "coordinator/workload/text_lines.h"
#include "coordinator/workload/trace_forms.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

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
  // What TOML begins with may hold tabs and commas, too.
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

void IdleRows::Tell(Trace& trace) const {
  for (const auto& [what, rows] : rows_) {
    trace.notices.push_back(StrCat(rows, rows == 1 ? " row" : " rows", " of 0 ",
                                   what, rows == 1 ? " is" : " are",
                                   " left out: there is nothing to run"));
  }
}

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
    absl::StrAppendFormat(&text, "\t%f\t%f\n", job.slo > 0 ? job.slo : kNoSlo,
                          job.arrival_s);
  }
  return text;
}

}  // namespace gavel
