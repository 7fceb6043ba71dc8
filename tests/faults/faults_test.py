"""A trainer makes a mistake, or the machine fails: the run ends as it would have without a monitor."""

import resource
import subprocess
import sys
import unittest

FAULT_TRAINER = sys.argv.pop(1)


class Faults(unittest.TestCase):
    def outcome(self, fault, stack=None):
        def limit():
            if stack is not None:
                resource.setrlimit(resource.RLIMIT_STACK, (stack, resource.getrlimit(resource.RLIMIT_STACK)[1]))

        done = subprocess.run([FAULT_TRAINER, fault], capture_output=True, timeout=120, preexec_fn=limit, check=False)
        return done.returncode, done.stderr.decode()

    def unharmed(self, fault, times=1, **limits):
        for time in range(times):
            with self.subTest(fault=fault, time=time, **limits):
                code, err = self.outcome(fault, **limits)
                self.assertEqual(code, 0, err)

    def test_exit_while_the_closure_runs(self):
        self.unharmed("exit", times=6)

    def test_return_from_main_with_the_thread_left_behind(self):
        self.unharmed("late_stop", times=6)

    def test_exit_inside_the_closure(self):
        self.unharmed("exit_in_closure", times=2)

    def test_storage_of_a_live_parameter_freed(self):
        self.unharmed("freed_storage")

    def test_fork_without_exec(self):
        self.unharmed("fork")

    def test_floating_point_traps(self):
        self.unharmed("traps")

    def test_closure_throws_what_is_no_exception(self):
        self.unharmed("throws_int")

    def test_closure_needs_more_stack_than_threads_have_by_default(self):
        # With the limit "unlimited", which batch systems set, glibc gives threads 2 MiB.
        self.unharmed("deep_closure", stack=resource.RLIM_INFINITY)

    def test_closure_needs_more_stack_than_the_trainer_has(self):
        self.unharmed("deep_closure_later", stack=512 << 10)

    def test_closure_hangs(self):
        self.unharmed("closure_hangs", times=2)

    def test_closure_changes_thread_counts(self):
        self.unharmed("closure_sets_threads")

    def test_another_thread_draws_random_numbers_meanwhile(self):
        self.unharmed("draws_meanwhile", times=3)

    def test_attach_and_stop_a_hundred_times(self):
        self.unharmed("attach_and_stop")

    def test_two_monitors(self):
        self.unharmed("two_monitors")


if __name__ == "__main__":
    unittest.main()
