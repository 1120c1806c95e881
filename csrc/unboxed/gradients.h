// What ops do for autograd until somebody gives them a gradient: a call that asks for one is refused, by name, and tensors
// that an op writes to get a new version.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace kernelpack {

// Calls `visit` with a value if it is a tensor.
template <class Visit>
void visit_tensor(const Visit& visit, const at::Tensor& value) {
  if (value.defined()) visit(value);
}
template <class Visit>
void visit_tensor(const Visit& visit, const std::optional<at::Tensor>& value) {
  if (value.has_value() && value->defined()) visit(*value);
}
template <class Visit, class... Each>
void visit_tensor(const Visit& visit, const std::tuple<Each...>& values) {
  std::apply([&](const Each&... each) { (visit_tensor(visit, each), ...); }, values);
}
template <class Visit, class Value>
void visit_tensor(const Visit& /*visit*/, const Value& /*value*/) {}

// Calls `visit` with the tensors among arguments whose bits are set in `chosen`, the first argument's being the lowest.
template <uint64_t chosen, class Visit, class... Arguments>
void visit_tensors(const Visit& visit, const Arguments&... arguments) {
  uint64_t bit = 1;
  ((chosen & bit ? visit_tensor(visit, arguments) : void(), bit <<= 1), ...);
}

template <class Signature>
c10::TypedOperatorHandle<Signature> find_op(const std::string& name, const std::string& overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str()).typed<Signature>();
}

// Torch's own node that raises when a gradient reaches it. Nodes are shared_ptr or, from torch 2.13 on, intrusive_ptr.
template <class Node = decltype(torch::autograd::Edge::function)>
Node error_node(std::string message, torch::autograd::edge_list edges) {
  if constexpr (std::is_same_v<Node, std::shared_ptr<torch::autograd::Node>>) {
    return std::make_shared<torch::autograd::Error>(std::move(message), std::move(edges));
  } else {
    return c10::make_intrusive<torch::autograd::Error>(std::move(message), std::move(edges));
  }
}

// An op's function under autograd's key: it calls the op, whose results raise where a gradient is computed. `written` has the
// bits of the arguments that the op writes to.
template <class Signature, uint64_t written>
class WithoutGradient;
template <class Result, class... Arguments, uint64_t written>
class WithoutGradient<Result(Arguments...), written> {
 public:
  WithoutGradient(const std::string& name, const std::string& overload)
      : name_(name), is_out_(overload == "out"), op_(find_op<Result(Arguments...)>(name, overload)) {}

  Result operator()(c10::DispatchKeySet keys, Arguments... arguments) const {
    bool forward = false, backward = false;
    const auto look = [&](const at::Tensor& x) {
      if (x.unsafeGetTensorImpl()->autograd_meta() == nullptr) return;
      forward = forward || x._fw_grad(/*level=*/0).defined();
      backward = backward || x.requires_grad();
    };
    visit_tensors<~uint64_t{0}>(look, arguments...);
    keys = keys & c10::after_autograd_keyset;
    if (!forward && !(backward && at::GradMode::is_enabled())) [[likely]]
      return op_.redispatch(keys, std::forward<Arguments>(arguments)...);
    TORCH_CHECK_NOT_IMPLEMENTED(!forward, name_,
                                " has no forward-mode gradient\n  to fix: call it with tensors that have no tangent");
    if (is_out_) torch::autograd::throw_error_out_requires_grad(name_.c_str());
    return call_and_refuse(keys, std::forward<Arguments>(arguments)...);
  }

 private:
  // Out of the way of calls that ask for nothing.
  [[gnu::noinline]] Result call_and_refuse(c10::DispatchKeySet keys, Arguments... arguments) const {
    torch::autograd::edge_list edges;
    visit_tensors<~uint64_t{0}>([&](const at::Tensor& x) { edges.push_back(torch::autograd::impl::gradient_edge(x)); },
                                arguments...);
    visit_tensors<written>([](const at::Tensor& x) { torch::autograd::check_inplace(x, true); }, arguments...);
    const auto node = error_node(name_ +
                                     " has no gradient\n  to fix: call it under torch.no_grad(), or give it one: "
                                     "torch.library.register_autograd(\"" +
                                     name_ + "\", backward, setup_context=...)",
                                 std::move(edges));
    const auto rebase = [&](const at::Tensor& x) {
      if (torch::autograd::isDifferentiableType(x.scalar_type())) torch::autograd::rebase_history(x, node);
    };
    const auto refuse = [&](const at::Tensor& x) {
      if (torch::autograd::isDifferentiableType(x.scalar_type())) torch::autograd::set_history(x, node);
    };
    if constexpr (std::is_void_v<Result>) {
      op_.redispatch(keys, arguments...);
      visit_tensors<written>(rebase, arguments...);
    } else {
      Result result = op_.redispatch(keys, arguments...);
      visit_tensors<written>(rebase, arguments...);
      visit_tensor(refuse, result);
      return result;
    }
  }

  std::string name_;
  bool is_out_;
  c10::TypedOperatorHandle<Result(Arguments...)> op_;
};

// An op's function under the key for tensors that are written to: they get a new version, by which autograd sees that what it
// saved was overwritten.
template <class Signature, uint64_t written>
class WithNewVersions;
template <class Result, class... Arguments, uint64_t written>
class WithNewVersions<Result(Arguments...), written> {
 public:
  WithNewVersions(const std::string& name, const std::string& overload) : op_(find_op<Result(Arguments...)>(name, overload)) {}

  Result operator()(c10::DispatchKeySet keys, Arguments... arguments) const {
    visit_tensors<written>([](const at::Tensor& x) { x.unsafeGetTensorImpl()->bump_version(); }, arguments...);
    return op_.redispatch(keys & c10::after_ADInplaceOrView_keyset, std::forward<Arguments>(arguments)...);
  }

 private:
  c10::TypedOperatorHandle<Result(Arguments...)> op_;
};

}  // namespace kernelpack
