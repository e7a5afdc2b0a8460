// Explains an origin made by hand.
#include <firstfault/firstfault.h>

#include <iostream>

int main() {
  firstfault::Origin origin;
  origin.op = origin.evidence.op = origin.evidence.inner_op = "aten::log";
  origin.outcome = firstfault::Outcome::fault;
  origin.sink = "loss";
  origin.evidence.output.neg_inf = 1;
  origin.evidence.first = firstfault::kNegInf;
  origin.evidence.index = {0};
  origin.evidence.shape = {2};
  firstfault::Operand self;
  self.name = "self";
  self.dtype = "float32";
  self.shape = {2};
  self.state = firstfault::OperandState::finite;
  self.value = 0.0;
  self.index = {0};
  origin.evidence.operands.push_back(self);

  firstfault::reason::explain(origin);
  std::cout << firstfault::present::to_text(origin) << '\n';
  return origin.mechanism == "log_of_nonpositive" ? 0 : 1;
}
