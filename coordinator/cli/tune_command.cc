// The options of `gavel tune`, and its output while a search runs.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/processes.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/cli/tune_run.h"
#include "coordinator/cli/tune_table.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/stopwatch.h"
#include "runtime/files/user_files.h"

namespace gavel {
namespace {

struct TuneOptions : ClientOptions {
  std::string search;
  std::vector<std::string> program;
  std::string folder;
  bool cancel = false;
};

// On a terminal the table with a bar below it; else a line for each segment
// that has ended.
class TuneScreen {
 public:
  TuneScreen(const TuneRun& run, bool quiet) : run_(run), quiet_(quiet) {}

  void Show() {
    if (quiet_) return;
    if (!terminal_.is_terminal()) return ShowLines();
    const uint64_t planned = StepsPlanned(run_.spec());
    const uint64_t taken = StepsTaken(run_);
    if (first_taken_ == kNone) first_taken_ = taken;
    const double part =
        static_cast<double>(taken) / static_cast<double>(planned);
    const double begun =
        static_cast<double>(first_taken_) / static_cast<double>(planned);
    // The bar expects the remaining steps to take as long, each, as the steps
    // since the command began.
    const double elapsed_s =
        part > begun ? clock_.elapsed_s() * part / (part - begun) : 0;
    terminal_.Show(StrCat(RenderTrials(run_, terminal_.width()),
                          run_.over()
                              ? RenderBest(run_)
                              : RenderBar(run_.spec().name, part, elapsed_s,
                                          run_.trouble(), terminal_.width())));
  }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};

  void ShowLines() {
    const std::vector<tune::TrialSegment>& all = run_.state().segments;
    shown_.resize(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const tune::TrialSegment& one = all[i];
      if (shown_[i] || one.outcome == tune::Outcome::kRunning) continue;
      shown_[i] = true;
      const std::string what = one.outcome == tune::Outcome::kDone
                                   ? StrCat(run_.spec().metric, " ", one.value,
                                            " at step ", one.segment.to_steps)
                                   : StrCat("failed: ", one.why);
      std::printf("trial %d: %s\n", one.segment.trial, what.c_str());
    }
    if (run_.trouble() != trouble_) {
      trouble_ = run_.trouble();
      if (!trouble_.empty()) PrintNotices({trouble_});
    }
    if (run_.over()) std::printf("%s", RenderBest(run_).c_str());
    std::fflush(stdout);
  }

  const TuneRun& run_;
  const bool quiet_;
  Terminal terminal_;
  Stopwatch clock_;
  uint64_t first_taken_ = kNone;
  std::vector<bool> shown_;
  std::string trouble_;
};

absl::Status Tune(const TuneOptions& options) {
  const StopFlag stop;
  TuneRun::Options run_options{options, options.search, "", options.program,
                               options.folder};
  GAVEL_ASSIGN_OR_RETURN(run_options.text,
                         ReadFile(options.search, tune::kSearchBytesMax));
  if (run_options.folder.empty()) {
    GAVEL_ASSIGN_OR_RETURN(
        const tune::SearchSpec spec,
        tune::ParseSearchSpec(run_options.text, options.search));
    run_options.folder = "gavel-results/" + spec.name;
  }
  const std::string record = run_options.folder + "/search.json";
  std::error_code error;
  if (options.cancel && !std::filesystem::exists(record, error)) {
    return absl::NotFoundError(StrCat(record,
                                      " is not there; give --folder as "
                                      "the search had it"));
  }
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<TuneRun> run,
                         TuneRun::Open(std::move(run_options)));
  if (options.cancel) {
    GAVEL_ASSIGN_OR_RETURN(const int cancelled, run->CancelJobs());
    if (!options.json) {
      absl::PrintF("Cancelled %d jobs of the search\n", cancelled);
    }
    return absl::OkStatus();
  }
  TuneScreen screen(*run, options.json);
  const absl::Status status =
      run->Run(*stop.get(), [&screen] { screen.Show(); });
  if (options.json) std::printf("%s\n", TrialsJson(*run).dump(2).c_str());
  return status;
}

}  // namespace

void AddTuneCommand(CLI::App& app, std::vector<std::string> program,
                    int* exit_code) {
  auto [command, options] = AddCommand<TuneOptions>(
      app, exit_code, "tune",
      "Searches hyperparameters: its trials are jobs of one app, which are "
      "stopped, continued and forked between two steps. Called again, it "
      "continues",
      Tune);
  options.program = std::move(program);
  command.footer(
      "Called as: gavel tune search.toml [OPTIONS] -- ./train {lr} {depth}\n"
      "docs/tune.md explains the file and the methods.");
  AddClientOptions(command, &options);
  AddOption(command, "search", options.search, "SEARCH.toml", "the search file")
      ->required();
  AddOption(command, "--folder", options.folder, "FOLDER",
            "for its record, checkpoints and report, on a disk that all "
            "servers share (default gavel-results/NAME)");
  command.add_flag("--cancel", options.cancel,
                   "cancels the jobs of the search, and ends");
}

}  // namespace gavel
