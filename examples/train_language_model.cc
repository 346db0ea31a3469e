// Trains an LSTM to predict the next word (or character) of English text: the
// licences that every Debian machine has, or any text (--data). Alone or under
// a coordinator. Prints one line of JSON at the end: the perplexity on text
// that it was not trained on, beside that of a model that knows only how
// frequent each word is.
#include <ATen/Context.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "gavel/data_loader.h"
#include "gavel/iterator.h"
#include "gavel/session.h"
#include "models/lstm_language_model.h"
#include "models/text_corpus.h"

namespace {

using gavel::models::LstmLanguageModel;
using gavel::models::TextCorpus;
using gavel::models::TextWindows;
using gavel::models::TokenKind;

struct Flags {
  std::string data = "/usr/share/common-licenses";
  bool characters = false;
  int64_t epochs = 10;
  int64_t steps = 0;
  int64_t batch_size = 16;
  int64_t length = 32;
  int64_t width = 128;
  double learning_rate = 0.003;
  double dropout = 0.3;
  uint64_t seed = 1;
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.option_defaults()->always_capture_default();
  app.add_option("--data", flags.data, "a text file, or a folder of them");
  app.add_flag("--characters", flags.characters, "characters instead of words");
  app.add_option("--epochs", flags.epochs, "times to go through the text");
  app.add_option("--steps", flags.steps, "end after so many; 0: by epochs");
  app.add_option("--batch-size", flags.batch_size,
                 "windows per step and worker")
      ->check(CLI::PositiveNumber);
  app.add_option("--length", flags.length, "words or characters in a window")
      ->check(CLI::Range(1, 1000));
  app.add_option("--width", flags.width, "of the embedding and the LSTM")
      ->check(CLI::PositiveNumber);
  app.add_option("--lr", flags.learning_rate, "learning rate")
      ->check(CLI::PositiveNumber);
  app.add_option("--dropout", flags.dropout, "in training")
      ->check(CLI::Range(0.0, 0.9));
  app.add_option("--seed", flags.seed, "of weights, dropout and order");
}

// Of each next token, in nats. `tokens` and `targets`: [batch, length].
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
  torch::manual_seed(flags.seed);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  const auto vocabulary = static_cast<int64_t>(corpus.vocabulary().size());
  LstmLanguageModel model(
      gavel::models::LstmLanguageModelOptions{.vocabulary = vocabulary,
                                              .embedding = flags.width,
                                              .hidden = flags.width,
                                              .dropout = flags.dropout});
  torch::optim::Adam optimizer(model->parameters(), flags.learning_rate);
  gavel::DataLoader loader(
      TextWindows(corpus.train(), flags.length),
      {.batch_size = flags.batch_size, .seed = flags.seed});
  int64_t epoch = 0;

  gavel::SessionOptions options;
  options.steps_total = flags.steps;
  if (const auto status = gavel::ReadEnvironment(&options); !status.ok()) {
    std::cerr << "train_language_model: " << status.message() << "\n";
    return 1;
  }
  auto session = gavel::Session::Create(options);
  session->Track("model", model);
  session->Track("optimizer", optimizer);
  session->Track("epoch", epoch);

  while (epoch < flags.epochs && !session->stopped()) {
    for (auto& batch : gavel::Iterator(*session, loader)) {
      optimizer.zero_grad();
      const auto loss = Loss(model, batch.data, batch.target);
      loss.backward();
      torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
      optimizer.step();
      session->Report("loss", loss);
    }
    if (!session->stopped()) ++epoch;
  }

  if (session->finished()) {
    const TextWindows validation(corpus.validation(), flags.length);
    std::printf(
        "{\"steps\": %lld, \"vocabulary\": %lld, \"perplexity\": %.9g, "
        "\"unigram_perplexity\": %.9g}\n",
        static_cast<long long>(session->steps_done()),
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
  gavel::models::TextCorpusOptions options;
  options.token = flags.characters ? TokenKind::kCharacter : TokenKind::kWord;
  const auto corpus = TextCorpus::Read(flags.data, options);
  if (!corpus.ok()) {
    std::cerr << "train_language_model: " << corpus.status().message() << "\n";
    return 1;
  }
  return Train(flags, *corpus);
}
