// The public list of ops. Shapes: B batch, T time, C width, H heads, D head width, V vocabulary,
// F hidden width of the MLP, [*] any leading dimensions. f32 and f64, any strides unless said.
// Every op throws Error(shape | dtype | index), naming itself, before it allocates anything.
// The derivative of each stands above its backward in the op's own file.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/random.h"
#include "runtime/tensor.h"

namespace duet {

// --- Pointwise (ops/pointwise/)
// -------------------------------------------------------------------
Tensor add(const Tensor& a, const Tensor& b);  // [*], [*] -> [*], broadcasting
Tensor sub(const Tensor& a, const Tensor& b);  // [*], [*] -> [*], broadcasting
Tensor mul(const Tensor& a, const Tensor& b);  // [*], [*] -> [*], broadcasting
Tensor scale(const Tensor& x, double factor);  // [*] -> [*]
Tensor silu(const Tensor& x);                  // [*] -> [*]   x * sigmoid(x)
Tensor gelu(const Tensor& x);                  // [*] -> [*]   x * Phi(x), by erf
Tensor gelu_tanh(const Tensor& x);             // [*] -> [*]   GPT-2's tanh approximation
Tensor softplus(const Tensor& x);              // [*] -> [*]   log(1 + exp(x))
Tensor exp(const Tensor& x);                   // [*] -> [*]   e^x
Tensor sigmoid(const Tensor& x);               // [*] -> [*]   1 / (1 + exp(-x))
Tensor swiglu(const Tensor& gate_up);          // [*, 2F] -> [*, F]   silu(gate) * up, gate first
// Zeroes each element with probability p in [0, 1] and divides the others by 1 - p. The mask is a
// function of (key, element index) alone; backward draws it again instead of saving it.
Tensor dropout(const Tensor& x, double p, const RandomKey& key);  // [*] -> [*]

// --- Rows
// -----------------------------------------------------------------------------------------
Tensor softmax(const Tensor& x, int dim = -1);  // [*, C] -> [*, C]; only the last dim
// (x - mean) / sqrt(var + eps) * weight + bias; biased variance. `bias` may be undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  double eps = 1e-5);  // [*, C], [C], [C] -> [*, C]
// x / sqrt(mean(x^2) + eps) * weight
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-5);  // [*, C], [C] -> [*, C]
// The residual sum and its norm in one pass: {x + delta, norm(x + delta)}; the bits of add, then
// norm. Saves the sum.
std::array<Tensor, 2> add_layer_norm(const Tensor& x, const Tensor& delta, const Tensor& weight,
                                     const Tensor& bias, double eps = 1e-5);
std::array<Tensor, 2> add_rms_norm(const Tensor& x, const Tensor& delta, const Tensor& weight,
                                   double eps = 1e-5);
// [*, C], [*, C], [C] (, [C]) -> [*, C], [*, C]

// --- Reductions
// -----------------------------------------------------------------------------------
Tensor sum(const Tensor& x);  // [*] -> []   0 for an empty tensor
Tensor sum(const Tensor& x, const std::vector<int>& dims, bool keepdim = false);
Tensor mean(const Tensor& x);  // [*] -> []   throws Error(shape) when empty

// --- Matrix
// --------------------------------------------------------------------------------------- a @ b;
// leading dimensions broadcast; transposed views cost no copy. Inner size 0 gives zeros.
Tensor matmul(const Tensor& a, const Tensor& b);  // [*, M, K], [*, K, N] -> [*, M, N]
Tensor linear(const Tensor& x, const Tensor& weight,
              const Tensor& bias = {});  // [*, In], [Out, In], [Out] -> [*, Out]
// gelu_tanh(linear(x, weight, bias)), one launch forward on a GPU; on the cpu the bits of the two.
Tensor linear_gelu_tanh(const Tensor& x, const Tensor& weight,
                        const Tensor& bias = {});  // [*, In], [Out, In], [Out] -> [*, Out]

// --- Tokens and positions
// ------------------------------------------------------------------------- Rows of `weight`. ids:
// i32 or i64; throws Error(index) naming position and id (cpu).
Tensor embedding(const Tensor& weight, const Tensor& ids);  // [V, C], [*] -> [*, C]
// cos and sin of position * theta^(-2i/D), i < D/2, side by side: [length, 2, D/2].
Tensor rope_table(std::int64_t length, std::int64_t head_dim, double theta, DType dtype,
                  Device device);
// Rotates the pairs (i, i + D/2) (half-split, as in Hugging Face's LLaMA) of token t by the angles
// of row `position + t` of the table.
Tensor rope(const Tensor& x, const Tensor& table,
            std::int64_t position = 0);  // [B, T, H, D] -> same

// --- Attention
// ------------------------------------------------------------------------------------
struct AttentionOptions {
  bool causal = true;  // aligned bottom-right: query i sees keys j <= i + Tk - Tq
  double scale = 0;    // 0: 1/sqrt(D)
  // First visible key of each query, i32 [B, Tq]; undefined: 0. (Packing, padding.)
  Tensor first_visible;
};
// softmax(scale * q k^T, masked) v, per head; query head h uses key/value head h / (Hq / Hkv).
// Never materialises [Tq, Tk]; skips the masked half; saves q, k, v, out and one number per row.
// A row that sees no key gives zeros and zero gradients. Strided views welcome (last stride 1).
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options = {});
// [B, Tq, Hq, D], [B, Tk, Hkv, D], [B, Tk, Hkv, Dv] -> [B, Tq, Hq, Dv]

// The mix of two attention maps (arXiv 2410.05258): a1 - lambda a2, with one lambda, or one per
// token and head. Saves a2 (which attention keeps anyway) and lambda.
Tensor diff_combine(const Tensor& a1, const Tensor& a2, const Tensor& lambda);
// [B, T, H, D], same, [] or [B, T, H] -> [B, T, H, D]

// --- Coupling (arXiv 2604.01683): formulas and cost in models/COUPLINGS.md
// ----------------------------------------------------------------------------
struct CouplingOptions {
  int steps = 1;  // n >= 1
  // Save the outputs instead of q and k; backward inverts the map, which restores them to rounding.
  // For leapfrog, symplectic_euler and affine.
  bool run_back = false;
  // A rope_table: q and k come back rotated as by rope(.., rotation, position), without a pass of
  // its own on a GPU. Undefined: they are not rotated. Takes no gradient.
  Tensor rotation = {};
  std::int64_t position = 0;
};
// n steps on the pair (q, k) of every head and token; f(x) = w2 silu(w1 x); G = Hkv nets, or 1
// shared by all heads, which may share dt [1] then. With Hq > Hkv, f sees the mean of the group's
// queries, and every query of the group moves by what the mean moves. Saved bytes do not grow with
// n: backward runs the steps again.
//   euler             q' = q + dt k ; k' = k + dt f(q), both from the old pair
//   leapfrog          k+ = k + dt/2 f(q) ; q' = q + dt k+ ; k' = k+ + dt/2 f(q')
//   symplectic_euler  k' = k + dt f(q) ; q' = q + dt k'
//   uncoupled         q' = q + dt f(q) ; the k that comes back is the one given
//   uncoupled_k       k' = k + dt f(k) ; the q that comes back is the one given
std::array<Tensor, 2> coupling_euler(const Tensor& q, const Tensor& k, const Tensor& w1,
                                     const Tensor& w2, const Tensor& dt,
                                     const CouplingOptions& options = {});
std::array<Tensor, 2> coupling_leapfrog(const Tensor& q, const Tensor& k, const Tensor& w1,
                                        const Tensor& w2, const Tensor& dt,
                                        const CouplingOptions& options = {});
std::array<Tensor, 2> coupling_symplectic_euler(const Tensor& q, const Tensor& k, const Tensor& w1,
                                                const Tensor& w2, const Tensor& dt,
                                                const CouplingOptions& options = {});
std::array<Tensor, 2> coupling_uncoupled(const Tensor& q, const Tensor& k, const Tensor& w1,
                                         const Tensor& w2, const Tensor& dt,
                                         const CouplingOptions& options = {});
std::array<Tensor, 2> coupling_uncoupled_k(const Tensor& q, const Tensor& k, const Tensor& w1,
                                           const Tensor& w2, const Tensor& dt,
                                           const CouplingOptions& options = {});
// [B, T, Hq, D], [B, T, Hkv, D], [G, h, D], [G, D, h], [Hkv] -> the shapes of q and k

//   k' = k exp(s1) + t1, (s1, t1) from q ; q' = q exp(s2) + t2, (s2, t2) from k'
// s = tanh of the upper half of w2 silu(w1 x), t = the lower half; [:, 0] is the net that moves k,
// [:, 1] the one that moves q. The same nets in every step. w2 = 0: the identity. Every query of a
// group takes the map of the mean, so the mean takes it too.
std::array<Tensor, 2> coupling_affine(const Tensor& q, const Tensor& k, const Tensor& w1,
                                      const Tensor& w2, const CouplingOptions& options = {});
// [B, T, Hq, D], [B, T, Hkv, D], [G, 2, h, D], [G, 2, 2 D, h] -> the shapes of q and k

// leapfrog with f(x) = -dU/dx of a learned potential U(x) = w2 silu(w1 x): symplectic. Composed of
// the ops above by grad(..., {.create_graph = true}): saved bytes grow with n; no run_back.
std::array<Tensor, 2> coupling_hamiltonian_potential(const Tensor& q, const Tensor& k,
                                                     const Tensor& w1, const Tensor& w2,
                                                     const Tensor& dt,
                                                     const CouplingOptions& options = {});
// [B, T, Hq, D], [B, T, Hkv, D], [G, h, D], [G, 1, h], [Hkv] -> the shapes of q and k

// --- Losses
// ---------------------------------------------------------------------------------------
struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;  // targets with this value do not count
  // The sum of the token losses is divided by this; 0: by the number of counted targets in this
  // call. With gradient accumulation the trainer passes the count over all micro-batches.
  double normalizer = 0;
};
// Mean of -log softmax(logits)[target] over the counted targets; 0 with zero gradients if none
// counts. targets: i32 or i64; throws Error(index) naming row and value.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options = {});  // [*, V], [*] -> []
// cross_entropy(linear(x, weight), targets) in chunks of rows: the logits never exist whole.
// Columns of weight from `valid_vocab` on are padding and do not take part (0: all take part).
struct LinearCrossEntropyOptions : CrossEntropyOptions {
  std::int64_t valid_vocab = 0;
};
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            const LinearCrossEntropyOptions& options = {});
// [*, C], [V, C], [*] -> []

// --- Shape (ops/shape/): views on the same storage where strides allow it
// ---------------------------
Tensor reshape(const Tensor& x, const Shape& shape);  // one size may be -1; copies only if it must
Tensor transpose(const Tensor& x, int a, int b);      // a view
Tensor slice(const Tensor& x, int dim, std::int64_t begin, std::int64_t end,
             std::int64_t step = 1);  // a view
// Two or three views along `dim`. Unlike slices, backward writes the gradient once.
std::array<Tensor, 2> split(const Tensor& x, int dim, const std::array<std::int64_t, 2>& sizes);
std::array<Tensor, 3> split(const Tensor& x, int dim, const std::array<std::int64_t, 3>& sizes);
Tensor cat(const std::vector<Tensor>& parts, int dim);
Tensor contiguous(const Tensor& x);  // x itself, or a copy without gaps

}  // namespace duet
