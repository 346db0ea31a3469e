// Parts of a training that LibTorch lacks, each tracked by one line: schedules
// of the learning rate, gradient scaling, moving averages of a module, and
// pretrained weights. Optional.
//
//   gavel::Schedule schedule(optimizer, gavel::Curve::Cosine(9000, 500));
//   gavel::GradScaler scaler;
//   gavel::Ema ema(model, averaged, 0.999);
//   session->Track("schedule", schedule);  // beside model and optimizer
//   session->Track("scaler", scaler);
//   session->Track("ema", ema);
//   ...
//   scaler.Scale(loss * session->loss_scale()).backward();
//   if (!session->last_micro_batch()) continue;  // session->Accumulate(4)
//   scaler.Unscale(optimizer);
//   torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
//   scaler.Step(optimizer);
//   scaler.Update();
//   optimizer.zero_grad();
//   schedule.step();
//   ema.Update();
//
// A wrong argument (a schedule of no steps) is an error of Track(). In a step
// these classes throw what LibTorch throws, as its own do.
//
// Thread-safety: the training thread.
#ifndef GAVEL_TRAINING_H_
#define GAVEL_TRAINING_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gavel/status.h"
#include "gavel/tracking.h"

namespace gavel {

// The learning rate over the steps, as a factor of the optimizer's own. A
// value.
class GAVEL_EXPORT Curve {
 public:
  // Rises linearly from 0 to 1 over `warmup_steps`, and stays there.
  static Curve Constant(int64_t warmup_steps);
  // The same, and then falls to `last`, where it is from step `steps` on. With
  // 0 <= warmup_steps < steps.
  static Curve Linear(int64_t steps, int64_t warmup_steps = 0, double last = 0);
  static Curve Cosine(int64_t steps, int64_t warmup_steps = 0, double last = 0);
  // Rises from 1/25 to 1 over 0.3 of the steps and falls to 1/250,000, both as
  // half a cosine: torch.optim.lr_scheduler.OneCycleLR without its momentum.
  static Curve OneCycle(int64_t steps);

  // The factor of the step that follows `steps_done` steps.
  double At(int64_t steps_done) const;
  // kInvalidArgument: of no steps, or the warm-up has no end before them.
  const Status& status() const { return status_; }

 private:
  enum class Shape : uint8_t { kConstant, kLinear, kCosine };
  Curve(Shape shape, int64_t steps, int64_t warmup_steps, double last);

  Shape shape_;
  Shape rise_ = Shape::kLinear;
  double first_ = 0;
  double peak_step_;
  double last_step_;
  double last_;
  Status status_;
};

// Sets the learning rates of an optimizer: those it was made with, times a
// curve. step() after each step of the optimizer. The curve is the program's,
// also after a restart; the rates are the checkpoint's, as all options of
// optimizers (SessionOptions::keep_program_options). Track the optimizer, too.
class GAVEL_EXPORT Schedule : public torch::optim::LRScheduler {
 public:
  Schedule(torch::optim::Optimizer& optimizer, Curve curve);

  const Status& status() const { return curve_.status(); }
  // For a restart: the rates of the groups where the curve is 1.
  const std::vector<double>& base_rates() const { return base_rates_; }
  void SetBaseRates(std::vector<double> rates);
  // Sets the rates of the present step, of which step_count_ were done.
  void Apply();

 private:
  std::vector<double> get_lrs() override;
  std::vector<double> RatesAt(int64_t steps_done) const;

  torch::optim::Optimizer& optimizer_;
  Curve curve_;
  std::vector<double> base_rates_;
};

struct GradScalerOptions {
  bool enabled = true;  // off: Scale() and Step() only pass on
  double init_scale = 65536;
  double growth_factor = 2;        // > 1
  double backoff_factor = 0.5;     // in (0, 1)
  int64_t growth_interval = 2000;  // steps without an overflow until it grows
};

// Scales the loss so that small gradients of half precision are not rounded to
// zero: torch.amp.GradScaler. A step whose gradients are not finite is skipped.
// Without Scale() since the last Update() the gradients are taken as they are.
class GAVEL_EXPORT GradScaler {
 public:
  explicit GradScaler(GradScalerOptions options = {});

  at::Tensor Scale(const at::Tensor& loss);
  // Divides the gradients by the scale, once until Update(); for clipping.
  void Unscale(torch::optim::Optimizer& optimizer);
  // Unscale(), and a step of the optimizer. False: it was skipped, also because
  // this optimizer has had its step since the last Update(). Waits for the
  // device.
  bool Step(torch::optim::Optimizer& optimizer);
  // At the end of the step, after all optimizers.
  void Update();
  double scale() const;

  Status TrackIn(Tracking& tracking, const std::string& name);

 private:
  GradScalerOptions options_;
  std::vector<at::Tensor> state_;  // the scale, steps since it changed
  bool has_scaled_ = false;        // a loss of this step
  // Optimizers of this step.
  struct Unscaled {
    const torch::optim::Optimizer* optimizer;
    at::Tensor found;  // 1: some of its gradients are not finite; else 0
    bool has_stepped = false;
  };
  std::vector<Unscaled> unscaled_;
};

// The exponential moving average of a module's parameters, in a second module
// that was made with the same arguments: torch.optim.swa_utils.AveragedModel.
// Buffers are copied. The average is in evaluation mode and not trained.
class GAVEL_EXPORT Ema {
 public:
  Ema(const std::shared_ptr<torch::nn::Module>& module,
      std::shared_ptr<torch::nn::Module> average, double decay);
  // Any ModuleHolder (what TORCH_MODULE makes).
  template <class Holder, class = decltype(std::declval<Holder&>().ptr())>
  Ema(Holder& module, Holder& average, double decay)
      : Ema(std::shared_ptr<torch::nn::Module>(module.ptr()),
            std::shared_ptr<torch::nn::Module>(average.ptr()), decay) {}

  // After each step of the optimizer. The first one copies.
  void Update();

  // The average as `name`, for Python, too, and the count as `name`.updates.
  Status TrackIn(Tracking& tracking, const std::string& name);

 private:
  std::shared_ptr<torch::nn::Module> average_;
  std::vector<std::pair<at::Tensor, at::Tensor>> parameters_;  // from, to
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;
  double decay_;
  int64_t updates_ = 0;
  Status status_;
};

struct SafetensorsOptions {
  // Off: tensors of the file without a place are left out, and those that it
  // lacks stay as they are.
  bool strict = true;
  // The module's name for one of the file; an empty one leaves it out.
  std::function<std::string(const std::string&)> rename;
};

// Fills a module from a safetensors file, an index of several
// (model.safetensors.index.json) or the folder of either. Types are converted.
// Before Track(), which puts a restarted job's own state there. All names and
// shapes are compared before anything is written. kFailedPrecondition names the
// missing, unexpected and misshapen tensors; kDataLoss: a damaged file.
GAVEL_EXPORT Status LoadSafetensors(torch::nn::Module& module,
                                    const std::string& path,
                                    const SafetensorsOptions& options = {});

// Writes parameters and buffers under their names, as Python's
// safetensors.torch.save_model: one of several names of a shared tensor. A file
// of that name is replaced when the new one is whole.
GAVEL_EXPORT Status SaveSafetensors(torch::nn::Module& module,
                                    const std::string& path);

}  // namespace gavel

#endif  // GAVEL_TRAINING_H_
