// Reads a file's chat template, which is a program in Jinja's language: the one program that is ChatML is known by its text.
#include "chat.h"

#include <regex>

namespace lm {

Chat::Chat(const Gguf& file, const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  // With a default for the system's message or without one; \n in its strings is a line's end or is written so.
  static const std::regex kChatMl(
      R"(\{% for message in messages %\}(?:\{% if loop\.first and messages\[0\]\['role'\] != 'system' %\}\{\{ ?)"
      R"('<\|im_start\|>system(?:\n|\\n)([^'\\]*)<\|im_end\|>(?:\n|\\n)' ?\}\}\{% endif %\})?\{\{ ?'<\|im_start\|>' \+ )"
      R"(message\['role'\] \+ '(?:\n|\\n)' \+ message\['content'\] \+ '<\|im_end\|>' \+ '(?:\n|\\n)' ?\}\}\{% endfor %\})"
      R"(\{% if add_generation_prompt %\}\{\{ ?'<\|im_start\|>assistant(?:\n|\\n)' ?\}\}\{% endif %\}\s*)");
  const char* const kTemplate = "tokenizer.chat_template";
  std::smatch found;
  const std::string text(file.has(kTemplate) ? file.text(kTemplate) : "");
  if (text.size() > 2000 || !std::regex_match(text, found, kChatMl)) {  // std::regex recurses: no long texts
    problem_ = "the model cannot chat: its file has " + std::string(text.empty() ? "no chat template" : "a chat template");
    problem_ += text.empty() ? "" : " that is not plain ChatML";
  } else if (tokenizer.encode("<|im_start|><|im_end|>", true).size() != 2) {
    problem_ = "the model cannot chat: its vocabulary lacks <|im_start|> or <|im_end|>";
  } else {
    system_ = found[1];
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
  if (!system_.empty() && (messages.empty() || messages[0].role != "system")) turn({"system", system_});
  for (const Message& message : messages) turn(message);
  add("<|im_start|>", true);
  add("assistant\n", false);
  return tokens;
}

}  // namespace lm
