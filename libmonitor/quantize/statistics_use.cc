#include "quantize/statistics_use.h"

namespace ptqwatch::internal {

bool CodesUseStatistics(const QuantizerSpec& spec) {
  switch (spec.method) {
    case QuantizationMethod::kGptq:
    case QuantizationMethod::kAwq:
      return true;
    case QuantizationMethod::kRtn:
      return spec.clip != ClipSearch::kNone;
    case QuantizationMethod::kLlmInt8:
      return spec.outlier_threshold > 0;
    case QuantizationMethod::kNf4:
      return false;
  }
  return true;
}

}  // namespace ptqwatch::internal
