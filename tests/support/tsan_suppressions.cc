// Part of every program of the thread sanitizer's preset, also of those that
// tests start with an environment of their own: what it says of third parties
// that are not instrumented, whose own synchronisation it does not see.
extern "C" __attribute__((visibility("default"))) const char*
__tsan_default_suppressions();

extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libzmq.so\n"
         "race:libzmq.so\n"
         // Decrypts on ZeroMQ's threads what ours then read.
         "called_from_lib:libsodium.so\n"
         // Abseil's library gives up other references to the same status.
         "race:absl::*Status::Unref\n";
}
