// Texts of many requests at once are those of each alone, whatever they share, wait for and give back.
#include "engine.h"

#include <random>
#include <string>

#include "csrc/expect.h"
#include "fake_model.h"
#include "pages.h"

namespace {

using lm::Answer;
using lm::End;
using lm::Request;
using lm::Update;
using std::chrono::milliseconds;

const lm::Tokenizer& tokenizer() {
  static const lm::Gguf file(std::string(std::getenv("LM_FILE")));
  static const lm::Tokenizer one(file);
  return one;
}

Request asking(std::vector<int> prompt, int max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.ignore_end = true;
  return request;
}

// All of an answer, as one update.
Update whole(Answer& answer) {
  Update all;
  while (all.end == End::none) {
    const auto next = answer.next(milliseconds(20000));
    EXPECT(next.has_value());
    all.text += next->text;
    all.tokens.insert(all.tokens.end(), next->tokens.begin(), next->tokens.end());
    all.end = next->end;
    all.error = next->error;
  }
  return all;
}

std::vector<int> ids(const Update& update) {
  std::vector<int> found;
  for (const lm::Token& token : update.tokens) found.push_back(token.id);
  return found;
}

std::vector<int> expected(const FakeModel& model, std::vector<int> tokens, int count) {
  const size_t prompt = tokens.size();
  for (int i = 0; i < count; ++i) tokens.push_back(model.after(tokens));
  return {tokens.begin() + prompt, tokens.end()};
}

double metric(const lm::Metrics& metrics, const std::string& name) {
  const std::string text = "\n" + metrics.text();
  const size_t place = text.find("\n" + name + " ");
  return place == std::string::npos ? -1 : std::stod(text.substr(place + name.size() + 2));
}

constexpr lm::Sizes kSizes{/*page=*/16, /*pages=*/64, /*positions=*/512, /*vocabulary=*/49152};

}  // namespace

TEST(alone) {
  FakeModel model(kSizes);
  lm::Metrics metrics;
  lm::Engine engine(model, tokenizer(), {}, metrics);
  for (const int length : {1, 15, 16, 17, 300}) {
    std::vector<int> prompt(length, 1000 + length);
    const Update update = whole(*engine.submit(asking(prompt, 40)));
    EXPECT(update.end == End::length);
    EXPECT(ids(update) == expected(model, prompt, 40));
  }
}

TEST(many_at_once_share_pages_wait_and_are_preempted) {
  std::mt19937 random(1);
  FakeModel model({16, 40, 512, 49152});
  lm::Metrics metrics;
  {
    lm::Engine engine(model, tokenizer(), {.queue = 1000, .sequences = 12, .batch_tokens = 50}, metrics);
    std::vector<std::pair<std::vector<int>, std::shared_ptr<Answer>>> asked;
    std::vector<int> counts;
    for (int i = 0; i < 300; ++i) {
      // one of three beginnings of 0 to 100 tokens, then up to 60 of its own
      std::vector<int> prompt(random() % 100, 500 + static_cast<int>(random() % 3));
      for (int j = random() % 60 + 1; j > 0; --j) prompt.push_back(100 + random() % 1000);
      counts.push_back(random() % 150 + 1);
      asked.emplace_back(prompt, engine.submit(asking(prompt, counts.back())));
      if (i % 10 == 3) asked.back().second->cancel();
      if (i % 50 == 0) std::this_thread::sleep_for(milliseconds(2));
    }
    for (size_t i = 0; i < asked.size(); ++i) {
      const Update update = whole(*asked[i].second);
      std::vector<int> right = expected(model, asked[i].first, counts[i]);
      if (i % 10 == 3 && update.end == End::cancelled) right.resize(update.tokens.size());
      EXPECT(ids(update) == right);
      EXPECT(update.end == End::length || i % 10 == 3);
    }
    engine.drain(milliseconds(5000));
    EXPECT(metric(metrics, "vllm:num_requests_running") == 0);
    EXPECT(metric(metrics, "vllm:num_requests_waiting") == 0);
    EXPECT(metric(metrics, "vllm:kv_cache_usage_perc") == 0);
  }
  EXPECT(metric(metrics, "vllm:num_preemptions_total") > 0);
  EXPECT(metric(metrics, "vllm:prefix_cache_hits_total") > 0);
}

TEST(a_beginning_that_was_read_is_not_read_again) {
  FakeModel model(kSizes);
  lm::Metrics metrics;
  lm::Engine engine(model, tokenizer(), {.batch_tokens = 64}, metrics);
  std::vector<int> prompt(400);
  for (int i = 0; i < 400; ++i) prompt[i] = 1000 + i;
  whole(*engine.submit(asking(prompt, 1)));
  const int before = model.calls;
  EXPECT(before == 7);
  EXPECT(ids(whole(*engine.submit(asking(prompt, 1)))) == expected(model, prompt, 1));
  EXPECT(model.calls == before + 1);
  EXPECT(metric(metrics, "vllm:prefix_cache_hits_total") == 384);
  prompt[0] = 99;  // nothing is shared after another first page
  EXPECT(ids(whole(*engine.submit(asking(prompt, 1)))) == expected(model, prompt, 1));
  EXPECT(metric(metrics, "vllm:prefix_cache_hits_total") == 384);
}

TEST(new_tokens_do_not_wait_for_a_long_prompt) {
  FakeModel model(kSizes, milliseconds(1));
  lm::Metrics metrics;
  lm::Engine engine(model, tokenizer(), {.batch_tokens = 16}, metrics);
  const auto writes = engine.submit(asking({200}, 60));
  writes->next(milliseconds(5000));
  const auto reads = engine.submit(asking(std::vector<int>(440, 300), 1));
  int tokens = 0;
  while (!reads->next(milliseconds(0)))
    if (const auto update = writes->next(milliseconds(5))) tokens += static_cast<int>(update->tokens.size());
  EXPECT(tokens > 10);  // 440 / 15 calls, each with one of them
}

TEST(ends) {
  FakeModel model(kSizes);
  lm::Metrics metrics;
  lm::Engine engine(model, tokenizer(), {}, metrics);
  const std::vector<int> prompt = {300, 301};
  const std::vector<int> tokens = expected(model, prompt, 20);
  std::string text;
  for (const int token : tokens) text += tokenizer().bytes(token);
  Request stopped = asking(prompt, 20);
  stopped.stop = {std::string(tokenizer().bytes(tokens[5]))};
  const Update update = whole(*engine.submit(stopped));
  EXPECT(update.end == End::stop);
  EXPECT(update.tokens.size() <= 6);
  EXPECT(update.text.find(stopped.stop[0]) == std::string::npos);
  EXPECT(text.starts_with(update.text.substr(0, 3)));

  const Update nan = whole(*engine.submit(asking({FakeModel::kNaN, 1}, 5)));
  EXPECT(nan.end == End::failed && nan.error == "the model's logits are no numbers" && nan.tokens.empty());
  const Update failed = whole(*engine.submit(asking({1, FakeModel::kThrow}, 5)));
  EXPECT(failed.end == End::failed && failed.error == "the model failed");
  EXPECT(ids(whole(*engine.submit(asking(prompt, 20)))) == tokens);  // the engine lives on
}

TEST(what_cannot_be_answered_is_refused) {
  FakeModel model({16, 8, 512, 49152}, milliseconds(20));
  lm::Metrics metrics;
  lm::Engine engine(model, tokenizer(), {.queue = 2, .sequences = 1}, metrics);
  const auto refused = [&](Request request, const std::string& part) {
    try {
      engine.submit(std::move(request));
    } catch (const std::exception& error) {
      return std::string(error.what()).find(part) != std::string::npos;
    }
    return false;
  };
  EXPECT(refused(asking({}, 1), "the prompt has no tokens"));
  EXPECT(refused(asking({1}, 0), "max_tokens is 0"));
  EXPECT(refused(asking({49152}, 1), "token 49152"));
  EXPECT(refused(asking({-1}, 1), "token -1"));
  EXPECT(refused(asking(std::vector<int>(100, 1), 29), "together they may be 128"));
  const auto first = engine.submit(asking(std::vector<int>(100, 1), 28));
  first->next(milliseconds(5000));
  const auto second = engine.submit(asking({1}, 1)), third = engine.submit(asking({2}, 1));
  EXPECT(refused(asking({3}, 1), "2 requests wait already"));
  first->cancel();
  EXPECT(whole(*first).end == End::cancelled);
  EXPECT(whole(*second).end == End::length && whole(*third).end == End::length);
  engine.drain(milliseconds(5000));
  EXPECT(refused(asking({3}, 1), "about to end"));
}

TEST(what_is_left_at_the_end_is_cancelled) {
  FakeModel model(kSizes, milliseconds(5));
  lm::Metrics metrics;
  std::vector<std::shared_ptr<Answer>> left;
  {
    lm::Engine engine(model, tokenizer(), {.sequences = 2}, metrics);
    for (int i = 0; i < 5; ++i) left.push_back(engine.submit(asking({300 + i}, 500)));
    left[0]->next(milliseconds(5000));
  }
  for (const auto& answer : left) EXPECT(whole(*answer).end == End::cancelled);
}

int main(int count, char** names) {
  for (const auto& [name, test] : all_tests())
    if (count == 1 || name == names[1]) {
      std::cout << name << std::endl;
      test();
    }
}
