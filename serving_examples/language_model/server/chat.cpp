// A chat template is a program in Jinja's language. The one that is plain ChatML is known by its text.
#include "chat.h"

#include <optional>

namespace lm {
namespace {

const std::string kBegin = "{% for message in messages %}";
const std::string kSystem = "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n";
const std::string kSystemEnd = "<|im_end|>\n' }}{% endif %}";
const std::string kEnd =
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// What stands between two texts that a text begins and ends with.
std::optional<std::string> between(const std::string& text, const std::string& begin, const std::string& end) {
  if (text.size() < begin.size() + end.size() || !text.starts_with(begin) || !text.ends_with(end)) return std::nullopt;
  return text.substr(begin.size(), text.size() - begin.size() - end.size());
}

}  // namespace

Chat::Chat(const Gguf& file, const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  std::string text(file.has("tokenizer.chat_template") ? file.text("tokenizer.chat_template") : "");
  for (size_t at = 0; (at = text.find("\\n", at)) != std::string::npos;) text.replace(at, 2, "\n");  // as Jinja reads it
  std::optional<std::string> system = between(text, kBegin, kEnd);  // empty: nothing is said for who says nothing
  if (system && !system->empty()) system = between(*system, kSystem, kSystemEnd);
  if (!system || system->find('\'') != std::string::npos) {
    problem_ = "the model cannot chat: its file has no chat template that is plain ChatML";
  } else if (tokenizer.encode("<|im_start|><|im_end|>", true).size() != 2) {
    problem_ = "the model cannot chat: its vocabulary lacks <|im_start|> or <|im_end|>";
  } else {
    system_ = *system;
  }
}

std::vector<int> Chat::tokens(const std::vector<Message>& messages) const {
  std::vector<int> tokens;
  const auto add = [&](const std::string& text, bool control) {
    const std::vector<int> more = tokenizer_.encode(text, control);
    tokens.insert(tokens.end(), more.begin(), more.end());
  };
  const auto turn = [&](const Message& message) {
    add("<|im_start|>", true);
    add(message.role + "\n" + message.content, false);
    add("<|im_end|>\n", true);
  };
  if (!system_.empty() && messages.at(0).role != "system") turn({"system", system_});
  for (const Message& message : messages) turn(message);
  add("<|im_start|>", true);
  add("assistant\n", false);
  return tokens;
}

}  // namespace lm
