// Preloaded into a program (LD_PRELOAD), makes calls on files under $FAULTY_DISK behave as the
// first byte of the file $FAULTY_DISK_MODE says. A change of that byte takes effect at once, even
// within a call: `-` works as usual, `h` hangs, `r` is read-only, `f` is full, `e` gives device
// errors. With $FAULTY_SPAWN no process can be started.

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

namespace {

char Mode() {
  static const volatile char* const mode = [] {
    const char* path = getenv("FAULTY_DISK_MODE");
    const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void* mapped = mmap(nullptr, 1, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) _exit(99);
    return static_cast<const volatile char*>(mapped);
  }();
  return *mode;
}

bool IsThere(const char* path) {
  static const char* const disk = getenv("FAULTY_DISK");
  return disk != nullptr && strncmp(path, disk, strlen(disk)) == 0;
}

bool IsThere(int file) {
  char link[32], path[512];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length < 0) return false;
  path[length] = '\0';
  return IsThere(path);
}

// 0, or the error number to fail with.
int Fault() {
  while (Mode() == 'h') {
    const timespec moment{0, 5'000'000};
    nanosleep(&moment, nullptr);
  }
  switch (Mode()) {
    case 'r':
      return EROFS;
    case 'f':
      return ENOSPC;
    case 'e':
      return EIO;
    default:
      return 0;
  }
}

template <typename Function>
Function Next(const char* name, Function) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

bool Fails(int file) {
  if (!IsThere(file)) return false;
  errno = Fault();
  return errno != 0;
}

bool Fails(const char* path) {
  if (!IsThere(path)) return false;
  errno = Fault();
  return errno != 0;
}

int Open(const char* name, const char* path, int flags, mode_t mode) {
  const bool writes = (flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0;
  if (writes && Fails(path)) return -1;
  return Next(name, static_cast<int (*)(const char*, int, ...)>(nullptr))(path, flags, mode);
}

mode_t ModeOf(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Open("open", path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Open("open64", path, flags, mode);
}
ssize_t write(int file, const void* bytes, size_t count) {
  return Fails(file) ? -1 : Next("write", &write)(file, bytes, count);
}
int posix_spawn(pid_t* process, const char* path, const posix_spawn_file_actions_t* files,
                const posix_spawnattr_t* attributes, char* const* words, char* const* variables) {
  if (getenv("FAULTY_SPAWN") != nullptr) return EAGAIN;
  return Next("posix_spawn", &posix_spawn)(process, path, files, attributes, words, variables);
}
int fsync(int file) { return Fails(file) ? -1 : Next("fsync", &fsync)(file); }
int fdatasync(int file) { return Fails(file) ? -1 : Next("fdatasync", &fdatasync)(file); }
int rename(const char* from, const char* to) {
  return Fails(to) ? -1 : Next("rename", &rename)(from, to);
}
int unlink(const char* path) { return Fails(path) ? -1 : Next("unlink", &unlink)(path); }
int ftruncate(int file, off_t size) {
  return Fails(file) ? -1 : Next("ftruncate", &ftruncate)(file, size);
}

}  // extern "C"
