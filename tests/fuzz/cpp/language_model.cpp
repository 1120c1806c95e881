// Reads inputs of the language-model server: the first byte of each says which. (g)GUF files; (t)exts for a tokenizer, which
// must give them back; (s)treamed texts, which must be the same however they are cut.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "gguf.h"
#include "pipe.h"
#include "text.h"
#include "tokenizer.h"

namespace {

using Bytes = std::string_view;

// Runs what may be refused.
template <class Body>
void attempt(const Body& body) {
  try {
    body();
  } catch (const std::runtime_error&) {
  }
}

std::string decoded(const lm::Tokenizer& tokenizer, const std::vector<int>& tokens) {
  std::string bytes;
  for (const int token : tokens) bytes += tokenizer.bytes(token);
  return bytes;
}

void files(Bytes data) {
  const auto held = std::make_unique<char[]>(data.size());  // of just this size, so that reads after it are seen
  std::memcpy(held.get(), data.data(), data.size());
  const lm::Gguf file(Bytes(held.get(), data.size()));
  size_t sum = 0;
  for (const char* name : {"u", "f", "t", "yes", "texts", "numbers", "general.alignment", "tokenizer.ggml.tokens"}) {
    attempt([&] { sum += file.integer(name) != 0; });
    attempt([&] { sum += file.number(name) > 0; });
    attempt([&] { sum += file.text(name).size(); });
    attempt([&] { sum += file.texts(name).size(); });
    attempt([&] { sum += file.integers(name).size(); });
  }
  for (const auto& [name, tensor] : file.tensors()) {
    attempt([&] {
      for (const char c : file.tensor(name).data) sum += static_cast<unsigned char>(c);
    });
  }
  static volatile size_t read = 0;
  read = sum;
  const lm::Tokenizer tokenizer(file);
  const std::string text = "Hello  you're <|a|> ab 12\n\xC3\xA9\xFF";
  for (const bool control : {false, true}) decoded(tokenizer, tokenizer.encode(text, control));
  for (int token = -1; token <= tokenizer.size(); ++token) sum += tokenizer.ends_text(token);
}

const lm::Tokenizer& tokenizer_of(int number) {
  static std::array<std::unique_ptr<lm::Tokenizer>, 4> made;
  if (made[number] == nullptr) {
    const std::string folder = std::getenv("FUZZ_VOCABULARIES");
    made[number] = std::make_unique<lm::Tokenizer>(lm::Gguf(folder + "/" + std::to_string(number) + ".gguf"));
  }
  return *made[number];
}

// The first byte chooses a pre-tokenizer.
void texts(Bytes data) {
  const lm::Tokenizer& tokenizer = tokenizer_of(data.empty() ? 0 : data[0] & 3);
  const Bytes text = data.substr(std::min<size_t>(1, data.size()));
  std::string known;
  static const std::string every = [&] {
    std::string bytes;
    for (int byte = 0; byte < 256; ++byte)
      bytes += decoded(tokenizer, tokenizer.encode(std::string(1, static_cast<char>(byte)), false));
    return bytes;
  }();
  for (const char c : text) {
    if (every.find(c) != std::string::npos) known += c;
  }
  if (decoded(tokenizer, tokenizer.encode(text, false)) != known) std::abort();
  tokenizer.encode(text, true);
}

// Stop strings on lines, an empty line, and the text. It is cut by its own bytes.
void streams(Bytes data) {
  std::vector<std::string> stops;
  while (!data.empty() && stops.size() < 5) {
    const std::string line(data.substr(0, data.find('\n')));
    data.remove_prefix(std::min(line.size() + 1, data.size()));
    if (line.empty()) break;
    lm::Text valid({});  // stop strings are UTF-8
    stops.push_back(valid.add(line));
    stops.back() += valid.rest();
  }
  lm::Text plain({});
  std::string whole = plain.add(data);
  whole += plain.rest();
  size_t end = std::string::npos, begin = whole.size();
  for (const std::string& stop : stops) {
    const size_t at = whole.find(stop);
    if (at == std::string::npos || at + stop.size() > end) continue;
    begin = at + stop.size() == end ? std::min(begin, at) : at;
    end = at + stop.size();
  }
  lm::Text text(stops);
  std::string given;
  for (size_t at = 0; at < data.size();) {
    const size_t size = std::min<size_t>(static_cast<unsigned char>(data[at]) % 5, data.size() - at);
    given += text.add(data.substr(at, std::max<size_t>(size, 1)));
    at += std::max<size_t>(size, 1);
  }
  given += text.rest();
  if (given != whole.substr(0, begin) || text.is_stopped() != (end != std::string::npos)) std::abort();
}

void read_one(const std::string& input) {
  if (input.empty()) return;
  const Bytes data = Bytes(input).substr(1);
  if (input[0] == 'g') files(data);
  if (input[0] == 't') texts(data);
  if (input[0] == 's') streams(data);
}

}  // namespace

int main() {
  return answer_inputs<std::runtime_error>(read_one);
}
