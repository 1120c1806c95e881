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

// The text after a prompt that is read in one piece, and whose every new token is a call's only one.
std::vector<int> expected(const FakeModel& model, const std::vector<int>& prompt, int count) {
  std::vector<int> seen, text;
  for (const int token : prompt) seen.push_back(model.computed(token, static_cast<int>(prompt.size())));
  for (int i = 0; i < count; ++i) {
    text.push_back(model.after(seen));
    seen.push_back(model.computed(text.back(), 1));
  }
  return text;
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

namespace {

// `piece` as in Sizes, `tokens` of a call.
void many_at_once(int piece, int tokens) {
  std::mt19937 random(1);
  FakeModel model({16, 40, 512, 49152, piece});
  lm::Metrics metrics;
  {
    lm::Engine engine(model, tokenizer(), {.queue = 1000, .sequences = 12, .batch_tokens = tokens}, metrics);
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

}  // namespace

TEST(many_at_once_share_pages_wait_and_are_preempted) {
  many_at_once(1, 50);
}

TEST(a_text_is_the_same_whatever_is_beside_it_where_small_pieces_give_other_bits) {
  for (const int piece : {2, 6, 16})
    for (const int tokens : {2 * piece - 1, 50}) many_at_once(piece, tokens);
}

TEST(no_piece_of_a_prompt_is_smaller_than_the_model_has_it) {
  // beside another that writes, 15 tokens of a call are left: after a shared page, 1, 2 or 9 tokens of the prompt are
  for (const int piece : {2, 6})
    for (const int length : {17, 18, 25, 31, 32, 33, 34, 41}) {
      FakeModel model({16, 64, 512, 49152, piece}, milliseconds(1));
      lm::Metrics metrics;
      lm::Engine engine(model, tokenizer(), {.batch_tokens = 16}, metrics);
      std::vector<int> prompt(length);
      for (int i = 0; i < length; ++i) prompt[i] = 1000 + i;
      const std::vector<int> right = expected(model, prompt, 3);
      const auto other = engine.submit(asking({200, 201, 202, 203, 204, 205}, 200));
      other->next(milliseconds(5000));
      for (int i = 0; i < 2; ++i) EXPECT(ids(whole(*engine.submit(asking(prompt, 3)))) == right);
      EXPECT(metric(metrics, "vllm:prefix_cache_hits_total") == (length - piece) / 16 * 16);
      other->cancel();
    }
}

TEST(a_call_that_cannot_take_a_piece_is_refused) {
  FakeModel model({16, 64, 512, 49152, 6});
  lm::Metrics metrics;
  std::string problem;
  try {
    const lm::Engine engine(model, tokenizer(), {.batch_tokens = 10}, metrics);
  } catch (const std::invalid_argument& error) {
    problem = error.what();
  }
  EXPECT(problem == "a call has up to 10 tokens, expected 11 or more for this model\n  to fix: a larger --batch-tokens");
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

TEST(pages_of_a_text_that_failed_are_not_used_again) {
  FakeModel model(kSizes);
  lm::Metrics metrics;
  lm::Engine engine(model, tokenizer(), {.batch_tokens = 64}, metrics);
  const std::vector<int> prompt(200, 300);
  model.is_poisoned = true;
  EXPECT(whole(*engine.submit(asking(prompt, 1))).end == End::failed);
  model.is_poisoned = false;
  EXPECT(ids(whole(*engine.submit(asking(prompt, 1)))) == expected(model, prompt, 1));
  EXPECT(metric(metrics, "vllm:prefix_cache_hits_total") == 0);
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
