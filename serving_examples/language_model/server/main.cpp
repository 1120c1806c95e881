// The program: loads a model, and serves it by HTTP or answers prompts in the terminal.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <climits>
#include <filesystem>
#include <iostream>
#include <thread>
#include <variant>

#include "chat.h"
#include "engine.h"
#include "http.h"
#include "torch_model.h"

namespace {

struct Settings {
  lm::ModelFiles files;
  lm::EngineLimits limits;
  lm::HttpOptions http;
  std::string model;
  std::vector<std::string> prompts;
  int pages = 0, threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
};

struct Option {
  const char* name;
  std::variant<std::string*, int*, std::vector<std::string>*> value;
  const char* meaning;
  int lowest = 1;
};

std::vector<Option> options_of(Settings& settings) {
  return {
      {"--model", &settings.model, "FILE.gguf: weights, vocabulary and chat template"},
      {"--package", &settings.files.package, "the model's program: .pt2 or .pt, from serving_examples.language_model.export"},
      {"--library", &settings.files.library, "the op library, from kernelpack build"},
      {"--threads", &settings.threads, "that compute"},
      {"--pages", &settings.pages, "of the cache; 0: for two of the longest sequences", 0},
      {"--sequences", &settings.limits.sequences, "that are answered at once"},
      {"--batch-tokens", &settings.limits.batch_tokens, "tokens that one call computes"},
      {"--queue", &settings.limits.queue, "requests that may wait"},
      {"--max-tokens", &settings.http.max_tokens, "of an answer; 0: what the model has room for", 0},
      {"--prompt", &settings.prompts, "TEXT: answer it in the terminal and end; may be repeated"},
#ifndef LM_WITHOUT_HTTP
      {"--name", &settings.http.name, "of the model for clients; else its file's"},
      {"--host", &settings.http.host, "address to listen at"},
      {"--port", &settings.http.port, "to listen at; 0: any that is free", 0},
      {"--api-key", &settings.http.key, "that clients must send"},
      {"--connections", &settings.http.connections, "that are served at once"},
      {"--body-bytes", &settings.http.body_bytes, "of a request's body"},
      {"--read-seconds", &settings.http.read_seconds, "for a request to arrive"},
      {"--answer-seconds", &settings.http.answer_seconds, "for an answer"},
      {"--drain-seconds", &settings.http.drain_seconds, "for answers to end after SIGTERM", 0},
#endif
  };
}

void print_help() {
  Settings settings;
  std::cout << "Serves a language model.\n\n";
  for (const auto& [name, value, meaning, lowest] : options_of(settings)) {
    std::cout << "  " << name << std::string(18 - std::string(name).size(), ' ') << meaning;
    if (const auto* number = std::get_if<int*>(&value)) std::cout << " [" << **number << "]";
    std::cout << "\n";
  }
}

void read(const std::vector<std::string>& arguments, Settings& settings) {
  const std::vector<Option> options = options_of(settings);
  for (size_t i = 0; i < arguments.size(); i += 2) {
    const auto has_name = [&](const Option& option) { return option.name == arguments[i]; };
    const auto option = std::find_if(options.begin(), options.end(), has_name);
    if (option == options.end() || i + 1 == arguments.size()) {
      const char* const problem = option == options.end() ? " is no option" : " has no value";
      throw std::runtime_error(arguments[i] + problem + "\n  to fix: --help lists the options");
    }
    const std::string& given = arguments[i + 1];
    if (auto* const* number = std::get_if<int*>(&option->value)) {
      const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), **number);
      if (error != std::errc() || end != given.data() + given.size() || **number < option->lowest) {
        throw std::runtime_error(arguments[i] + " is " + given + ", expected a number from " + std::to_string(option->lowest) +
                                 " on");
      }
    } else if (auto* const* texts = std::get_if<std::vector<std::string>*>(&option->value)) {
      (*texts)->push_back(given);
    } else {
      *std::get<std::string*>(option->value) = given;
    }
  }
  const std::string kKeys = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/=";  // RFC 6750's
  if (settings.http.key.find_first_not_of(kKeys) != std::string::npos) {
    throw std::runtime_error("--api-key has a character that heads cannot carry, expected letters, digits and -._~+/=");
  }
  if (settings.model.empty()) throw std::runtime_error("there is no model\n  to fix: --model FILE.gguf; --help lists the rest");
}

void answer_in_terminal(const Settings& settings, const lm::Tokenizer& tokenizer, const lm::Chat& chat, lm::Engine& engine) {
  for (const std::string& prompt : settings.prompts) {
    lm::Request request;
    request.sampling.temperature = 0;
    request.prompt = chat.problem().empty() ? chat.tokens({{"user", prompt}}) : tokenizer.prompt(prompt);
    const int room = settings.http.room - static_cast<int>(request.prompt.size());
    request.max_tokens = std::clamp(room, 1, settings.http.max_tokens);
    const auto answer = engine.submit(request);
    std::cout << "> " << prompt << "\n";
    std::chrono::steady_clock::time_point first;
    size_t tokens = 0;
    lm::Update update;
    do {
      update = answer->next(std::chrono::hours(24)).value();
      if (tokens == 0) first = std::chrono::steady_clock::now();
      tokens += update.tokens.size();
      std::cout << update.text << std::flush;
    } while (update.end == lm::End::none);
    if (update.end == lm::End::failed) throw std::runtime_error("the answer failed: " + update.error);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - first;
    std::cout << "\n[" << tokens << " tokens, " << static_cast<int>((tokens - 1) / passed.count()) << " tokens/s]\n";
  }
}

void run(Settings settings) {
  const lm::Gguf file(settings.model);
  const lm::Tokenizer tokenizer(file);
  const lm::Chat chat(file, tokenizer);
  if (!chat.problem().empty()) std::cerr << chat.problem() << std::endl;
  const auto model = lm::load_model(settings.files, file, settings.pages, settings.threads);
  const lm::Sizes sizes = model->sizes();
  settings.http.room = static_cast<int>(std::min<int64_t>(sizes.positions, int64_t{sizes.pages} * sizes.page));
  int& max_tokens = settings.http.max_tokens;
  max_tokens = std::min(max_tokens == 0 ? INT_MAX : max_tokens, settings.http.room);
  if (settings.http.name.empty()) settings.http.name = std::filesystem::path(settings.model).stem();
  lm::Metrics metrics;
  lm::Engine engine(*model, tokenizer, settings.limits, metrics);
  if (!settings.prompts.empty()) return answer_in_terminal(settings, tokenizer, chat, engine);
#ifdef LM_WITHOUT_HTTP
  throw std::runtime_error("this program was built without HTTP\n  to fix: --prompt TEXT");
#else
  lm::serve(settings.http, tokenizer, chat, engine, metrics);
#endif
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const std::vector<std::string> given(arguments + 1, arguments + count);
    if (std::find(given.begin(), given.end(), "--help") != given.end()) {
      print_help();
      return 0;
    }
    Settings settings;
    read(given, settings);
    run(settings);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return 1;
  }
}
