// The processes of a gang as one: a store of keys and values that rank 0 hosts,
// and collectives over it (LibTorch's Gloo on a CPU, those of DeviceBackend on
// an accelerator, as NCCL). The iterator makes it anew for each lease. No type
// of c10d is visible here, as its headers are heavy.
//
// Nothing throws. UNAVAILABLE: the other side is gone, did not come in time, or
// the group was aborted; INVALID_ARGUMENT: no such address, or a tensor of a
// type that can't be reduced.
#ifndef GAVEL_RUNTIME_DEVICE_PROCESS_GROUP_H_
#define GAVEL_RUNTIME_DEVICE_PROCESS_GROUP_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gavel {

// A connection to the store. One thread per connection. Anybody who reaches the
// port can read and write the store (as any TCPStore). So gangs need a network
// of their own; their collectives are not encrypted either.
class GangStore {
 public:
  // Rank 0: opens the store, for as long as this object lives. `address`: where
  // the others reach this machine; `port` 0: a free one.
  static absl::StatusOr<std::unique_ptr<GangStore>> Host(
      const std::string& address, int port, double timeout_s);
  // `endpoint`: "ADDRESS:PORT".
  static absl::StatusOr<std::unique_ptr<GangStore>> Connect(
      const std::string& endpoint, double timeout_s);
  ~GangStore();
  GangStore(const GangStore&) = delete;
  GangStore& operator=(const GangStore&) = delete;

  // Another connection, for another thread.
  absl::StatusOr<std::unique_ptr<GangStore>> Clone();
  const std::string& endpoint() const { return endpoint_; }

  absl::Status Set(const std::string& key, const std::string& value);
  // Whether all of them are set.
  absl::StatusOr<bool> Has(const std::vector<std::string>& keys);
  // The values of keys that are set, in the keys' order.
  absl::StatusOr<std::vector<std::string>> Get(
      const std::vector<std::string>& keys);

 private:
  friend class ProcessGroup;
  struct Impl;
  GangStore(std::unique_ptr<Impl> impl, std::string endpoint);

  std::unique_ptr<Impl> impl_;
  std::string endpoint_;
};

enum class Reduction : uint8_t { kSum, kMin, kMax };

struct ProcessGroupOptions {
  int rank = 0;
  int world_size = 1;
  at::Device device{at::kCPU};  // of the tensors
  std::string address;          // of this machine; empty: found by its name
  std::string prefix;           // of the group's keys: another for each group
  double timeout_s = 30;        // of coming together; then see SetTimeout()
};

// All ranks must begin collectives in the same order. Thread-safety: one thread
// at a time, except for Abort().
class ProcessGroup {
 public:
  // Returns when all ranks are there.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> Create(
      GangStore& store, const ProcessGroupOptions& options);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  // A collective that runs beside the caller. To be waited for, or its tensor
  // to be left alone until the group is gone.
  class Pending {
   public:
    virtual ~Pending() = default;
    // On an accelerator: the current stream waits, not the caller.
    virtual absl::Status Wait() = 0;
  };
  // Adds `tensor` (contiguous) up over all ranks, or takes the least or the
  // most of each element, in place: the same bits on each. INVALID_ARGUMENT, at
  // once and of no consequence for the group: the type of its elements is not
  // among those that all libraries of collectives know.
  absl::StatusOr<std::unique_ptr<Pending>> AllReduce(
      at::Tensor tensor, Reduction reduction = Reduction::kSum);
  // The values of rank `root` into those of all others, in place.
  absl::Status Broadcast(const std::vector<at::Tensor>& tensors, int root = 0);

  // Returns when all that was begun on the device is done: until then an
  // AllReduce() there may not have been. UNAVAILABLE: the group was aborted,
  // and its tensors may have anything in them.
  absl::Status Synchronize();
  // The same, and the group takes no more collectives. Must be called before
  // the group is destroyed, or work that is under way on a device is aborted.
  // All ranks must call it; after `timeout_s` (0: never) without them the group
  // is aborted.
  absl::Status Finish(double timeout_s = 0);

  // Sets the time-out of each collective that begins from now on.
  void SetTimeout(double timeout_s);
  // Ends what runs and all that comes with UNAVAILABLE. From any thread.
  void Abort();

  int world_size() const { return world_size_; }
  bool on_host() const;  // Gloo
  bool aborted() const;

 private:
  struct Impl;
  absl::Status Shutdown();
  ProcessGroup(std::unique_ptr<Impl> impl, int world_size);

  std::unique_ptr<Impl> impl_;
  const int world_size_;
};

// Averages the gradients of a model over a gang while backward() still runs.
// Parameters are put into buckets in the reverse of their order, and a bucket
// is added up over the ranks as soon as its last gradient is there. When
// backward() returns, all gradients are the averages, with the same bits on
// each rank. (The method of Li et al., "PyTorch Distributed", VLDB'20, section
// 3.)
//
// The gradients of parameters live in the buckets: once a pass has made one,
// parameter.grad() is a view into its bucket, until the program resets it. So
// they take no memory besides the bucket, and gradients that are accumulated
// into it in place are not copied. A handle to a gradient sees the next step's
// values there.
//
// A parameter without a gradient on this rank counts as zero where another rank
// has one, and stays without where none has. Backward passes may be several in
// a step; each averages. Called by the iterator's DataParallel.
//
// Thread-safety: made and destroyed by the training thread while no backward()
// runs. Ownership: the group is borrowed. Nothing throws into backward().
struct GradientBucketsOptions {
  // Large enough for a collective to be efficient, small enough to begin early.
  int64_t bucket_bytes_max = 25 << 20;
  // Asked when a backward pass comes to its first gradient: false leaves this
  // pass alone, its gradients add up locally (micro-batches). Empty: always.
  std::function<bool()> averages = {};
  // Called when the gradients of this step are worthless: UNAVAILABLE when a
  // rank is gone, else the error. The thread that runs the pass calls it; later
  // passes do nothing.
  std::function<void(absl::Status)> failed = {};
};

class GradientBuckets {
 public:
  // `parameters`: those that need a gradient, all on one device, the same on
  // all ranks. INVALID_ARGUMENT: of another kind than floating point.
  static absl::StatusOr<std::unique_ptr<GradientBuckets>> Create(
      const std::vector<at::Tensor>& parameters, ProcessGroup& group,
      GradientBucketsOptions options);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  // A backward pass began and did not come to its end (it threw): the other
  // ranks wait for the rest.
  bool unfinished() const;

  // Memory of the buckets, gradients among them.
  int64_t size_bytes() const;

 private:
  class Impl;
  explicit GradientBuckets(std::shared_ptr<Impl> impl);

  std::shared_ptr<Impl> impl_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_DEVICE_PROCESS_GROUP_H_
