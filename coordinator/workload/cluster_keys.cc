// Every key of a cluster file. The rows follow the fields of ClusterSpec.
#include "coordinator/workload/cluster_spec.h"
#include "coordinator/workload/file_keys.h"

namespace gavel {
namespace {

constexpr double kRoundMax_s = 30 * 24 * 3600;
constexpr NumberRange kRoundLength = {.min = kRoundDurationMin_s,
                                      .max = kRoundMax_s};

constexpr FileKey kClusterRows[] = {
    {.name = "scheduling",
     .kind = KeyKind::kTable,
     .otherwise = "its defaults",
     .example = R"({ policy = "fifo" })",
     .meaning = "How the coordinator schedules."},
    {.name = "server",
     .kind = KeyKind::kTables,
     .otherwise = "GPUs found through NVML",
     .example = R"([{ name = "node-1", accelerator = [{ type = "v100" }] }])",
     .meaning = "The servers and their accelerators."},
    {.name = "prices",
     .kind = KeyKind::kTable,
     .otherwise = "no prices",
     .example = "{ v100 = 2.48 }",
     .meaning = "Prices of accelerators, for policies per cost."},
    {.name = "entity",
     .kind = KeyKind::kTables,
     .otherwise = "none",
     .example = R"([{ name = "vision" }])",
     .meaning = "Organisations that jobs count for."},
};

constexpr FileKey kSchedulingRows[] = {
    {.name = "policy",
     .kind = KeyKind::kName,
     .values = "a name of `gavel solve --list-policies`",
     .default_value = R"("max_min_fairness_perf")",
     .example = R"("finish_time_fairness_perf")",
     .meaning = "Policy that divides the accelerators."},
    {.name = "round_duration_s",
     .kind = KeyKind::kNumber,
     .range = kRoundLength,
     .default_value = "360",
     .example = "120",
     .meaning = "Length of a round."},
    {.name = "lease_duration_s",
     .kind = KeyKind::kNumber,
     .range = kRoundLength,
     .otherwise = "60, or the round when that is shorter",
     .example = "30",
     .meaning = "Length of a lease, at most `round_duration_s`."},
    {.name = "mechanism",
     .kind = KeyKind::kName,
     .values = "`gavel` or `move_aware`",
     .default_value = R"("gavel")",
     .example = R"("move_aware")",
     .meaning = "How shares become rounds; `move_aware` weighs the cost of "
                "pauses and moves."},
    {.name = "queue",
     .kind = KeyKind::kName,
     .values = "`global` or `per_type`",
     .default_value = R"("global")",
     .example = R"("per_type")",
     .meaning = "Whether jobs are chosen by priority over all types at once, "
                "or type by type."},
    {.name = "reset_interval_s",
     .kind = KeyKind::kNumber,
     .range = kNotNegative,
     .default_value = "0",
     .example = "1920",
     .meaning = "Least time between two allocations; 0: at every arrival and "
                "completion."},
    {.name = "placement_sensitive",
     .kind = KeyKind::kBoolean,
     .default_value = "false",
     .example = "true",
     .meaning = "Whether the policy knows what gangs lose that are spread over "
                "servers."},
    {.name = "throughputs",
     .values = "a path, relative to the cluster file",
     .otherwise = "none",
     .example = R"("throughputs.json")",
     .meaning = "Throughput file, for job types and pairs that job files leave "
                "open."},
};

constexpr FileKey kPriceRows[] = {
    {.name = "TYPE",
     .kind = KeyKind::kNumber,
     .range = kNotNegative,
     .otherwise = "0",
     .example = "v100 = 2.48",
     .meaning = "Price of one accelerator of that type for an hour.",
     .any_name = true},
};

constexpr FileKey kEntityRows[] = {
    {.name = "name",
     .kind = KeyKind::kName,
     .required = true,
     .example = R"("vision")",
     .meaning = "Name that jobs give as `entity`."},
    {.name = "weight",
     .kind = KeyKind::kNumber,
     .range = kPositive,
     .default_value = "1",
     .example = "2",
     .meaning = "Its part of the cluster, relative to other organisations."},
    {.name = "policy",
     .kind = KeyKind::kName,
     .values = "`fairness`, `fifo` or a policy",
     .default_value = R"("fairness")",
     .example = R"("fifo")",
     .meaning = "How its part is divided among its jobs."},
};

constexpr FileKey kServerRows[] = {
    {.name = "name",
     .kind = KeyKind::kName,
     .required = true,
     .example = R"("node-1")",
     .meaning = "Name of the server, unique in the file."},
    {.name = "accelerator",
     .kind = KeyKind::kTables,
     .required = true,
     .example = R"([{ type = "v100" }])",
     .meaning = "Its accelerators, at most 256."},
    {.name = "host_memory_bytes",
     .kind = KeyKind::kSize,
     .otherwise = "no limit",
     .example = R"("64GiB")",
     .meaning = "Host memory that parked jobs may take."},
    {.name = "visibility",
     .values = "`all` or `leased`",
     .default_value = R"("all")",
     .example = R"("leased")",
     .meaning = "`leased`: a process sees the accelerator of its lease and no "
                "other, and restarts to get another one."},
    {.name = "keep_environment",
     .kind = KeyKind::kTexts,
     .otherwise = "none",
     .example = R"(["LD_LIBRARY_PATH", "NCCL_*"])",
     .meaning = "Variables of the agent that workers keep; `*` at the end: all "
                "that begin so."},
};

constexpr FileKey kAcceleratorRows[] = {
    {.name = "type",
     .kind = KeyKind::kName,
     .required = true,
     .example = R"("v100")",
     .meaning = "Accelerator type: an open name, as throughputs and prices "
                "have it."},
    {.name = "count",
     .kind = KeyKind::kInteger,
     .range = {.min = 1, .max = kAcceleratorsPerServerMax},
     .default_value = "1",
     .example = "2",
     .meaning = "That many equal CPU slots. GPUs are written one by one."},
    {.name = "threads",
     .kind = KeyKind::kInteger,
     .range = {.min = 1, .max = 1024},
     .otherwise = "1 on a CPU slot; on a GPU its share of the server's cores",
     .example = "4",
     .meaning = "Threads of a worker (`OMP_NUM_THREADS`)."},
    {.name = "device",
     .values = "`cpu`, `cuda:N`, `xpu:N` or `hpu:N`",
     .default_value = R"("cpu")",
     .example = R"("cuda:0")",
     .meaning = "What the accelerator is."},
    {.name = "uuid",
     .values = "`GPU-...` or `MIG-...`, or its beginning",
     .otherwise = "that of `device`",
     .example = R"("MIG-8a1b2c3d-0f1e")",
     .meaning = "The GPU, or part of one by MIG, instead of `device`."},
    {.name = "slow_down_factor",
     .kind = KeyKind::kNumber,
     .range = {.min = 1, .max = 1000},
     .default_value = "1",
     .example = "2.0",
     .meaning = "Makes each step that much slower. For demonstrations only."},
    {.name = "memory_bytes",
     .kind = KeyKind::kSize,
     .otherwise = "what NVML tells",
     .example = R"("141GiB")",
     .meaning = "Memory of the accelerator, within which paused jobs may stay "
                "on it."},
    {.name = "context_bytes",
     .kind = KeyKind::kSize,
     .otherwise = "what NVML tells, else 512MiB",
     .example = R"("500MiB")",
     .meaning = "Part of `memory_bytes` that each CUDA process takes anyway; "
                "needs `memory_bytes`."},
    {.name = "exclusive",
     .kind = KeyKind::kBoolean,
     .otherwise = "what NVML tells",
     .example = "true",
     .meaning = "One process at a time may use it (exclusive-process mode): "
                "paused jobs leave it by ending."},
};

constexpr FileTable kClusterTables[] = {
    {"", "The file consists of these tables, all optional:", kClusterRows},
    {"[scheduling]",
     "How the coordinator schedules. The options of `gavel "
     "coordinator` and `gavel local` win over it.",
     kSchedulingRows},
    {"[prices]", "Per accelerator and hour, in any currency.", kPriceRows},
    {"[[entity]]", "Once for each organisation.", kEntityRows},
    {"[[server]]", "Once for each server.", kServerRows},
    {"[[server.accelerator]]",
     "Once for each GPU, or kind of CPU slot, of the "
     "server above it.",
     kAcceleratorRows},
};

}  // namespace

std::span<const FileTable> ClusterFileTables() { return kClusterTables; }

}  // namespace gavel
