// Byte-level BPE: a pattern splits a text into pieces, and in a piece neighbours are merged, the file's first merge first. A
// heap of what can be merged and a list of what is left make that n log n for a piece of n bytes.
#include "tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <stdexcept>
#include <unordered_map>

#include "utf8.h"

namespace lm {
namespace {

using Ids = std::unordered_map<std::string_view, int>;

// What splits a text, in which S is white space: GPT-2's, the same after digits were split from all else, Llama 3's and
// Qwen2's.
const std::string kSpaces = "[S]+(?![^S])|[S]+", kOthers = R"( ?[^S\p{L}\p{N}]+)";
const std::string kShort = R"('s|'t|'re|'ve|'m|'ll|'d)", kWords = R"(| ?\p{L}+)";
const std::string kLlama = "(?i:" + kShort + R"()|[^\r\n\p{L}\p{N}]?\p{L}+|)" + kOthers + R"([\r\n]*|[S]*[\r\n]+|)" + kSpaces;
const std::map<std::string_view, std::string> kPatterns = {
    {"gpt-2", kShort + kWords + R"(| ?\p{N}+|)" + kOthers + "|" + kSpaces},
    {"smollm", kShort + kWords + R"(|\p{N}|)" + kOthers + R"(|[S]+(?![^S\p{N}])|[S]+)"},
    {"llama-bpe", kLlama + R"(|\p{N}{1,3})"},
    {"qwen2", kLlama + R"(|\p{N})"},
};
constexpr std::string_view kSpace = R"(\p{Z}\t-\r\x{85})";  // PCRE's \s has U+180E, too
constexpr std::string_view kEnds[] = {"<|im_end|>", "<|endoftext|>", "<|eot_id|>"};
constexpr size_t kMost = std::numeric_limits<int>::max();  // bytes of a text
enum Type { kNormal = 1, kControl = 3, kUserDefined = 4 };

template <auto free>
struct Free {
  void operator()(auto* held) const { free(held); }
};
using Pattern = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using Match = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;

Pattern compiled(std::string pattern) {
  for (size_t at; (at = pattern.find('S')) != std::string::npos;) pattern.replace(at, 1, kSpace);
  int problem = 0;
  size_t place = 0;
  const auto* text = reinterpret_cast<PCRE2_SPTR>(pattern.data());
  Pattern code(pcre2_compile(text, pattern.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &problem, &place, nullptr));
  if (code == nullptr) throw std::runtime_error("PCRE2 does not compile " + pattern + ": build it with Unicode");
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // without a JIT, patterns are interpreted
  return code;
}

// The characters that stand for bytes: printable bytes of Latin-1 for themselves, the others have numbers from 256 on.
std::array<std::string, 256> byte_characters() {
  std::array<std::string, 256> characters;
  for (int byte = 0, next = 256; byte < 256; ++byte) {
    const bool is_own = (byte > ' ' && byte <= '~') || (byte > 0xA0 && byte != 0xAD);
    const int number = is_own ? byte : next++;
    if (number >= 0x80) characters[byte] += static_cast<char>(0xC0 | number >> 6);
    characters[byte] += static_cast<char>(number < 0x80 ? number : 0x80 | (number & 0x3F));
  }
  return characters;
}

// The bytes that a word of the vocabulary stands for. A word with other characters is text as it stands.
std::string bytes_of(std::string_view word, const Ids& bytes) {
  std::string all;
  for (size_t at = 0; at < word.size();) {
    const std::string_view character = word.substr(at, first_character(word.substr(at)).size);
    const auto found = bytes.find(character);
    if (found == bytes.end()) return std::string(word);
    all += static_cast<char>(found->second);
    at += character.size();
  }
  return all;
}

// A part of a piece: `token` is -1 where it was merged into the one before.
struct Part {
  int token, before, next;
};

// The tokens of one text, and memory that is used again for each piece.
struct Encoding {
  std::vector<int> tokens;
  std::vector<Part> parts;
  std::vector<uint64_t> heap;  // places of merges, then of their left parts: the least is merged first
  Match match{pcre2_match_data_create(1, nullptr)};
};

struct Merge {
  int left, right, result;
};

}  // namespace

struct Tokenizer::Parts {
  std::vector<std::string> bytes;                    // by token
  std::vector<bool> ends;                            // by token
  std::array<int, 256> of_byte;                      // tokens
  std::vector<Merge> merges;                         // in the file's order
  std::unordered_map<uint64_t, uint32_t> places;     // in `merges`, by left and right
  std::vector<std::pair<std::string, int>> control;  // the longest first
  std::array<bool, 256> begins_control{};
  Ids whole;  // pieces that are tokens, whatever merges there are
  Pattern pattern;

  static uint64_t pair(int left, int right) { return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right); }

  // Adds the tokens of text without control tokens. What is no UTF-8 is not split.
  void add(std::string_view text, Encoding& to) const {
    const auto is_whole = [](std::string_view at) { return first_character(at).kind == Utf8::whole; };
    while (!text.empty()) {
      const bool is_text = is_whole(text);
      size_t size = 0;
      while (size < text.size() && is_whole(text.substr(size)) == is_text) size += first_character(text.substr(size)).size;
      is_text ? split(text.substr(0, size), to) : merge(text.substr(0, size), to);
      text.remove_prefix(size);
    }
  }

  void split(std::string_view text, Encoding& to) const {
    const auto* bytes = reinterpret_cast<PCRE2_SPTR>(text.data());
    for (size_t at = 0; at < text.size();) {
      const int found = pcre2_match(pattern.get(), bytes, text.size(), at, PCRE2_NO_UTF_CHECK, to.match.get(), nullptr);
      const size_t end = found > 0 ? pcre2_get_ovector_pointer(to.match.get())[1] : at;
      if (end == at)
        throw std::runtime_error("text is not split at byte " + std::to_string(at) + ": PCRE2 answers " +
                                 std::to_string(found));
      merge(text.substr(at, end - at), to);
      at = end;
    }
  }

  void merge(std::string_view piece, Encoding& to) const {
    if (const auto found = whole.find(piece); found != whole.end()) return to.tokens.push_back(found->second);
    to.parts.clear();
    to.heap.clear();
    for (const char c : piece) {
      const int at = static_cast<int>(to.parts.size()), token = of_byte[static_cast<unsigned char>(c)];
      if (token >= 0) to.parts.push_back({token, at - 1, at + 1});
    }
    const int size = static_cast<int>(to.parts.size());
    for (int i = 0; i + 1 < size; ++i) offer(i, to);
    std::make_heap(to.heap.begin(), to.heap.end(), std::greater<>());
    while (!to.heap.empty()) {
      std::pop_heap(to.heap.begin(), to.heap.end(), std::greater<>());
      const int at = static_cast<int>(to.heap.back() & 0xFFFFFFFF);
      const Merge& merge = merges[to.heap.back() >> 32];
      to.heap.pop_back();
      Part& left = to.parts[at];
      if (left.token != merge.left || left.next == size || to.parts[left.next].token != merge.right) continue;  // it was merged
      Part& right = to.parts[left.next];
      left.token = merge.result;
      left.next = right.next;
      right.token = -1;
      if (left.next < size) to.parts[left.next].before = at;
      for (const int changed : {left.before, at}) {
        if (changed >= 0 && offer(changed, to)) std::push_heap(to.heap.begin(), to.heap.end(), std::greater<>());
      }
    }
    for (int i = 0; i < size; i = to.parts[i].next) to.tokens.push_back(to.parts[i].token);
  }

  // Adds the merge of a part with the next one, if there is one, behind the heap.
  bool offer(int at, Encoding& to) const {
    const Part& left = to.parts[at];
    if (left.next == static_cast<int>(to.parts.size())) return false;
    const auto found = places.find(pair(left.token, to.parts[left.next].token));
    if (found == places.end()) return false;
    to.heap.push_back(static_cast<uint64_t>(found->second) << 32 | static_cast<uint32_t>(at));
    return true;
  }
};

Tokenizer::Tokenizer(const Gguf& file) : parts_(std::make_unique<Parts>()) {
  const std::string its = "tokenizer.ggml.";
  const auto model = file.text(its + "model"), pre = file.has(its + "pre") ? file.text(its + "pre") : "gpt-2";
  if (model != "gpt2") file.refuse("its tokenizer is " + shown(model) + ", expected 'gpt2', which is byte-level BPE");
  const auto pattern = kPatterns.find(pre);
  if (pattern == kPatterns.end()) {
    file.refuse("it splits text as " + shown(pre) + " does, expected smollm, gpt-2, llama-bpe or qwen2");
  }
  parts_->pattern = compiled(pattern->second);

  const auto& words = file.texts(its + "tokens");
  const auto types =
      file.has(its + "token_type") ? file.integers(its + "token_type") : std::vector<int64_t>(words.size(), kNormal);
  if (types.size() != words.size()) {
    file.refuse("it has " + std::to_string(words.size()) + " tokens and types of " + std::to_string(types.size()));
  }
  const auto characters = byte_characters();
  Ids bytes, ids;
  for (int byte = 0; byte < 256; ++byte) bytes[characters[byte]] = byte;
  ids.reserve(words.size());
  parts_->bytes.resize(words.size());
  parts_->ends.resize(words.size());
  for (int id = 0; id < size(); ++id) {
    const std::string_view word = words[id];
    if (types[id] == kNormal) parts_->bytes[id] = bytes_of(word, bytes);
    if (types[id] == kUserDefined) parts_->bytes[id] = word;
    if (types[id] == kNormal) ids.emplace(word, id);
    if ((types[id] != kControl && types[id] != kUserDefined) || word.empty()) continue;
    parts_->control.emplace_back(word, id);
    parts_->begins_control[static_cast<unsigned char>(word[0])] = true;
    parts_->ends[id] = types[id] == kControl && std::count(std::begin(kEnds), std::end(kEnds), word) != 0;
  }
  std::stable_sort(parts_->control.begin(), parts_->control.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  for (const std::string& name : {its + "eos_token_id", its + "eot_token_id"}) {
    if (!file.has(name)) continue;
    const int64_t id = file.integer(name);
    if (id < 0 || id >= size()) file.refuse("field " + name + " is " + std::to_string(id) + ", which is no token");
    parts_->ends[id] = true;
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(characters[byte]);
    if (found == ids.end() && byte >= ' ' && byte <= '~') file.refuse("no token stands for byte " + std::to_string(byte));
    parts_->of_byte[byte] = found == ids.end() ? -1 : found->second;
  }
  if (pre == "llama-bpe") {
    for (int id = 0; id < size(); ++id) {
      if (types[id] == kNormal) parts_->whole.emplace(parts_->bytes[id], id);
    }
  }
  const auto& merges = file.texts(its + "merges");
  parts_->merges.reserve(merges.size());
  parts_->places.reserve(merges.size());
  for (const std::string_view merge : merges) {
    const size_t space = std::min(merge.find(' '), merge.size());
    const std::string_view left = merge.substr(0, space), right = merge.substr(std::min(space + 1, merge.size()));
    const auto a = ids.find(left), b = ids.find(right), both = ids.find(std::string(left) += right);
    if (a == ids.end() || b == ids.end() || both == ids.end()) {
      file.refuse("merge " + shown(merge) + " is not two tokens that make a third");
    }
    if (!parts_->places.emplace(Parts::pair(a->second, b->second), parts_->merges.size()).second) {
      file.refuse("merge " + shown(merge) + " is there twice");
    }
    parts_->merges.push_back({a->second, b->second, both->second});
  }
}

Tokenizer::~Tokenizer() = default;

std::vector<int> Tokenizer::encode(std::string_view text, bool control) const {
  if (text.size() > kMost) throw std::invalid_argument("a text of " + std::to_string(text.size()) + " bytes is too long");
  Encoding to;
  size_t begin = 0;
  for (size_t at = 0; control && at < text.size(); ++at) {
    if (!parts_->begins_control[static_cast<unsigned char>(text[at])]) continue;
    for (const auto& [name, id] : parts_->control) {
      if (!text.substr(at).starts_with(name)) continue;
      parts_->add(text.substr(begin, at - begin), to);
      to.tokens.push_back(id);
      begin = at + name.size();
      at = begin - 1;
      break;
    }
  }
  parts_->add(text.substr(begin), to);
  return std::move(to.tokens);
}

std::string_view Tokenizer::bytes(int token) const {
  return token >= 0 && token < size() ? parts_->bytes[token] : std::string_view();
}

bool Tokenizer::ends_text(int token) const {
  return token >= 0 && token < size() && parts_->ends[token];
}

int Tokenizer::size() const {
  return static_cast<int>(parts_->bytes.size());
}

}  // namespace lm
