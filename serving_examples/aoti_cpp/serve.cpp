// Serves an AOTInductor package that calls torch.ops.kernelpack, without Python. Built by one line; T is the folder of torch:
//   g++ -std=c++20 -O1 serve.cpp -o serve -I.. -I$T/include -I$T/include/torch/csrc/api/include -L$T/lib -Wl,-rpath,$T/lib
//       -Wl,--no-as-needed -ltorch -ltorch_cpu -lc10 -ldl
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <memory>

#include "serving.h"

int main(int argc, char** argv) {
  return serving::run(argc, argv, [](const char* path) -> serving::Model {
    auto package = std::make_shared<torch::inductor::AOTIModelPackageLoader>(path);
    return [package](const at::Tensor& tokens) { return package->run({tokens}).at(0); };
  });
}
