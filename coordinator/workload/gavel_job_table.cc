// The job types that the original Gavel draws from, in its order: the order of
// draws hangs on it.
#include <span>
#include <string_view>
#include <vector>

#include "coordinator/workload/trace_generator.h"
#include "core/text.h"

namespace gavel {
namespace {

// Job types that differ in their batch size only.
struct Family {
  std::string_view model;
  std::string_view command;  // before the batch size
  std::string_view command_end;
  std::string_view working_directory;
  std::string_view steps_flag;
  bool distributed;
  std::vector<int> batch_sizes;
};

std::vector<Family> Families() {
  return {
      {.model = "ResNet-18",
       .command = "python3 main.py --data_dir=%s/cifar10 --batch_size ",
       .command_end = "",
       .working_directory = "image_classification/cifar10",
       .steps_flag = "--num_steps",
       .distributed = true,
       .batch_sizes = {16, 32, 64, 128, 256}},
      {.model = "ResNet-50",
       .command = "python3 main.py -j 8 -a resnet50 -b ",
       .command_end = " %s/imagenet/",
       .working_directory = "image_classification/imagenet",
       .steps_flag = "--num_minibatches",
       .distributed = true,
       .batch_sizes = {16, 32, 64, 128}},
      {.model = "Transformer",
       .command = "python3 train.py -data "
                  "%s/translation/multi30k.atok.low.pt -batch_size ",
       .command_end = " -proj_share_weight",
       .working_directory = "translation",
       .steps_flag = "-step",
       .distributed = true,
       .batch_sizes = {16, 32, 64, 128, 256}},
      {.model = "LM",
       .command = "python main.py --cuda --data %s/wikitext2 --batch_size ",
       .command_end = "",
       .working_directory = "language_modeling",
       .steps_flag = "--steps",
       .distributed = true,
       .batch_sizes = {5, 10, 20, 40, 80}},
      {.model = "Recommendation",
       .command = "python3 train.py --data_dir %s/ml-20m/pro_sg/ --batch_size ",
       .command_end = "",
       .working_directory = "recommendation",
       .steps_flag = "-n",
       .distributed = false,
       .batch_sizes = {512, 1024, 2048, 4096, 8192}},
  };
}

JobTemplate TemplateOf(const Family& family, int batch_size) {
  return {.type = StrCat(family.model, " (batch size ", batch_size, ")"),
          .command = StrCat(family.command, batch_size, family.command_end),
          .working_directory = std::string(family.working_directory),
          .steps_flag = std::string(family.steps_flag),
          .needs_data_directory = true,
          .distributed = family.distributed};
}

std::vector<JobTemplate> MakeJobTable() {
  std::vector<JobTemplate> table;
  for (const Family& family : Families()) {
    for (const int batch_size : family.batch_sizes) {
      table.push_back(TemplateOf(family, batch_size));
    }
  }
  table.push_back({.type = "A3C",
                   .command = "python3 main.py --env PongDeterministic-v4 "
                              "--workers 4 --amsgrad True",
                   .working_directory = "rl",
                   .steps_flag = "--max-steps",
                   .needs_data_directory = false,
                   .distributed = false});
  table.push_back({.type = "CycleGAN",
                   .command = "python3 cyclegan.py --dataset_path "
                              "%s/monet2photo --decay_epoch 0",
                   .working_directory = "cyclegan",
                   .steps_flag = "--n_steps",
                   .needs_data_directory = true,
                   .distributed = false});
  return table;
}

}  // namespace

std::span<const JobTemplate> GavelJobTable() {
  static const std::vector<JobTemplate> table = MakeJobTable();
  return table;
}

}  // namespace gavel
