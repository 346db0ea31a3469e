#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/policy/policy.h"
#include "coordinator/workload/json_fields.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/stopwatch.h"
#include "runtime/files/user_files.h"
#include "study/policy_case.h"

namespace gavel {
namespace {

// Pairs of a thousand jobs take about 100 MB.
constexpr size_t kInputBytesMax = size_t{1} << 30;

struct SolveOptions {
  std::string policy;
  std::string input;
  std::string output;
  std::string solver = "auto";
};

SolverChoice SolverOf(const std::string& name) {
  if (name == "highs") return SolverChoice::kHighs;
  return name == "prices" ? SolverChoice::kPrices : SolverChoice::kAuto;
}

// Tells the user if HiGHS answered although the price solver was requested.
void TellOtherSolver(const PolicyProblem& problem, PolicyResult* result) {
  if (problem.solver != SolverChoice::kPrices ||
      !result->solver.starts_with("highs")) {
    return;
  }
  StrAppend(&result->detail, result->detail.empty() ? "" : "; ",
            "solved by HiGHS: prices don't serve packed pairs, or deadlines "
            "that can't all be met");
}

absl::StatusOr<study::PolicyAnswer> Answer(const Policy& policy,
                                           study::PolicyCase of) {
  const Stopwatch clock;
  absl::StatusOr<PolicyResult> result = policy.Solve(of.problem);
  const double time_s = clock.elapsed_s();
  if (!result.ok()) {
    return absl::Status(
        result.status().code(),
        StrCat("case ", of.number, ": ",
               study::WithIdsOfCase(ToStd(result.status().message()))));
  }
  TellOtherSolver(of.problem, &*result);
  return study::PolicyAnswer{std::move(of), *std::move(result), time_s};
}

absl::StatusOr<std::vector<study::PolicyAnswer>> AnswerAll(
    const Policy& policy, const SolveOptions& options,
    const std::string& text) {
  GAVEL_ASSIGN_OR_RETURN(const ParsedJson json, ParseJson(text));
  GAVEL_ASSIGN_OR_RETURN(auto cases,
                         study::ParsePolicyCases(json, options.policy));
  std::vector<study::PolicyAnswer> answers;
  for (study::PolicyCase& one : cases) {
    one.problem.solver = SolverOf(options.solver);
    GAVEL_ASSIGN_OR_RETURN(study::PolicyAnswer answer,
                           Answer(policy, std::move(one)));
    answers.push_back(std::move(answer));
  }
  return answers;
}

absl::Status Run(const SolveOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto policy, MakePolicy(options.policy));
  GAVEL_ASSIGN_OR_RETURN(const std::string text,
                         ReadFile(options.input, kInputBytesMax));
  const absl::StatusOr<std::vector<study::PolicyAnswer>> answers =
      AnswerAll(*policy, options, text);
  GAVEL_RETURN_IF_ERROR(Annotate(answers.status(), options.input));
  if (!options.output.empty()) {
    return WriteFile(
        options.output,
        study::AnswersJson(options.policy, *answers).dump(2) + "\n");
  }
  const std::string shown =
      study::RenderAnswers(options.policy, *answers, Terminal().width());
  std::fputs(shown.c_str(), stdout);
  return absl::OkStatus();
}

absl::Status PrintExample(const std::string& policy) {
  GAVEL_RETURN_IF_ERROR(MakePolicy(policy).status());
  std::printf("%s\n", study::PolicyExample(policy).dump(2).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddSolveCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<SolveOptions>();
  CLI::App* command = app.add_subcommand(
      "solve",
      "Asks a policy for its allocation of given jobs, without any cluster; "
      "tells the objective and how far it can be from the best one");
  AddOption(*command, "--policy", options->policy, "NAME",
            "see --list-policies");
  AddOption(*command, "--input", options->input, "CASE.json",
            "jobs, throughputs and cluster_spec as JSON, one case or several "
            "in \"cases\"");
  AddOption(*command, "--output", options->output, "OUT.json",
            "writes JSON there instead of a table to the terminal");
  AddOption(*command, "--solver", options->solver, "auto|highs|prices",
            "auto: prices where they serve and prove their answer, else HiGHS; "
            "prices: their answer even without its proof, HiGHS only where "
            "they don't serve, which REASON tells (packed pairs, deadlines "
            "that can't all be met)")
      ->check(CLI::IsMember({"auto", "highs", "prices"}).description(""));
  const auto example = std::make_shared<std::string>();
  AddOption(
      *command, "--example", *example, "POLICY",
      "prints a small input for this policy; docs/solve.md has every field");
  const auto list = std::make_shared<bool>(false);
  command->add_flag("--list-policies", *list, "names all policies");
  command->callback([options, example, list, exit_code] {
    if (*list) {
      for (const std::string& name : PolicyNames()) std::puts(name.c_str());
      return;
    }
    if (!example->empty()) {
      *exit_code = ExitCodeOf(PrintExample(*example));
      return;
    }
    if (options->policy.empty()) throw CLI::RequiredError("--policy");
    if (options->input.empty()) throw CLI::RequiredError("--input");
    *exit_code = ExitCodeOf(Run(*options));
  });
}

}  // namespace gavel
