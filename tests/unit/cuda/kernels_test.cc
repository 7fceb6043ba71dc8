#include <gtest/gtest.h>
TEST(Z, Y) {}
