"""Statistics on lists of numbers. Undefined results are NaN."""

import bisect
import itertools
import math

# 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101,
           2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)


def ratio(a, b):
    return a / b if b else math.nan


def mean(values):
    return ratio(sum(values), len(values))


def geometric_mean(values):
    """NaN if a value is not positive."""
    return math.exp(mean([math.log(value) for value in values])) if values and all(value > 0 for value in values) else math.nan


def covariation(x, y):
    """Sum of (x - mean x)(y - mean y)."""
    mean_x, mean_y = mean(x), mean(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y))


def standard_deviation(values):
    return math.sqrt(covariation(values, values) / (len(values) - 1)) if len(values) > 1 else math.nan


def ranks(values):
    """Ranks, beginning at 0. Equal values share the mean of their ranks."""
    ordered = sorted(values)
    return [(bisect.bisect_left(ordered, value) + bisect.bisect_right(ordered, value) - 1) / 2 for value in values]


def spearman(x, y):
    """Spearman's rank correlation; NaN if one side is constant."""
    if math.isnan(sum(x) + sum(y)):
        return math.nan
    x, y = ranks(x), ranks(y)
    scale = covariation(x, x) * covariation(y, y)
    return covariation(x, y) / math.sqrt(scale) if scale > 0 else math.nan


def student_quantile(degrees):
    if degrees <= len(STUDENT):
        return STUDENT[degrees - 1]
    # The first terms of the expansion about the normal quantile (Abramowitz and Stegun 26.7.5).
    z = 1.959964
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def fit_line(x, y):
    """The slope of the least-squares line and half the width of its 95 % interval (Student's t); NaN for fewer than three points."""
    degrees = len(x) - 2
    if degrees < 1:
        return math.nan, math.nan
    spread = covariation(x, x)
    slope = covariation(x, y) / spread
    residual = max(0.0, covariation(y, y) - slope * covariation(x, y))
    return slope, student_quantile(degrees) * math.sqrt(residual / degrees / spread)


def is_rising(values):
    return all(a < b for a, b in itertools.pairwise(values))


def is_falling(values):
    return all(a > b for a, b in itertools.pairwise(values))
