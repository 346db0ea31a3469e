#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/doctor_examination.h"
#include "coordinator/cli/doctor_run.h"
#include "coordinator/cli/stop_signals.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kStepsMax = 100'000;

struct Options {
  uint64_t steps = 20;
  std::string state;
  double timeout_s = 120;
  std::vector<std::string> ignored;
  std::vector<std::string> command;
};

// Removed with what is in it, unless it is kept.
class WorkFolder {
 public:
  static absl::StatusOr<WorkFolder> Create(const std::string& parent) {
    std::error_code error;
    fs::path path =
        parent.empty() ? fs::temp_directory_path(error) : fs::path(parent);
    if (!error) fs::create_directories(path, error);
    // Programs may change their directory: what they are given is absolute.
    if (!error) path = fs::absolute(path, error);
    std::string name = (path / "gavel-doctor-XXXXXX").string();
    if (error || mkdtemp(name.data()) == nullptr) {
      const int number = error ? error.value() : errno;
      return absl::ErrnoToStatus(
          number,
          StrCat(path.string(),
                 ": no folder can be made there; give another by --state"));
    }
    return WorkFolder(name);
  }
  ~WorkFolder() {
    std::error_code ignored;
    if (!path_.empty() && !kept_) fs::remove_all(path_, ignored);
  }
  WorkFolder(WorkFolder&& other) noexcept
      : path_(std::exchange(other.path_, "")), kept_(other.kept_) {}
  WorkFolder& operator=(WorkFolder&&) = delete;

  const std::string& path() const { return path_; }
  void Keep() { kept_ = true; }

 private:
  explicit WorkFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
  bool kept_ = false;
};

absl::StatusOr<int> Run(const Options& options) {
  std::atomic<bool> stop = false;
  StopSignals signals;
  GAVEL_ASSIGN_OR_RETURN(WorkFolder folder, WorkFolder::Create(options.state));
  signals.Attach([&stop] { stop = true; });
  std::printf("gavel doctor: %s\n", options.command.front().c_str());
  const DoctorProgram program{options.command, folder.path(), options.timeout_s,
                              &stop};
  const absl::StatusOr<Verdict> verdict = Examine(
      program,
      {options.steps, {options.ignored.begin(), options.ignored.end()}});
  signals.Attach(nullptr);
  if (!verdict.ok()) return verdict.status();
  if (verdict->passed) {
    std::printf("PASS: %s\n", verdict->text.c_str());
    return kExitOk;
  }
  folder.Keep();
  std::string text = verdict->text;
  if (!text.ends_with('\n')) text += '\n';
  std::printf("FAIL: %s  Outputs, reports and checkpoints are kept in %s\n",
              text.c_str(), folder.path().c_str());
  return kExitFailed;
}

}  // namespace

void AddDoctorCommand(CLI::App& app, std::vector<std::string> program,
                      int* exit_code) {
  auto options = std::make_shared<Options>();
  options->command = std::move(program);
  CLI::App* command = app.add_subcommand(
      "doctor",
      "Tells whether a training program resumes exactly: runs it alone, kills "
      "it in the middle, starts it again and compares all that it reports");
  command->footer("Called as: gavel doctor [OPTIONS] -- ./train ARGUMENTS...");
  command->add_option("--steps", options->steps, "how many; at least 2")
      ->check(CLI::Range(uint64_t{2}, kStepsMax))
      ->capture_default_str();
  command->add_option("--timeout", options->timeout_s, "for each run")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--ignore", options->ignored,
                   "a reported name that is not compared, such as a time; "
                   "may be repeated")
      ->type_name("NAME")
      ->expected(1)
      ->take_all();
  command->add_option("--state", options->state,
                      "directory for its files, which are removed unless it "
                      "fails (default: the one for temporary files)");
  command->callback([options, exit_code] {
    if (options->command.empty()) {
      throw CLI::RequiredError("-- ./train ARGUMENTS...");
    }
    const absl::StatusOr<int> code = Run(*options);
    *exit_code = code.ok() ? *code : ExitCodeOf(code.status());
  });
}

}  // namespace gavel
