#include "progress.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "base/stopwatch.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "printable.h"
#include "trajectory/checkpoint_list.h"

namespace ptqwatch::tools {
namespace {

constexpr std::chrono::seconds kBetweenLines{10};

}  // namespace

void Progress::Begin(const internal::TrajectoryUnit& unit, int64_t number, int64_t of) {
  head_ = internal::StrCat("checkpoint ", number, " of ", of);
  left_ = of - number + 1;
  begun_ = shown_ = clock_->Monotonic();
  measuring_ = true;
  std::cerr << internal::StrCat(head_, ": ", internal::Printable(unit.checkpoint.name), " (",
                                internal::Printable(internal::PlaceOf(unit.checkpoint)), ")",
                                Left())
            << std::endl;
}

void Progress::Note(const internal::MeterProgress& now) {
  if (clock_->Monotonic() - shown_ < kBetweenLines) return;
  shown_ = clock_->Monotonic();
  std::cerr << internal::StrCat(head_, ": ", now.part, " ", now.done, " of ", now.of, Left())
            << std::endl;
}

void Progress::End() {
  if (!std::exchange(measuring_, false)) return;  // a report that another process has measured
  measured_seconds_ += internal::InSeconds(clock_->Monotonic() - begun_);
  ++measured_;
}

std::string Progress::Left() const {
  const double each =
      measured_ > 0 ? measured_seconds_ / static_cast<double>(measured_) : predicted_;
  if (each <= 0) return "";
  const double left =
      each * static_cast<double>(left_) - internal::InSeconds(clock_->Monotonic() - begun_);
  return internal::StrCat(", about ", internal::AgeText(std::max(left, 0.0)), " left");
}

}  // namespace ptqwatch::tools
