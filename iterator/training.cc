// Schedules, gradient scaling, moving averages and safetensors files of
// gavel/training.h.
#include "gavel/training.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/status.h"
#include "core/text.h"
#include "iterator/environment.h"
#include "iterator/tracked_state.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/device/torch_errors.h"
#include "runtime/generation/safetensors_files.h"

namespace gavel {
namespace {

constexpr double kOneCycleRise = 0.3;  // PyTorch's defaults
constexpr double kOneCycleFirst = 1 / 25.0;
constexpr double kOneCycleLast = kOneCycleFirst / 1e4;

constexpr double kPi = 3.14159265358979323846;

Status Wrong(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}

}  // namespace

// ---- Schedules.

Curve::Curve(Shape shape, int64_t steps, int64_t warmup_steps, double last)
    : shape_(shape),
      peak_step_(static_cast<double>(warmup_steps)),
      last_step_(static_cast<double>(steps)),
      last_(last) {
  if (steps < 1 && shape != Shape::kConstant) {
    status_ = Wrong(StrCat("a schedule of ", steps,
                           " steps; give the steps of the training, >= 1"));
  } else if (warmup_steps < 0 ||
             (warmup_steps >= steps && shape != Shape::kConstant)) {
    status_ =
        Wrong(StrCat("a warm-up of ", warmup_steps, " steps in a schedule of ",
                     steps, "; give 0 or more, and fewer than all"));
  } else if (!std::isfinite(last)) {
    status_ = Wrong(
        "a schedule whose last value is not a finite number; give the part of "
        "the learning rate that is left at its end, such as 0 or 0.1");
  }
}

Curve Curve::Constant(int64_t warmup_steps) {
  return {Shape::kConstant, warmup_steps, warmup_steps, 1};
}

Curve Curve::Linear(int64_t steps, int64_t warmup_steps, double last) {
  return {Shape::kLinear, steps, warmup_steps, last};
}

Curve Curve::Cosine(int64_t steps, int64_t warmup_steps, double last) {
  return {Shape::kCosine, steps, warmup_steps, last};
}

// Source: L. N. Smith and N. Topin, "Super-Convergence", 2018, in the form of
// torch.optim.lr_scheduler.OneCycleLR, whose peak need not be at a whole step.
Curve Curve::OneCycle(int64_t steps) {
  Curve curve(Shape::kCosine, steps, 0, kOneCycleLast);
  curve.rise_ = Shape::kCosine;
  curve.first_ = kOneCycleFirst;
  curve.peak_step_ = kOneCycleRise * static_cast<double>(steps) - 1;
  curve.last_step_ = static_cast<double>(steps) - 1;
  return curve;
}

double Curve::At(int64_t steps_done) const {
  const auto between = [](Shape shape, double from, double to, double part) {
    if (shape == Shape::kCosine) part = (1 - std::cos(kPi * part)) / 2;
    return from + (to - from) * part;
  };
  const double step = static_cast<double>(steps_done);
  if (!status_.ok()) return 1;
  if (step < peak_step_) return between(rise_, first_, 1, step / peak_step_);
  if (shape_ == Shape::kConstant) return 1;
  if (step >= last_step_) return last_;
  return between(shape_, 1, last_,
                 (step - peak_step_) / (last_step_ - peak_step_));
}

Schedule::Schedule(torch::optim::Optimizer& optimizer, Curve curve)
    : LRScheduler(optimizer),
      optimizer_(optimizer),
      curve_(std::move(curve)),
      base_rates_(get_current_lrs()) {
  Apply();
}

void Schedule::SetBaseRates(std::vector<double> rates) {
  base_rates_ = std::move(rates);
}

void Schedule::Apply() {
  const std::vector<double> rates = RatesAt(step_count_);
  auto& groups = optimizer_.param_groups();
  for (size_t i = 0; i < groups.size() && i < rates.size(); ++i) {
    groups[i].options().set_lr(rates[i]);
  }
}

// LRScheduler::step() asks before it counts.
std::vector<double> Schedule::get_lrs() {
  return RatesAt(int64_t{step_count_} + 1);
}

std::vector<double> Schedule::RatesAt(int64_t steps_done) const {
  const double factor = curve_.At(steps_done);
  std::vector<double> rates = base_rates_;
  for (double& rate : rates) rate *= factor;
  return rates;
}

// ---- Gradient scaling, by the operators that Python's GradScaler uses.

GradScaler::GradScaler(GradScalerOptions options)
    : options_(options),
      state_{at::full({}, options.init_scale, at::kFloat),
             at::zeros({}, at::kInt)} {}

at::Tensor GradScaler::Scale(const at::Tensor& loss) {
  if (!options_.enabled) return loss;
  // A restored state may be on another device.
  for (at::Tensor& tensor : state_) tensor = tensor.to(loss.device());
  has_scaled_ = true;
  return loss * state_[0].to(loss.scalar_type());
}

void GradScaler::Unscale(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled || !has_scaled_) return;
  if (std::ranges::find(unscaled_, &optimizer, &Unscaled::optimizer) !=
      unscaled_.end()) {
    return;
  }
  const at::NoGradGuard no_grad;
  const at::Tensor& scale = state_[0];
  at::Tensor found = at::zeros({1}, scale.options());
  const at::Tensor inverse = scale.to(at::kDouble).reciprocal().to(at::kFloat);
  // The operator takes tensors of one type at once.
  std::map<at::ScalarType, std::vector<at::Tensor>> gradients;
  for (auto& group : optimizer.param_groups()) {
    for (at::Tensor& parameter : group.params()) {
      at::Tensor gradient = parameter.grad();
      if (!gradient.defined()) continue;
      if (gradient.is_sparse()) {
        // A sum of entries that are finite may overflow.
        gradient = gradient.coalesce();
        parameter.mutable_grad() = gradient;
        gradient = gradient._values();
      }
      gradients[gradient.scalar_type()].push_back(std::move(gradient));
    }
  }
  for (auto& [dtype, tensors] : gradients) {
    at::_amp_foreach_non_finite_check_and_unscale_(tensors, found, inverse);
  }
  unscaled_.push_back({&optimizer, std::move(found)});
}

bool GradScaler::Step(torch::optim::Optimizer& optimizer) {
  Unscale(optimizer);
  const auto one =
      std::ranges::find(unscaled_, &optimizer, &Unscaled::optimizer);
  if (one != unscaled_.end()) {
    if (one->has_stepped) {
      TORCH_WARN_ONCE(
          "gavel::GradScaler::Step() was called twice for one optimizer "
          "without Update(); the second call does nothing");
      return false;
    }
    one->has_stepped = true;
    if (one->found.item<float>() != 0) return false;
  } else if (options_.enabled) {
    TORCH_WARN_ONCE(
        "gavel::GradScaler::Step() was called without Scale(); call "
        "scaler.Scale(loss).backward()");
  }
  optimizer.step();
  return true;
}

void GradScaler::Update() {
  has_scaled_ = false;
  if (unscaled_.empty()) return;
  at::Tensor found = unscaled_[0].found;
  for (size_t i = 1; i < unscaled_.size(); ++i) {
    found = found + unscaled_[i].found;
  }
  at::_amp_update_scale_(state_[0], state_[1], found, options_.growth_factor,
                         options_.backoff_factor, options_.growth_interval);
  unscaled_.clear();
}

double GradScaler::scale() const {
  return options_.enabled ? state_[0].item<double>() : 1;
}

Status GradScaler::TrackIn(Tracking& tracking, const std::string& name) {
  const GradScalerOptions& o = options_;
  if (!(o.init_scale > 0 && std::isfinite(o.init_scale)) ||
      !(o.growth_factor > 1) || !(o.backoff_factor > 0) ||
      !(o.backoff_factor < 1) || o.growth_interval < 1) {
    return Wrong(StrCat(
        "'", name,
        "' is a GradScaler with a wrong option; give a finite init_scale > 0, "
        "growth_factor > 1, backoff_factor between 0 and 1, and "
        "growth_interval >= 1"));
  }
  return tracking.Track(name, state_);
}

// ---- Moving averages.

Ema::Ema(const std::shared_ptr<torch::nn::Module>& module,
         std::shared_ptr<torch::nn::Module> average, double decay)
    : average_(std::move(average)), decay_(decay) {
  if (module == nullptr || average_ == nullptr || module == average_) {
    status_ = Wrong("an Ema needs two modules, made with the same arguments");
    return;
  }
  if (!(decay >= 0 && decay < 1)) {
    status_ = Wrong(StrCat("an Ema of decay ", decay,
                           "; give 0 or more and less than 1, as 0.999"));
    return;
  }
  const at::NoGradGuard no_grad;
  const auto pair = [this](const auto& from, auto to, auto* pairs) {
    for (auto& item : to) {
      const at::Tensor* const source = from.find(item.key());
      if (source == nullptr || source->sizes() != item.value().sizes()) {
        status_ =
            Wrong(StrCat("an Ema of two modules that differ in '", item.key(),
                         "'; make both with the same ", "arguments"));
        return;
      }
      item.value().set_requires_grad(false);
      item.value().copy_(*source);
      pairs->emplace_back(*source, item.value());
    }
  };
  pair(module->named_parameters(), average_->named_parameters(), &parameters_);
  pair(module->named_buffers(), average_->named_buffers(), &buffers_);
  if (module->named_parameters().size() != parameters_.size() && status_.ok()) {
    status_ = Wrong(
        "an Ema whose average has fewer parameters; make it with "
        "the module's arguments");
  }
  average_->eval();
}

void Ema::Update() {
  const at::NoGradGuard no_grad;
  for (auto& [from, to] : parameters_) {
    if (updates_ == 0 || !to.is_floating_point()) {
      to.copy_(from);
    } else {
      to.lerp_(from.to(to.scalar_type()), 1 - decay_);
    }
  }
  for (auto& [from, to] : buffers_) to.copy_(from);
  ++updates_;
}

Status Ema::TrackIn(Tracking& tracking, const std::string& name) {
  if (!status_.ok()) {
    return {status_.code(), StrCat("'", name, "': ", status_.message())};
  }
  const Status tracked = tracking.Track(name, average_);
  if (!tracked.ok()) return tracked;
  return tracking.Track(name + ".updates", updates_);
}

// ---- Modules from and to safetensors files that other programs share with
// this one.

namespace {

using internal::CatchAsStatus;

// Names of each kind in an error; the others are counted.
constexpr size_t kNamesMax = 8;

// Defined tensors under their names.
std::map<std::string, at::Tensor> TensorsOf(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : module.named_parameters()) {
    if (item.value().defined()) tensors[item.key()] = item.value();
  }
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) tensors[item.key()] = item.value();
  }
  return tensors;
}

// Equal for names of the same tensor.
using Identity = std::tuple<const void*, int64_t, size_t>;
Identity IdentityOf(const at::Tensor& tensor) {
  const bool has_memory = tensor.has_storage() && tensor.nbytes() > 0;
  return has_memory ? Identity(tensor.storage().unsafeGetStorageImpl(),
                               tensor.storage_offset(), tensor.nbytes())
                    : Identity(tensor.unsafeGetTensorImpl(), 0, 0);
}

std::string List(std::string_view what, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  const size_t shown = std::min(names.size(), kNamesMax);
  return StrCat("; ", what, ": ",
                absl::StrJoin(names.begin(), names.begin() + shown, ", "),
                names.size() == shown
                    ? ""
                    : StrCat(" and ", names.size() - shown, " more"));
}

std::string ShapeText(at::IntArrayRef sizes) {
  return StrCat("[", absl::StrJoin(sizes, ","), "]");
}

struct Pair {
  const TensorEntry* from = nullptr;
  at::Tensor to;
};

// Which tensor of the files goes where; or all that is wrong.
absl::StatusOr<std::vector<Pair>> Match(const torch::nn::Module& module,
                                        const SafetensorsFiles& files,
                                        const std::string& path,
                                        const SafetensorsOptions& options) {
  const std::map<std::string, at::Tensor> places = TensorsOf(module);
  std::map<std::string, const TensorEntry*> sources;
  std::vector<std::string> unexpected, misshapen, missing;
  for (const auto& [stored, entry] : files.tensors()) {
    const std::string name = options.rename ? options.rename(stored) : stored;
    if (name.empty()) continue;
    const auto [other, is_new] = sources.emplace(name, &entry);
    if (!is_new) {
      return absl::InvalidArgumentError(
          StrCat("rename gives '", name, "' for two tensors of ", path, ", '",
                 other->second->name, "' and '", stored,
                 "'; let it return an empty name for one"));
    }
    if (!places.contains(name)) unexpected.push_back(name);
  }
  std::vector<Pair> pairs;
  std::set<Identity> filled;
  for (const auto& [name, tensor] : places) {
    const auto source = sources.find(name);
    if (source == sources.end()) continue;
    filled.insert(IdentityOf(tensor));
    pairs.push_back({source->second, tensor});
    const std::vector<int64_t>& shape = source->second->shape;
    if (tensor.sizes() != at::IntArrayRef(shape)) {
      misshapen.push_back(StrCat(name, " is ", ShapeText(tensor.sizes()),
                                 " here and ", ShapeText(shape), " there"));
    }
  }
  for (const auto& [name, tensor] : places) {
    if (!filled.contains(IdentityOf(tensor))) missing.push_back(name);
  }
  if (!options.strict) {
    if (pairs.empty() && !places.empty()) {
      return absl::FailedPreconditionError(
          StrCat("no tensor of ", path, " has a name of the module",
                 List("it has", unexpected), List("the module has", missing),
                 "; map the names by SafetensorsOptions::rename"));
    }
    missing.clear();
    unexpected.clear();
  }
  if (missing.empty() && unexpected.empty() && misshapen.empty()) return pairs;
  return absl::FailedPreconditionError(
      StrCat(path, " does not fit the module", List("it lacks", missing),
             List("the module has no", unexpected),
             List("of another shape", misshapen),
             "; map the names by SafetensorsOptions::rename, where an empty "
             "name leaves a tensor out",
             options.strict ? ", or set strict to false" : ""));
}

absl::Status Load(torch::nn::Module& module, const std::string& path,
                  const SafetensorsOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const SafetensorsFiles files,
                         SafetensorsFiles::Open(FileSystem::Posix(), path));
  GAVEL_ASSIGN_OR_RETURN(const std::vector<Pair> pairs,
                         Match(module, files, path, options));
  if (std::ranges::any_of(pairs, [](const Pair& pair) {
        return internal::WasRestored(pair.to);
      })) {
    TORCH_WARN("gavel::LoadSafetensors puts ", path,
               " over weights that a checkpoint has restored, and what was "
               "trained is lost; call it before Track");
  }
  const at::NoGradGuard no_grad;
  for (const auto& [from, to] : pairs) {
    const at::Tensor read = at::empty(
        from->shape, at::device(at::kCPU).dtype(TorchDtypeOf(from->dtype)));
    GAVEL_RETURN_IF_ERROR(
        files.Read(*from, static_cast<char*>(read.mutable_data_ptr())));
    at::Tensor place = to.detach();
    place.copy_(read);
  }
  return absl::OkStatus();
}

absl::Status Write(FileSystem& disk, const std::string& path,
                   const ShardLayout& layout,
                   const std::map<std::string, at::Tensor>& tensors) {
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                         disk.CreateFile(path, FileAccess::kBuffered));
  GAVEL_RETURN_IF_ERROR(file->Append(layout.encoded_header));
  for (const TensorEntry& entry : layout.header.tensors) {
    const at::Tensor host = tensors.at(entry.name).detach().cpu().contiguous();
    GAVEL_RETURN_IF_ERROR(file->Append(
        {static_cast<const char*>(host.const_data_ptr()), host.nbytes()}));
  }
  GAVEL_RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

absl::Status SaveModule(const torch::nn::Module& module,
                        const std::string& path) {
  const std::map<std::string, at::Tensor> tensors = TensorsOf(module);
  std::vector<TensorEntry> entries;
  std::set<Identity> saved;
  for (const auto& [name, tensor] : tensors) {
    GAVEL_RETURN_IF_ERROR(CheckStorable(name, tensor));
    if (!saved.insert(IdentityOf(tensor)).second) continue;
    TensorEntry& entry = entries.emplace_back();
    entry.name = name;
    entry.dtype = *DtypeOf(tensor.scalar_type());
    entry.shape = tensor.sizes().vec();
  }
  GAVEL_ASSIGN_OR_RETURN(const ShardLayout layout,
                         LayOutShard(std::move(entries), {{"format", "pt"}}));
  FileSystem& disk = FileSystem::Posix();
  // Each process writes a file of its own: the workers of a gang may all save.
  const std::string unfinished = StrCat(path, ".unfinished-", getpid());
  std::error_code none;
  std::filesystem::remove(unfinished, none);  // of a process that was killed
  absl::Status status = Write(disk, unfinished, layout, tensors);
  if (status.ok()) status = disk.Rename(unfinished, path);
  if (!status.ok()) {
    std::filesystem::remove(unfinished, none);
    return status;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return disk.SyncDirectory(folder.empty() ? "." : folder);
}

}  // namespace

Status LoadSafetensors(torch::nn::Module& module, const std::string& path,
                       const SafetensorsOptions& options) {
  return internal::ToPublic(CatchAsStatus(
      StrCat("loading ", path), [&] { return Load(module, path, options); }));
}

Status SaveSafetensors(torch::nn::Module& module, const std::string& path) {
  return internal::ToPublic(CatchAsStatus(
      StrCat("saving ", path), [&] { return SaveModule(module, path); }));
}

}  // namespace gavel
