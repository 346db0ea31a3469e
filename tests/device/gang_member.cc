// One rank of a process group, for process_group_test.cc:
//   gang_member MODE RANK WORLD_SIZE [ENDPOINT]
// Rank 0 hosts the store and prints its endpoint first. Numbers are printed in
// hexadecimal, to the bit.
#include <ATen/Parallel.h>
#include <signal.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "core/text.h"
#include "runtime/device/process_group.h"

namespace gavel {
namespace {

constexpr int64_t kGlobalBatch = 12;
constexpr int kSteps = 6;
constexpr int kStepOfDeath = 3;

struct Member {
  std::string mode;
  int rank = 0;
  int world_size = 1;
  std::unique_ptr<GangStore> store;
  std::unique_ptr<ProcessGroup> group;
};

int Say(const absl::Status& status) {
  std::printf("status %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

void PrintTensor(const std::string& name, const at::Tensor& tensor) {
  std::printf("%s", name.c_str());
  const at::Tensor flat = tensor.detach().cpu().to(at::kDouble).reshape(-1);
  for (int64_t i = 0; i < flat.numel(); ++i) {
    std::printf(" %a", flat[i].item<double>());
  }
  std::printf("\n");
}

// Layers that are used by all, by nobody, and by the last rank only.
struct Net : torch::nn::Module {
  Net()
      : first(register_module("first", torch::nn::Linear(4, 8))),
        second(register_module("second", torch::nn::Linear(8, 3))),
        unused(register_module("unused", torch::nn::Linear(5, 5))),
        sometimes(register_module("sometimes", torch::nn::Linear(8, 3))) {}

  torch::nn::Linear first, second, unused, sometimes;
};

// The loss on samples [begin, end) of a global batch.
at::Tensor Loss(Net& net, int step, int64_t begin, int64_t end) {
  const auto random = at::make_generator<at::CPUGeneratorImpl>(
      static_cast<uint64_t>(100 + step));
  const at::Tensor all = torch::randn({kGlobalBatch, 4}, random);
  const at::Tensor input = all.slice(0, begin, end);
  const at::Tensor hidden = torch::tanh(net.first(input));
  // The last sample goes another way: its rank alone uses that layer.
  at::Tensor output = net.second(hidden);
  if (end == kGlobalBatch) {
    const at::Tensor mask =
        torch::arange(begin, end).eq(kGlobalBatch - 1).to(at::kFloat);
    output = output + net.sometimes(hidden) * mask.unsqueeze(1);
  }
  return (output * output).mean();
}

// `micro`: each rank's part in two backward passes, averaged in the second.
int Train(Member& member) {
  torch::manual_seed(5 + static_cast<uint64_t>(member.rank));
  Net net;
  torch::optim::SGD optimizer(
      net.parameters(),
      torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
  const bool micro = member.mode == "micro";
  bool last_pass = true;
  absl::Status failure;
  std::unique_ptr<GradientBuckets> buckets;
  if (member.group) {
    if (auto status = member.group->Broadcast(net.parameters()); !status.ok()) {
      return Say(status);
    }
    GradientBucketsOptions options;
    options.bucket_bytes_max = 64;  // several
    options.averages = [&] { return last_pass; };
    options.failed = [&](absl::Status status) { failure.Update(status); };
    auto made =
        GradientBuckets::Create(net.parameters(), *member.group, options);
    if (!made.ok()) return Say(made.status());
    buckets = *std::move(made);
  }
  const int64_t share = kGlobalBatch / member.world_size;
  const int64_t begin = share * member.rank;
  for (int step = 0; step < kSteps && failure.ok(); ++step) {
    if (member.mode == "die" && step == kStepOfDeath &&
        member.rank == member.world_size - 1) {
      std::_Exit(9);
    }
    optimizer.zero_grad();
    if (micro) {
      last_pass = false;
      (Loss(net, step, begin, begin + share / 2) * 0.5).backward();
      last_pass = true;
      (Loss(net, step, begin + share / 2, begin + share) * 0.5).backward();
    } else {
      Loss(net, step, begin, begin + share).backward();
    }
    if (buckets && buckets->unfinished()) return 3;
    optimizer.step();
  }
  for (const auto& parameter : net.named_parameters()) {
    PrintTensor(parameter.key(), parameter.value());
  }
  std::printf("unused has a gradient: %d\n",
              net.unused->weight.grad().defined() ? 1 : 0);
  return Say(failure);
}

int AllReduce(Member& member) {
  at::Tensor sum = torch::full({1000}, 1.0 + member.rank);
  auto pending = member.group->AllReduce(sum);
  if (!pending.ok()) return Say(pending.status());
  if (auto status = (*pending)->Wait(); !status.ok()) return Say(status);
  const at::Tensor real = torch::full({3}, 0.5 + member.rank);
  const at::Tensor whole = torch::full({2, 2}, 7 + member.rank, at::kLong);
  const absl::Status status = member.group->Broadcast({real, whole});
  PrintTensor("sum", sum.slice(0, 998));
  PrintTensor("real", real);
  PrintTensor("whole", whole);
  return Say(status);
}

// The last rank stops for ever; another thread of the others aborts.
int Freeze(Member& member) {
  if (member.rank == member.world_size - 1) raise(SIGSTOP);
  std::thread watch([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    member.group->Abort();
  });
  auto pending = member.group->AllReduce(torch::ones({100}));
  absl::Status status = pending.ok() ? (*pending)->Wait() : pending.status();
  watch.join();
  if (!status.ok()) status = member.group->Broadcast({torch::ones({1})});
  return Say(status);
}

absl::Status Join(Member& member, const char* endpoint) {
  auto store = member.rank == 0 ? GangStore::Host("127.0.0.1", 0, 10)
                                : GangStore::Connect(endpoint, 3);
  if (!store.ok()) return store.status();
  member.store = *std::move(store);
  if (member.rank == 0) {
    std::printf("%s\n", member.store->endpoint().c_str());
    std::fflush(stdout);
  }
  ProcessGroupOptions options;
  options.rank = member.rank;
  options.world_size = member.world_size;
  options.address = "127.0.0.1";
  options.prefix = "test";
  options.timeout_s = member.mode == "absent" ? 1 : 20;
  if (member.mode == "absent" && member.rank == member.world_size - 1) {
    return absl::OkStatus();
  }
  auto group = ProcessGroup::Create(*member.store, options);
  if (!group.ok()) return group.status();
  member.group = *std::move(group);
  // The store must outlive the slowest.
  return absl::OkStatus();
}

int Run(int argc, char** argv) {
  if (argc < 4) return 2;
  at::set_num_threads(1);
  Member member;
  member.mode = argv[1];
  member.rank = std::atoi(argv[2]);
  member.world_size = std::atoi(argv[3]);
  if (member.world_size > 1) {
    const absl::Status status = Join(member, argc > 4 ? argv[4] : "");
    if (!status.ok()) return Say(status);
  }
  if (member.mode == "absent") return 0;
  if (member.mode == "sum") return AllReduce(member);
  if (member.mode == "freeze") return Freeze(member);
  return Train(member);
}

}  // namespace
}  // namespace gavel

int main(int argc, char** argv) { return gavel::Run(argc, argv); }
