#include "rank_group.h"

#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/empty.h"
#include "program.h"
#include "torch/csrc/distributed/c10d/FileStore.hpp"

namespace ptqwatch::examples {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook{1};
// A store keeps every value in its file and in memory, so a new one replaces it now and then. Its
// last rank removes the file.
constexpr int64_t kRoundsOfAStore = 64;

std::string Key(int64_t round, int64_t rank) {
  return std::to_string(round) + "/" + std::to_string(rank);
}

at::Tensor Flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(tensor.reshape(-1));
  return at::cat(parts);
}

void Spread(const at::Tensor& flat, const std::vector<at::Tensor>& tensors) {
  int64_t begin = 0;
  for (at::Tensor tensor : tensors) {
    tensor.copy_(flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

std::vector<uint8_t> Bytes(const at::Tensor& flat) {
  const auto* const begin = static_cast<const uint8_t*>(flat.const_data_ptr());
  return {begin, begin + flat.nbytes()};
}

}  // namespace

RankGroup::RankGroup(Options options) : options_(std::move(options)) {}

RankGroup::~RankGroup() = default;

void RankGroup::OpenStore() {
  const std::string path = options_.store + "." + std::to_string(round_ / kRoundsOfAStore);
  store_.reset();  // before the next is opened, so that one file at a time is this rank's
  store_ = c10::make_intrusive<c10d::FileStore>(path, static_cast<int>(options_.ranks));
  if (store_->add("launches/" + std::to_string(options_.rank), 1) > 1) {
    throw UsageError("--store " + options_.store +
                     ": an earlier launch has used it; name a new file");
  }
}

at::Tensor RankGroup::Receive(int64_t rank, int64_t count) {
  const std::string key = Key(round_, rank);
  const auto until = Clock::now() + options_.timeout;
  while (!store_->check({key})) {
    if (options_.stopped()) throw Stopped();
    if (Clock::now() >= until) {
      throw std::runtime_error("rank " + std::to_string(rank) + " has sent nothing for " +
                               std::to_string(options_.timeout.count() / 1000) + " s");
    }
    std::this_thread::sleep_for(kLook);
  }
  const std::vector<uint8_t> bytes = store_->get(key);
  at::Tensor flat = at::empty({count}, at::kFloat);
  if (bytes.size() != flat.nbytes()) {
    throw std::runtime_error("rank " + std::to_string(rank) + " has another model");
  }
  std::memcpy(flat.mutable_data_ptr(), bytes.data(), bytes.size());
  return flat;
}

void RankGroup::Exchange(const at::Tensor& own, absl::FunctionRef<int64_t(int64_t rank)> count,
                         absl::FunctionRef<void(int64_t rank, const at::Tensor& flat)> take) {
  if (options_.ranks == 1) return take(0, own);
  if (round_ % kRoundsOfAStore == 0) OpenStore();
  store_->set(Key(round_, options_.rank), Bytes(own));
  for (int64_t rank = 0; rank < options_.ranks; ++rank) {
    take(rank, rank == options_.rank ? own : Receive(rank, count(rank)));
  }
  ++round_;
}

void RankGroup::AverageGradients(const std::vector<at::Tensor>& parameters) {
  if (options_.ranks == 1) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  const at::Tensor own = Flat(gradients);
  at::Tensor sum;
  Exchange(
      own, [&](int64_t) { return own.numel(); },
      [&](int64_t, const at::Tensor& one) { sum = sum.defined() ? sum.add_(one) : one.clone(); });
  Spread(sum.div_(static_cast<double>(options_.ranks)), gradients);
}

void RankGroup::Gather(const std::vector<at::Tensor>& own,
                       const std::vector<std::vector<at::Tensor>>& destinations) {
  const at::NoGradGuard no_grad;
  const auto of = [&](int64_t rank) -> const std::vector<at::Tensor>& {
    return destinations[static_cast<size_t>(rank)];
  };
  Exchange(
      Flat(own),
      [&](int64_t rank) {
        int64_t count = 0;
        for (const at::Tensor& tensor : of(rank)) count += tensor.numel();
        return count;
      },
      [&](int64_t rank, const at::Tensor& flat) { Spread(flat, of(rank)); });
}

}  // namespace ptqwatch::examples
