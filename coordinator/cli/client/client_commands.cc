#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_join.h"
#include "coordinator/cli/client/client.h"
#include "coordinator/cli/client/client_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/rows.h"
#include "coordinator/workload/job_spec.h"
#include "core/status.h"
#include "core/text.h"

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
    std::fprintf(stderr,
                 "%s: types names \"%s\", which the cluster does not have; it "
                 "has %s\n",
                 file.path.c_str(), type.c_str(),
                 absl::StrJoin(known, ", ").c_str());
  }
}

absl::Status Submit(const SubmitOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<JobFile> files,
                         ReadJobFiles(options.paths));
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                         Client::Connect(options.coordinator, options.keys));
  Json submitted = Json::array();
  for (const JobFile& file : files) {
    GAVEL_ASSIGN_OR_RETURN(
        const JobId job, client->Submit(file.path, file.text, file.directory));
    submitted.push_back({{"id", job.value()}, {"name", file.name}});
    GAVEL_ASSIGN_OR_RETURN(const JobSpec spec,
                           ParseJobSpec(file.text, file.path));
    for (const std::string& note : WithoutEffect(spec)) {
      std::fprintf(stderr, "%s: %s\n", file.path.c_str(), note.c_str());
    }
    WarnOfUnknownTypes(*client, file, spec);
    if (options.json) continue;
    std::printf("Submitted job %llu (%s)\n",
                static_cast<unsigned long long>(job.value()),
                file.name.c_str());
  }
  if (options.json) std::printf("%s\n", submitted.dump(2).c_str());
  return absl::OkStatus();
}

struct CommandOptions : ClientOptions {
  std::vector<std::string> jobs;
};

absl::Status Command(const CommandOptions& options, CommandKind kind,
                     const char* done) {
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                         Client::Connect(options.coordinator, options.keys));
  Json changed = Json::array();
  for (const std::string& name : options.jobs) {
    GAVEL_ASSIGN_OR_RETURN(const JobId job, client->Resolve(name));
    GAVEL_RETURN_IF_ERROR(client->Command(kind, job));
    changed.push_back({{"id", job.value()}});
    if (options.json) continue;
    std::printf("%s job %llu\n", done,
                static_cast<unsigned long long>(job.value()));
  }
  if (options.json) std::printf("%s\n", changed.dump(2).c_str());
  return absl::OkStatus();
}

absl::Status ShutDown(const ClientOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                         Client::Connect(options.coordinator, options.keys));
  return client->Command(CommandKind::kShutdown);
}

void AddJobCommand(CLI::App& app, const char* name, const char* help,
                   CommandKind kind, const char* done, int* exit_code) {
  auto options = std::make_shared<CommandOptions>();
  CLI::App* command = app.add_subcommand(name, help);
  AddClientOptions(*command, options.get());
  command->add_option("jobs", options->jobs, "ids or names")
      ->type_name("JOB")
      ->required();
  command->callback([options, kind, done, exit_code] {
    *exit_code = ExitCodeOf(Command(*options, kind, done));
  });
}

}  // namespace

void AddClientOptions(CLI::App& command, ClientOptions* options) {
  command.add_option("--coordinator", options->coordinator, "its address")
      ->envname("GAVEL_COORDINATOR")
      ->capture_default_str();
  AddKeyFlags(command, &options->keys);
  command.add_flag("--json", options->json, "JSON instead of text");
}

void AddClientCommands(CLI::App& app, int* exit_code) {
  auto submit = std::make_shared<SubmitOptions>();
  CLI::App* command = app.add_subcommand("submit", "Submits jobs");
  AddClientOptions(*command, submit.get());
  command->add_option("jobs", submit->paths, "job files")
      ->type_name("JOB.toml")
      ->required();
  command->callback(
      [submit, exit_code] { *exit_code = ExitCodeOf(Submit(*submit)); });

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
  AddJobCommand(
      app, "checkpoint", "Has running jobs write a checkpoint now, and go on",
      CommandKind::kCheckpoint, "Asked for a checkpoint of", exit_code);

  auto shutdown = std::make_shared<ClientOptions>();
  command = app.add_subcommand(
      "shutdown",
      "Ends the coordinator; workers train on to the end of their leases");
  AddClientOptions(*command, shutdown.get());
  command->callback(
      [shutdown, exit_code] { *exit_code = ExitCodeOf(ShutDown(*shutdown)); });
}

}  // namespace gavel
