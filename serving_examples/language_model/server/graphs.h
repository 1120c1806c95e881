// CUDA graphs of calls with one new token of each sequence. Built with -DLM_CUDA and the CUDA toolkit; without it nothing is
// captured, and calls are launched op by op.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <vector>
#ifdef LM_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace lm {

class Graphs {
 public:
  using Run = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

  // What `run` gives for inputs on the CPU, which it takes on the GPU. For the same sizes of inputs it is captured once, then
  // replayed on inputs that are copied into its own; the result is that of the last call.
  at::Tensor operator()(const std::vector<at::Tensor>& inputs, const Run& run) {
#ifdef LM_CUDA
    std::vector<int64_t> sizes;
    for (const at::Tensor& input : inputs) sizes.push_back(input.numel());
    std::unique_ptr<Graph>& graph = graphs_[sizes];
    const bool is_new = graph == nullptr;
    if (is_new) graph = std::make_unique<Graph>(inputs);
    graph->set(inputs);
    if (is_new) graph->capture(run, pool_);
    graph->graph.replay();
    return graph->result;
#else
    std::vector<at::Tensor> moved;
    for (const at::Tensor& input : inputs) moved.push_back(input.to(at::kCUDA));
    return run(moved);
#endif
  }

#ifdef LM_CUDA
 private:
  struct Graph {
    // Its inputs lie one after the other, so that one copy sets them.
    explicit Graph(const std::vector<at::Tensor>& like) {
      int64_t bytes = 0;
      for (const at::Tensor& one : like) bytes += padded(one);
      host = at::empty({bytes}, at::device(at::kCPU).dtype(at::kByte).pinned_memory(true));
      device = at::empty({bytes}, at::device(at::kCUDA).dtype(at::kByte));
      int64_t place = 0;
      for (const at::Tensor& one : like) {
        const int64_t size = one.nbytes();
        const auto part = [&](const at::Tensor& all) {
          return all.slice(0, place, place + size).view(one.scalar_type()).view(one.sizes());
        };
        sources.push_back(part(host));
        inputs.push_back(part(device));
        place += padded(one);
      }
    }
    static int64_t padded(const at::Tensor& one) { return (static_cast<int64_t>(one.nbytes()) + 255) / 256 * 256; }
    void set(const std::vector<at::Tensor>& values) {
      for (size_t i = 0; i < values.size(); ++i) sources[i].copy_(values[i]);
      device.copy_(host, /*non_blocking=*/true);
    }
    void capture(const Run& run, at::cuda::MempoolId_t pool) {
      run(inputs);  // loads kernels, which no capture may do
      at::cuda::device_synchronize();
      const c10::cuda::CUDAStreamGuard guard(at::cuda::getStreamFromPool());  // the default stream cannot be captured
      graph.capture_begin(pool);
      result = run(inputs);
      graph.capture_end();
    }

    at::Tensor host, device;
    std::vector<at::Tensor> sources, inputs;
    at::Tensor result;
    at::cuda::CUDAGraph graph;
  };
  at::cuda::MempoolId_t pool_ = at::cuda::graph_pool_handle();
  std::map<std::vector<int64_t>, std::unique_ptr<Graph>> graphs_;
#endif
};

}  // namespace lm
