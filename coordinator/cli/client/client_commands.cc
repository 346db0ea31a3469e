#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/client/client.h"
#include "coordinator/cli/client/client_options.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/rows.h"
#include "coordinator/workload/job_spec.h"
#include "core/status.h"

namespace gavel {
namespace {

struct SubmitOptions : ClientOptions {
  std::vector<std::string> paths;
};

// Types that a job names and no server has, as far as servers are there.
void WarnOfUnknownTypes(Client& client, const JobFile& file,
                        const JobSpec& spec) {
  if (spec.types.empty()) return;
  const absl::StatusOr<Json> json = client.Query(QueryKind::kNodes);
  if (!json.ok()) return;
  std::set<std::string> known;
  for (const NodeRow& node : ParseNodes(*json)) {
    for (const AcceleratorRow& one : node.accelerators) known.insert(one.type);
  }
  if (known.empty()) return;
  for (const std::string& type : spec.types) {
    if (known.contains(type)) continue;
    absl::FPrintF(stderr,
                  "%s: types names \"%s\", which the cluster does not have; it "
                  "has %s\n",
                  file.path, type, absl::StrJoin(known, ", "));
  }
}

absl::Status SubmitOne(Client& client, const JobFile& file, bool json,
                       Json* submitted) {
  GAVEL_ASSIGN_OR_RETURN(const JobId job,
                         client.Submit(file.path, file.text, file.directory));
  submitted->push_back({{"id", job.value()}, {"name", file.name}});
  GAVEL_ASSIGN_OR_RETURN(const auto spec, ParseJobSpec(file.text, file.path));
  for (const std::string& note : WithoutEffect(spec)) {
    std::fprintf(stderr, "%s: %s\n", file.path.c_str(), note.c_str());
  }
  WarnOfUnknownTypes(client, file, spec);
  if (!json) absl::PrintF("Submitted job %d (%s)\n", job.value(), file.name);
  return absl::OkStatus();
}

absl::Status Submit(const SubmitOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto files, ReadJobFiles(options.paths));
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  Json submitted = Json::array();
  absl::Status status = ForEach(files, [&](const JobFile& file) {
    return SubmitOne(*client, file, options.json, &submitted);
  });
  if (options.json) std::printf("%s\n", submitted.dump(2).c_str());
  return status;
}

struct CommandOptions : ClientOptions {
  std::vector<std::string> jobs;
};

absl::Status Command(const CommandOptions& options, CommandKind kind,
                     const char* done) {
  CommandRequest command;
  command.kind = kind;
  return CommandJobs(options, options.jobs, std::move(command), done);
}

absl::Status ShutDown(const ClientOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  return client->Command(CommandKind::kShutdown);
}

void AddJobCommand(CLI::App& app, const char* name, const char* help,
                   CommandKind kind, const char* done, int* exit_code) {
  const auto run = [kind, done](const CommandOptions& options) {
    return Command(options, kind, done);
  };
  auto [command, options] =
      AddCommand<CommandOptions>(app, exit_code, name, help, run);
  AddClientOptions(command, &options);
  AddJobNames(command, &options.jobs);
}

// Of running jobs; below it, what is done with the files that are there. A job
// named as one of these is given by its id.
void AddCheckpointCommand(CLI::App& app, int* exit_code) {
  const auto options = std::make_shared<CommandOptions>();
  CLI::App& command = *app.add_subcommand(
      "checkpoint", "Has running jobs write a checkpoint now, and go on");
  AddClientOptions(command, options.get());
  AddJobNames(command, &options->jobs);
  command.get_option("jobs")->required(false);
  command.callback([options, exit_code, &command] {
    if (!command.get_subcommands().empty()) return;
    if (options->jobs.empty()) throw CLI::RequiredError("jobs");
    *exit_code = ExitCodeOf(Command(*options, CommandKind::kCheckpoint,
                                    "Asked for a checkpoint of"));
  });
  AddCheckpointFilesCommands(command, exit_code);
}

}  // namespace

void AddConnectionOptions(CLI::App& command, Connection* connection) {
  AddOption(command, "--coordinator", connection->coordinator, "",
            "its address")
      ->envname("GAVEL_COORDINATOR");
  AddKeyFlags(command, &connection->keys);
}

void AddClientOptions(CLI::App& command, ClientOptions* options) {
  AddConnectionOptions(command, options);
  command.add_flag("--json", options->json, "JSON instead of text");
}

absl::Status CommandJobs(const ClientOptions& options,
                         const std::vector<std::string>& jobs,
                         CommandRequest command, const char* done) {
  GAVEL_ASSIGN_OR_RETURN(const auto client, options.Connect());
  Json changed = Json::array();
  absl::Status status = ForEach(jobs, [&](const std::string& name) {
    GAVEL_ASSIGN_OR_RETURN(command.job, client->Resolve(name));
    GAVEL_RETURN_IF_ERROR(client->Command(command));
    changed.push_back({{"id", command.job.value()}});
    if (!options.json) absl::PrintF("%s job %d\n", done, command.job.value());
    return absl::OkStatus();
  });
  if (options.json) std::printf("%s\n", changed.dump(2).c_str());
  return status;
}

void AddJobNames(CLI::App& command, std::vector<std::string>* jobs) {
  AddOption(command, "jobs", *jobs, "JOB", "ids or names")->required();
}

void AddClientCommands(CLI::App& app, int* exit_code) {
  auto [submit, options] = AddCommand<SubmitOptions>(app, exit_code, "submit",
                                                     "Submits jobs", Submit);
  AddClientOptions(submit, &options);
  AddOption(submit, "jobs", options.paths, "JOB.toml", "job files")->required();

  AddJobCommand(app, "cancel", "Ends jobs for good", CommandKind::kCancel,
                "Cancelled", exit_code);
  AddJobCommand(app, "release", "Lets held jobs go on", CommandKind::kRelease,
                "Released", exit_code);
  AddJobCommand(app, "hold",
                "Takes jobs out of the queue, with a checkpoint; `gavel "
                "release` undoes it",
                CommandKind::kHold, "Held", exit_code);
  AddJobCommand(app, "requeue",
                "Ends the processes of jobs with a checkpoint; they start anew "
                "in their turn",
                CommandKind::kRequeue, "Requeued", exit_code);
  AddCheckpointCommand(app, exit_code);

  auto [shutdown, of_shutdown] = AddCommand<ClientOptions>(
      app, exit_code, "shutdown",
      "Ends the coordinator; workers train on to the end of their leases",
      ShutDown);
  AddClientOptions(shutdown, &of_shutdown);
}

}  // namespace gavel
