// Text to tokens and back: byte-level BPE by the vocabulary of a GGUF file.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gguf.h"

namespace lm {

class Tokenizer {
 public:
  // Throws std::runtime_error where the file's tokenizer is of another kind, has no merges, or contradicts itself.
  // Pre-tokenizers: smollm, gpt-2 (default), llama-bpe, qwen2.
  explicit Tokenizer(const Gguf& file);
  ~Tokenizer();

  // The tokens of a text. With `control`, names of control tokens such as <|im_end|> in it are these tokens; else they are
  // text. Bytes that are no UTF-8 are tokens, too: decoding gives back what was encoded, without bytes that the vocabulary has
  // no token for, which are left out, as PyPI's tokenizers does (SmolLM2 has none for six control characters and for what
  // begins planes 4 to 11). Throws std::invalid_argument for a text of 2 GiB or more. May be called from any thread.
  std::vector<int> encode(std::string_view text, bool control) const;

  // The tokens of a prompt: the text's, with control tokens, after the file's token for a beginning, where the model expects
  // one (field add_bos_token; where it is missing: llama-bpe) and the text does not begin with it.
  std::vector<int> prompt(std::string_view text) const;

  // The bytes that a token stands for, of which a character may need several tokens; none for a control token or a
  // number that is no token.
  std::string_view bytes(int token) const;

  bool ends_text(int token) const;  // the file's end-of-text and end-of-turn tokens
  int size() const;                 // of the vocabulary

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lm
