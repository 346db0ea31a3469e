#include <cstdio>
#include <filesystem>
#include <string>

#include "coordinator/cli/command_options.h"
#include "coordinator/cli/files.h"
#include "core/status.h"
#include "core/text.h"
#include "study/commands.h"
#include "study/report/report.h"
#include "study/simulation/simulation_store.h"

namespace gavel::study {
namespace {

namespace fs = std::filesystem;

struct ReportFlags {
  std::string database;
  std::string output = "report.html";
  std::string csv_directory;
  std::string title;
  bool each_run = false;
};

absl::Status WriteCsvs(const ReportPage& page, const std::string& directory) {
  GAVEL_RETURN_IF_ERROR(MakeDirectory(directory));
  for (const ReportSection& section : page.sections) {
    const fs::path path = fs::path(directory) / (section.id + ".csv");
    GAVEL_RETURN_IF_ERROR(WriteFile(path.string(), section.csv.text()));
  }
  return absl::OkStatus();
}

absl::Status Run(const ReportFlags& options) {
  GAVEL_ASSIGN_OR_RETURN(SimulationStore store,
                         SimulationStore::OpenExisting(options.database));
  const std::string title =
      options.title.empty()
          ? StrCat("Gavel: ", fs::path(options.database).stem().string())
          : options.title;
  const absl::StatusOr<ReportPage> made =
      MakeReport(store, {title, options.each_run});
  if (!made.ok()) return Annotate(made.status(), options.database);
  const ReportPage& page = *made;
  GAVEL_RETURN_IF_ERROR(WriteFile(options.output, RenderPage(page)));
  if (!options.csv_directory.empty()) {
    GAVEL_RETURN_IF_ERROR(WriteCsvs(page, options.csv_directory));
  }
  std::printf("%s: %s\n", options.output.c_str(), page.summary.c_str());
  return absl::OkStatus();
}

}  // namespace

void AddReportCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<ReportFlags>(
      app, exit_code, "report",
      "Draws the results of a sweep: one HTML page, and CSV", Run);
  AddOption(command, "database", options.database, "RESULTS.db",
            "of `gavel sweep`")
      ->required();
  AddOption(command, "--output", options.output, "REPORT.html", "");
  AddOption(command, "--csv", options.csv_directory, "DIRECTORY",
            "writes the data of each plot there, too");
  command.add_flag("--each-run", options.each_run,
                   "also charts of single runs: accelerators in use by type, "
                   "the share of each job, rounds where they were recorded");
  AddOption(command, "--title", options.title, "", "of the page");
}

}  // namespace gavel::study
