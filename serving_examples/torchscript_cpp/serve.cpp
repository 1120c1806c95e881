// Serves a TorchScript model that calls torch.ops.kernelpack, without Python. Built by one line; T is the folder of torch:
//   g++ -std=c++20 -O1 serve.cpp -o serve -I.. -I$T/include -I$T/include/torch/csrc/api/include -L$T/lib -Wl,-rpath,$T/lib
//       -Wl,--no-as-needed -ltorch -ltorch_cpu -lc10 -ldl
#include <torch/csrc/jit/serialization/import.h>

#include <memory>

#include "serving.h"

int main(int argc, char** argv) {
  return serving::run(argc, argv, [](const char* path) -> serving::Model {
    auto module = std::make_shared<torch::jit::Module>(torch::jit::load(path));
    return [module](const at::Tensor& tokens) { return module->forward({tokens}).toTensor(); };
  });
}
