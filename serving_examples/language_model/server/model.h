// What the engine asks of a model: one call for new tokens and pieces of prompts of several sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "request.h"

namespace lm {

// A token that is wanted after a sequence's last one in a batch.
struct Choice {
  int sequence;                    // its place in the batch
  const Sampling* sampling;        // both outlive the call
  const std::vector<int>* tokens;  // the prompt, then what was chosen after it
  int prompt;                      // how many of them are the prompt
  int alternatives;                // as in Request
};

// Tokens of one call, sequence by sequence. The cache of keys and values has pages of Sizes::page tokens. A sequence may be
// there several times, each with the tokens that follow those before: all see what this call writes before them.
struct Batch {
  std::vector<int64_t> tokens, positions, slots;   // of each token: its id, its place in its sequence, and in the cache
  std::vector<int32_t> starts = {0};               // where each sequence's tokens begin, and where the last one's end
  std::vector<int32_t> lengths;                    // each sequence's tokens in the cache, those of this call included
  std::vector<const std::vector<int32_t>*> pages;  // each sequence's, in order
  std::vector<Choice> choices;
};

struct Sizes {
  int page, pages;  // tokens of a page of the cache, and how many pages there are
  int positions;    // the longest sequence
  int vocabulary;
  int piece = 1;  // up to `page`: for fewer tokens of a sequence a call computes other bits, for more of them the same
};

class Model {
 public:
  virtual ~Model() = default;
  virtual Sizes sizes() const = 0;
  // Computes keys and values of a batch's tokens, and a token for each choice. A token of -1: its row has no choice, because a
  // logit is NaN or +infinity, or all are -infinity.
  virtual std::vector<Token> step(const Batch& batch) = 0;
};

}  // namespace lm
