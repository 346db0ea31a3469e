#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "coordinator/agent_host/agent_accelerators.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/doctor_examination.h"
#include "coordinator/cli/doctor_run.h"
#include "coordinator/cli/processes.h"
#include "coordinator/workload/json_fields.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;

// Nothing wrong was found, and not all was examined.
constexpr int kExitNotAllSeen = 3;

struct DoctorOptions {
  DoctorProgram program;
  ExaminationOptions examination;
  std::string state;
  bool json = false;
};

// The folder of the runs. The destructor removes it with its files, unless it
// is kept.
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

// Fills in devices that are not given: GAVEL_DEVICE, else the first GPU, else
// the CPU; and the next GPU, if there is one, to move to.
void FillDevices(std::string* device, std::string* move_to) {
  const char* variable = std::getenv("GAVEL_DEVICE");
  if (device->empty() && variable != nullptr) *device = variable;
  const size_t gpus =
      DetectAccelerators().value_or(std::vector<AcceleratorInfo>()).size();
  if (device->empty()) *device = gpus > 0 ? "cuda:0" : "cpu";
  if (!move_to->empty()) return;
  *move_to = gpus > 1 && *device == "cuda:0" ? "cuda:1" : *device;
}

// As the user's own runs; an agent would give a CPU slot one thread.
int Threads() {
  const char* variable = std::getenv("OMP_NUM_THREADS");
  const int number = variable == nullptr ? 1 : std::atoi(variable);
  return std::max(1, number);
}

std::string Milliseconds(double time_s) {
  return absl::StrFormat("%.3g ms", 1e3 * time_s);
}

Json OrNull(const std::optional<double>& number) {
  return number ? Json(*number) : Json();
}

Json OrNull(const std::optional<std::string>& text) {
  return text ? Json(*text) : Json();
}

Json DifferencesOf(const ExaminedRun& run) {
  Json rows = Json::array();
  for (const ReportDifference& one : run.differences) {
    rows.push_back({{"step", one.step},
                    {"name", one.name},
                    {"undisturbed", OrNull(one.expected)},
                    {"found", OrNull(one.found)}});
  }
  return rows;
}

Json MeasuresOf(const DoctorMeasures& measures) {
  return {{"save_s", OrNull(measures.save_s)},
          {"load_s", OrNull(measures.load_s())},
          {"checkpoint_bytes", measures.checkpoint_bytes},
          {"checkpoints_verified", measures.checkpoints_verified},
          {"start_to_first_step_s", OrNull(measures.start_s)},
          {"restart_to_first_step_s", OrNull(measures.restart_s)},
          {"pause_s", OrNull(measures.pause_s)},
          {"lost_to_a_pause_s", OrNull(measures.lost_s)},
          {"step_s", OrNull(measures.step_s)},
          {"leased_step_s", OrNull(measures.leased_step_s)}};
}

// The step budget that its user gives the program; 0: none.
uint64_t OwnSteps() {
  const char* variable = std::getenv("GAVEL_STEPS");
  uint64_t steps = 0;
  return variable != nullptr && absl::SimpleAtoi(variable, &steps)
             ? std::min(steps, kDoctorStepsMax)
             : 0;
}

// "  paused     after step 10, ...\n"
std::string RenderDoctorLine(const std::string& what, const std::string& text) {
  return absl::StrFormat("  %-10s %s\n", what, text);
}

// The costs of checkpoints, pauses and steps; empty when nothing was measured.
std::string RenderCosts(const DoctorMeasures& measures) {
  std::string text;
  if (measures.checkpoints_verified > 0) {
    std::string line = StrCat(Plural(measures.checkpoint_bytes, "byte"), ", ",
                              measures.checkpoints_verified, " verified");
    if (measures.save_s) {
      StrAppend(&line, "; saved in ", Milliseconds(*measures.save_s));
    }
    if (const auto load_s = measures.load_s()) {
      StrAppend(&line, ", loaded in ", Milliseconds(*load_s), " (first step ",
                absl::StrFormat("%.2f s after a restart, %.2f s after a start)",
                                *measures.restart_s, *measures.start_s));
    }
    text += RenderDoctorLine("checkpoint", line);
  }
  if (measures.step_s && measures.leased_step_s) {
    const double more_s = *measures.leased_step_s - *measures.step_s;
    std::string line =
        StrCat(Milliseconds(*measures.step_s), " alone, ",
               Milliseconds(*measures.leased_step_s), " under a lease",
               absl::StrFormat(" (%+.3g ms)", 1e3 * more_s));
    if (measures.lost_s) {
      StrAppend(&line, "; a pause costs ", Milliseconds(*measures.lost_s));
    }
    text += RenderDoctorLine("step", line);
  }
  return text;
}

bool Failed(const Examined& examined) {
  return !examined.passed && !examined.unknown;
}

// "PASS: ..." or "FAIL: ..." with the remedy. `kept`: the folder of a failure.
std::string RenderVerdict(const Examined& examined, const std::string& program,
                          const std::string& kept) {
  if (examined.passed) {
    return StrCat("PASS: ", program,
                  " goes on exactly where it was paused, moved and restored\n");
  }
  std::string text =
      StrCat(examined.unknown ? "UNKNOWN: nothing differs, but " : "FAIL: ",
             examined.problem);
  if (!text.ends_with('\n')) text += '\n';
  StrAppend(&text, "  Remedy: ", examined.remedy, ".\n");
  if (examined.unknown) return text;
  return StrCat(text, "  Outputs, reports and checkpoints are kept in ", kept,
                "\n");
}

// One object; times in seconds, null where not measured.
std::string RenderDoctorJson(const Examined& examined,
                             const std::string& program,
                             const std::string& kept) {
  Json runs = Json::array();
  for (const ExaminedRun& run : examined.runs) {
    runs.push_back({{"run", run.name},
                    {"interrupted_after_step", run.interrupted_at},
                    {"compared_from_step", run.from_step},
                    {"values_compared", run.values_compared},
                    {"differences", DifferencesOf(run)},
                    {"state_compared", run.state_compared},
                    {"state_differences", run.state_differences}});
  }
  Json untracked = Json::array();
  for (const UntrackedItem& one : examined.account.untracked) {
    untracked.push_back(
        {{"step", one.step}, {"kind", one.kind}, {"text", one.text}});
  }
  const Json json = {{"program", program},
                     {"passed", examined.passed},
                     {"unknown", examined.unknown},
                     {"problem", examined.problem},
                     {"remedy", examined.remedy},
                     {"steps", examined.steps},
                     {"tracked", examined.account.tracked},
                     {"untracked", std::move(untracked)},
                     {"epoch_ends", examined.account.epoch_ends},
                     {"breaks", examined.account.breaks},
                     {"evaluations", examined.account.evaluations},
                     {"runs", std::move(runs)},
                     {"measures", MeasuresOf(examined.measures)},
                     {"kept", Failed(examined) ? Json(kept) : Json()}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<int> RunDoctor(DoctorOptions options) {
  DoctorProgram& program = options.program;
  ExaminationOptions& examination = options.examination;
  FillDevices(&program.device, &examination.move_to);
  examination.own_steps = OwnSteps();
  const StopFlag stop;
  GAVEL_ASSIGN_OR_RETURN(WorkFolder folder, WorkFolder::Create(options.state));
  const std::string& name = program.argv.front();
  program.folder = folder.path();
  program.threads = Threads();
  program.stop = stop.get();
  if (!options.json) {
    std::printf("gavel doctor: %s\n", name.c_str());
    examination.say = [](const char* what, const std::string& text) {
      std::fputs(RenderDoctorLine(what, text).c_str(), stdout);
      std::fflush(stdout);
    };
  }
  const absl::StatusOr<Examined> found = Examine(program, examination);
  if (!found.ok()) return found.status();
  if (Failed(*found)) folder.Keep();
  const std::string text = options.json
                               ? RenderDoctorJson(*found, name, folder.path())
                               : RenderCosts(found->measures) +
                                     RenderVerdict(*found, name, folder.path());
  std::fputs(text.c_str(), stdout);
  if (found->unknown) return kExitNotAllSeen;
  return found->passed ? kExitOk : kExitFailed;
}

}  // namespace

void AddDoctorCommand(CLI::App& app, std::vector<std::string> program,
                      int* exit_code) {
  auto options = std::make_shared<DoctorOptions>();
  options->program.argv = std::move(program);
  ExaminationOptions& examination = options->examination;
  CLI::App* command = app.add_subcommand(
      "doctor",
      "Tells whether a training program resumes exactly: runs it alone, pauses "
      "it, moves it, kills it and starts it again, and compares all that it "
      "reports and tracks");
  command->footer(
      "Called as: gavel doctor [OPTIONS] -- ./train ARGUMENTS...\n"
      "Exit codes: 0 PASS, 1 FAIL, 2 a wrong command line, 3 UNKNOWN (nothing "
      "differs, but not all could be examined). docs/doctor.md explains what "
      "is said.");
  CLI::Option* const steps =
      AddOption(*command, "--steps", examination.steps, "",
                "how many, at least 2 (default 20, more where epochs are "
                "longer)")
          ->check(CLI::Range(uint64_t{2}, kDoctorStepsMax));
  AddOption(*command, "--timeout", options->program.timeout_s, "SECONDS",
            "for each run")
      ->check(CheckAboveZero);
  AddOption(*command, "--ignore", examination.ignored, "NAME",
            "a reported name that is not compared, such as a time; may be "
            "repeated")
      ->expected(1)
      ->take_all();
  command
      ->add_option("--tolerance", examination.tolerance,
                   "values that differ by less than this part of the larger "
                   "one count as equal (default: equal to the bit)")
      ->type_name("FRACTION")
      ->check(CLI::Range(0.0, 1.0));
  AddOption(*command, "--device", options->program.device, "",
            "cpu, cuda:0, ... (default: GAVEL_DEVICE, else the first GPU, else "
            "the CPU)");
  AddOption(*command, "--move-to", examination.move_to, "",
            "device of the run that is moved (default: another GPU, else "
            "another slot of the same)");
  command->add_flag("--json", options->json, "one JSON object on stdout");
  AddOption(*command, "--state", options->state, "",
            "directory for its files, which are removed unless it fails "
            "(default: the one for temporary files)");
  command->callback([options, exit_code, steps] {
    options->examination.steps_given = steps->count() > 0;
    if (options->program.argv.empty()) {
      throw CLI::RequiredError("-- ./train ARGUMENTS...");
    }
    const absl::StatusOr<int> code = RunDoctor(*options);
    *exit_code = code.ok() ? *code : ExitCodeOf(code.status());
  });
}

}  // namespace gavel
