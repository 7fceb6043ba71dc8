#ifndef PTQWATCH_CAPTURE_PRODUCT_WATCHER_H_
#define PTQWATCH_CAPTURE_PRODUCT_WATCHER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "capture/gathered_weights.h"
#include "capture/layer_input.h"
#include "capture/route_tracker.h"
#include "capture/weight_finder.h"

// Declared here because files that include record_function.h must be compiled like LibTorch (see
// product_watcher.cc).
namespace at {
struct RecordFunction;
struct ObserverContext;
}  // namespace at
namespace c10 {
struct IValue;
}  // namespace c10

namespace ptqwatch::internal {

enum class OpKind;
struct WatchedOp;

/// A product with a weight W [m, d]: y = W x for each row x of the input.
struct Product {
  int entry = 0;      ///< the weight's, in the table
  bool part = false;  ///< of the parameter: m * d consecutive elements that begin at `first`
  int64_t first = 0;
  int64_t outputs = 0;
  int64_t inputs = 0;
  bool transposed = false;  ///< the weight is stored as [inputs, outputs]
  LayerInput input;
};

/// Reports every outermost product of the calling thread's forward passes during its lifetime, by a
/// thread-local RecordFunction callback. At most one exists per thread.
///
/// Products are linear, matmul, mm, mv, addmm, addmv, bmm, baddbmm (which einsum, tensordot and the
/// fused operators of transformers call), convolutions, bilinear, and both products of
/// mkldnn_rnn_layer, which is an LSTM's layer on a CPU. One operand must be a parameter, or a copy
/// of it by `to`, `contiguous` or `clone` (WeightFinder):
///   - a matrix, plain or transposed;
///   - a matrix, plain or transposed, that is one run of a contiguous parameter's elements: a layer
///     of weights that are stacked, [layers, m, d];
///   - a parameter of more dimensions, as the row-major matrix that its memory holds;
///   - either of them with a batch dimension of 1 or expanded;
///   - a contiguous stack [layers, a, b], as the layers of a bmm, of _grouped_mm, or as an index
///   has
///     picked them for each row of the input: each matrix with the rows that meet it;
///   - the weight [O, C, ...] of a convolution in one group, as [O, C * ...], with windows;
///   - the weight [C, O, ...] of a transposed one, as [O * ..., C], with pixels;
///   - the weight [O, A, B] of bilinear, as [O * A, B], with its second input.
/// Under autocast the outermost operator still receives the parameter itself.
class ProductWatcher {
 public:
  using Handler = std::function<void(const Product&)>;
  /// Receives the experts [.., k] that a router has chosen: the indices of a top-k.
  using ChoiceHandler = std::function<void(const at::Tensor& experts)>;
  /// `table` must outlive the watcher.
  ProductWatcher(const TensorTable& table, Handler handler, ChoiceHandler on_choice = nullptr);
  ~ProductWatcher();
  ProductWatcher(const ProductWatcher&) = delete;
  ProductWatcher& operator=(const ProductWatcher&) = delete;

  /// The first problem inside a callback, where ATen swallows exceptions; empty if there is none.
  const std::string& problem() const { return problem_; }
  /// Parameters that are used other than by such products and look-ups of rows, with the reason.
  std::map<int, std::string> uncovered() const;
  /// Matrices of which rows are looked up: embeddings.
  const std::set<int>& tables() const { return tables_; }
  /// Parameters whose outputs choose by a top-k: routers of experts.
  const std::set<int>& routers() const { return routes_.routers(); }
  /// The first unknown operator with results of its own that takes a parameter (of two or more
  /// dimensions). Products inside such an operator are not visible.
  const std::map<int, std::string>& takers() const { return takers_; }

  /// Returns FailedPrecondition if this build cannot read LibTorch's records.
  static absl::Status SelfCheck();

 private:
  struct Inside;
  // A parameter [layers, a, b] as a factor of a product.
  struct Stack {
    int entry = 0;
    bool turned = false;  // each matrix is transposed
    bool is_left = false;
  };

  static std::unique_ptr<at::ObserverContext> OnStart(const at::RecordFunction& record);
  static void OnEnd(const at::RecordFunction& record, at::ObserverContext* context);
  void OnKnown(const WatchedOp& op, c10::ArrayRef<const c10::IValue> inputs, Inside& inside);
  void Fail(std::string problem);
  void OnLookUp(const WatchedOp& op, c10::ArrayRef<const c10::IValue> inputs, Inside& inside);
  void NoteTaken(const at::RecordFunction& record, Inside& inside);
  void NoteTaker(int entry, const char* op, const std::vector<c10::IValue>& outputs);
  void OnMatrixProduct(const at::Tensor& left, const at::Tensor& right);
  bool IsRouters(c10::ArrayRef<const c10::IValue> inputs);
  bool OnStack(const at::Tensor& left, const at::Tensor& right);
  void OnGrouped(const at::Tensor& input, const at::Tensor& factor, const at::Tensor& ends);
  std::optional<Stack> StackOf(const at::Tensor& factor) const;
  void TakeOfStack(const Stack& stack, int64_t matrix, at::Tensor input);
  void OnHiddenStates(const at::Tensor& states, const at::Tensor& factor);
  void OnBilinear(const at::Tensor& b, const at::Tensor& kernel);
  void OnConvolution(OpKind kind, c10::ArrayRef<const c10::IValue> inputs);
  void TakePart(int entry, const at::Tensor& factor, LayerInput input);
  void TakeMatrix(const FoundWeight& weight, const at::Tensor& input, InputForm::Kind form);

  static thread_local ProductWatcher* current_;
  const Handler handler_;
  const ChoiceHandler on_choice_;
  WeightFinder weights_;
  GatheredWeights gathered_;
  RouteTracker routes_;
  std::optional<RouteTracker::Route> product_;  // of the operator that begins
  std::map<int, std::string> uncovered_;
  std::set<int> tables_;
  std::set<int> picked_;  // stacked weights of which matrices were picked
  std::set<int> picked_multiplied_;
  std::map<int, std::string> takers_;
  std::string problem_;
  uint64_t handle_ = 0;
  int depth_ = 0;
  int records_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_PRODUCT_WATCHER_H_
