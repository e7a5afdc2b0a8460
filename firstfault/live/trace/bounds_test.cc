// What is said of the size of an op's results, against what they are.
#include "firstfault/live/trace/bounds.h"

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "firstfault/live/intercept/native_places.h"
#include "firstfault/live/intercept/observer.h"
#include "firstfault/live/trace/tracer.h"

namespace firstfault::trace {
namespace {

Bounds true_bounds(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_floating_point() || tensor.numel() == 0) return {};
  const auto wide = tensor.detach().to(at::kDouble);
  if (!wide.isfinite().all().item<bool>()) return {};
  return {static_cast<float>(wide.abs().max().item<double>()), static_cast<float>(wide.min().item<double>())};
}

/// Lets a tracer read the arguments, then compares each result with what the true sizes of these say of it.
class Checker final : public intercept::Listener {
 public:
  Checker() : tracer_({}, intercept::make_native_places(false)) {}

  void on_op_start(intercept::Frame& frame, const at::RecordFunction& record) override {
    tracer_.on_op_start(frame, record);
    if (!frame.is_compute() || frame.hidden || frame.traits->bound == intercept::BoundRule::none) return;
    const at::DisableRecordFunctionGuard unobserved;
    auto& operands = operands_[frame.number];
    for (const auto& input : frame.inputs) operands.push_back(true_bounds(input.tensor));
  }
  void on_op_end(intercept::Frame& frame, const at::RecordFunction& record) override {
    if (const auto found = operands_.find(frame.number); found != operands_.end()) {
      const at::DisableRecordFunctionGuard unobserved;
      compare(frame, record, found->second);
      operands_.erase(found);
    }
    tracer_.on_op_end(frame, record);
  }
  void on_node_start(intercept::Frame& frame) override { tracer_.on_node_start(frame); }
  void on_node_end(intercept::Frame& frame) override { tracer_.on_node_end(frame); }
  void on_other_end(intercept::Frame& frame, const at::RecordFunction& record) override {
    tracer_.on_other_end(frame, record);
  }
  void on_optimizer(bool begins) override { tracer_.on_optimizer(begins); }

  std::map<std::string, int> known;  ///< results whose size was known, by op

 private:
  void compare(const intercept::Frame& frame, const at::RecordFunction& record, const std::vector<Bounds>& operands) {
    std::vector<at::Tensor> results;
    for (const auto& value : intercept::results_of(*frame.traits, record)) {
      results.push_back(value.isTensor() ? value.toTensor() : at::Tensor());
    }
    if (results.empty() || !results[0].defined()) return;
    for (const auto& input : frame.inputs) {
      if (input.floating && input.tensor.numel() > 1 && input.tensor.scalar_type() != at::kFloat) return;
    }
    std::vector<const at::Tensor*> pointers;
    for (const at::Tensor& result : results) pointers.push_back(&result);
    const ResultBounds said = bounds_of(frame, operands, pointers);
    for (std::size_t i = 0; i < std::min(said.size(), results.size()); ++i) {
      if (!said[i].known() || !results[i].defined() || results[i].numel() == 0) continue;
      const Bounds is = true_bounds(results[i]);
      ++known[frame.traits->name];
      EXPECT_TRUE(is.known()) << frame.traits->name << " is not finite, and was said to be at most " << said[i].most;
      EXPECT_LE(is.most, said[i].most * 1.00001F) << frame.traits->name << ", result " << i;
      EXPECT_GE(is.least + 1e-6F * std::abs(is.least), said[i].least) << frame.traits->name << ", result " << i;
    }
  }

  Tracer tracer_;
  std::map<std::uint64_t, std::vector<Bounds>> operands_;
};

class Observed {
 public:
  explicit Observed(Checker& checker) { intercept::start_observing(checker); }
  ~Observed() { intercept::stop_observing(); }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;
};

/// Of any size between 1e-6 and 1e6, with zeros among it.
at::Tensor numbers(at::IntArrayRef sizes, bool positive = false) {
  const double size = std::pow(10, 12 * torch::rand({}).item<double>() - 6);
  auto made = torch::randn(sizes) * size * (torch::rand(sizes) > 0.1);
  return positive ? made.abs() : made;
}

void call_everything(int seed) {
  torch::manual_seed(seed);
  namespace F = torch::nn::functional;
  const auto a = numbers({6, 8}), b = numbers({6, 8}), c = numbers({8, 5}), v = numbers({8}), p = numbers({6, 8}, true);
  const auto mask = torch::rand({6, 8}) > 0.5, rows = torch::randint(6, {4});
  a + b, a - b, a.add(b, -3.5), a.sub(b, 1e3), a + 2, a - 1e3, a *b, a * 3, a * -3, a / 7, p / (p + 1e-3),
      a / (p + 1e-8);
  at::div(a, p + 0.5, "floor"), a.square(), a.pow(2), a *a, p.sqrt(), (p + 1).sqrt();
  torch::addcmul(a, a, a, 0.3), torch::addcmul(a, b, p, -2), torch::addcdiv(a, b, p + 1e-8, -0.01), a.lerp(b, 0.1);
  a.lerp(b, 1.5), a.abs(), a.neg(), a.relu(), a.tanh(), a.sigmoid(), torch::gelu(a), torch::gelu(a, "tanh"),
      torch::silu(a);
  torch::softmax(a, 1), torch::softmax(a, 0), torch::log_softmax(a, -1), a.clamp(-2, 3), a.clamp_min(1), F::hardtanh(a);
  a.masked_fill(mask, -1e9), torch::where(mask, a, b), torch::cat({a, b}), torch::stack({a, b}),
      a.index_select(0, rows);
  a.index({rows}), a.gather(0, torch::randint(6, {3, 8})), a.tril(), (p + 1).triu(), a.flip(0), a.roll(1),
      a.repeat({2, 1});
  torch::constant_pad_nd(p + 1, {1, 2}, -0.5), torch::maximum(a, b), torch::minimum(a, b), a.clone(), a.amax(1),
      a.mean(0);
  a.mm(c), a.mv(v), torch::addmm(numbers({5}), a, c, 0.5, 2), torch::bmm(numbers({3, 4, 6}), numbers({3, 6, 2}));
  torch::baddbmm(numbers({3, 4, 2}), numbers({3, 4, 6}), numbers({3, 6, 2}), 2, 0.1), a.sum(), a.sum(0), a.sum(1),
      a.mean();
  torch::layer_norm(a, {8}, v, numbers({8})), torch::layer_norm(a + 1e5, {8}),
      torch::embedding(c, torch::randint(8, {9}));
  torch::conv2d(numbers({2, 3, 6, 6}), numbers({4, 3, 3, 3}), numbers({4})),
      torch::max_pool2d(numbers({2, 3, 6, 6}), 2);
  torch::scaled_dot_product_attention(numbers({2, 2, 5, 8}), numbers({2, 2, 5, 8}), numbers({2, 2, 5, 8}));
  torch::dropout(a, 0.3, true);
  auto x = a.clone();
  x.add_(b, -2).mul_(0.5).addcmul_(b, b, 0.1).div_(3).copy_(b).lerp_(a, 0.2).neg_().relu_().add_(1e-8).sqrt_();
}

TEST(Bounds, HoldForOpsOfOperandsOfAnySize) {
  Checker checker;
  const Observed observed(checker);
  for (int seed = 0; seed < 40; ++seed) call_everything(seed);
  for (const char* op : {"add",
                         "sub",
                         "mul",
                         "div",
                         "pow",
                         "sqrt",
                         "addcmul",
                         "addcdiv",
                         "lerp",
                         "abs",
                         "neg",
                         "relu",
                         "tanh",
                         "sigmoid",
                         "gelu",
                         "silu",
                         "_softmax",
                         "_log_softmax",
                         "clamp",
                         "masked_fill",
                         "where",
                         "cat",
                         "stack",
                         "index",
                         "gather",
                         "tril",
                         "triu",
                         "flip",
                         "roll",
                         "constant_pad_nd",
                         "mm",
                         "mv",
                         "addmm",
                         "bmm",
                         "baddbmm",
                         "sum",
                         "mean",
                         "native_layer_norm",
                         "mkldnn_convolution",
                         "_scaled_dot_product_flash_attention_for_cpu",
                         "bernoulli_"}) {
    EXPECT_GT(checker.known["aten::" + std::string(op)], 0) << op;
  }
}

struct BlockImpl : torch::nn::Module {
  torch::nn::Embedding words{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear in{nullptr}, out{nullptr}, gate{nullptr}, head{nullptr};
  torch::nn::Conv1d mix{nullptr};

  BlockImpl() {
    words = register_module("words", torch::nn::Embedding(20, 16));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})));
    in = register_module("in", torch::nn::Linear(16, 48));
    out = register_module("out", torch::nn::Linear(16, 16));
    gate = register_module("gate", torch::nn::Linear(16, 16));
    head = register_module("head", torch::nn::Linear(16, 20));
    mix = register_module("mix", torch::nn::Conv1d(torch::nn::Conv1dOptions(16, 16, 3).padding(1)));
  }
  at::Tensor forward(const at::Tensor& tokens) {
    auto x = words(tokens);
    const auto parts = in(norm(x)).chunk(3, -1);
    const auto scores = torch::softmax(parts[0].bmm(parts[1].transpose(1, 2)) / 4, -1);
    x = x + torch::gelu(out(scores.bmm(parts[2])));
    const auto heads = x.unsqueeze(1);
    x = x + torch::scaled_dot_product_attention(heads, heads * 0.5, heads + 1).squeeze(1);
    x = x + torch::sigmoid(gate(x)) * torch::tanh(x) + torch::silu(x);
    x = x + torch::relu(mix(x.transpose(1, 2))).transpose(1, 2);
    x = torch::cat({x.slice(1, 0, 3), x.slice(1, 3)}, 1);
    return head(norm(torch::dropout(x, 0.1, true)));
  }
};
TORCH_MODULE(Block);

TEST(Bounds, HoldInTrainingOfATransformerWithEveryOptimizer) {
  Checker checker;
  for (int which = 0; which < 5; ++which) {
    torch::manual_seed(which);
    Block model;
    const auto parameters = model->parameters();
    std::unique_ptr<torch::optim::Optimizer> optimizer;
    if (which == 0)
      optimizer = std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
    if (which == 1) optimizer = std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(1e-2));
    if (which == 2) optimizer = std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(1e-2));
    if (which == 3) optimizer = std::make_unique<torch::optim::RMSprop>(parameters, torch::optim::RMSpropOptions(1e-3));
    if (which == 4) optimizer = std::make_unique<torch::optim::Adagrad>(parameters, torch::optim::AdagradOptions(1e-2));
    const Observed observed(checker);
    for (int step = 0; step < 6; ++step) {
      const auto tokens = torch::randint(20, {4, 7});
      optimizer->zero_grad();
      torch::nn::functional::cross_entropy(model->forward(tokens).flatten(0, 1), tokens.flatten()).backward();
      optimizer->step();
    }
  }
  for (const char* op :
       {"gelu_backward", "tanh_backward", "sigmoid_backward", "threshold_backward", "_softmax_backward_data",
        "_log_softmax_backward_data", "native_layer_norm_backward", "embedding_dense_backward", "convolution_backward",
        "addcdiv_", "addcmul_", "sqrt", "slice_backward"}) {
    EXPECT_GT(checker.known["aten::" + std::string(op)], 0) << op;
  }
}

}  // namespace
}  // namespace firstfault::trace
