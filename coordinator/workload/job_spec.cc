#include "coordinator/workload/job_spec.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "coordinator/workload/file_keys.h"
#include "coordinator/workload/job_array.h"
#include "coordinator/workload/job_section.h"
#include "coordinator/workload/throughput_table.h"
#include "coordinator/workload/toml_reader.h"
#include "core/locality.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"

namespace gavel {

// ---- The keys ----

namespace {

constexpr double kScaleFactorMax = 4096;
constexpr NumberRange kThroughputRange = {.max = kStepsPerSecondMax};
constexpr NumberRange kWorkerLimit = {.above_min = true, .max = 3600};
constexpr size_t kArgumentsMax = 1024;
constexpr size_t kVariablesMax = 1024;
constexpr size_t kTypesMax = 64;
constexpr size_t kServersMax = 256;
constexpr size_t kNameBytesMax = 64;
constexpr size_t kAppBytesMax = 256;

// In the order of JobClass.
constexpr std::string_view kClassNames[] = {"training", "interactive",
                                            "inference", "opaque"};

void CheckCommand(TomlReader& reader, std::string_view key,
                  const std::vector<std::string>& argv) {
  if (argv.empty() || argv[0].empty()) {
    reader.Fail(key,
                "command names no program; write its path or name first, e.g. "
                "command = [\"./train\"]");
  }
  if (argv.size() > kArgumentsMax) {
    reader.Fail(key, StrCat("command has ", argv.size(), " elements; write ",
                            kArgumentsMax, " at most"));
  }
}

void CheckDirectory(TomlReader& reader, std::string_view key,
                    const std::string& directory) {
  if (!directory.empty()) return;
  reader.Fail(key, StrCat(key, " is empty; write a path, or leave it out"));
}

void CheckLabel(TomlReader& reader, std::string_view key,
                const std::string& label) {
  if (!label.empty() && label.size() <= kAppBytesMax) return;
  reader.Fail(key, StrCat(key, " has ", label.size(), " bytes; write 1 to ",
                          kAppBytesMax, ", or leave it out"));
}

void CheckClass(TomlReader& reader, std::string_view key,
                const JobClass& job_class) {
  if (job_class != JobClass::kInference) return;
  reader.Fail(key,
              "class \"inference\" has no meaning yet; write \"opaque\" for "
              "a server that keeps its accelerators until its end");
}

void CheckTypes(TomlReader& reader, std::string_view key,
                const std::vector<std::string>& types) {
  for (const std::string& type : types) {
    if (!IsValidName(type)) reader.Fail(key, RefusalOfType(type));
  }
  if (types.size() > kTypesMax) {
    reader.Fail(key, StrCat("types has ", types.size(), " names; write ",
                            kTypesMax, " at most"));
  }
}

void CheckServers(TomlReader& reader, std::string_view key,
                  const std::vector<std::string>& servers) {
  if (std::ranges::count(servers, "") > 0) {
    reader.Fail(key, StrCat(key,
                            " has an empty name; write the names that "
                            "`gavel nodes` shows"));
  }
  if (servers.size() > kServersMax) {
    reader.Fail(key, StrCat(key, " has ", servers.size(), " names; write ",
                            kServersMax, " at most"));
  }
}

void CheckParents(TomlReader& reader, std::string_view key,
                  const std::vector<std::string>& parents) {
  for (const std::string& parent : parents) {
    if (IsValidName(parent)) continue;
    reader.Fail(key, StrCat(key, " names ", QuoteToml(parent),
                            ", which is no job; write names or ids of your "
                            "jobs, as `gavel queue` shows them"));
  }
}

void CheckNotify(TomlReader& reader, std::string_view key,
                 const std::vector<std::string>& events) {
  const std::string refusal = RefusalOfNotices(events, /*of_job=*/true);
  if (!refusal.empty()) reader.Fail(key, refusal);
}

constexpr std::tuple kJobKeys = {
    Key("name", &JobSpec::name,
        {.kind = KeyKind::kName,
         .required = true,
         .example = R"("resnet-1")",
         .meaning = "Name of the job; not digits alone, and no - in front."}),
    Key("command", &JobSpec::argv,
        {.values = "1 to 1,024 strings, the first not empty",
         .required = true,
         .example = R"(["./train", "--epochs", "3"])",
         .meaning = "Program and arguments; never a shell line. The program "
                    "is looked up in PATH, or beside the file when it is a "
                    "path."},
        CheckCommand),
    Key("working_directory", &JobSpec::working_directory,
        {.values = "a path, not empty",
         .otherwise = "the directory of the file",
         .example = R"("/home/ada/resnet")",
         .meaning = "Directory that the program starts in."},
        CheckDirectory),
    Key("checkpoint_directory", &JobSpec::checkpoint_directory,
        {.values = "a path, not empty",
         .otherwise = "`checkpoints/CLUSTER-ID-NAME` in the coordinator's "
                      "`--state`; in `gavel-state` beside the file for a job "
                      "that runs as its submitter's account",
         .example = R"("/shared/checkpoints/resnet-1")",
         .meaning = "Where the job's checkpoints lie; its own, of no other "
                    "job."},
        CheckDirectory),
    Key("environment", &JobSpec::environment,
        {.kind = KeyKind::kTable,
         .otherwise = "no variables",
         .example = R"({ DATA = "/data/cifar10" })",
         .meaning = "Variables of the program's environment."}),
    Key("env_file", &JobSpec::env_file,
        {.values = "a path, not empty",
         .otherwise = "none",
         .example = R"("secrets.env")",
         .meaning = "File of further variables, one `NAME=VALUE` a line, which "
                    "the job's user reads on the server where a process "
                    "starts. Its values leave the server by no way."},
        CheckDirectory),
    Key("app", &JobSpec::app,
        {.values = "1 to 256 bytes",
         .otherwise = "an app of this job alone",
         .example = R"("search-12")",
         .meaning = "The app that the job is a part of: jobs of one owner "
                    "with one goal, as the trials of a search, have the "
                    "same app."},
        CheckLabel),
    Key("workload", &JobSpec::workload,
        {.values = "1 to 256 bytes",
         .otherwise = "`app`, else the job's name",
         .example = "\"ResNet-18 (batch size 64)\"",
         .meaning = "Job type: row of the throughput file."},
        CheckLabel),
    Key("entity", &JobSpec::entity,
        {.kind = KeyKind::kName,
         .otherwise = "none",
         .example = R"("vision")",
         .meaning = "Organisation that the job counts for; `[[entity]]` of "
                    "the cluster file."}),
    Key("class", &JobSpec::job_class,
        {.choices = kClassNames,
         .default_value = R"("training")",
         .example = R"("training")",
         .meaning = "Kind of job. `opaque`: a command that does not link "
                    "the runtime; it has whole accelerators, is never "
                    "paused, and keeps them until its end or `time_limit`. "
                    "`interactive`: the same with a terminal (`gavel shell`); "
                    "it starts at once, in place of training jobs, and is "
                    "ended after `idle_limit`. `inference` is refused: it "
                    "has no meaning yet."},
        CheckClass),
    Key("scale_factor", &JobSpec::scale_factor,
        {.range = {.min = 1, .max = kScaleFactorMax},
         .default_value = "1",
         .example = "4",
         .meaning = "Accelerators that the job needs at once."}),
    Key("scale_factor_min", &JobSpec::scale_factor_min,
        {.range = {.min = 0, .max = kScaleFactorMax},
         .default_value = "0",
         .example = "1",
         .meaning = "Fewest workers of an elastic job, at most "
                    "`scale_factor`; 0: `scale_factor`."}),
    Key("scale_factor_max", &JobSpec::scale_factor_max,
        {.range = {.min = 0, .max = kScaleFactorMax},
         .default_value = "0",
         .example = "8",
         .meaning = "Most workers of an elastic job, at least "
                    "`scale_factor`; 0: `scale_factor`."}),
    Key("types", &JobSpec::types,
        {.values = "at most 64 names of accelerator types",
         .otherwise = "all types",
         .example = R"(["v100", "p100"])",
         .meaning = "Accelerator types that the job may run on; it never "
                    "runs on others, whatever their speed."},
        CheckTypes),
    Key("servers", &JobSpec::servers,
        {.values = "at most 256 names of servers",
         .otherwise = "all servers",
         .example = R"(["gpu-1", "gpu-2"])",
         .meaning = "Servers that the job may run on, by the names that "
                    "`gavel nodes` shows."},
        CheckServers),
    Key("exclude_servers", &JobSpec::exclude_servers,
        {.values = "at most 256 names of servers",
         .otherwise = "none",
         .example = R"(["gpu-7"])",
         .meaning = "Servers that the job never runs on."},
        CheckServers),
    Key("weight", &JobSpec::weight,
        {.range = kPositive,
         .default_value = "1",
         .example = "2.5",
         .meaning = "Priority: twice the weight is twice the share. A "
                    "coordinator takes 0.001 to 1000 (`--weight-min`, "
                    "`--weight-max`)."}),
    Key("steps_total", &JobSpec::steps_total,
        {.range = kNotNegative,
         .default_value = "0",
         .example = "100000",
         .meaning = "Steps to the end of the job; 0: until the program "
                    "ends by itself."}),
    Key("deadline_s", &JobSpec::deadline_s,
        {.range = kPositive,
         .otherwise = "none",
         .example = "86400",
         .meaning = "Seconds from submission to the deadline. Used by the "
                    "policies named `_SLOs`."}),
    Key("throughputs", &JobSpec::throughputs,
        {.kind = KeyKind::kTable,
         .otherwise = "the throughput file's, else measured",
         .example = "{ v100 = 45.5, k80 = 0 }",
         .meaning = "Speed of the whole job by accelerator type."}),
    Key("retries_max", &JobSpec::retries_max,
        {.range = {.min = 0, .max = 1000},
         .default_value = "3",
         .example = "5",
         .meaning = "Failed ends in a row, without a new checkpoint "
                    "between them, before the job is held."}),
    Key("hang_timeout_s", &JobSpec::hang_timeout_s,
        {.range = kNotNegative,
         .otherwise = "`--hang-timeout` of the coordinator (600)",
         .example = "900",
         .meaning = "A worker that makes no step and passes no boundary "
                    "for this long is ended and started again; 0: never."}),
    Key("start_timeout_s", &JobSpec::start_timeout_s,
        {.range = kWorkerLimit,
         .otherwise = "`--start-timeout` of the coordinator",
         .example = "600",
         .meaning = "Longest that a worker may take to be ready while none "
                    "of its bytes move."}),
    Key("pause_grace_s", &JobSpec::pause_grace_s,
        {.range = kWorkerLimit,
         .otherwise = "`--pause-grace` of the coordinator",
         .example = "120",
         .meaning = "Longest that a worker may take to leave while none of "
                    "its bytes move."}),
    Key("time_limit", &JobSpec::time_limit_s,
        {.kind = KeyKind::kDuration,
         .range = kPositive,
         .otherwise = "none",
         .example = "\"2h\"",
         .meaning = "How long the job may run, over all its rounds. Then "
                    "it stops at its next boundary with a checkpoint, or is "
                    "ended after `pause_grace_s`, and is held. One of class "
                    "`opaque` gets SIGTERM, and its time begins anew with each "
                    "start."}),
    Key("idle_limit", &JobSpec::idle_limit_s,
        {.kind = KeyKind::kDuration,
         .range = kPositive,
         .otherwise = "3600",
         .example = "\"2h\"",
         .meaning = "How long a job of class `interactive` may be "
                    "idle: no input and no output of its terminal, and no use "
                    "of its GPUs. It is warned 60 s before, and then ended."}),
    Key("not_before_s", &JobSpec::not_before_s,
        {.range = kPositive,
         .otherwise = "it may start at once",
         .example = "28800",
         .meaning = "Seconds from submission to the time from which the job "
                    "may start; `gavel submit --not-before` takes a time of "
                    "day."}),
    Key("after_success", &JobSpec::after_success,
        {.values = "names or ids of jobs of the same owner, at most 64 with "
                   "`after_any`",
         .otherwise = "it waits for no job",
         .example = R"(["prepare", "12"])",
         .meaning = "The job starts once these have finished. If one of them "
                    "is cancelled, so is this job. A name is that of the "
                    "latest job that has it at submission; of an array, all "
                    "elements are meant."},
        CheckParents),
    Key("after_any", &JobSpec::after_any,
        {.values = "as for `after_success`",
         .otherwise = "it waits for no job",
         .example = R"(["train"])",
         .meaning = "The job starts once these have ended, in whatever way."},
        CheckParents),
    Key("after", &JobSpec::after_success,
        {.values = "as for `after_success`",
         .otherwise = "it waits for no job",
         .example = R"(["prepare"])",
         .meaning = "The same as `after_success`.",
         .alias_of = "after_success"},
        CheckParents),
    Key("after_by_index", &JobSpec::after_by_index,
        {.values = "names or ids of arrays, counted with `after_success`",
         .otherwise = "it waits for no array by index",
         .example = R"(["prepare"])",
         .meaning = "Of a job with `array` or `[sweep]`: each element starts "
                    "once the element of these arrays with the same index has "
                    "finished."},
        CheckParents),
    Key("notify", &JobSpec::notify,
        {.values = "of `started`, `finished`, `failed`, `held`, `cancelled`, "
                   "`at_risk` and `ended`, or `none` alone",
         .otherwise = "`events` of `[notify]` in the cluster file",
         .example = R"(["ended", "at_risk"])",
         .meaning = "What people are told of, where the cluster file has "
                    "`[notify]`. `ended`: `finished`, `failed`, `held` and "
                    "`cancelled`."},
        CheckNotify),
    Key("visibility", &JobSpec::leased_visibility,
        {.kind = KeyKind::kChoice,
         .choices = kVisibilities,
         .remedy = kVisibilityRemedy,
         .otherwise = "as the server says",
         .example = R"("leased")",
         .meaning = "`leased`: its processes see the accelerator of their "
                    "lease and no other, and restart to get another one."}),
    Key("pause_s", &JobSpec::pause_s,
        {.range = kNotNegative,
         .otherwise = "measured",
         .example = "2",
         .meaning = "Seconds of work lost when the job gives an "
                    "accelerator up. With any of `pause_s`, `resume_s` and "
                    "`move_s`, those not given are 0 (`move_s`: as "
                    "`resume_s`)."}),
    Key("resume_s", &JobSpec::resume_s,
        {.range = kNotNegative,
         .otherwise = "measured",
         .example = "3",
         .meaning = "Seconds of work lost when it starts on an accelerator "
                    "again."}),
    Key("move_s", &JobSpec::move_s,
        {.range = kNotNegative,
         .otherwise = "`resume_s`",
         .example = "5",
         .meaning = "Seconds of work lost when it continues on another "
                    "accelerator at once."}),
    Key("array", &JobSpec::array,
        {.values = "indices from 0 to 999,999, at most 10,000",
         .otherwise = "one job",
         .example = R"("0-99%10")",
         .meaning = "Several jobs, one for each index: `0-9,20,30-40:5`; `%N`: "
                    "at most N of them at once. Each has its index as "
                    "`GAVEL_ARRAY_INDEX` and for `{index}` in `command`, where "
                    "`{{index}}` is `{index}` itself and `${NAME}` stays."}),
    Key("sweep", &JobSpec::sweep,
        {.kind = KeyKind::kTable,
         .otherwise = "one job",
         .example = "{ lr = [0.1, 0.01], depth = [2, 4] }",
         .meaning = "Several jobs, one for each combination of the values."}),
    Key("at_once", &JobSpec::at_once,
        {.range = {.min = 0, .max = kElementsMax},
         .default_value = "0",
         .example = "4",
         .meaning = "Jobs of the `[sweep]` that may run at once; 0: no "
                    "limit."}),
};
constexpr auto kJobRows = RowsOf(kJobKeys);

constexpr FileKey kEnvironmentRows[] = {
    {.name = "NAME",
     .values = "any text without NUL",
     .otherwise = "not set",
     .example = R"(DATA = "/data/cifar10")",
     .meaning = "Variable of that name: letters, digits and `_`, no digit "
                "first. At most 1,024 of them.",
     .any_name = true},
};

constexpr FileKey kJobThroughputRows[] = {
    {.name = "TYPE",
     .kind = KeyKind::kNumber,
     .range = kThroughputRange,
     .otherwise = "measured",
     .example = "v100 = 45.5",
     .meaning = "Steps/s on accelerators of that type, or of a gang at a level "
                "of locality with `@group`, `@rack` or `_unconsolidated` "
                "behind it; 0: the job cannot run there.",
     .any_name = true},
};

constexpr FileKey kSweepRows[] = {
    {.name = "NAME",
     .kind = KeyKind::kTexts,
     .values = "also numbers and booleans, not empty",
     .otherwise = "not varied",
     .example = "lr = [0.1, 0.01]",
     .meaning = "Values of the parameter of that name: letters, digits and "
                "`_`, no digit first.",
     .any_name = true},
};

constexpr FileTable kJobTables[] = {
    {"", "At the top of the file, before the first table:", kJobRows},
    {"[environment]",
     "Variables of the program's environment; not those that the agent sets, "
     "such as `GAVEL_RANK` and `RANK`.",
     kEnvironmentRows},
    {"[throughputs]", "Speed of the whole job, at `scale_factor` workers.",
     kJobThroughputRows},
    {"[sweep]",
     "Parameters whose values are combined, at most 10,000 combinations. Each "
     "job has its value of `lr` for `{lr}` in `command` and as "
     "`GAVEL_SWEEP_LR`, and its number as `GAVEL_ARRAY_INDEX`.",
     kSweepRows},
};

}  // namespace

std::span<const FileTable> JobFileTables() { return kJobTables; }

// ---- The parser ----

namespace {

bool IsNameChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
         c == '-';
}

// True for names that every shell and libc accept: a letter or _, then digits
// too.
bool IsValidVariable(std::string_view name) {
  return !name.empty() && !absl::ascii_isdigit(name[0]) &&
         std::all_of(name.begin(), name.end(), IsNameChar) &&
         name.find('-') == std::string_view::npos;
}

void ReadEnvironment(TomlReader reader, JobSpec& spec) {
  for (const std::string& name : reader.Keys()) {
    if (!IsValidVariable(name)) {
      reader.Fail(name, StrCat(QuoteToml(name),
                               " is not the name of an environment variable; "
                               "write letters, digits and _, no digit first"));
    }
    std::string value;
    if (reader.Read(name, value)) spec.environment.emplace_back(name, value);
  }
  if (spec.environment.size() > kVariablesMax) {
    reader.FailHere(StrCat("environment has ", spec.environment.size(),
                           " variables; write ", kVariablesMax, " at most"));
  }
}

// Any slower is a mistake, and numbers of any size break solvers.
constexpr double kStepsPerSecondMin = 1e-9;  // but for 0

void ReadThroughputs(TomlReader reader, JobSpec& spec) {
  for (const std::string& type : reader.Keys()) {
    const std::optional<TypeAt> at = SplitTypeName(type);
    if (!at.has_value()) {
      reader.Fail(type, StrCat(QuoteToml(type), " is at an unknown level of ",
                               "locality; ", kTypeNameRemedy));
    } else if (!IsValidName(at->type)) {
      reader.Fail(type, RefusalOfType(type));
    }
    double steps_per_s = 0;
    if (!reader.Read(type, steps_per_s, kThroughputRange)) continue;
    if (steps_per_s > 0 && steps_per_s < kStepsPerSecondMin) {
      reader.Fail(type, StrCat(type, " is ", steps_per_s,
                               " steps/s; write 0, where the job can't run, or "
                               "at least ",
                               kStepsPerSecondMin));
    }
    spec.throughputs[type] = steps_per_s;
  }
}

void ReadSweep(TomlReader reader, JobSpec& spec) {
  for (const std::string& name : reader.Keys()) {
    std::vector<std::string> values;
    if (!reader.ReadScalars(name, values)) continue;
    spec.sweep.emplace_back(name, std::move(values));
  }
  if (spec.sweep.empty()) {
    reader.FailHere(
        "sweep has no parameters; write one, such as lr = [0.1, 0.01], or "
        "leave it out");
  }
}

// The row of a key at the top of the file, or the one row of the table that
// users choose the keys of; null: there is none.
const FileKey* RowOf(std::string_view key, bool in_table,
                     std::string_view name) {
  for (const FileTable& table : JobFileTables()) {
    const bool here = in_table ? table.heading == StrCat("[", key, "]")
                               : table.heading.empty();
    if (!here) continue;
    for (const FileKey& row : table.keys) {
      if (row.any_name || row.name == name) return &row;
    }
  }
  return nullptr;
}

// The value as it would be in the file.
std::string TomlOf(const FileKey* row, const std::string& value) {
  if (row == nullptr) return value;
  const char first = value.empty() ? ' ' : value.front();
  const bool quoted = first == '"' || first == '\'';
  switch (row->kind) {
    case KeyKind::kText:
    case KeyKind::kName:
    case KeyKind::kChoice:
    case KeyKind::kSize:
      return quoted ? value : QuoteToml(value);
    case KeyKind::kDuration: {
      double seconds = 0;
      const bool is_number = absl::SimpleAtod(value, &seconds);
      return quoted || is_number ? value : QuoteToml(value);
    }
    case KeyKind::kTexts: {
      if (quoted || first == '[') return value;
      std::vector<std::string> texts;
      if (!value.empty()) texts = absl::StrSplit(value, ',');
      return ToToml(*row, texts);
    }
    default:
      return value;
  }
}

// Puts the setting where the file would have it. A key of a table leaves the
// other keys of the table as they are.
absl::Status Override(const JobSetting& setting, toml::table& root) {
  const std::string_view key = setting.key;
  const size_t dot = key.find('.');
  const bool in_table = dot != std::string_view::npos;
  const std::string_view head = key.substr(0, dot);
  const FileKey* const row =
      RowOf(head, in_table, in_table ? key.substr(dot + 1) : head);
  const std::string line = StrCat(key, " = ", TomlOf(row, setting.value), "\n");
  absl::StatusOr<toml::table> parsed =
      ParseToml(line, setting.flag, kJobSpecBytesMax);
  if (!parsed.ok() && row == nullptr) {
    // A key that there is not is refused as such, whatever its value is.
    parsed = ParseToml(StrCat(key, " = ", QuoteToml(setting.value), "\n"),
                       setting.flag, kJobSpecBytesMax);
  }
  if (!parsed.ok() && row != nullptr) {
    return absl::InvalidArgumentError(
        StrCat(setting.flag, ": ", QuoteToml(setting.value),
               " is no value; write e.g. ",
               row->any_name ? "" : StrCat(row->name, " = "), row->example));
  }
  GAVEL_RETURN_IF_ERROR(parsed.status());
  if (parsed->size() != 1) {
    return absl::InvalidArgumentError(
        StrCat(setting.flag, ": give one key, as --set KEY=VALUE"));
  }
  const auto added = parsed->begin();
  toml::table* const into = root.get_as<toml::table>(head);
  toml::table* const from = added->second.as_table();
  if (in_table && into != nullptr && from != nullptr) {
    for (auto&& [name, value] : *from) {
      into->insert_or_assign(name, std::move(value));
    }
    return absl::OkStatus();
  }
  // A key and its alias count as one.
  for (const FileKey& other : KeysOf(JobFileTables(), "")) {
    if (other.alias_of == head) root.erase(other.name);
  }
  if (row != nullptr && !row->alias_of.empty()) root.erase(row->alias_of);
  // The user has named the table, and chooses any key (TomlReader).
  if (from != nullptr) from->is_inline(true);
  root.insert_or_assign(added->first, std::move(added->second));
  return absl::OkStatus();
}

}  // namespace

// A key that two flags give under both of its names, of which neither is meant
// to override the other.
static absl::Status CheckAliases(std::span<const JobSetting> settings) {
  const JobSetting* parents = nullptr;
  for (const JobSetting& setting : settings) {
    if (setting.key != "after" && setting.key != "after_success") continue;
    if (parents != nullptr && parents->flag != setting.flag) {
      return absl::InvalidArgumentError(
          StrCat(parents->flag, " and ", setting.flag,
                 " mean the same key, after_success; write all jobs into one "
                 "of them"));
    }
    parents = &setting;
  }
  return absl::OkStatus();
}

absl::StatusOr<JobSetting> ParseSetting(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return absl::InvalidArgumentError(
        StrCat("--set ", text,
               " names no key and value; write --set KEY=VALUE with a key of a "
               "job file, such as --set weight=2"));
  }
  const std::string key(
      absl::StripAsciiWhitespace(ToAbsl(text.substr(0, equals))));
  const std::string value(
      absl::StripAsciiWhitespace(ToAbsl(text.substr(equals + 1))));
  return JobSetting{StrCat("--set ", key), key, value};
}

JobSetting ProgramSetting(const std::vector<std::string>& argv) {
  return {StrCat("-- ", argv.front()), "command", ToToml(FileKey(), argv)};
}

bool WantsNotice(const std::vector<std::string>& listed,
                 std::string_view event) {
  constexpr std::string_view kEnds[] = {"finished", "failed", "held",
                                        "cancelled"};
  const bool ends = std::ranges::count(kEnds, event) > 0;
  return std::ranges::any_of(listed, [&](const std::string& name) {
    return name == event || (ends && name == "ended");
  });
}

std::string RefusalOfNotices(const std::vector<std::string>& listed,
                             bool of_job) {
  if (listed.empty()) {
    return "the list of events is empty; leave it out, or write [\"none\"]";
  }
  const auto none = std::ranges::count(listed, "none");
  if (none > 0 && listed.size() > 1) {
    return "\"none\" stands beside other events; leave it or them out";
  }
  for (const std::string& name : listed) {
    if (name == "ended" || name == "none") continue;
    const bool known = std::ranges::count(kNoticeEvents, name) > 0;
    if (known && !(of_job && name == "node_lost")) continue;
    return StrCat(QuoteToml(name),
                  of_job ? " is no event of a job" : " is no event",
                  "; write started, finished, failed, held, cancelled, ended "
                  "(the four before), at_risk",
                  of_job ? "" : ", node_lost", " or none");
  }
  if (listed.size() > std::size(kNoticeEvents) + 1) {
    return "the list names an event twice; name each once";
  }
  return "";
}

bool IsValidName(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::all_of(name.begin(), name.end(), IsNameChar);
}

std::string RefusalOfType(std::string_view name) {
  return StrCat(QuoteToml(name),
                " is not the name of an accelerator type; write 1 to 64 of "
                "A-Z, a-z, 0-9, _ and -");
}

// The cost of a job is not known, so nothing would keep a job within a budget.
static void RefuseBudget(const toml::table& root, std::string_view source,
                         absl::Status& status) {
  if (!root.contains("budget")) return;
  TomlReader(root, source, status)
      .Fail("budget",
            "budget is not supported: the coordinator does not count what a "
            "job costs; leave it out, and limit the job's running time with "
            "time_limit");
}

// The first of the keys that the file has.
static std::string_view FirstOf(const TomlReader& reader,
                                std::initializer_list<std::string_view> keys) {
  const auto* const has = std::ranges::find_if(
      keys, [&](std::string_view key) { return reader.Has(key); });
  return has == keys.end() ? "" : *has;
}

static absl::StatusOr<JobSpec> ReadJobSpec(
    toml::table root, std::string_view source,
    std::span<const JobSetting> settings) {
  GAVEL_RETURN_IF_ERROR(CheckAliases(settings));
  for (const JobSetting& setting : settings) {
    GAVEL_RETURN_IF_ERROR(Override(setting, root));
  }
  absl::Status status;
  const std::span<const FileTable> tables = JobFileTables();
  RefuseBudget(root, source, status);
  TomlReader reader(root, source, tables, "", status);
  JobSpec spec;
  ReadMembers(reader, kJobKeys, spec);
  CheckScaleFactors(spec.scale_factor_min, spec.scale_factor,
                    spec.scale_factor_max, reader);
  for (const std::string& server : spec.exclude_servers) {
    if (std::ranges::count(spec.servers, server) == 0) continue;
    reader.Fail("exclude_servers",
                StrCat("servers and exclude_servers both name ",
                       QuoteToml(server), "; leave it out of one of them"));
  }
  if (reader.Has("after") && reader.Has("after_success")) {
    reader.Fail("after",
                "after and after_success mean the same; write all jobs into "
                "after_success");
  }
  if (const size_t parents = spec.after_success.size() + spec.after_any.size() +
                             spec.after_by_index.size();
      parents > kParentsMax) {
    reader.Fail(FirstOf(reader, {"after_success", "after", "after_any",
                                 "after_by_index"}),
                StrCat("after_success, after_any and after_by_index name ",
                       parents, " jobs; write ", kParentsMax,
                       " at most, or let a job between them wait for some of "
                       "these"));
  }
  if (spec.opaque() && spec.elastic()) {
    reader.Fail(FirstOf(reader, {"scale_factor_min", "scale_factor_max"}),
                StrCat("a job of class \"",
                       kClassNames[static_cast<size_t>(spec.job_class)],
                       "\" can't grow and shrink; leave scale_factor_min and "
                       "scale_factor_max out"));
  }
  if (spec.idle_limit_s && !spec.interactive()) {
    reader.Fail("idle_limit",
                "idle_limit is for jobs of class \"interactive\"; leave it "
                "out, or write class = \"interactive\"");
  }
  if (const toml::table* table = reader.Table("environment")) {
    ReadEnvironment(TomlReader(*table, source, tables, "[environment]", status),
                    spec);
  }
  if (const toml::table* table = reader.Table("throughputs")) {
    ReadThroughputs(TomlReader(*table, source, tables, "[throughputs]", status),
                    spec);
  }
  if (const toml::table* table = reader.Table("sweep")) {
    ReadSweep(TomlReader(*table, source, tables, "[sweep]", status), spec);
  }
  if (!spec.after_by_index.empty() && !HasElements(spec)) {
    reader.Fail("after_by_index",
                "after_by_index is for a job with array or [sweep]; write "
                "after_success");
  }
  if (reader.Has("array") && spec.array.empty()) {
    reader.Fail("array",
                "array is empty; write indices as 0-99, or leave it out");
  }
  GAVEL_RETURN_IF_ERROR(status);
  std::string key;
  if (const absl::Status wrong = CheckArray(spec, &key); !wrong.ok()) {
    const size_t dot = key.find('.');
    const toml::table* const table =
        root.get_as<toml::table>(std::string_view(key).substr(0, dot));
    if (dot != std::string::npos && table != nullptr) {
      TomlReader(*table, source, status)
          .Fail(key.substr(dot + 1), ToStd(wrong.message()));
    } else {
      reader.Fail(key, ToStd(wrong.message()));
    }
  }
  GAVEL_RETURN_IF_ERROR(status);
  return spec;
}

absl::StatusOr<JobSpec> ParseJobSpec(std::string_view toml,
                                     std::string_view source,
                                     std::span<const JobSetting> settings) {
  GAVEL_ASSIGN_OR_RETURN(toml::table root,
                         ParseToml(toml, source, kJobSpecBytesMax));
  return ReadJobSpec(std::move(root), source, settings);
}

absl::StatusOr<JobSpec> ParseJobSection(std::string_view toml,
                                        std::string_view source,
                                        std::string_view table,
                                        std::span<const JobSetting> settings) {
  GAVEL_ASSIGN_OR_RETURN(toml::table root,
                         ParseToml(toml, source, toml.size()));
  // Moved, since a copy of a node does not know its line.
  toml::table* const found = root.get_as<toml::table>(table);
  return ReadJobSpec(found == nullptr ? toml::table() : std::move(*found),
                     source, settings);
}

std::string FormatJobSpec(const JobSpec& spec) {
  return FormatMembers(kJobKeys, spec);
}

// ---- Changes of a submitted job ----

void ApplyUpdate(const JobUpdate& update, JobSpec* spec) {
  if (update.weight) spec->weight = *update.weight;
  if (update.deadline_s) {
    spec->deadline_s.reset();
    if (*update.deadline_s != 0) spec->deadline_s = *update.deadline_s;
  }
  if (update.entity) spec->entity = *update.entity;
  if (update.types) spec->types = *update.types;
  if (update.scale_factor_min) {
    spec->scale_factor_min = *update.scale_factor_min;
  }
  if (update.scale_factor_max) {
    spec->scale_factor_max = *update.scale_factor_max;
  }
  if (update.time_limit_s) {
    spec->time_limit_s.reset();
    if (*update.time_limit_s != 0) spec->time_limit_s = *update.time_limit_s;
  }
  if (update.after_success) spec->after_success = *update.after_success;
  if (update.after_any) spec->after_any = *update.after_any;
}

// By the parser itself, so that the bounds are the same.
absl::Status CheckUpdate(const JobUpdate& update, JobSpec spec) {
  if (update == JobUpdate()) {
    return absl::InvalidArgumentError(
        "nothing is to be changed; give one of --weight, --deadline, --entity, "
        "--types, --scale-factor-min, --scale-factor-max, --time-limit, "
        "--after "
        "and --after-any");
  }
  if (update.types && std::ranges::count(*update.types, "") > 0) {
    return absl::InvalidArgumentError(
        "--types has an empty name; write v100,p100, or all for any type");
  }
  ApplyUpdate(update, &spec);
  // "update:12:1: weight is -1; ...": of a file that nobody wrote.
  constexpr std::string_view kSource = "update";
  const absl::Status status =
      ParseJobSpec(FormatJobSpec(spec), kSource).status();
  std::string_view message = ToStd(status.message());
  if (!message.starts_with(kSource)) return status;
  message.remove_prefix(kSource.size());
  message.remove_prefix(
      std::min(message.find_first_not_of(":0123456789 "), message.size()));
  return {status.code(), ToAbsl(message)};
}

}  // namespace gavel
