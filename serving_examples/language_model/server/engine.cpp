// The engine's thread: which tokens each call of the model computes, and what comes of them.
#include "engine.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "pages.h"
#include "text.h"

namespace lm {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

const char* name_of(End end) {
  switch (end) {
    case End::stop:
      return "stop";
    case End::length:
      return "length";
    case End::cancelled:
      return "abort";
    default:
      return "error";
  }
}

// A request that is answered, or waits.
struct Sequence {
  Sequence(Request asked, std::shared_ptr<Answer> to)
      : request(std::move(asked)), answer(std::move(to)), tokens(request.prompt), text(request.stop) {}

  int prompt() const { return static_cast<int>(request.prompt.size()); }
  int missing() const { return static_cast<int>(tokens.size()) - cached; }  // tokens that are not in the cache

  Request request;
  std::shared_ptr<Answer> answer;
  std::vector<int> tokens;  // the prompt, and what was chosen after it
  Text text;
  std::vector<int32_t> pages;
  int cached = 0;         // tokens that are in the cache
  int known = 0;          // pages that other sequences may find
  uint64_t contents = 0;  // of the last one of these
  bool is_preempted = false;
  Clock::time_point begin = Clock::now(), last = begin;
};

using Sequences = std::vector<std::unique_ptr<Sequence>>;

}  // namespace

struct Engine::State {
  State(Model& model, const Tokenizer& tokenizer, EngineLimits limits, Metrics& metrics)
      : model(model),
        tokenizer(tokenizer),
        limits(limits),
        metrics(metrics),
        sizes(model.sizes()),
        pages(sizes.pages, sizes.page) {}

  void run();
  void drop_cancelled(Sequences& from);
  void compose(Batch& batch, Sequences& queued);
  bool admit(Sequence& sequence);
  // Where small pieces give other bits, new tokens are computed one by one, and other sequences find pages of prompts alone.
  bool keeps_bits() const { return sizes.piece > 1; }
  void read(Batch& batch, Sequence& sequence);
  int reserve(Sequence& sequence, int count);
  void put(Batch& batch, Sequence& sequence, int count);
  void give_back(Sequence& sequence);
  void preempt_youngest();
  void step(Batch& batch);
  void advance(Sequence& sequence, int count);
  void write(Sequence& sequence, Token token);
  void end(Sequence& sequence, Update last);
  void report();

  Model& model;
  const Tokenizer& tokenizer;
  const EngineLimits limits;
  Metrics& metrics;
  const Sizes sizes;

  // of the engine's thread alone
  Pages pages;
  Sequences running;               // the oldest first
  std::vector<Sequence*> batched;  // those of the batch, in its order
  Sequences waiting;               // these came first

  // of all threads
  std::mutex mutex;
  std::condition_variable changed;
  Sequences queue;
  bool drains = false, stops = false, idle = true;

  std::thread thread;
};

Engine::Engine(Model& model, const Tokenizer& tokenizer, EngineLimits limits, Metrics& metrics)
    : state_(std::make_unique<State>(model, tokenizer, limits, metrics)) {
  const int least = 2 * state_->sizes.piece - 1;  // a prompt of so many tokens cannot be read in two calls
  if (limits.batch_tokens < least)
    throw std::invalid_argument("a call has up to " + std::to_string(limits.batch_tokens) + " tokens, expected " +
                                std::to_string(least) + " or more for this model\n  to fix: a larger --batch-tokens");
  state_->report();
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

Engine::~Engine() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stops = state_->drains = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

std::shared_ptr<Answer> Engine::submit(Request request) {
  const Sizes& sizes = state_->sizes;
  const int64_t room = std::min<int64_t>(sizes.positions, int64_t(sizes.pages) * sizes.page);
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) throw std::invalid_argument("the prompt has no tokens");
  if (request.max_tokens < 1)
    throw std::invalid_argument("max_tokens is " + std::to_string(request.max_tokens) + ", expected 1 or more");
  for (const auto& [token, bias] : request.sampling.bias)
    if (token < 0 || token >= sizes.vocabulary) throw std::invalid_argument("logit_bias has token " + std::to_string(token));
  for (const int token : request.prompt)
    if (token < 0 || token >= sizes.vocabulary)
      throw std::invalid_argument("the prompt has token " + std::to_string(token) + ", expected 0 ... " +
                                  std::to_string(sizes.vocabulary - 1));
  if (prompt + request.max_tokens > room)
    throw std::invalid_argument("the prompt has " + std::to_string(prompt) + " tokens and max_tokens is " +
                                std::to_string(request.max_tokens) + "; together they may be " + std::to_string(room));
  auto answer = std::make_shared<Answer>();
  auto sequence = std::make_unique<Sequence>(std::move(request), answer);
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->drains) throw Busy("the server is about to end");
    if (static_cast<int>(state_->queue.size()) >= state_->limits.queue)
      throw Busy(std::to_string(state_->queue.size()) + " requests wait already; try again later");
    state_->queue.push_back(std::move(sequence));
    state_->idle = false;
  }
  state_->changed.notify_all();
  return answer;
}

void Engine::drain(std::chrono::milliseconds patience) {
  std::unique_lock lock(state_->mutex);
  state_->drains = true;
  state_->changed.wait_for(lock, patience, [this] { return state_->idle; });
}

void Engine::State::run() {
  for (;;) {
    Batch batch;
    {
      std::unique_lock lock(mutex);
      if (queue.empty() && waiting.empty() && running.empty()) {
        idle = true;
        changed.notify_all();
        changed.wait(lock, [this] { return stops || !queue.empty(); });
      }
      if (stops) break;
      drop_cancelled(queue);
      drop_cancelled(waiting);
      drop_cancelled(running);
      compose(batch, queue);
    }
    if (!batch.tokens.empty()) step(batch);
    report();
  }
  for (Sequences* left : {&running, &waiting, &queue})
    for (const auto& sequence : *left) end(*sequence, {"", {}, End::cancelled, "the server has ended"});
}

void Engine::State::drop_cancelled(Sequences& from) {
  std::erase_if(from, [this](const auto& sequence) {
    if (!sequence->answer->is_cancelled()) return false;
    end(*sequence, {"", {}, End::cancelled, ""});
    return true;
  });
}

// Fills a batch: first sequences that write, then prompts that are being read, then new ones, those that were preempted before
// others.
void Engine::State::compose(Batch& batch, Sequences& queued) {
  batched.clear();
  const auto left = [&] { return limits.batch_tokens - static_cast<int>(batch.tokens.size()); };
  for (size_t i = 0; i < running.size() && left() > 0; ++i) {
    if (running[i]->missing() > 1) continue;
    while (i < running.size() && reserve(*running[i], 1) == 0)
      preempt_youngest();  // at worst this one, which is the last one then
    if (i < running.size()) put(batch, *running[i], 1);
  }
  for (const auto& sequence : running)
    if (sequence->missing() > 1 && left() > 0) read(batch, *sequence);
  if (batch.tokens.empty() && !running.empty()) return preempt_youngest();  // prompts that wait for each other's pages
  for (Sequences* from : {&waiting, &queued}) {
    while (!from->empty() && static_cast<int>(running.size()) < limits.sequences && left() > 0 && admit(*from->front())) {
      running.push_back(std::move(from->front()));
      from->erase(from->begin());
      read(batch, *running.back());
    }
    if (!from->empty()) return;
  }
}

// Takes the pages that hold a sequence's beginning. Returns whether there is room for the rest of what it has now; else it
// waits on.
bool Engine::State::admit(Sequence& sequence) {
  const int tokens = keeps_bits() ? sequence.prompt() : static_cast<int>(sequence.tokens.size());
  const int limit = (tokens - sizes.piece) / sizes.page;  // a piece at least is computed
  for (int32_t page; sequence.known < limit; ++sequence.known) {
    page = pages.find(sequence.contents, &sequence.tokens[sequence.known * sizes.page]);
    if (page < 0) break;
    sequence.pages.push_back(page);
    sequence.contents = pages.contents(page);
  }
  sequence.cached = sequence.known * sizes.page;
  if ((sequence.missing() + sizes.page - 1) / sizes.page > pages.available()) {
    give_back(sequence);
    return false;
  }
  if (!sequence.is_preempted) {
    metrics.add("vllm:prefix_cache_queries_total", sequence.prompt());
    metrics.add("vllm:prefix_cache_hits_total", sequence.cached);
  }
  return true;
}

// Adds as many of a sequence's next tokens to a batch as there is room for. Of a prompt no piece is less than the model has it.
void Engine::State::read(Batch& batch, Sequence& sequence) {
  const int left = limits.batch_tokens - static_cast<int>(batch.tokens.size());
  const int prompt = sequence.prompt() - sequence.cached;
  int count = reserve(sequence, std::min(sequence.missing(), left));
  if (count < prompt) count = std::min(count, prompt - sizes.piece);
  if (count >= std::min(prompt, sizes.piece)) put(batch, sequence, count);
}

// Makes room for up to so many more tokens of a sequence. Returns for how many there is room.
int Engine::State::reserve(Sequence& sequence, int count) {
  while (static_cast<int>(sequence.pages.size()) * sizes.page < sequence.cached + count) {
    const int32_t page = pages.take();
    if (page < 0) break;
    sequence.pages.push_back(page);
  }
  return std::min(count, static_cast<int>(sequence.pages.size()) * sizes.page - sequence.cached);
}

// Adds a sequence's next tokens to a batch.
void Engine::State::put(Batch& batch, Sequence& sequence, int count) {
  const int stop = sequence.cached + count;
  for (int i = sequence.cached, end; i < stop; i = end) {
    end = !keeps_bits() ? stop : i < sequence.prompt() ? std::min(sequence.prompt(), stop) : i + 1;
    for (int j = i; j < end; ++j) {
      batch.tokens.push_back(sequence.tokens[j]);
      batch.positions.push_back(j);
      batch.slots.push_back(int64_t(sequence.pages[j / sizes.page]) * sizes.page + j % sizes.page);
    }
    batch.starts.push_back(static_cast<int32_t>(batch.tokens.size()));
    batch.lengths.push_back(end);
    batch.pages.push_back(&sequence.pages);
    batched.push_back(&sequence);
  }
  if (count > 0 && count == sequence.missing())
    batch.choices.push_back({static_cast<int>(batch.lengths.size()) - 1, &sequence.request.sampling, &sequence.tokens,
                             sequence.prompt(), sequence.request.alternatives});
}

void Engine::State::give_back(Sequence& sequence) {
  // the last one first, so that it is forgotten before what it is found by
  for (auto page = sequence.pages.rbegin(); page != sequence.pages.rend(); ++page) pages.give_back(*page);
  sequence.pages.clear();
  sequence.cached = sequence.known = 0;
  sequence.contents = 0;
}

void Engine::State::preempt_youngest() {
  give_back(*running.back());
  running.back()->is_preempted = true;
  waiting.insert(waiting.begin(), std::move(running.back()));
  running.pop_back();
  metrics.add("vllm:num_preemptions_total");
}

void Engine::State::step(Batch& batch) {
  try {
    std::vector<Token> chosen = model.step(batch);
    for (size_t i = 0; i < batched.size(); ++i) advance(*batched[i], batch.starts[i + 1] - batch.starts[i]);
    for (size_t i = 0; i < chosen.size(); ++i) write(*batched[batch.choices[i].sequence], std::move(chosen[i]));
  } catch (const std::exception& error) {
    for (Sequence* sequence : batched) end(*sequence, {"", {}, End::failed, error.what()});
  }
  std::erase_if(running, [](const auto& sequence) { return sequence->answer == nullptr; });
}

// Notes that tokens are in the cache, and makes the pages known that are full now.
void Engine::State::advance(Sequence& sequence, int count) {
  metrics.add("vllm:prompt_tokens_total",
              std::clamp(sequence.prompt() - sequence.cached, 0, sequence.is_preempted ? 0 : count));
  sequence.cached += count;
  const int shared = keeps_bits() ? std::min(sequence.cached, sequence.prompt()) : sequence.cached;
  for (; (sequence.known + 1) * sizes.page <= shared; ++sequence.known)
    sequence.contents =
        pages.know(sequence.pages[sequence.known], sequence.contents, &sequence.tokens[sequence.known * sizes.page]);
}

void Engine::State::write(Sequence& sequence, Token token) {
  if (token.id < 0) return end(sequence, {"", {}, End::failed, "the model's logits are no numbers"});
  const int written = static_cast<int>(sequence.tokens.size()) - sequence.prompt();
  metrics.add("vllm:generation_tokens_total");
  metrics.observe(written == 0 ? "vllm:time_to_first_token_seconds" : "vllm:inter_token_latency_seconds",
                  seconds_since(sequence.last));
  sequence.last = Clock::now();
  sequence.tokens.push_back(token.id);
  Update update;
  const bool ends = tokenizer.ends_text(token.id) && !sequence.request.ignore_end;
  if (!ends) update.text = sequence.text.add(tokenizer.bytes(token.id));
  update.tokens.push_back(std::move(token));
  if (ends || sequence.text.is_stopped())
    update.end = End::stop;
  else if (written + 1 == sequence.request.max_tokens)
    update.end = End::length;
  if (update.end != End::none) return end(sequence, std::move(update));
  sequence.answer->add(std::move(update));
}

// Gives a sequence's last update and its pages; it is dead then. Pages of one that failed may hold what made it fail.
void Engine::State::end(Sequence& sequence, Update last) {
  if (sequence.answer == nullptr) return;
  const bool failed = last.end == End::failed;
  if (!sequence.text.is_stopped()) last.text += sequence.text.rest();
  metrics.add(std::string("vllm:request_success_total{finished_reason=\"") + name_of(last.end) + "\"}");
  metrics.observe("vllm:e2e_request_latency_seconds", seconds_since(sequence.begin));
  sequence.answer->add(std::move(last));
  sequence.answer = nullptr;
  if (failed) std::ranges::for_each(sequence.pages, [&](int32_t page) { pages.forget(page); });
  give_back(sequence);
}

void Engine::State::report() {
  size_t queued;
  {
    const std::lock_guard lock(mutex);
    queued = queue.size();
  }
  metrics.set("vllm:num_requests_running", static_cast<double>(running.size()));
  metrics.set("vllm:num_requests_waiting", static_cast<double>(waiting.size() + queued));
  metrics.set("vllm:kv_cache_usage_perc", 1 - double(pages.available()) / pages.count());
}

}  // namespace lm
