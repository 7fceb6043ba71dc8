#include "claims.h"

#include <algorithm>
#include <cstdlib>

namespace ptqwatch::examples {
namespace {

/// Claims that the paper does not number come last.
int Number(const Claim& claim) {
  const int number = std::atoi(claim.text.id.c_str());
  return number > 0 ? number : 1000;
}

}  // namespace

std::vector<Claim> JudgeClaims(const StudyData& data) {
  std::vector<Claim> claims;
  JudgeBudgets(data, claims);
  JudgeRates(data, claims);
  JudgeAverages(data, claims);
  JudgeCurvature(data, claims);
  JudgeShapes(data, claims);
  std::stable_sort(claims.begin(), claims.end(),
                   [](const Claim& a, const Claim& b) { return Number(a) < Number(b); });
  return claims;
}

}  // namespace ptqwatch::examples
