// Every key of a job file. The rows follow the fields of JobSpec.
#include "coordinator/workload/file_keys.h"
#include "coordinator/workload/throughput_table.h"

namespace gavel {
namespace {

constexpr double kScaleFactorMax = 4096;
constexpr NumberRange kWorkerLimit = {.above_min = true, .max = 3600};

constexpr FileKey kJobRows[] = {
    {.name = "name",
     .kind = KeyKind::kName,
     .required = true,
     .example = R"("resnet-1")",
     .meaning = "Name of the job; not digits alone, and no - in front."},
    {.name = "command",
     .kind = KeyKind::kTexts,
     .values = "1 to 1,024 strings, the first not empty",
     .required = true,
     .example = R"(["./train", "--epochs", "3"])",
     .meaning = "Program and arguments; never a shell line. The program is "
                "looked up in PATH, or beside the file when it is a path."},
    {.name = "working_directory",
     .values = "a path, not empty",
     .otherwise = "the directory of the file",
     .example = R"("/home/ada/resnet")",
     .meaning = "Directory that the program starts in."},
    {.name = "checkpoint_directory",
     .values = "a path, not empty",
     .otherwise = "`gavel-state/checkpoints/CLUSTER-ID-NAME` beside the file",
     .example = R"("/shared/checkpoints/resnet-1")",
     .meaning = "Where the job's checkpoints lie; its own, of no other job."},
    {.name = "environment",
     .kind = KeyKind::kTable,
     .otherwise = "no variables",
     .example = R"({ DATA = "/data/cifar10" })",
     .meaning = "Variables of the program's environment."},
    {.name = "app",
     .values = "1 to 256 bytes",
     .otherwise = "the job's name",
     .example = "\"ResNet-18 (batch size 64)\"",
     .meaning = "Job type: row of the throughput file."},
    {.name = "entity",
     .kind = KeyKind::kName,
     .otherwise = "none",
     .example = R"("vision")",
     .meaning = "Organisation that the job counts for; `[[entity]]` of the "
                "cluster file."},
    {.name = "class",
     .values = "`training`, `interactive`, `inference` or `opaque`",
     .default_value = R"("training")",
     .example = R"("training")",
     .meaning = "Kind of job. `opaque`: a command that does not link the "
                "runtime; it has whole accelerators, is never paused, and "
                "keeps them until its end or `time_limit`. The other two are "
                "scheduled as `training` today; `submit` says so."},
    {.name = "scale_factor",
     .kind = KeyKind::kInteger,
     .range = {.min = 1, .max = kScaleFactorMax},
     .default_value = "1",
     .example = "4",
     .meaning = "Accelerators that the job needs at once."},
    {.name = "scale_factor_min",
     .kind = KeyKind::kInteger,
     .range = {.min = 0, .max = kScaleFactorMax},
     .default_value = "0",
     .example = "1",
     .meaning = "Fewest workers of an elastic job, at most `scale_factor`; "
                "0: `scale_factor`."},
    {.name = "scale_factor_max",
     .kind = KeyKind::kInteger,
     .range = {.min = 0, .max = kScaleFactorMax},
     .default_value = "0",
     .example = "8",
     .meaning = "Most workers of an elastic job, at least `scale_factor`; "
                "0: `scale_factor`."},
    {.name = "types",
     .kind = KeyKind::kTexts,
     .values = "at most 64 names of accelerator types",
     .otherwise = "all types",
     .example = R"(["v100", "p100"])",
     .meaning = "Accelerator types that the job may run on; it never runs on "
                "others, whatever their speed."},
    {.name = "weight",
     .kind = KeyKind::kNumber,
     .range = kPositive,
     .default_value = "1",
     .example = "2.5",
     .meaning = "Priority: twice the weight is twice the share. A coordinator "
                "takes 0.001 to 1000 (`--weight-min`, `--weight-max`)."},
    {.name = "steps_total",
     .kind = KeyKind::kInteger,
     .range = kNotNegative,
     .default_value = "0",
     .example = "100000",
     .meaning = "Steps to the end of the job; 0: until the program ends by "
                "itself."},
    {.name = "deadline_s",
     .kind = KeyKind::kNumber,
     .range = kPositive,
     .otherwise = "none",
     .example = "86400",
     .meaning = "Seconds from submission to the deadline. Used by the policies "
                "named `_SLOs`."},
    {.name = "budget",
     .kind = KeyKind::kNumber,
     .range = kPositive,
     .otherwise = "none",
     .example = "12.5",
     .meaning = "Most that the job may cost, in the currency of `[prices]`. "
                "No policy acts on it yet; `submit` says so."},
    {.name = "throughputs",
     .kind = KeyKind::kTable,
     .otherwise = "the throughput file's, else measured",
     .example = "{ v100 = 45.5, k80 = 0 }",
     .meaning = "Speed of the whole job by accelerator type."},
    {.name = "retries_max",
     .kind = KeyKind::kInteger,
     .range = {.min = 0, .max = 1000},
     .default_value = "3",
     .example = "5",
     .meaning = "Failed ends in a row, without a new checkpoint between them, "
                "before the job is held."},
    {.name = "hang_timeout_s",
     .kind = KeyKind::kNumber,
     .range = kNotNegative,
     .otherwise = "`--hang-timeout` of the coordinator (600)",
     .example = "900",
     .meaning = "A worker that makes no step and passes no boundary for this "
                "long is ended and started again; 0: never."},
    {.name = "start_timeout_s",
     .kind = KeyKind::kNumber,
     .range = kWorkerLimit,
     .otherwise = "`--start-timeout` of the coordinator",
     .example = "600",
     .meaning = "Longest that a worker may take to be ready while none of its "
                "bytes move."},
    {.name = "pause_grace_s",
     .kind = KeyKind::kNumber,
     .range = kWorkerLimit,
     .otherwise = "`--pause-grace` of the coordinator",
     .example = "120",
     .meaning = "Longest that a worker may take to leave while none of its "
                "bytes move."},
    {.name = "time_limit",
     .kind = KeyKind::kNumber,
     .range = kPositive,
     .otherwise = "none",
     .example = "7200",
     .meaning = "Seconds that a job of class `opaque` may run: then it gets "
                "SIGTERM, after `pause_grace_s` SIGKILL, and is held."},
    {.name = "visibility",
     .values = "`all` or `leased`",
     .otherwise = "as the server says",
     .example = R"("leased")",
     .meaning = "`leased`: its processes see the accelerator of their lease "
                "and no other, and restart to get another one."},
    {.name = "pause_s",
     .kind = KeyKind::kNumber,
     .range = kNotNegative,
     .otherwise = "measured",
     .example = "2",
     .meaning = "Seconds of work lost when the job gives an accelerator up. "
                "With any of `pause_s`, `resume_s` and `move_s`, those not "
                "given are 0 (`move_s`: as `resume_s`)."},
    {.name = "resume_s",
     .kind = KeyKind::kNumber,
     .range = kNotNegative,
     .otherwise = "measured",
     .example = "3",
     .meaning = "Seconds of work lost when it starts on an accelerator again."},
    {.name = "move_s",
     .kind = KeyKind::kNumber,
     .range = kNotNegative,
     .otherwise = "`resume_s`",
     .example = "5",
     .meaning = "Seconds of work lost when it continues on another accelerator "
                "at once."},
};

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
     .range = {.max = kStepsPerSecondMax},
     .otherwise = "measured",
     .example = "v100 = 45.5",
     .meaning = "Steps/s on accelerators of that type; 0: the job cannot run "
                "there.",
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
};

}  // namespace

std::span<const FileTable> JobFileTables() { return kJobTables; }

}  // namespace gavel
