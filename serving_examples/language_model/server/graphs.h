// CUDA graphs of calls with one new token of each sequence. Built with -DLM_CUDA and the CUDA toolkit; without it nothing is
// captured, and calls are launched op by op.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <memory>
#include <vector>
#ifdef LM_CUDA
#include <ATen/cuda/CUDAGraph.h>
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
    const auto stream = at::cuda::getStreamFromPool();  // none is captured on the default stream
    if (graph == nullptr) {
      graph = std::make_unique<Graph>();
      for (const at::Tensor& input : inputs) graph->inputs.push_back(input.to(at::kCUDA));
      run(graph->inputs);  // loads kernels, which no capture may do
      at::cuda::device_synchronize();
      const c10::cuda::CUDAStreamGuard guard(stream);
      graph->graph.capture_begin(pool_);
      graph->result = run(graph->inputs);
      graph->graph.capture_end();
    } else {
      for (size_t i = 0; i < inputs.size(); ++i) graph->inputs[i].copy_(inputs[i]);
    }
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
    std::vector<at::Tensor> inputs;
    at::Tensor result;
    at::cuda::CUDAGraph graph;
  };
  at::cuda::MempoolId_t pool_ = at::cuda::graph_pool_handle();
  std::map<std::vector<int64_t>, std::unique_ptr<Graph>> graphs_;
#endif
};

}  // namespace lm
