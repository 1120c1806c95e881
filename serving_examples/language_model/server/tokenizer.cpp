// Byte-level BPE: a pattern splits a text into pieces, and in each piece neighbours are merged.
#include "tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>
#include <unordered_map>

#include "merges.h"
#include "utf8.h"

namespace lm {
namespace {

// What splits a text, in which S is white space. SmolLM2's is GPT-2's after each digit was split from all else.
const std::string kShort = R"('s|'t|'re|'ve|'m|'ll|'d)", kSpaces = "|[S]+(?![^S])|[S]+", kOthers = R"(| ?[^S\p{L}\p{N}]+)";
const std::string kLlama = "(?i:" + kShort + R"()|[^\r\n\p{L}\p{N}]?\p{L}+)" + kOthers + R"([\r\n]*|[S]*[\r\n]+)" + kSpaces;
const std::map<std::string_view, std::string> kPatterns = {
    {"gpt-2", kShort + R"(| ?\p{L}+| ?\p{N}+)" + kOthers + kSpaces},
    {"smollm", kShort + R"(| ?\p{L}+|\p{N})" + kOthers + R"(|[S]+(?![^S\p{N}])|[S]+)"},
    {"llama-bpe", kLlama + R"(|\p{N}{1,3})"},
    {"qwen2", kLlama + R"(|\p{N})"},
};
constexpr std::string_view kSpace = R"(\p{Z}\t-\r\x{85})";  // PCRE's \s has U+180E, too
constexpr std::array<std::string_view, 3> kEnds = {"<|im_end|>", "<|endoftext|>", "<|eot_id|>"};
enum Type { kNormal = 1, kControl = 3, kUserDefined = 4 };  // of tokens

using Ids = std::unordered_map<std::string_view, int>;

template <auto free>
struct Free {
  void operator()(auto* held) const { free(held); }
};
using Pattern = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;

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
std::string bytes_of(std::string_view word, const Ids& byte_of) {
  std::string bytes;
  for (std::string_view left = word; !left.empty(); left.remove_prefix(first_character(left).size)) {
    const auto byte = byte_of.find(left.substr(0, first_character(left).size));
    if (byte == byte_of.end()) return std::string(word);
    bytes += static_cast<char>(byte->second);
  }
  return bytes;
}

}  // namespace

struct Tokenizer::Parts {
  std::vector<std::string> bytes;                    // by token
  std::vector<bool> ends;                            // by token
  std::array<int, 256> of_byte;                      // tokens, or -1
  std::vector<std::pair<std::string, int>> control;  // the longest first
  std::array<bool, 256> begins_control{};            // by byte
  int first = -1;                                    // the token that prompts begin with
  Ids whole;                                         // pieces that are tokens, whatever merges there are
  Merges merges;
  Pattern pattern;

  // Returns the size of the piece that characters begin with.
  size_t piece(std::string_view text, pcre2_match_data* match) const {
    const auto* bytes = reinterpret_cast<PCRE2_SPTR>(text.data());
    const int found = pcre2_match(pattern.get(), bytes, text.size(), 0, PCRE2_NO_UTF_CHECK, match, nullptr);
    const size_t size = found > 0 ? pcre2_get_ovector_pointer(match)[1] : 0;
    if (size == 0) throw std::runtime_error("text cannot be split: PCRE2 answers " + std::to_string(found));
    return size;
  }

  // Adds the tokens of text without control tokens. What is no UTF-8 is one piece.
  void add(std::string_view text, std::vector<int>& tokens) const {
    const std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>> match(pcre2_match_data_create(1, nullptr));
    const auto is_whole = [&](size_t at) { return first_character(text.substr(at)).kind == Utf8::whole; };
    Merges::Row row;
    bool is_text = false;
    for (size_t end = 0, size = 0; !text.empty(); text.remove_prefix(size), end -= size) {
      if (end == 0) is_text = is_whole(0);  // up to `end` all is
      while (end < text.size() && is_whole(end) == is_text) end += first_character(text.substr(end)).size;
      size = is_text ? piece(text.substr(0, end), match.get()) : end;
      const auto id = whole.find(text.substr(0, size));
      if (id != whole.end()) {
        tokens.push_back(id->second);
        continue;
      }
      for (const char c : text.substr(0, size)) {
        if (const int token = of_byte[static_cast<unsigned char>(c)]; token >= 0) row.push(token);
      }
      merges.apply(row, tokens);
    }
  }
};

Tokenizer::Tokenizer(const Gguf& file) : parts_(std::make_unique<Parts>()) {
  const std::string its = "tokenizer.ggml.";
  const auto model = file.text(its + "model"), pre = file.has(its + "pre") ? file.text(its + "pre") : "gpt-2";
  if (model != "gpt2") file.refuse("its tokenizer is " + shown(model) + ", expected 'gpt2', which is byte-level BPE");
  const auto pattern = kPatterns.find(pre);
  if (pattern == kPatterns.end()) file.refuse("it splits text as " + shown(pre) + ", not smollm, gpt-2, llama-bpe or qwen2");
  parts_->pattern = compiled(pattern->second);

  const auto& words = file.texts(its + "tokens");
  auto types = std::vector<int64_t>(words.size(), kNormal);
  if (file.has(its + "token_type")) types = file.integers(its + "token_type");
  const auto counts = std::to_string(words.size()) + " tokens have " + std::to_string(types.size()) + " types";
  if (types.size() != words.size()) file.refuse(counts);
  const auto characters = byte_characters();
  Ids byte_of, ids;
  for (int byte = 0; byte < 256; ++byte) byte_of[characters[byte]] = byte;
  ids.reserve(words.size());
  parts_->ends.resize(words.size());
  for (size_t i = 0; i < words.size(); ++i) {
    const int id = static_cast<int>(i);
    const bool is_control = types[i] == kControl, is_named = is_control || types[i] == kUserDefined;
    parts_->bytes.push_back(types[i] == kNormal ? bytes_of(words[i], byte_of) : std::string(is_control ? "" : words[i]));
    if (types[i] == kNormal) ids.emplace(words[i], id);
    if (!is_named || words[i].empty()) continue;
    parts_->control.emplace_back(words[i], id);
    parts_->begins_control[static_cast<unsigned char>(words[i][0])] = true;
    parts_->ends[i] = is_control && std::count(kEnds.begin(), kEnds.end(), words[i]) != 0;
  }
  const auto is_longer = [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); };
  std::stable_sort(parts_->control.begin(), parts_->control.end(), is_longer);
  const auto token = [&](const std::string& name) {
    const int64_t id = file.integer(name);
    if (id < 0 || id >= size()) file.refuse("field " + name + " is " + std::to_string(id) + ", which is no token");
    return static_cast<int>(id);
  };
  for (const std::string& name : {its + "eos_token_id", its + "eot_token_id"}) {
    if (file.has(name)) parts_->ends[token(name)] = true;
  }
  const std::string first = its + "bos_token_id", has_first = its + "add_bos_token";
  if (file.has(has_first) ? file.flag(has_first) : pre == "llama-bpe" && file.has(first)) parts_->first = token(first);
  for (int byte = 0; byte < 256; ++byte) {
    const auto id = ids.find(characters[byte]);
    parts_->of_byte[byte] = id == ids.end() ? -1 : id->second;
    if (id == ids.end() && byte >= ' ' && byte <= '~') file.refuse("no token stands for byte " + std::to_string(byte));
  }
  if (pre == "llama-bpe") {
    for (const auto& [word, id] : ids) parts_->whole.emplace(parts_->bytes[id], id);
  }
  const auto& merges = file.texts(its + "merges");
  parts_->merges.reserve(merges.size());
  for (const std::string_view merge : merges) {
    const size_t space = std::min(merge.find(' '), merge.size() - 1);
    const std::string left(merge.substr(0, space)), right(merge.substr(space + 1));
    const auto a = ids.find(left), b = ids.find(right), both = ids.find(left + right);
    if (a == ids.end() || b == ids.end() || both == ids.end()) {
      file.refuse("merge " + shown(merge) + " is not two tokens that make a third");
    }
    if (!parts_->merges.add(a->second, b->second, both->second)) file.refuse("merge " + shown(merge) + " is there twice");
  }
}

Tokenizer::~Tokenizer() = default;

std::vector<int> Tokenizer::encode(std::string_view text, bool control) const {
  if (text.size() > std::numeric_limits<int>::max()) throw std::invalid_argument("a text of 2 GiB or more has no tokens");
  std::vector<int> tokens;
  size_t begin = 0;
  for (size_t at = 0; control && at < text.size(); ++at) {
    if (!parts_->begins_control[static_cast<unsigned char>(text[at])]) continue;
    const auto is_here = [&](const auto& word) { return text.substr(at).starts_with(word.first); };
    const auto found = std::find_if(parts_->control.begin(), parts_->control.end(), is_here);
    if (found == parts_->control.end()) continue;
    parts_->add(text.substr(begin, at - begin), tokens);
    tokens.push_back(found->second);
    begin = at + found->first.size();
    at = begin - 1;
  }
  parts_->add(text.substr(begin), tokens);
  return tokens;
}

std::vector<int> Tokenizer::prompt(std::string_view text) const {
  std::vector<int> tokens = encode(text, true);
  if (parts_->first >= 0 && (tokens.empty() || tokens[0] != parts_->first)) tokens.insert(tokens.begin(), parts_->first);
  return tokens;
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
