// Trains a small GPT on byte pairs of English text. The text is the licences
// that every Debian machine has, or any other (--data); if there is none, it is
// a made-up language. Training uses mixed precision on a GPU and accumulated
// gradients (--global-batch-size), and runs alone or under a coordinator, on
// one worker or as a gang. At the end the program prints one line of JSON: the
// perplexity on text that it was not trained on, and for comparison the
// perplexity of a model that knows only how frequent each token is.
#include <torch/nn/functional/loss.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <string>

#include "examples/training.h"
#include "gavel/data_parallel.h"
#include "gavel/iterator.h"
#include "gavel/session.h"
#include "models/text.h"
#include "models/text_models.h"
#include "models/training.h"

namespace {

using gavel::examples::OrFail;
using gavel::models::Gpt;
using gavel::models::TextCorpus;
using gavel::models::TextWindows;

struct Flags : gavel::examples::TrainingFlags {
  Flags() {
    data = "/usr/share/common-licenses";
    batch_size = 16;
    learning_rate = 0.003;
  }
  gavel::models::TextCorpusOptions text{
      .token = gavel::models::TokenKind::kBytePair, .byte_pairs = 1024};
  gavel::models::GptOptions model{
      .length = 64, .width = 128, .heads = 4, .layers = 2};
  int64_t warm_up = 20;
  int64_t decay_steps = 0;
  double weight_decay = 0.1;
  std::string precision = "auto";
};

void AddFlags(CLI::App& app, Flags& flags) {
  AddTrainingFlags(app, flags);
  AddDataFlags(app, flags, "a text file, or a folder of them", "windows");
  AddGangFlags(app, flags);
  app.add_option("--vocabulary", flags.text.byte_pairs,
                 "tokens at most; 256: bytes")
      ->check(CLI::Range(256, 1'000'000));
  app.add_option("--length", flags.model.length,
                 "tokens in a window; 1024: GPT-2 small")
      ->check(CLI::Range(1, 100'000));
  app.add_option("--width", flags.model.width, "ibid. 768")
      ->check(CLI::PositiveNumber);
  app.add_option("--heads", flags.model.heads, "ibid. 12; divides the width")
      ->check(CLI::PositiveNumber);
  app.add_option("--layers", flags.model.layers, "ibid. 12")
      ->check(CLI::PositiveNumber);
  app.add_option("--dropout", flags.model.dropout, "in training")
      ->check(CLI::Range(0.0, 0.9));
  app.add_option("--warm-up", flags.warm_up, "steps until the rate is --lr")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--decay-steps", flags.decay_steps,
                 "steps until the rate is at its lowest; 0: all of training")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--weight-decay", flags.weight_decay, "of matrices")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--precision", flags.precision, "auto: bfloat16 on a GPU")
      ->check(CLI::IsMember({"auto", "bfloat16", "float32"}));
}

bool UsesMixedPrecision(const Flags& flags, const torch::Device& device) {
  return flags.precision == "bfloat16" ||
         (flags.precision == "auto" && device.is_cuda());
}

// Returns the mean cross-entropy of the next token, in nats. `tokens` and
// `targets`: [batch, length].
torch::Tensor Loss(const Flags& flags, Gpt& model, const torch::Tensor& tokens,
                   const torch::Tensor& targets) {
  const torch::Device device = tokens.device();
  const gavel::models::MixedPrecision precision(
      device.type(), UsesMixedPrecision(flags, device));
  return torch::nn::functional::cross_entropy(model(tokens).flatten(0, 1),
                                              targets.flatten());
}

// Returns the mean loss over all windows of `text`, in nats per token.
double ValidationLoss(const Flags& flags, Gpt& model, const TextWindows& text,
                      const torch::Device& device) {
  const torch::NoGradGuard no_grad;
  model->eval();
  double loss = 0;
  for (size_t window = 0; window < text.size(); ++window) {
    const auto [tokens, targets] = text.get(window);
    loss +=
        Loss(flags, model, tokens.unsqueeze(0).to(device), targets.to(device))
            .item<double>();
  }
  return loss / static_cast<double>(text.size());
}

// Returns how many steps the learning rate decays over: --decay-steps, else the
// length of the training for any number of workers.
int64_t StepsOf(const Flags& flags, int64_t budget, int64_t steps_per_epoch) {
  if (flags.decay_steps > 0) return flags.decay_steps;
  return budget > 0 ? budget : flags.epochs * steps_per_epoch;
}

// Converts a loss per token, in nats, to bits per byte. This figure can be
// compared between vocabularies.
double BitsPerByte(const TextCorpus& corpus, double loss) {
  const torch::Tensor& ids = corpus.validation();
  double bytes = 0;
  for (int64_t at = 0; at < ids.size(0); ++at) {
    bytes += static_cast<double>(
        corpus.vocabulary()[ids.const_data_ptr<int64_t>()[at]].size());
  }
  return loss / std::numbers::ln2 * static_cast<double>(ids.size(0)) / bytes;
}

int Train(Flags& flags, const TextCorpus& corpus) {
  Seed(flags);
  flags.model.vocabulary = static_cast<int64_t>(corpus.vocabulary().size());
  Gpt model(flags.model);
  torch::optim::AdamW optimizer(gavel::models::DecayGroups(
      *model, flags.learning_rate, flags.weight_decay));
  auto loader =
      LoaderOf(TextWindows(corpus.train(), flags.model.length), flags);
  const int64_t budget = SessionOptionsOf(flags).steps_total;
  int64_t epoch = 0;

  const auto session = OpenSession(flags);
  gavel::examples::TrackVocabulary(*session, corpus.vocabulary());
  session->Track("model", model);
  session->Track("optimizer", optimizer);
  session->Track("epoch", epoch);
  gavel::DataParallel parallel(*session, model);
  gavel::examples::StepLoss step_loss(*session);

  while (epoch < flags.epochs && !session->stopped()) {
    for (auto& batch : gavel::Iterator(*session, loader)) {
      const auto loss = Loss(flags, model, batch.data, batch.target);
      (loss * session->loss_scale()).backward();
      step_loss.Add(loss);
      if (!session->last_micro_batch()) continue;
      const double rate = gavel::models::CosineRate(
          session->steps_done(),
          {.peak = flags.learning_rate, .steps = flags.warm_up},
          StepsOf(flags, budget, loader.steps_per_epoch()));
      gavel::models::SetLearningRate(optimizer, rate);
      session->Report("learning_rate", rate);
      torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
      optimizer.step();
      optimizer.zero_grad();
    }
    if (!session->stopped()) ++epoch;
  }

  if (session->finished() && session->rank() == 0) {
    const TextWindows validation(corpus.validation(), flags.model.length);
    const double loss =
        ValidationLoss(flags, model, validation, session->device());
    std::printf(
        "{\"data\": \"%s\", \"steps\": %lld, \"vocabulary\": %lld, "
        "\"perplexity\": %.9g, \"unigram_perplexity\": %.9g, "
        "\"bits_per_byte\": %.9g}\n",
        DataLabel(flags), static_cast<long long>(session->steps_done()),
        static_cast<long long>(flags.model.vocabulary), std::exp(loss),
        UnigramPerplexity(corpus), BitsPerByte(corpus, loss));
  }
  return session->Finish();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a small GPT on text.");
  Flags flags;
  AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  UseDefaultData(app, flags);
  if (flags.model.width % flags.model.heads != 0) {
    gavel::examples::Fail("--width has to be a multiple of --heads");
  }
  flags.text.window = flags.model.length;
  return Train(flags,
               OrFail(flags.data.empty()
                          ? TextCorpus::FromText(
                                gavel::models::MadeUpText(/*sentences=*/6000,
                                                          /*seed=*/1),
                                flags.text)
                          : TextCorpus::Read(flags.data, flags.text)));
}
