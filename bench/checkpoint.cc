// Measures a checkpoint: how long training stalls, how fast the copy becomes
// durable, and how fast it is read back and verified. Its peers are a memcpy,
// raw O_DIRECT transfers and torch::save + fsync of the same bytes, in the same
// run. The parameters have 100 MB and 1 GB.
//
//   bench_checkpoint [--directory PATH] [--device DEVICE] [--out FILE.json]
//
// PATH must be on a disk, not in memory. All measures of a size take turns, so
// that all see the same machine. The printed values are medians.
#include <ATen/ops/from_blob.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <torch/serialize.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench/table.h"
#include "bench/torch_device.h"
#include "runtime/checkpoint/generation_store.h"
#include "runtime/device/device_backend.h"

namespace {

using gavel::bench::Add;
using gavel::bench::AtLeast;
using gavel::bench::AtMost;
using gavel::bench::Die;
using gavel::bench::Median;
using gavel::bench::Report;
using gavel::bench::Row;
using gavel::bench::Wait;

namespace fs = std::filesystem;

constexpr int64_t kTensorElements = 1 << 21;  // 8 MiB of floats
constexpr size_t kChunkBytes = size_t{8} << 20;
constexpr int kRawThreads = 2;  // as fast as any other number here

void Check(const absl::Status& status) {
  if (!status.ok()) Die(std::string(status.message()));
}

double Seconds(const std::function<void()>& body) {
  const auto begin = gavel::bench::Clock::now();
  body();
  return gavel::bench::SecondsSince(begin);
}

// ---- the peers

// Memory that has its pages already, aligned for O_DIRECT.
char* WarmMemory(size_t size) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) Die("not enough memory");
  madvise(memory, size, MADV_HUGEPAGE);
  std::memset(memory, 1, size);
  return static_cast<char*>(memory);
}

// `transfer` is pread or pwrite; kRawThreads threads take turns with the
// chunks.
template <class Transfer>
void TransferDirect(int fd, char* memory, size_t size, Transfer transfer) {
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kRawThreads; ++i) {
    threads.emplace_back([&] {
      for (size_t begin; (begin = next.fetch_add(kChunkBytes)) < size;) {
        const size_t count = std::min(kChunkBytes, size - begin);
        const ssize_t done =
            transfer(fd, memory + begin, count, static_cast<off_t>(begin));
        if (done != static_cast<ssize_t>(count)) Die("raw transfer failed");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

double WriteDirect(const std::string& path, char* memory, size_t size) {
  fs::remove(path);
  return Seconds([&] {
    const int fd =
        open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_DIRECT, 0644);
    if (fd < 0) Die(path + " can't be written with O_DIRECT; give --directory");
    TransferDirect(fd, memory, size, pwrite);
    if (fdatasync(fd) != 0) Die("fdatasync failed");
    close(fd);
  });
}

double ReadDirect(const std::string& path, char* memory, size_t size) {
  return Seconds([&] {
    const int fd = open(path.c_str(), O_RDONLY | O_DIRECT);
    if (fd < 0) Die(path + " can't be read");
    TransferDirect(fd, memory, size, pread);
    close(fd);
  });
}

double TorchSave(const std::string& path,
                 const std::vector<at::Tensor>& tensors) {
  fs::remove(path);
  return Seconds([&] {
    torch::save(tensors, path);
    const int fd = open(path.c_str(), O_WRONLY);
    if (fd < 0 || fsync(fd) != 0) Die("torch::save + fsync failed");
    close(fd);
  });
}

void DropFromPageCache(const std::string& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const int fd = open(entry.path().c_str(), O_RDONLY);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }
}

void CopyToHost(const at::Tensor& tensor, char* to) {
  if (tensor.is_cpu()) {
    std::memcpy(to, tensor.const_data_ptr(), tensor.nbytes());
    return;
  }
  at::from_blob(to, tensor.sizes(), tensor.options().device(at::kCPU))
      .copy_(tensor, /*non_blocking=*/true);
}

// ---- one size

struct Measures {
  std::vector<double> memcpy_s, torch_save_s, raw_write_s, raw_read_s;
  std::vector<double> stall_s, durable_s, unchanged_s, restore_s, fresh_s;
};

gavel::GenerationStore Open(const std::string& directory) {
  // The store deletes nothing during the measurement.
  auto store = gavel::GenerationStore::Open(directory, {.keep_last = 100});
  Check(store.status());
  return *std::move(store);
}

double RestoreSeconds(gavel::GenerationStore& store,
                      const std::string& folder) {
  DropFromPageCache(folder);
  return Seconds([&] { Check(store.Restore().status()); });
}

void RemoveAllBut(const std::string& checkpoints, gavel::Generation latest) {
  for (const auto& entry : fs::directory_iterator(checkpoints)) {
    if (entry.path().filename() != gavel::GenerationName(latest)) {
      fs::remove_all(entry.path());
    }
  }
}

Measures Measure(const std::string& directory, size_t size, int rounds,
                 c10::Device device) {
  const size_t count = size / (kTensorElements * sizeof(float));
  gavel::Snapshot snapshot;
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < count; ++i) {
    tensors.push_back(torch::rand({kTensorElements}, device));
    snapshot.tensors.emplace_back("model/" + std::to_string(i), tensors[i]);
  }
  snapshot.bytes["position"] = "0";
  char* const warm = WarmMemory(size);
  // The copies of checkpoints are pinned, too.
  const bool pinned = gavel::BackendOf(device.type()).PinMemory(warm, size);
  const std::string checkpoints = directory + "/checkpoints";
  const std::string file = directory + "/raw";
  gavel::GenerationStore store = Open(checkpoints);
  uint64_t step = 0;
  const auto change_and_commit = [&] {
    for (at::Tensor& tensor : tensors) tensor.add_(1);
    Check(store.Commit({1, ++step}, snapshot));
  };
  // After two commits the arena exists, and all shards are known to change.
  change_and_commit();
  change_and_commit();
  Measures measures;
  for (int round = 0; round < rounds; ++round) {
    for (at::Tensor& tensor : tensors) tensor.add_(1);
    Wait(device);
    measures.memcpy_s.push_back(Seconds([&] {
      for (size_t i = 0; i < count; ++i) {
        CopyToHost(tensors[i], warm + i * tensors[i].nbytes());
      }
      Wait(device);
    }));
    measures.stall_s.push_back(Seconds([&] { Check(store.Stage(snapshot)); }));
    measures.raw_write_s.push_back(WriteDirect(file, warm, size));
    measures.durable_s.push_back(Seconds([&] {
      Check(store.CommitStaged({1, ++step}));
    }));
    if (store.linked_shards() > 1) Die("a changed shard was not written");
    measures.raw_read_s.push_back(ReadDirect(file, warm, size));
    {
      gavel::GenerationStore fresh = Open(checkpoints);
      measures.fresh_s.push_back(RestoreSeconds(fresh, checkpoints));
      measures.restore_s.push_back(RestoreSeconds(fresh, checkpoints));
    }
    measures.torch_save_s.push_back(TorchSave(file, tensors));
    RemoveAllBut(checkpoints, {1, step});
  }
  for (int round = 0; round < rounds; ++round) {
    snapshot.bytes["position"] = std::to_string(round);
    measures.unchanged_s.push_back(Seconds([&] {
      Check(store.Commit({1, ++step}, snapshot));
    }));
  }
  if (store.linked_shards() == 0) Die("unchanged shards were written");
  if (pinned) gavel::BackendOf(device.type()).UnpinMemory(warm);
  munmap(warm, size);
  fs::remove_all(checkpoints);
  fs::remove(file);
  return measures;
}

// ---- results

void AddRows(const std::string& label, size_t size, const Measures& measures,
             std::vector<Row>* rows) {
  const double gigabytes = static_cast<double>(size) * 1e-9;
  const auto ms = [](const std::vector<double>& s) { return Median(s) * 1e3; };
  const auto speed = [&](const std::vector<double>& s) {
    return gigabytes / Median(s);
  };
  const double stall = ms(measures.stall_s);
  const double durable = speed(measures.durable_s);
  Add(rows, {label + ": training stall", stall, "ms", "memcpy",
             ms(measures.memcpy_s), AtMost(1.3)});
  Add(rows, {label + ": training stall", stall, "ms", "torch::save + fsync",
             ms(measures.torch_save_s), AtMost(0.125)});
  Add(rows, {label + ": durable", durable, "GB/s", "O_DIRECT writes",
             speed(measures.raw_write_s), AtLeast(0.85)});
  Add(rows, {label + ": durable", durable, "GB/s", "torch::save + fsync",
             speed(measures.torch_save_s), AtLeast(1.6)});
  Add(rows,
      {label + ": restore, memory there", speed(measures.restore_s), "GB/s",
       "O_DIRECT reads", speed(measures.raw_read_s), AtLeast(0.8)});
  Add(rows, {label + ": restore, fresh memory", speed(measures.fresh_s), "GB/s",
             "O_DIRECT reads", speed(measures.raw_read_s), AtLeast(0.8)});
  Add(rows, {label + ": all of an unchanged save", ms(measures.unchanged_s),
             "ms", "O_DIRECT writes", ms(measures.raw_write_s)});
}

}  // namespace

int main(int argc, char** argv) {
  std::string out, parent, device_name = "cpu";
  gavel::bench::ReadFlags(
      argc, argv,
      {{"--directory", &parent}, {"--device", &device_name}, {"--out", &out}});
  const c10::Device device = gavel::bench::ChosenDevice(device_name);
  const gavel::bench::Folder folder(parent);
  const std::string& directory = folder.path();
  std::vector<Row> rows;
  const size_t unit = kTensorElements * sizeof(float);
  AddRows("100 MB", 12 * unit, Measure(directory, 12 * unit, 9, device), &rows);
  AddRows("1 GB", 120 * unit, Measure(directory, 120 * unit, 5, device), &rows);
  return Report(rows, out);
}
