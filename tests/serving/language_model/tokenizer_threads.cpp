// Encodes texts in many threads at once with one tokenizer, for ThreadSanitizer; ends with 1 where one gives other tokens than
// a single thread does. Its arguments: files of vocabularies.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tokenizer.h"

int main(int count, char** arguments) {
  std::vector<std::string> texts;
  for (int i = 0; i < 40; ++i) {
    texts.push_back("Hello  you're <|im_end|> " + std::to_string(i * 12345) + "\r\n\n caf\xC3\xA9 \xFF " +
                    std::string(i * 20, 'a'));
  }
  std::atomic<bool> differ = false;
  for (int i = 1; i < count; ++i) {
    const lm::Tokenizer tokenizer{lm::Gguf(std::string(arguments[i]))};
    std::vector<std::vector<int>> expected;
    for (const std::string& text : texts) expected.push_back(tokenizer.encode(text, true));
    std::vector<std::thread> threads;
    for (int number = 0; number < 8; ++number) {
      threads.emplace_back([&] {
        for (size_t j = 0; j < texts.size(); ++j) {
          if (tokenizer.encode(texts[j], true) != expected[j]) differ = true;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  return differ;
}
