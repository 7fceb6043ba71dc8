#include "base/guard.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace guard_test {

template <typename Exception>
absl::Status Thrown(const Exception& exception) {
  return Guard([&]() -> absl::Status { throw exception; });
}

TEST(Guard, PassesResultsThrough) {
  EXPECT_TRUE(Guard([] { return absl::OkStatus(); }).ok());
  const absl::StatusOr<std::string> value =
      Guard([]() -> absl::StatusOr<std::string> { return "value"; });
  EXPECT_EQ(*value, "value");
  const absl::Status status =
      Guard("what", absl::StatusCode::kUnknown, [] { return absl::NotFoundError("as it was"); });
  EXPECT_EQ(status, absl::NotFoundError("as it was"));
}

TEST(Guard, TurnsExceptionsIntoInternal) {
  EXPECT_EQ(Thrown(std::runtime_error("bad shape")), absl::InternalError("bad shape"));
  const absl::StatusOr<int> value =
      Guard([]() -> absl::StatusOr<int> { throw std::range_error("r"); });
  EXPECT_EQ(value.status(), absl::InternalError("r"));
}

TEST(Guard, NamesWhatWasDoneAndTakesAnotherCode) {
  const auto run = [](const auto& exception) {
    return Guard("evaluating the loss", absl::StatusCode::kFailedPrecondition,
                 [&]() -> absl::Status { throw exception; });
  };
  EXPECT_EQ(run(std::runtime_error("bad shape")),
            absl::FailedPreconditionError("evaluating the loss: bad shape"));
  EXPECT_EQ(run(std::bad_alloc()),
            absl::ResourceExhaustedError("evaluating the loss: out of memory"));
}

TEST(Guard, RecognisesMemoryThatRanOut) {
  EXPECT_EQ(Thrown(std::bad_alloc()).code(), absl::StatusCode::kResourceExhausted);
  for (const char* text :
       {"DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
        "DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes",
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "cuBLAS error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"}) {
    const absl::Status status = Thrown(std::runtime_error(text));
    EXPECT_EQ(status, absl::ResourceExhaustedError(text));
  }
  EXPECT_EQ(Thrown(std::runtime_error("memory format")).code(), absl::StatusCode::kInternal);
}

TEST(Guard, SurvivesThrownObjectsThatAreNotExceptions) {
  const absl::Status status = Thrown(17);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(status.message().empty());
}

TEST(ErrorText, CutsOffTheTraceOfLibTorch) {
  EXPECT_EQ(
      ErrorText(std::runtime_error("no such device\nException raised from Check at a.cpp:1\n")),
      "no such device");
  EXPECT_EQ(ErrorText(std::runtime_error("two\nlines")), "two\nlines");
  const absl::Status status =
      Thrown(std::runtime_error("not ok\nException raised from malloc: out of memory"));
  EXPECT_EQ(status, absl::InternalError("not ok"));
}

}  // namespace guard_test
}  // namespace ptqwatch::internal
