#ifndef PTQWATCH_TESTS_FUZZ_BYTE_READER_H_
#define PTQWATCH_TESTS_FUZZ_BYTE_READER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ptqwatch::fuzz {

/// Takes values from a fuzzer's bytes; zeros once they are used up.
class ByteReader {
 public:
  ByteReader(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return size_ == 0; }
  uint8_t Byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  /// 0 .. last, last < 256.
  int UpTo(int last) { return Byte() % (last + 1); }
  template <typename T>
  T Raw() {
    T value{};
    uint8_t bytes[sizeof(T)];
    for (uint8_t& byte : bytes) byte = Byte();
    std::memcpy(&value, bytes, sizeof(T));
    return value;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace ptqwatch::fuzz

#endif  // PTQWATCH_TESTS_FUZZ_BYTE_READER_H_
