// How close translations come to their references. K. Papineni et al., BLEU: a
// Method for Automatic Evaluation of Machine Translation, ACL 2002.
#ifndef GAVEL_MODELS_BLEU_H_
#define GAVEL_MODELS_BLEU_H_

#include <span>
#include <string>

namespace gavel::models {

// BLEU-4 of a whole corpus, one reference each, in [0, 1]: the geometric mean
// of the clipped precisions of 1 to 4 words, times the brevity penalty. Words
// are what white space separates, so give tokenized text. Not smoothed: 0 when
// no 4 words in a row are right. Both spans are of one size.
double CorpusBleu(std::span<const std::string> candidates,
                  std::span<const std::string> references);

}  // namespace gavel::models

#endif  // GAVEL_MODELS_BLEU_H_
