// `gavel trace`: makes traces of jobs, and shows what is in one.
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/workload/throughput_table.h"
#include "coordinator/workload/trace.h"
#include "coordinator/workload/trace_generator.h"
#include "core/status.h"
#include "core/text.h"
#include "core/units.h"
#include "study/commands.h"
#include "study/simulation/draw_flags.h"
#include "study/simulation/trace_summary.h"

namespace gavel::study {
namespace {

struct GenerateOptions {
  GeneratorOptions generator;
  uint64_t jobs = 0;
  std::optional<double> rate_per_h;
  bool all_at_zero = false;
  std::string throughputs;
  std::string output;
};

struct ShowOptions {
  std::string trace;
  std::string ignore_columns;
  uint64_t rows = 10;
};

// The mean time between arrivals; 0: all jobs are there at time 0.
absl::StatusOr<double> InterarrivalOf(const GenerateOptions& options) {
  if (options.all_at_zero && options.rate_per_h) {
    return absl::InvalidArgumentError(
        "--static and --rate exclude each other; give one");
  }
  if (options.all_at_zero) return 0.0;
  if (!options.rate_per_h) {
    return absl::InvalidArgumentError(
        "no arrivals; give --rate JOBS/H, or --static");
  }
  if (!(*options.rate_per_h > 0)) {
    return absl::InvalidArgumentError(
        StrCat("--rate is ", *options.rate_per_h,
               "; give jobs per hour above 0, or --static"));
  }
  return kHour_s / *options.rate_per_h;
}

absl::Status Generate(GenerateOptions options) {
  GAVEL_ASSIGN_OR_RETURN(options.generator.interarrival_s,
                         InterarrivalOf(options));
  GAVEL_ASSIGN_OR_RETURN(const std::string json,
                         ReadFile(options.throughputs, kThroughputBytesMax));
  GAVEL_ASSIGN_OR_RETURN(const ThroughputTable throughputs,
                         ThroughputTable::Parse(json, options.throughputs));
  GAVEL_ASSIGN_OR_RETURN(
      TraceGenerator generator,
      TraceGenerator::Create(options.generator, throughputs));
  const Trace trace = generator.Take(options.jobs);
  const std::string text = FormatTrace(trace);
  if (options.output.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return absl::OkStatus();
  }
  GAVEL_RETURN_IF_ERROR(WriteFile(options.output, text));
  std::printf("%s: %s\n", options.output.c_str(),
              RenderTraceLine(trace).c_str());
  return absl::OkStatus();
}

absl::Status Show(const ShowOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const std::string text,
                         ReadFile(options.trace, kTraceBytesMax));
  GAVEL_ASSIGN_OR_RETURN(const Trace trace, ParseTrace(text, options.trace,
                                                       options.ignore_columns));
  PrintNotices(trace.notices);
  const std::string shown =
      RenderTrace(trace, options.rows, Terminal().width());
  std::fputs(shown.c_str(), stdout);
  return absl::OkStatus();
}

void AddGenerate(CLI::App& parent, int* exit_code) {
  constexpr uint64_t kJobsMax = 10'000'000;
  auto [command, options] = AddCommand<GenerateOptions>(
      parent, exit_code, "generate",
      "Draws jobs as the original Gavel does for the seed, and writes them in "
      "its format (steps and weights as whole numbers)",
      Generate);
  command.add_option("--jobs", options.jobs, "how many")
      ->required()
      ->check(CLI::Range(uint64_t{1}, kJobsMax));
  GeneratorOptions& generator = options.generator;
  AddDrawFlags(command, &generator, &options.rate_per_h, &options.all_at_zero);
  AddOption(command, "--seed", generator.seed, "", "");
  AddOption(command, "--throughputs", options.throughputs, "FILE",
            "steps/s of job types on accelerator types: Gavel's JSON")
      ->required();
  AddOption(command, "--output", options.output, "FILE",
            "default: standard output");
}

void AddShow(CLI::App& parent, int* exit_code) {
  auto [command, options] = AddCommand<ShowOptions>(
      parent, exit_code, "show",
      "Says what is in a trace, and lists its first jobs", Show);
  AddOption(command, "trace", options.trace, "FILE",
            "jobs: Gavel's format, a CSV with duration_s and num_gpus, or TOML")
      ->required();
  AddIgnoreColumns(command, &options.ignore_columns);
  AddOption(command, "--rows", options.rows, "", "of the first jobs");
}

}  // namespace

void AddTraceCommand(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("trace", "Makes and shows traces of jobs");
  command->require_subcommand(1);
  AddGenerate(*command, exit_code);
  AddShow(*command, exit_code);
}

}  // namespace gavel::study
