// Trains an LSTM to predict the next word (or character) of English text: the
// licences that are on every Debian machine, the text given by --data, or text
// in a made-up language if there is neither. Runs alone or under a coordinator,
// on one worker or as a gang.
//
// Prints one line of JSON at the end: the perplexity on text that was not used
// for training, and that of a model that knows only the frequency of each word.
#include <torch/nn/functional/loss.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>

#include "examples/training.h"
#include "gavel/data_parallel.h"
#include "gavel/iterator.h"
#include "gavel/session.h"
#include "models/text.h"
#include "models/text_models.h"

namespace {

using gavel::examples::OrFail;
using gavel::models::LstmLanguageModel;
using gavel::models::TextCorpus;
using gavel::models::TextWindows;
using gavel::models::TokenKind;

struct Flags : gavel::examples::TrainingFlags {
  Flags() {
    data = "/usr/share/common-licenses";
    batch_size = 16;
    learning_rate = 0.003;
  }
  bool characters = false;
  int64_t length = 32;
  int64_t width = 128;
  int64_t layers = 1;
  double dropout = 0.3;
};

void AddFlags(CLI::App& app, Flags& flags) {
  AddTrainingFlags(app, flags);
  AddDataFlags(app, flags, "a text file, or a folder of them", "windows");
  AddGangFlags(app, flags);
  app.add_flag("--characters", flags.characters, "characters instead of words");
  app.add_option("--length", flags.length, "words or characters in a window")
      ->check(CLI::Range(1, 1000));
  app.add_option("--width", flags.width, "of the embedding and the LSTM")
      ->check(CLI::PositiveNumber);
  app.add_option("--layers", flags.layers, "of the LSTM")
      ->check(CLI::Range(1, 100));
  app.add_option("--dropout", flags.dropout, "in training")
      ->check(CLI::Range(0.0, 0.9));
}

// Returns the mean cross-entropy of the next token, in nats. `tokens` and
// `targets` are [batch, length].
torch::Tensor Loss(LstmLanguageModel& model, const torch::Tensor& tokens,
                   const torch::Tensor& targets) {
  return torch::nn::functional::cross_entropy(model(tokens).flatten(0, 1),
                                              targets.flatten());
}

double Perplexity(LstmLanguageModel& model, const TextWindows& text,
                  const torch::Device& device) {
  const torch::NoGradGuard no_grad;
  model->eval();
  double loss = 0;
  for (size_t window = 0; window < text.size(); ++window) {
    const auto [tokens, targets] = text.get(window);
    loss += Loss(model, tokens.unsqueeze(0).to(device), targets.to(device))
                .item<double>();
  }
  return std::exp(loss / static_cast<double>(text.size()));
}

int Train(const Flags& flags, const TextCorpus& corpus) {
  Seed(flags);
  const auto vocabulary = static_cast<int64_t>(corpus.vocabulary().size());
  LstmLanguageModel model(
      gavel::models::LstmLanguageModelOptions{.vocabulary = vocabulary,
                                              .embedding = flags.width,
                                              .hidden = flags.width,
                                              .layers = flags.layers,
                                              .dropout = flags.dropout});
  torch::optim::Adam optimizer(model->parameters(), flags.learning_rate);
  auto loader = LoaderOf(TextWindows(corpus.train(), flags.length), flags);
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
      const auto loss = Loss(model, batch.data, batch.target);
      (loss * session->loss_scale()).backward();
      step_loss.Add(loss);
      if (!session->last_micro_batch()) continue;
      torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
      optimizer.step();
      optimizer.zero_grad();
    }
    if (!session->stopped()) ++epoch;
  }

  if (session->finished() && session->rank() == 0) {
    const TextWindows validation(corpus.validation(), flags.length);
    std::printf(
        "{\"data\": \"%s\", \"steps\": %lld, \"vocabulary\": %lld, "
        "\"perplexity\": %.9g, \"unigram_perplexity\": %.9g}\n",
        DataLabel(flags), static_cast<long long>(session->steps_done()),
        static_cast<long long>(vocabulary),
        Perplexity(model, validation, session->device()),
        UnigramPerplexity(corpus));
  }
  return session->Finish();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains an LSTM language model.");
  Flags flags;
  AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  UseDefaultData(app, flags);
  gavel::models::TextCorpusOptions options;
  options.window = flags.length;
  options.token = flags.characters ? TokenKind::kCharacter : TokenKind::kWord;
  return Train(flags,
               OrFail(flags.data.empty()
                          ? TextCorpus::FromText(
                                gavel::models::MadeUpText(/*sentences=*/6000,
                                                          /*seed=*/1),
                                options)
                          : TextCorpus::Read(flags.data, options)));
}
