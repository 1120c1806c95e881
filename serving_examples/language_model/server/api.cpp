// Holds every field of a body to its type and range, and writes answers.
#include "api.h"

#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>

#include "utf8.h"

namespace lm {
namespace {

using nlohmann::json;

constexpr size_t kChoices = 128;   // of a call
constexpr int kAlternatives = 20;  // as OpenAI has it
constexpr int kDepth = 16;         // of a body's JSON: what writes it recurses

// Fields that would change the answer and are not served, with values that ask for nothing. kNothing asks for nothing in any.
const json kRefused = json::parse(R"({"allowed_token_ids": [], "audio": [], "bad_words": [], "best_of": [1],
  "chat_template": [], "continue_final_message": [], "documents": [], "echo": [], "function_call": ["none", "auto"],
  "functions": [], "guided_choice": [], "guided_grammar": [], "guided_json": [], "guided_regex": [], "min_tokens": [],
  "modalities": [["text"]], "prompt_logprobs": [], "response_format": [{"type": "text"}], "stop_token_ids": [],
  "structured_outputs": [], "suffix": [], "tool_choice": ["none", "auto"], "tools": [], "use_beam_search": [],
  "web_search_options": []})");
const json kNothing = json::parse(R"([null, false, 0, "", [], {}])");

std::string written(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

[[noreturn]] void refuse(const std::string& field, const json& given, const std::string& allowed) {
  std::string shown = given.is_null() ? "missing" : given.dump(-1, ' ', true);  // in ASCII, to be cut anywhere
  if (shown.size() > 60) shown = shown.substr(0, 57) + "...";
  throw ApiError(400, field + " is " + shown + ", expected " + allowed, field);
}

json parse(const std::string& body) {
  const auto check_depth = [](int depth, json::parse_event_t, json&) {
    if (depth > kDepth) throw ApiError(400, "the body's JSON is nested deeper than " + std::to_string(kDepth) + " levels");
    return true;
  };
  try {
    json value = json::parse(body, check_depth);
    if (!value.is_object()) throw ApiError(400, "the body is JSON, but no object");
    return value;
  } catch (const json::exception& error) {
    throw ApiError(400, std::string("the body is no JSON in UTF-8: ") + error.what());
  }
}

// A field's value. null is as good as none.
const json& field(const json& object, const std::string& name) {
  static const json kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

bool flag(const json& object, const std::string& name) {
  const json& value = field(object, name);
  if (!value.is_null() && !value.is_boolean()) refuse(name, value, "true or false");
  return value == true;
}

int64_t integer(const json& value, const std::string& name, int64_t low, int64_t high) {
  const bool fits = value.is_number_integer() && !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX);
  if (!fits || value.get<int64_t>() < low || value.get<int64_t>() > high) {
    refuse(name, value, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value.get<int64_t>();
}

// `above`: the lowest value itself is too low.
float number(const json& value, const std::string& name, float low, float high, bool above = false) {
  const float number = value.is_number() ? value.get<float>() : NAN;
  if (!(number >= low && number <= high) || (above && number == low)) {
    refuse(name, value,
           std::string("a number ") + (above ? "above " : "from ") + json(low).dump() + " to " + json(high).dump());
  }
  return number;
}

Request request_of(const json& object, const Api& api, bool chat) {
  Request request;
  Sampling& sampling = request.sampling;
  const auto set = [&](float& value, const char* name, float low, float high, bool above = false) {
    if (const json& given = field(object, name); !given.is_null()) value = number(given, name, low, high, above);
  };
  const auto whole = [&](const char* name, int64_t otherwise, int64_t low, int64_t high) {
    const json& given = field(object, name);
    return given.is_null() ? otherwise : integer(given, name, low, high);
  };
  set(sampling.temperature, "temperature", 0, 2);
  set(sampling.top_p, "top_p", 0, 1, true);
  set(sampling.min_p, "min_p", 0, 1);
  set(sampling.presence_penalty, "presence_penalty", -2, 2);
  set(sampling.frequency_penalty, "frequency_penalty", -2, 2);
  set(sampling.repetition_penalty, "repetition_penalty", 0, 2, true);
  sampling.top_k = static_cast<int>(std::max<int64_t>(0, whole("top_k", 0, -1, INT32_MAX)));  // -1: of all, too
  sampling.seed = whole("seed", std::random_device()(), INT64_MIN, INT64_MAX);
  request.ignore_end = flag(object, "ignore_eos");
  request.max_tokens = static_cast<int>(
      whole("max_tokens", chat ? 0 : std::min(16, api.max_tokens), 1, api.max_tokens));  // 0: what there is room for
  if (chat) request.max_tokens = static_cast<int>(whole("max_completion_tokens", request.max_tokens, 1, api.max_tokens));
  const bool logged = !chat || flag(object, "logprobs");
  if (logged) request.alternatives = whole(chat ? "top_logprobs" : "logprobs", chat ? 0 : -1, 0, kAlternatives);
  if (!logged) whole("top_logprobs", 0, 0, 0);

  const int size = api.tokenizer.size();
  if (const json& bias = field(object, "logit_bias"); !bias.is_null()) {
    const std::string allowed = "an object of biases by token, from \"0\" to \"" + std::to_string(size - 1) + "\"";
    if (!bias.is_object()) refuse("logit_bias", bias, allowed);
    for (const auto& [token, value] : bias.items()) {
      const bool digits = !token.empty() && token.size() < 10 && token.find_first_not_of("0123456789") == std::string::npos;
      if (!digits || std::stoi(token) >= size) refuse("logit_bias", token, allowed);
      sampling.bias[std::stoi(token)] = number(value, "logit_bias", -100, 100);
    }
  }
  if (const json& stop = field(object, "stop"); !stop.is_null()) {
    const json list = stop.is_string() ? json::array({stop}) : stop;
    bool fits = list.is_array() && list.size() <= 4;
    for (size_t i = 0; fits && i < list.size(); ++i) fits = list[i].is_string() && list[i] != "";
    if (!fits) refuse("stop", stop, "a string or a list of up to 4, none of them empty");
    request.stop = list.get<std::vector<std::string>>();
  }
  return request;
}

std::vector<std::vector<int>> prompts_of(const json& given, const Api& api) {
  const char* const kAllowed = "a string, a list of tokens, or a list of up to 128 of these";
  const bool is_one = given.is_string() || (given.is_array() && !given.empty() && given.front().is_number());
  const json list = is_one ? json::array({given}) : given;
  if (!list.is_array() || list.empty() || list.size() > kChoices) refuse("prompt", given, kAllowed);
  std::vector<std::vector<int>> prompts;
  for (const json& prompt : list) {
    if (!prompt.is_string() && !prompt.is_array()) refuse("prompt", prompt, kAllowed);
    std::vector<int>& tokens = prompts.emplace_back();
    if (prompt.is_string()) tokens = api.tokenizer.prompt(prompt.get_ref<const std::string&>());
    if (prompt.is_string()) continue;
    for (const json& token : prompt) tokens.push_back(integer(token, "prompt", 0, api.tokenizer.size() - 1));
  }
  return prompts;
}

std::vector<Message> messages_of(const json& given) {
  const char* const kAllowed =
      "a list of objects with role (system, user, assistant) and content (a string, or parts of type text)";
  if (!given.is_array() || given.empty()) refuse("messages", given, kAllowed);
  std::vector<Message> messages;
  for (const json& message : given) {
    const json role = message.is_object() ? field(message, "role") : json();
    json parts = message.is_object() ? field(message, "content") : json();
    if (parts.is_string()) parts = {{{"type", "text"}, {"text", parts}}};
    bool fits = (role == "system" || role == "user" || role == "assistant") && parts.is_array();
    std::string text;
    for (size_t i = 0; fits && i < parts.size(); ++i) {
      fits = parts[i].is_object() && field(parts[i], "type") == "text" && field(parts[i], "text").is_string();
      if (fits) text += parts[i]["text"].get_ref<const std::string&>();
    }
    if (!fits) refuse("messages", message, kAllowed);
    messages.push_back({role, text});
  }
  return messages;
}

json reason_of(End end) {
  return end == End::stop ? json("stop") : end == End::length ? json("length") : json();
}

// A token's bytes as text; in OpenAI's notation where they hold parts of characters.
std::string text_of(std::string_view bytes) {
  std::string hex = "bytes:";
  for (const unsigned char byte : bytes) hex += {'\\', 'x', "0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  for (size_t i = 0; i < bytes.size();) {
    const Character character = first_character(bytes.substr(i));
    if (character.kind != Utf8::whole) return hex;
    i += character.size;
  }
  return std::string(bytes);
}

std::string event_of(const json& data) {
  return "data: " + written(data) + "\n\n";
}

}  // namespace

std::string ApiError::body() const {
  const char* const type = status >= 500 ? "server_error" : status == 429 ? "rate_limit_error" : "invalid_request_error";
  const auto or_null = [](const std::string& text) { return text.empty() ? json() : json(text); };
  return written({{"error", {{"message", what()}, {"type", type}, {"param", or_null(param)}, {"code", or_null(code)}}}});
}

std::string Api::model() const {
  return written({{"id", name}, {"object", "model"}, {"created", 0}, {"owned_by", "kernelpack"}, {"max_model_len", room}});
}

std::string Api::models() const {
  return R"({"object":"list","data":[)" + model() + "]}";
}

Call::Call(const Api& api, bool chat, const std::string& body) : api_(api), chat_(chat), created_(std::time(nullptr)) {
  const json object = parse(body);
  for (const auto& [name, nothing] : kRefused.items()) {
    const json& value = field(object, name);
    const auto is_in = [&](const json& list) { return std::find(list.begin(), list.end(), value) != list.end(); };
    if (!is_in(kNothing) && !is_in(nothing)) refuse(name, value, "none: this server does not have it");
  }
  if (const json& model = field(object, "model"); !model.is_null() && model != api.name) {
    throw ApiError(404, "the model " + written(model) + " is not here, but " + api.name + " is", "model", "model_not_found");
  }
  if (chat && !api.chat.problem().empty()) throw ApiError(400, api.chat.problem(), "messages");
  stream = flag(object, "stream");
  if (const json& options = field(object, "stream_options"); !options.is_null()) {
    if (!options.is_object() || !stream) refuse("stream_options", options, "an object, where stream is true");
    usage_ = flag(options, "include_usage");
  }
  const Request request = request_of(object, api, chat);
  const json& n = field(object, "n");
  const size_t choices = n.is_null() ? 1 : integer(n, "n", 1, kChoices);
  std::vector<std::vector<int>> prompts;
  if (chat) prompts = {api.chat.tokens(messages_of(field(object, "messages")))};
  if (!chat) prompts = prompts_of(field(object, "prompt"), api);
  if (prompts.size() * choices > kChoices) refuse("n", n, "at most " + std::to_string(kChoices) + " answers, n to each prompt");
  for (const std::vector<int>& prompt : prompts) {
    const char* const name = chat ? "messages" : "prompt";
    const int count = static_cast<int>(prompt.size()), room = api.room - count;
    const int wanted = request.max_tokens > 0 ? request.max_tokens : std::clamp(room, 1, api.max_tokens);
    if (count == 0) throw ApiError(400, "a prompt is empty, expected at least one token", name);
    if (wanted > room) {
      const std::string given = std::to_string(count) + " tokens, and " + std::to_string(wanted) + " more are wanted";
      throw ApiError(400, "a prompt has " + given + ", expected at most " + std::to_string(api.room) + " together", name,
                     "context_length_exceeded");
    }
    prompt_tokens_ += prompt.size();
    for (size_t i = 0; i < choices; ++i) {
      Request& one = requests.emplace_back(request);
      one.prompt = prompt;
      one.max_tokens = wanted;
      one.sampling.seed += i;
    }
  }
  choices_.resize(requests.size());
  id_ = chat ? "chatcmpl-" : "cmpl-";
  for (std::random_device random; id_.size() < 33;) id_ += "0123456789abcdef"[random() % 16];
}

json Call::answer(const json& choices, const json& usage) const {
  const char* const object = !chat_ ? "text_completion" : stream ? "chat.completion.chunk" : "chat.completion";
  json answer = {{"id", id_}, {"object", object}, {"created", created_}, {"model", api_.name}, {"choices", choices}};
  if (usage_ || !stream) answer["usage"] = usage;
  return answer;
}

json Call::usage() const {
  size_t count = 0;
  for (const Choice& choice : choices_) count += choice.count;
  return {{"prompt_tokens", prompt_tokens_}, {"completion_tokens", count}, {"total_tokens", prompt_tokens_ + count}};
}

// A choice, or what is new of it.
json Call::part(size_t index, const std::string& text, const std::vector<Token>& tokens) {
  Choice& choice = choices_[index];
  const json logs = logged(tokens, choice.characters);
  json part = {{"index", index}, {"finish_reason", reason_of(choice.end)}, {"logprobs", logs}};
  if (!chat_) return part["text"] = text, part;
  json& message = part[stream ? "delta" : "message"] = {{"content", text}};
  if (!std::exchange(choice.is_begun, true)) message["role"] = "assistant";
  if (!stream) message["refusal"] = nullptr;
  return part;
}

// Log-probabilities of tokens. `characters` is how long the text before them is.
json Call::logged(const std::vector<Token>& tokens, size_t& characters) const {
  if (requests[0].alternatives < 0 || tokens.empty()) return nullptr;
  json content = json::array(), texts = content, numbers = content, tops = content, offsets = content;
  for (const Token& token : tokens) {
    const auto entry = [&](int id, float number) -> json {
      const std::string_view bytes = api_.tokenizer.bytes(id);
      number = std::max(number, -9999.0f);  // JSON has no -inf; vLLM's
      return {{"token", text_of(bytes)}, {"logprob", number}, {"bytes", std::vector<uint8_t>(bytes.begin(), bytes.end())}};
    };
    json one = entry(token.id, token.log_probability), top = {{one["token"], one["logprob"]}}, others = json::array();
    for (const Alternative& other : token.alternatives) {
      others.push_back(entry(other.token, other.log_probability));
      top[others.back()["token"].get<std::string>()] = others.back()["logprob"];
    }
    texts.push_back(one["token"]);
    numbers.push_back(one["logprob"]);
    tops.push_back(top);
    offsets.push_back(characters);
    one["top_logprobs"] = others;
    content.push_back(one);
    for (const char byte : api_.tokenizer.bytes(token.id)) characters += (byte & 0xc0) != 0x80;
  }
  if (chat_) return {{"content", content}, {"refusal", nullptr}};
  return {{"tokens", texts}, {"token_logprobs", numbers}, {"top_logprobs", tops}, {"text_offset", offsets}};
}

std::string Call::add(size_t index, Update update) {
  if (update.end == End::failed) throw ApiError(500, "the answer failed: " + update.error);
  if (update.end == End::cancelled) throw ApiError(503, "the answer was given up, as the server ends");
  Choice& choice = choices_[index];
  choice.count += update.tokens.size();
  choice.end = update.end;
  if (requests[index].alternatives < 0) update.tokens.clear();
  if (!stream) {
    choice.text += update.text;
    choice.tokens.insert(choice.tokens.end(), update.tokens.begin(), update.tokens.end());
    return "";
  }
  if (update.text.empty() && update.tokens.empty() && update.end == End::none) return "";
  return event_of(answer(json::array({part(index, update.text, update.tokens)}), nullptr));
}

std::string Call::last_events() const {
  return (usage_ ? event_of(answer(json::array(), usage())) : "") + "data: [DONE]\n\n";
}

std::string Call::whole() {
  json parts = json::array();
  for (size_t i = 0; i < choices_.size(); ++i) parts.push_back(part(i, choices_[i].text, choices_[i].tokens));
  return written(answer(parts, usage()));
}

}  // namespace lm
