#ifndef PTQWATCH_PYTHON_TENSORS_H_
#define PTQWATCH_PYTHON_TENSORS_H_

#include <memory>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/from_blob.h"
#include "torch/csrc/utils/pybind.h"

namespace ptqwatch::python {

/// A tensor that shares the memory of `values`, which are part of `owner`.
template <typename T, typename Owner>
at::Tensor TensorOver(const std::vector<T>& values, at::IntArrayRef sizes,
                      std::shared_ptr<Owner> owner) {
  const auto options = at::TensorOptions(c10::CppTypeToScalarType<T>::value);
  if (values.empty()) return at::empty(sizes, options);
  return at::from_blob(
      const_cast<T*>(values.data()), sizes, [kept = std::move(owner)](void*) {}, options);
}

/// The values as a tensor, without a copy. None if there are none.
template <typename T>
pybind11::object TensorOrNone(std::vector<T>&& values, at::IntArrayRef sizes) {
  if (values.empty()) return pybind11::none();
  auto owner = std::make_shared<std::vector<T>>(std::move(values));
  return pybind11::cast(TensorOver(*owner, sizes, owner));
}

}  // namespace ptqwatch::python

#endif  // PTQWATCH_PYTHON_TENSORS_H_
