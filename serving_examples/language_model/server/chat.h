// A conversation as a model reads it: ChatML, which a file's chat template must be.
#pragma once

#include <string>
#include <vector>

#include "gguf.h"
#include "tokenizer.h"

namespace lm {

struct Message {
  std::string role, content;
};

class Chat {
 public:
  Chat(const Gguf& file, const Tokenizer& tokenizer);

  const std::string& problem() const { return problem_; }  // why the model cannot chat; empty where it can

  // The tokens of a conversation, after which the assistant's answer follows. Names of control tokens in it are text.
  std::vector<int> tokens(const std::vector<Message>& messages) const;

 private:
  const Tokenizer& tokenizer_;
  std::string problem_, system_;  // what is said first where the first message is not a system's
};

}  // namespace lm
