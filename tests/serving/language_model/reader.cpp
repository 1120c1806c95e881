// Answers questions about files, tokens and texts that come through a pipe, for tests in Python: the first byte of a question
// says which. An answer is one byte, 1 for an error, then its size and its bytes.
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "gguf.h"
#include "text.h"
#include "tokenizer.h"

namespace {

using Bytes = std::string_view;

std::unique_ptr<char[]> held;  // a file's bytes, in memory of just their size
std::optional<lm::Gguf> file;
std::optional<lm::Tokenizer> tokenizer;

template <class T>
std::string raw(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string sized(Bytes bytes) {
  return raw(static_cast<uint32_t>(bytes.size())).append(bytes);
}

template <class T>
T take(Bytes& bytes) {
  T value;
  if (bytes.size() < sizeof value) throw std::logic_error("the question is cut short");
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

Bytes take_sized(Bytes& bytes) {
  const auto size = take<uint32_t>(bytes);
  const Bytes taken = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return taken;
}

std::string field(char kind, const std::string& name) {
  std::string answer;
  switch (kind) {
    case 'h':
      return file->has(name) ? "1" : "0";
    case 'i':
      return raw(file->integer(name));
    case 'n':
      return raw(file->number(name));
    case 't':
      return std::string(file->text(name));
    case 'I':
      for (const int64_t value : file->integers(name)) answer += raw(value);
      return answer;
    case 'T':
      for (const Bytes value : file->texts(name)) answer += sized(value);
      return answer;
    default:
      throw std::logic_error("no kind of a field");
  }
}

std::string tensor(const std::string& name) {
  const lm::GgufTensor& found = file->tensor(name);
  std::string answer = raw(static_cast<int32_t>(found.format)) + raw(static_cast<uint32_t>(found.shape.size()));
  for (const int64_t size : found.shape) answer += raw(size);
  return answer.append(found.data);
}

// Stop strings, then tokens' bytes. Answers what each token gave and whether it stopped, and what came at last.
std::string texts(Bytes question) {
  std::vector<std::string> stops;
  for (auto count = take<uint32_t>(question); count > 0; --count) stops.emplace_back(take_sized(question));
  lm::Text text(stops);
  std::string answer;
  while (!question.empty()) {
    answer += sized(text.add(take_sized(question)));
    answer += text.is_stopped() ? '1' : '0';
  }
  answer += sized(text.rest());
  return answer += text.is_stopped() ? '1' : '0';
}

std::string answer(Bytes question) {
  const char kind = question[0];
  question.remove_prefix(1);
  std::string found;
  switch (kind) {
    case 'o':
      tokenizer.reset();
      file.emplace(std::string(question));
      return "";
    case 'b':
      tokenizer.reset();
      file.reset();
      held = std::make_unique<char[]>(question.size());
      std::memcpy(held.get(), question.data(), question.size());
      file.emplace(Bytes(held.get(), question.size()));
      return "";
    case 'f':
      return field(question[0], std::string(question.substr(1)));
    case 'w':
      return tensor(std::string(question));
    case 'a':
      for (const auto& [name, about] : file->tensors()) found += sized(name);
      return found;
    case 'k':
      tokenizer.emplace(*file);
      return raw(tokenizer->size());
    case 'e':
    case 'c':
      for (const int token : tokenizer->encode(question, kind == 'c')) found += raw(token);
      return found;
    case 'p':
      for (const int token : tokenizer->prompt(question)) found += raw(token);
      return found;
    case 'd':
      while (!question.empty()) {
        const auto token = take<int>(question);
        found += sized(tokenizer->bytes(token)) + (tokenizer->ends_text(token) ? '1' : '0');
      }
      return found;
    case 's':
      return texts(question);
    default:
      throw std::logic_error("no question");
  }
}

bool receive(void* to, size_t size) {
  for (size_t taken = 0; taken < size;) {
    const ssize_t more = read(STDIN_FILENO, static_cast<char*>(to) + taken, size - taken);
    if (more <= 0) return false;
    taken += static_cast<size_t>(more);
  }
  return true;
}

bool send(Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

int main() {
  uint32_t size = 0;
  while (receive(&size, sizeof size)) {
    std::string question(size, '\0');
    if (!receive(question.data(), size)) return 1;
    std::string reply;
    bool is_error = false;
    try {
      reply = answer(question);
    } catch (const std::runtime_error& error) {
      is_error = true;
      reply = error.what();
    }
    if (!send(std::string(1, is_error ? '\1' : '\0') + sized(reply))) return 1;
  }
  return 0;
}
