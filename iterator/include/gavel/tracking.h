// The job's state: session->Track(name, thing) adds to it. Part of
// gavel/session.h.
#ifndef GAVEL_TRACKING_H_
#define GAVEL_TRACKING_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gavel/internal/argument_types.h"
#include "gavel/status.h"

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}
namespace torch::optim {
class LRScheduler;
class Optimizer;
class ReduceLROnPlateauScheduler;
}  // namespace torch::optim

namespace gavel {

struct OptimizerKind;

namespace internal {
class SessionState;
}  // namespace internal

// Each worker has its own part of a tensor: the rank-th of those that
// torch.chunk cuts along `dim`. For tensor parallelism, or an optimizer's state
// that is divided among the workers.
struct Sharded {
  int64_t dim = 0;
  int64_t size = 0;  // of the whole along dim; 0: all parts are equal
};

class GAVEL_EXPORT Tracking {
 public:
  // Makes something part of the job's state, once, under a unique name, and
  // restores it at once when a generation exists. Before the first loop only.
  // Errors are in status(), too, so the result may be ignored. Tensors move
  // with the lease, in place: who shares them goes on to do so.
  Status Track(const std::string& name,
               std::shared_ptr<torch::nn::Module> module);
  // Tracks a TorchScript module with its attributes, and its submodules.
  Status Track(const std::string& name, torch::jit::Module& module);
  Status Track(const std::string& name, torch::optim::Optimizer& optimizer);
  // An optimizer of a class of your own, which gavel/optimizer_kind.h
  // describes.
  Status Track(const std::string& name, torch::optim::Optimizer& optimizer,
               const OptimizerKind& kind);
  // Beside the optimizer, whose learning rate it changes; what it was made with
  // is the program's. Members that a class of your own adds are tracked by
  // themselves.
  Status Track(const std::string& name, torch::optim::LRScheduler& scheduler);
  Status Track(const std::string& name,
               torch::optim::ReduceLROnPlateauScheduler& scheduler);
  // Dense, COO or CSR (on another device, a new one takes the place of the
  // handle). Undefined, an empty list: as in the checkpoint.
  Status Track(const std::string& name, at::Tensor& tensor);
  Status Track(const std::string& name, std::vector<at::Tensor>& tensors);
  // Tracks this worker's own part, made with the size that this part has, also
  // when the job starts again on another number of workers. All tensors of a
  // module that have the dimension are parts; others are the same on all
  // workers, as the bias of a layer that is cut by its inputs. DataParallel
  // leaves parts alone. Their gradients and optimizer states are parts, too.
  Status Track(const std::string& name, at::Tensor& tensor, Sharded sharded);
  Status Track(const std::string& name,
               std::shared_ptr<torch::nn::Module> module, Sharded sharded);
  // The same for a piece of something that is then tracked as a whole.
  Status Shard(std::shared_ptr<torch::nn::Module> module, Sharded sharded);
  // One of your own, on the CPU; LibTorch's default generators are always part
  // of the state.
  Status Track(const std::string& name, at::Generator& generator);
  Status Track(const std::string& name, std::string& text);
  // State of any other kind, as bytes; `load` is called when there are some.
  template <class Save, class Load,
            std::enable_if_t<std::is_convertible_v<
                                 Load, std::function<void(const std::string&)>>,
                             int> = 0>
  Status Track(const std::string& name, Save save, Load load) {
    return TrackBytes(name, std::move(save), std::move(load));
  }
  // Any ModuleHolder (what TORCH_MODULE makes).
  template <class Holder, class = decltype(std::declval<Holder&>().ptr())>
  Status Track(const std::string& name, Holder& holder) {
    return Track(name, std::shared_ptr<torch::nn::Module>(holder.ptr()));
  }
  template <class Holder, class = decltype(std::declval<Holder&>().ptr())>
  Status Track(const std::string& name, Holder& holder, Sharded sharded) {
    return Track(name, std::shared_ptr<torch::nn::Module>(holder.ptr()),
                 sharded);
  }
  template <class Holder, class = decltype(std::declval<Holder&>().ptr())>
  Status Shard(Holder& holder, Sharded sharded) {
    return Shard(std::shared_ptr<torch::nn::Module>(holder.ptr()), sharded);
  }
  // A class of several things, with Status TrackIn(gavel::Tracking& tracking,
  // const std::string& name) that tracks each under `name` or `name`.PART.
  template <class Parts,
            std::enable_if_t<internal::HasTrackIn<Parts>::value, int> = 0>
  Status Track(const std::string& name, Parts& parts) {
    return FailUnlessOk(parts.TrackIn(*this, name));
  }
  // int, int64_t, size_t, float, double, bool, ...
  template <class Number,
            std::enable_if_t<std::is_arithmetic_v<Number>, int> = 0>
  Status Track(const std::string& name, Number& number) {
    const char* const kind = std::is_floating_point_v<Number> ? "floating-point"
                             : std::is_signed_v<Number>       ? "signed"
                                                              : "unsigned";
    return TrackNumber(name, kind, &number, sizeof(number));
  }
  // std::mt19937, ...; std::normal_distribution, ..., which keep values, too.
  template <class Engine,
            std::enable_if_t<internal::IsRandomEngine<Engine>::value ||
                                 internal::IsRandomDistribution<Engine>::value,
                             int> = 0>
  Status Track(const std::string& name, Engine& engine) {
    return TrackEngine(
        name, [&engine] { return internal::EngineText(engine); },
        [&engine](const std::string& text) {
          return internal::LoadEngine(text, engine);
        });
  }
  // Anything else: the compiler says in one sentence what there is.
  Status Track(const std::string& name, internal::NotTrackable thing);

 protected:
  explicit Tracking(std::unique_ptr<internal::SessionState> state);
  ~Tracking();

  std::unique_ptr<internal::SessionState> state_;

 private:
  Status TrackBytes(const std::string& name, std::function<std::string()> save,
                    std::function<void(const std::string&)> load);
  Status FailForNull(const std::string& name);
  Status FailUnlessOk(Status status);
  Status TrackNumber(const std::string& name, const char* kind, void* number,
                     size_t size);
  Status TrackEngine(const std::string& name, std::function<std::string()> save,
                     std::function<bool(const std::string&)> load);
};

}  // namespace gavel

#endif  // GAVEL_TRACKING_H_
