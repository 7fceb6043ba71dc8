// Runs a fuzz target without libFuzzer: its seeds, and mutations of them from a fixed sequence of
// random numbers.
//
//   NAME_replay [RUNS]              the seeds and RUNS mutations
//   NAME_replay --corpus DIR        the seeds, the files of DIR and mutations
//   NAME_replay --write-seeds DIR   the seeds as files, for libFuzzer to begin with
//   NAME_replay FILE...             these inputs

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/fuzz_target.h"

namespace {

using Random = std::mt19937_64;

int UpTo(Random& random, size_t last) { return static_cast<int>(random() % (last + 1)); }

// A few edits of the kinds that libFuzzer makes.
std::string Mutate(std::string input, const std::vector<std::string>& seeds, Random& random) {
  for (int edits = 1 + UpTo(random, 4); edits > 0; --edits) {
    const size_t at = input.empty() ? 0 : random() % input.size();
    switch (UpTo(random, 6)) {
      case 0:
        if (!input.empty()) input[at] = static_cast<char>(random());
        break;
      case 1:
        if (!input.empty()) input[at] ^= static_cast<char>(1 << UpTo(random, 7));
        break;
      case 2:
        input.erase(at, random() % 8);
        break;
      case 3:
        input.insert(at, 1 + random() % 4, static_cast<char>(random()));
        break;
      case 4: {
        const std::string piece = input.substr(at, random() % 32);
        input.insert(input.empty() ? 0 : random() % input.size(), piece);
        break;
      }
      case 5: {
        const std::string& other = seeds[random() % seeds.size()];
        input = input.substr(0, at) + other.substr(std::min(at, other.size()));
        break;
      }
      default: {
        static const char* const kNumbers[] = {
            "0", "-1", "1e9", "4294967296", "9223372036854775807", "18446744073709551616"};
        const char* number = kNumbers[UpTo(random, std::size(kNumbers) - 1)];
        const size_t digits = input.find_first_of("0123456789", at);
        if (digits != std::string::npos) input.replace(digits, 1, number);
      }
    }
  }
  return input;
}

void Run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

int WriteSeeds(const std::string& folder) {
  std::filesystem::create_directories(folder);
  int number = 0;
  for (const std::string& seed : ptqwatch::fuzz::Seeds()) {
    std::ofstream(folder + "/seed" + std::to_string(number++), std::ios::binary) << seed;
  }
  std::printf("%d seeds in %s\n", number, folder.c_str());
  return 0;
}

std::string Contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// In the order of their names.
std::vector<std::string> Files(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> files;
  for (const auto& path : paths) files.push_back(Contents(path));
  return files;
}

int RunMutations(std::vector<std::string> inputs, int runs) {
  for (const std::string& input : inputs) Run(input);
  Random random(1);
  for (int i = 0; i < runs; ++i) Run(Mutate(inputs[random() % inputs.size()], inputs, random));
  std::printf("%zu inputs and %d mutations\n", inputs.size(), runs);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kRuns = 1000;
  std::vector<std::string> seeds = ptqwatch::fuzz::Seeds();
  if (argc == 1) return RunMutations(std::move(seeds), kRuns);
  if (argc == 3 && std::string(argv[1]) == "--write-seeds") return WriteSeeds(argv[2]);
  if (argc == 3 && std::string(argv[1]) == "--corpus") {
    for (std::string& file : Files(argv[2])) seeds.push_back(std::move(file));
    return RunMutations(std::move(seeds), kRuns);
  }
  char* end = nullptr;
  const int runs = static_cast<int>(std::strtol(argv[1], &end, 10));
  if (*end == '\0') return RunMutations(std::move(seeds), runs);
  for (int i = 1; i < argc; ++i) Run(Contents(argv[i]));
  return 0;
}
