// Debian's gRPC is built without ThreadSanitizer, which therefore does not see that gRPC orders
// what its threads do with a call: all such hand-overs would be reported. What is left is what our
// own locks order among our own threads, and the order of the locks.
extern "C" const char* __tsan_default_suppressions() { return "race:grpc::\nrace:grpc_\n"; }
