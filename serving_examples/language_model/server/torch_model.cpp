// Calls of a package: batches as tensors, the cache, and CUDA graphs.
#include "torch_model.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <future>
#include <numeric>
#include <stdexcept>

#include "choose.h"
#include "graphs.h"
#include "package.h"
#include "weights.h"

namespace lm {

namespace {

// What `body` gives; errors of torch without the trace of its calls, after what they are about.
template <typename Body>
auto without_trace(const std::string& subject, const Body& body) {
  try {
    return body();
  } catch (const c10::Error& error) {
    throw std::runtime_error(subject + ": " + error.what_without_backtrace());
  }
}

// Zeros, which take memory of a CPU only where they are written.
at::Tensor zeros(const std::vector<int64_t>& sizes, at::ScalarType dtype, at::Device device) {
  if (device.is_cuda()) return at::zeros(sizes, at::dtype(dtype).device(device));
  void* memory = std::calloc(c10::multiply_integers(sizes), c10::elementSize(dtype));
  if (memory == nullptr) throw std::runtime_error("there is no memory for the cache\n  to fix: fewer --pages");
  return at::from_blob(memory, sizes, std::free, dtype);
}

class TorchModel : public Model {
 public:
  TorchModel(Package package, const Gguf& file, int pages) : package_(std::move(package)), device_(package_.facts["device"]) {
    const std::string own = description(file), form = package_.facts["form"];
    if (const std::string& made = package_.facts["model"]; made != own)
      throw std::runtime_error("the package was made for the model " + made + ", the GGUF file has " + own +
                               "\n  to fix: save a package for it with serving_examples/language_model/export.py");
    weights_ = weights_of(file, form, device_);
    package_.take(weights_);
    const auto integer = [&](const char* name) { return file.integer("llama." + std::string(name)); };
    const int64_t positions = integer("context_length"), layers = integer("block_count");
    const int page = std::stoi(package_.facts["page"]);
    if (pages == 0) pages = static_cast<int>((2 * positions + page - 1) / page);
    const int piece = std::stoi(package_.facts["piece"]);
    sizes_ = {page, pages, static_cast<int>(positions), static_cast<int>(weights_.at("words").size(0)), piece};
    const int64_t size = integer("embedding_length") / integer("attention.head_count");
    for (int64_t i = 0; i < 2 * layers; ++i)  // one page more: of sequences that fill a graph's batch
      cache_.push_back(zeros({pages + 1, page, integer("attention.head_count_kv"), size}, dtype_of(form), device_));
  }

  Sizes sizes() const override { return sizes_; }

  std::vector<Token> step(const Batch& batch) override {
    return without_trace("the model", [&] { return compute(batch); });
  }

 private:
  std::vector<Token> compute(const Batch& batch) {
    const c10::InferenceMode guard;
    size_t width = 1, longest = 0;
    for (const auto* own : batch.pages) width = std::max(width, own->size());
    for (size_t i = 0; i < batch.lengths.size(); ++i)
      longest = std::max<size_t>(longest, batch.starts[i + 1] - batch.starts[i]);
    std::vector<int64_t> rows;
    for (const Choice& choice : batch.choices) rows.push_back(batch.starts[choice.sequence + 1] - 1);
    if (device_.is_cuda() && longest == 1 && rows.size() == batch.lengths.size()) {  // the n-th row is that of the n-th choice
      const auto run_captured = [this](const auto& given) { return run(given); };
      return choose(graphs_(padded(batch, std::bit_ceil(width)), run_captured).slice(0, 0, rows.size()), batch.choices);
    }
    if (rows.empty()) rows.push_back(0);  // packages give one row at least
    std::vector<at::Tensor> given = inputs(batch, width, longest, rows);
    for (at::Tensor& input : given) input = input.to(device_);
    return choose(run(std::move(given)), batch.choices);
  }

  // Inputs of a batch with one new token of each sequence, and of sequences of one token in a page that nobody has, up to a
  // power of two.
  std::vector<at::Tensor> padded(Batch batch, size_t width) const {
    static const std::vector<int32_t> nobody;
    for (size_t i = batch.lengths.size(); i < std::bit_ceil(batch.lengths.size()); ++i) {
      batch.tokens.push_back(0);
      batch.positions.push_back(0);
      batch.slots.push_back(int64_t{sizes_.pages} * sizes_.page);
      batch.starts.push_back(static_cast<int32_t>(batch.tokens.size()));
      batch.lengths.push_back(1);
      batch.pages.push_back(&nobody);
    }
    std::vector<int64_t> rows(batch.tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
    return inputs(batch, width, 1, rows);
  }

  // A package's inputs, on the CPU, but for the cache.
  std::vector<at::Tensor> inputs(const Batch& batch, size_t width, size_t longest, const std::vector<int64_t>& rows) const {
    const auto sequences = static_cast<int64_t>(batch.lengths.size());
    const at::Tensor table = at::full({sequences, static_cast<int64_t>(width)}, sizes_.pages, at::kInt);
    for (int64_t i = 0; i < sequences; ++i)
      std::copy(batch.pages[i]->begin(), batch.pages[i]->end(), table.mutable_data_ptr<int32_t>() + i * width);
    return {at::tensor(batch.tokens),  at::tensor(batch.positions),
            at::tensor(batch.slots),   at::tensor(batch.starts),
            at::tensor(batch.lengths), table,
            at::tensor(rows),          at::empty({static_cast<int64_t>(longest)}, at::kChar)};
  }

  at::Tensor run(std::vector<at::Tensor> given) const {
    given.insert(given.end(), cache_.begin(), cache_.end());
    return package_.run(std::move(given));
  }

  Package package_;
  at::Device device_;
  Weights weights_;
  std::vector<at::Tensor> cache_;  // each layer's keys, then each layer's values
  Sizes sizes_;
  Graphs graphs_;
};

}  // namespace

std::unique_ptr<Model> load_model(const ModelFiles& files, const Gguf& file, int pages, int threads) {
  // in a thread that ends, and with it its OpenMP threads: beside those of the engine they would be more than there are cores,
  // and then OpenMP puts threads to sleep between ops
  return std::async(std::launch::async,
                    [&]() -> std::unique_ptr<Model> {
                      const c10::InferenceMode guard;
                      at::set_num_threads(threads);
                      load_ops(files.library);
                      return without_trace(files.package, [&] {
                        Package package = load_package(files.package);
                        if (package.facts["piece"].empty())
                          throw std::runtime_error(files.package + " was not saved by this export.py\n  to fix: save it again");
                        return std::make_unique<TorchModel>(std::move(package), file, pages);
                      });
                    })
      .get();
}

}  // namespace lm
