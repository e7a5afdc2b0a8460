// The gradient of a matrix decomposition divides by differences of its (squared) singular or eigen values, or by the
// values themselves: equal or zero values give 1/0 (torch/csrc/autograd/FunctionsManual.cpp, svd_backward;
// Townsend, "Differentiating the SVD", 2016).
#include "firstfault/reason/mechanisms/division.h"
#include "firstfault/reason/mechanisms/mechanism.h"
#include "firstfault/reason/mechanisms/reading.h"

namespace firstfault::reason {
namespace {

struct Decomposition {
  std::string_view word;  ///< part of the node's or the forward op's name, lower case
  std::string_view divides_by;
};

constexpr Decomposition kDecompositions[] = {
    {"svd", "differences of squared singular values, and by the values: two are equal, or one is 0"},
    {"eig", "differences of eigenvalues: two are equal"},
    {"qr", "the diagonal of R: the matrix has not full rank"},
    {"cholesky", "the diagonal of the factor: the matrix is singular"},
    {"inv", "the matrix: it is singular"},
    {"lu", "the diagonal of U: the matrix is singular"},
    {"solve", "the matrix: it is singular"},
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

const Decomposition* decomposition_of(const OriginEvidence& evidence) {
  const std::string node = lower(evidence.op);
  const std::string forward = lower(base_name(evidence.forward_op));
  for (const Decomposition& entry : kDecompositions) {
    const std::string linalg = "linalg" + std::string(entry.word);
    if (node.starts_with(linalg) || node.starts_with(entry.word)) return &entry;
    if (forward.find("linalg_" + std::string(entry.word)) != std::string::npos) return &entry;
  }
  return nullptr;
}

/// The logarithm of |determinant| = 0.
std::optional<Verdict> singular(const OriginEvidence& evidence) {
  const Operand* matrix = find(evidence, "A");
  if (judged(evidence) != "_linalg_slogdet" || evidence.first != kNegInf || !known_finite(matrix)) return std::nullopt;
  return Verdict{"op_domain",
                 "the determinant is 0 and its logarithm -Inf: the matrix, " + called(*matrix) + ", is singular",
                 "add a small jitter to the matrix, or leave singular ones out."};
}

std::optional<Verdict> judge(const OriginEvidence& evidence) {
  if (!evidence.in_backward) return singular(evidence);
  const Decomposition* decomposition = decomposition_of(evidence);
  if (decomposition == nullptr) return std::nullopt;
  const auto division = zero_division(evidence);
  if (!division) return std::nullopt;
  return Verdict{"op_domain",
                 evidence.op + " divides by 0: " + denominator_text(*division) + "; this gradient divides by " +
                     std::string(decomposition->divides_by),
                 "add a small jitter to the matrix, skip degenerate inputs, or use a formulation that needs no "
                 "gradient of the decomposition."};
}

}  // namespace

namespace list {
extern const Mechanism degenerate_decomposition;
const Mechanism degenerate_decomposition{
    .name = "degenerate_decomposition",
    .condition = "backward of svd, eigh, qr, cholesky or inverse that divides by 0: equal or zero singular values",
    .cause = "op_domain",
    .reading =
        "The gradient divides by differences of singular values or eigenvalues, by the values, or by a diagonal.",
    .remedy = "Jitter, skip degenerate inputs, or another formulation.",
    .judge = judge};
}  // namespace list

}  // namespace firstfault::reason
