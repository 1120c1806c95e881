// httplib reads requests and writes answers. Its sockets are replaced by Connection, which holds clients to limits of bytes and
// time, and knows when one has gone.
#include "http.h"

#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <iostream>
#include <thread>

#include "api.h"

// The chat page is a part of the program. The assembler finds the file by -Wa,-I.
asm(".section .rodata\nlm_page:\n.incbin \"chat.html\"\nlm_page_end:\n.previous\n");
extern "C" const char lm_page[], lm_page_end[];

namespace lm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kPause{100};    // between two looks at whether a client has gone
constexpr milliseconds kLinger{2000};  // for a client to read the end of an answer
constexpr size_t kHeadBytes = 16384;
const std::string kCompletions = "/v1/completions", kChat = "/v1/chat/completions";

enum Stage { kServing, kDraining, kGivingUp, kEnded };
std::atomic<Stage> stage = kServing;
std::atomic<int> answering = 0;  // connections
volatile std::sig_atomic_t signalled = 0;

class Connection final : public httplib::Stream {
 public:
  Connection(int socket, const HttpOptions& options) : socket_(socket), options_(options) {
    set_deadline(options.read_seconds);
  }
  // Waits for the client to close its side first: else what it still sends would take the answer from it.
  ~Connection() override {
    answering -= answers_;
    shutdown(socket_, SHUT_WR);
    deadline_ = Clock::now() + kLinger;
    char waste[16384];
    while (wait(POLLIN) && recv(socket_, waste, sizeof waste, MSG_DONTWAIT) > 0) continue;
    close(socket_);
  }

  void begin_body() {
    in_body_ = true;
    budget_ += 2 * size_t(options_.body_bytes) + 1024;  // room for what chunks add
  }
  void begin_answer() {
    answers_ = true;
    ++answering;
    late_ = Clock::now() + seconds(options_.answer_seconds);
    set_deadline(options_.answer_seconds + options_.read_seconds);
  }
  // Throws ApiError where an answer should not be gone on with.
  void check() const {
    if (is_gone()) throw ApiError(499, "the client has gone");
    if (Clock::now() > late_)
      throw ApiError(504, "the answer took more than " + std::to_string(options_.answer_seconds) + " s");
    if (stage >= kGivingUp) throw ApiError(503, "the answer was given up, as the server ends");
  }
  int refusal() const { return refusal_; }  // the status where reading was given up, or 0

  bool is_readable() const override { return wait(POLLIN); }
  bool is_writable() const override { return wait(POLLOUT); }
  ssize_t read(char* to, size_t size) override {
    if (next_ == read_.size()) {
      if (budget_ == 0) return refuse(in_body_ ? 413 : 431);
      if (!wait(POLLIN)) return refuse(408);
      read_.resize(std::min(budget_, size_t{16384}));
      const ssize_t count = recv(socket_, read_.data(), read_.size(), MSG_DONTWAIT);
      read_.resize(std::max<ssize_t>(count, 0));
      next_ = 0;
      if (count <= 0) return count;
      budget_ -= count;
    }
    size = read_.copy(to, size, next_);
    next_ += size;
    return static_cast<ssize_t>(size);
  }
  ssize_t write(const char* from, size_t size) override {
    return is_writable() ? send(socket_, from, size, MSG_DONTWAIT | MSG_NOSIGNAL) : -1;
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  int socket() const override { return 0; }  // the library refuses what select() cannot wait for; poll() can

 private:
  void set_deadline(int count) { deadline_ = Clock::now() + seconds(count); }
  bool is_gone() const {
    pollfd one{socket_, POLLRDHUP, 0};
    return poll(&one, 1, 0) > 0;
  }
  bool wait(short events) const {
    pollfd one{socket_, events, 0};
    while (stage != kEnded && Clock::now() < deadline_) {
      if (poll(&one, 1, kPause.count()) > 0) return true;
    }
    return false;
  }
  ssize_t refuse(int status) {
    refusal_ = status;
    deadline_ = Clock::now() + kLinger;  // to say so
    return -1;
  }

  const int socket_;
  const HttpOptions& options_;
  size_t budget_ = kHeadBytes;  // bytes that may still be read
  std::string read_;            // from the socket; the library has it up to next_
  size_t next_ = 0;
  Clock::time_point deadline_, late_;
  bool in_body_ = false, answers_ = false;
  int refusal_ = 0;
};

thread_local Connection* connection = nullptr;  // that the thread serves

// The answers to one call. Those that are not whole at the end are cancelled.
class Answers {
 public:
  Answers(const Api& api, bool chat, const std::string& body) : call(api, chat, body) {}
  ~Answers() {
    for (const auto& answer : answers_) answer->cancel();
  }
  void ask(Engine& engine) {
    for (const Request& request : call.requests) answers_.push_back(engine.submit(request));
    is_whole_.resize(answers_.size());
    left_ = answers_.size();
  }
  // Waits for what is new, and returns the events that tell it. Throws ApiError where the call fails.
  std::string next() {
    std::string events;
    milliseconds patience = left_ == 1 ? kPause : milliseconds{5};  // with the first; then others are looked at
    for (size_t i = 0; i < answers_.size(); ++i) {
      if (is_whole_[i]) continue;
      std::optional<Update> update = answers_[i]->next(std::exchange(patience, milliseconds{0}));
      if (!update) continue;
      is_whole_[i] = update->end != End::none;
      left_ -= is_whole_[i];
      events += call.add(i, std::move(*update));
    }
    if (left_ == 0) return events + call.last_events();
    connection->check();
    return events;
  }
  bool are_whole() const { return left_ == 0; }

  Call call;

 private:
  std::vector<std::shared_ptr<Answer>> answers_;
  std::vector<bool> is_whole_;
  size_t left_ = 0;
};

// Takes a time that does not tell how much of a key is right.
bool are_equal(const std::string& given, const std::string& key) {
  unsigned difference = given.size() != key.size();
  for (size_t i = 0; i < given.size(); ++i) difference |= given[i] ^ key[i % key.size()];
  return difference == 0;
}

void tell(httplib::Response& out, const ApiError& error) {
  out.status = error.status;
  if (error.status == 401) out.set_header("WWW-Authenticate", "Bearer");
  if (error.status == 429) out.set_header("Retry-After", "1");
  out.set_content(error.body(), "application/json");
}

// Tells a client of an exception that is being handled.
void tell_problem(httplib::Response& out) {
  try {
    throw;
  } catch (const ApiError& error) {
    tell(out, error);
  } catch (const Busy& error) {
    tell(out, ApiError(stage == kServing ? 429 : 503, error.what()));
  } catch (const std::exception& error) {
    tell(out, ApiError(500, error.what()));
  }
}

void stream(const std::shared_ptr<Answers>& answers, httplib::Response& out) {
  out.set_header("Cache-Control", "no-cache");
  out.set_content_provider("text/event-stream", [answers](size_t, httplib::DataSink& sink) {
    std::string events;
    bool ends = true;
    try {
      events = answers->next();
      ends = answers->are_whole();
    } catch (const ApiError& error) {
      events = "data: " + error.body() + "\n\ndata: [DONE]\n\n";
    }
    if (!events.empty()) sink.write(events.data(), events.size());
    if (ends) sink.done();
    return true;
  });
}

class Server final : public httplib::Server {
 public:
  Server(const HttpOptions& options, const Api& api, Engine& engine, const Metrics& metrics)
      : options_(options), api_(api), engine_(engine), metrics_(metrics) {
    new_task_queue = [count = options.connections] { return new httplib::ThreadPool(count); };
    set_tcp_nodelay(true);
    set_socket_options([](int socket) {  // the library's own let two servers have one port
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    set_pre_routing_handler([this](const auto& in, auto& out) { return route(in, out); });
    Post(kCompletions, [this](const auto&, auto& out, const auto& read) { answer(false, read, out); });
    Post(kChat, [this](const auto&, auto& out, const auto& read) { answer(true, read, out); });
    set_exception_handler([](const auto&, auto& out, std::exception_ptr) { tell_problem(out); });
    set_error_handler([](const httplib::Request&, httplib::Response& out) {
      if (!out.body.empty()) return;
      if (connection->refusal() != 0) out.status = connection->refusal();  // else the library's
      const char* const problem = out.status == 408   ? "the request took too long to arrive"
                                  : out.status == 413 ? "the body is too large"
                                  : out.status == 431 ? "the head is too large"
                                                      : "the request is no HTTP/1.1";
      tell(out, ApiError(out.status, problem));
    });
  }

  void run() {
    const bool any = options_.port == 0;
    const int port = any ? bind_to_any_port(options_.host) : bind_to_port(options_.host, options_.port) ? options_.port : -1;
    if (port < 0) {
      throw std::runtime_error("cannot listen at " + options_.host + ":" + std::to_string(options_.port) +
                               "\n  to fix: --port 0 for one that is free, and --host with an address of this machine");
    }
    ::listen(svr_sock_, options_.connections);  // the library lets 5 new connections wait
    std::signal(SIGTERM, [](int) { signalled = 1; });
    std::signal(SIGINT, [](int) { signalled = 1; });
    std::cout << "serving " << api_.name << " at http://" << options_.host << ":" << port << std::endl;
    std::atomic<bool> listening = true;
    std::thread listener([&] {
      listen_after_bind();
      listening = false;
    });
    while (!signalled && listening) std::this_thread::sleep_for(milliseconds{20});
    std::signal(SIGTERM, SIG_DFL);  // a second one ends the program at once
    std::signal(SIGINT, SIG_DFL);
    const auto wait = [](Clock::time_point end) {
      while (answering > 0 && Clock::now() < end) std::this_thread::sleep_for(milliseconds{5});
    };
    const auto end = Clock::now() + seconds(options_.drain_seconds);
    stage = kDraining;
    engine_.drain(seconds(options_.drain_seconds));
    wait(end);  // for whole answers to be sent
    stage = kGivingUp;
    wait(Clock::now() + kLinger);
    stage = kEnded;
    ::shutdown(svr_sock_.exchange(-1), SHUT_RDWR);
    listener.join();
    if (!signalled) throw std::runtime_error("the system gives no more connections");
  }

 private:
  // Answers what needs no body. Throws ApiError for what will not be answered.
  HandlerResponse route(const httplib::Request& in, httplib::Response& out) {
    const std::string& path = in.path;
    const bool is_post = path == kCompletions || path == kChat;
    const bool is_model = path == "/v1/models/" + api_.name;
    if (!is_post && !is_model && path != "/" && path != "/health" && path != "/metrics" && path != "/v1/models") {
      throw ApiError(404, "there is nothing at " + path);
    }
    if (is_post ? in.method != "POST" : in.method != "GET" && in.method != "HEAD") {
      out.set_header("Allow", is_post ? "POST" : "GET, HEAD");
      throw ApiError(405, path + " is not for " + in.method + ", but for " + (is_post ? "POST" : "GET"));
    }
    const bool is_open = options_.key.empty() || !path.starts_with("/v1/");
    if (!is_open && !are_equal(in.get_header_value("Authorization"), "Bearer " + options_.key)) {
      throw ApiError(401, "the API key is missing or wrong, expected a head with Authorization: Bearer KEY", "",
                     "invalid_api_key");
    }
    if (is_post) {
      // no type that pages of other sites can send, and nothing that is larger than it looks
      if (!in.get_header_value("Content-Type").starts_with("application/json") || in.has_header("Content-Encoding")) {
        throw ApiError(415, "the body is of another type, expected Content-Type: application/json and no Content-Encoding");
      }
      if (!in.has_header("Content-Length") && in.get_header_value("Transfer-Encoding") != "chunked") {
        throw ApiError(411, "the head does not say how long the body is, expected Content-Length");
      }
      if (in.get_header_value<uint64_t>("Content-Length") > static_cast<uint64_t>(options_.body_bytes)) {
        throw ApiError(413, "the body is too large, expected up to " + std::to_string(options_.body_bytes) + " bytes");
      }
      return HandlerResponse::Unhandled;
    }
    if (path == "/health" && stage != kServing) throw ApiError(503, "the server ends");
    if (path == "/health") out.set_content("{}", "application/json");
    if (path == "/metrics") out.set_content(metrics_.text(), "text/plain; version=0.0.4");
    if (path == "/v1/models") out.set_content(api_.models(), "application/json");
    if (is_model) out.set_content(api_.model(), "application/json");
    if (path == "/") {
      out.set_header("Content-Security-Policy",
                     "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'");
      out.set_content(lm_page, lm_page_end - lm_page, "text/html; charset=utf-8");
    }
    return HandlerResponse::Handled;
  }

  void answer(bool chat, const httplib::ContentReader& read, httplib::Response& out) {
    std::string body;
    const size_t most = options_.body_bytes;
    if (!read([&](const char* data, size_t size) { return body.append(data, size).size() <= most; })) {
      if (body.size() > most) out.status = 413;  // else the library has set it
      return;
    }
    if (stage != kServing) throw ApiError(503, "the server ends, and takes no more requests");
    connection->begin_answer();
    const auto answers = std::make_shared<Answers>(api_, chat, body);
    answers->ask(engine_);
    if (answers->call.stream) return stream(answers, out);
    while (!answers->are_whole()) answers->next();
    out.set_content(answers->call.whole(), "application/json");
  }

  bool process_and_close_socket(int socket) override {
    Connection one(socket, options_);
    connection = &one;
    bool closed = true;
    try {
      return process_request(one, true, closed, [&](httplib::Request& in) {
        in.ranges.clear();  // the library ends the program for a part of an answer that is not there
        one.begin_body();
      });
    } catch (const std::exception& error) {
      std::cerr << "a connection failed: " << error.what() << std::endl;
      return false;
    }
  }

  const HttpOptions& options_;
  const Api& api_;
  Engine& engine_;
  const Metrics& metrics_;
};

}  // namespace

void serve(const HttpOptions& options, const Tokenizer& tokenizer, const Chat& chat, Engine& engine, const Metrics& metrics) {
  const Api api{tokenizer, chat, options.name, options.room, options.max_tokens};
  Server(options, api, engine, metrics).run();
}

}  // namespace lm
