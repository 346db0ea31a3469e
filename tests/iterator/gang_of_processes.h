// A gang of real processes without a coordinator, as torchrun starts them.
#ifndef GAVEL_TESTS_ITERATOR_GANG_OF_PROCESSES_H_
#define GAVEL_TESTS_ITERATOR_GANG_OF_PROCESSES_H_

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/iterator/worker_process.h"
#include "tests/support/free_port.h"
#include "tests/support/test.h"
#include "tests/support/test_device.h"

namespace gavel::testing {

using Variables = WorkerProcess::Variables;

// The ranks of one gang, all on this machine.
class GangOfProcesses {
 public:
  GangOfProcesses(const std::string& folder, int world_size,
                  Variables variables) {
    variables.insert(variables.end(),
                     {{"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", std::to_string(FreePort())},
                      {"WORLD_SIZE", std::to_string(world_size)},
                      {"GAVEL_CHECKPOINT_DIRECTORY", folder + "/checkpoints"}});
    for (int rank = 0; rank < world_size; ++rank) {
      const std::string own = folder + "/" + std::to_string(world_size) + "-" +
                              std::to_string(rank);
      std::filesystem::create_directories(own);
      Variables of_rank = variables;
      of_rank.emplace_back("RANK", std::to_string(rank));
      of_rank.emplace_back("GAVEL_DEVICE", TestDevice(rank));
      ranks_.push_back(std::make_unique<WorkerProcess>(own, of_rank));
    }
  }

  WorkerProcess& rank(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(ranks_.size()); }
  // The exit codes, by rank.
  std::vector<int> Wait() {
    std::vector<int> codes;
    for (const auto& one : ranks_) codes.push_back(one->Wait());
    return codes;
  }
  std::string Outputs() const {
    std::string all;
    for (const auto& one : ranks_) all += one->Output() + "\n----\n";
    return all;
  }
  // All ranks have the same weights, to the bit, and these are they.
  std::string Weights() {
    const std::string first = ranks_[0]->Weights();
    EXPECT_FALSE(first.empty()) << Outputs();
    for (const auto& one : ranks_) EXPECT_EQ(one->Weights(), first);
    return first;
  }

 private:
  std::vector<std::unique_ptr<WorkerProcess>> ranks_;
};

inline std::vector<int> Codes(int count, int code) {
  return std::vector<int>(static_cast<size_t>(count), code);
}

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_ITERATOR_GANG_OF_PROCESSES_H_
