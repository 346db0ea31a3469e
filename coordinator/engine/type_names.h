// Names of accelerator types that mean one type of the cluster. Agents name
// GPUs by model, form factor and memory ("a100-pcie-80gb"); tables, job files
// and prices may leave out what tells nothing apart here ("a100"). Pure.
#ifndef GAVEL_COORDINATOR_ENGINE_TYPE_NAMES_H_
#define GAVEL_COORDINATOR_ENGINE_TYPE_NAMES_H_

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/workload/throughput_table.h"

namespace gavel {

// `type` without some of its parts "-pcie", "-nvl", "-sxm" and "-80gb" (any
// memory), the longest first: of "a100-pcie-80gb" these are "a100-80gb",
// "a100-pcie" and "a100". Other parts are the model's.
std::vector<std::string> ShorterTypeNames(std::string_view type);

// `type`, then the shorter names of it that are neither another of `types` nor
// a shorter name of one. `type` is one of `types`.
std::vector<std::string> NamesOfType(std::string_view type,
                                     std::span<const std::string> types);

// Its column in the table, by the first of its names that has one.
std::optional<size_t> FindColumn(const ThroughputTable& table,
                                 std::string_view type,
                                 std::span<const std::string> types);

// Steps/s or prices by names: gives those of `types` that have none by their
// own name those by a shorter one, also those at a level (core/locality.h).
void NameInFull(std::span<const std::string> types,
                std::map<std::string, double>* values);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_TYPE_NAMES_H_
