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

at::Tensor Flat(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& parameter : parameters) parts.push_back(parameter.grad().reshape(-1));
  return at::cat(parts);
}

void Spread(const at::Tensor& flat, const std::vector<at::Tensor>& parameters) {
  int64_t begin = 0;
  for (const at::Tensor& parameter : parameters) {
    const int64_t count = parameter.numel();
    parameter.grad().copy_(flat.narrow(0, begin, count).view(parameter.sizes()));
    begin += count;
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
      throw std::runtime_error("rank " + std::to_string(rank) + " has sent no gradient for " +
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

void RankGroup::AverageGradients(const std::vector<at::Tensor>& parameters) {
  if (options_.ranks == 1) return;
  const at::NoGradGuard no_grad;
  if (round_ % kRoundsOfAStore == 0) OpenStore();
  const at::Tensor own = Flat(parameters);
  store_->set(Key(round_, options_.rank), Bytes(own));
  at::Tensor sum;
  for (int64_t rank = 0; rank < options_.ranks; ++rank) {
    const at::Tensor one = rank == options_.rank ? own.clone() : Receive(rank, own.numel());
    sum = sum.defined() ? sum.add_(one) : one;
  }
  Spread(sum.div_(static_cast<double>(options_.ranks)), parameters);
  ++round_;
}

}  // namespace ptqwatch::examples
