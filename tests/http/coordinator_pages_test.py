#!/usr/bin/env python3
"""The pages of the dashboard in Chromium, on a real coordinator with workers that hold leases.

    tests/http/coordinator_pages_test.py build/bin/bench_dashboard [--nightly] [--shots DIR] [TEST...]

The program starts the coordinator beside it (`gavel`) and its workers, with 200 jobs, and for the long tests with
10,000. Options and needs are those of pages_test.py, and it is skipped likewise.
"""
import json
import subprocess
import sys
import time
import types
import unittest
import urllib.request

import pages_test
from pages_test import PAGES, load_tests, long, setUpModule, tearDownModule  # pylint: disable=unused-import

PROGRAM = ""
START_S_MAX = 120
TURNS_OF_AN_HOUR = 60
CHANGES = 10  # jobs that are held or released, at different parts of the interval of events
LIST_MS_MAX = 15000  # PAUSE_MS_MAX of api.js, and a slow machine's reading
HELD = "#strip a[href='#/jobs?state=F'] .strip-value"


class CoordinatorTest(pages_test.PageTest):
    jobs = 0
    changes = CHANGES
    answer_ms = 30000
    routes_of_an_hour = PAGES

    @classmethod
    def setUpClass(cls):
        if not cls.jobs:
            raise unittest.SkipTest("the tests are those of its subclasses")
        cls.process = subprocess.Popen([PROGRAM, "--serve", "--jobs", str(cls.jobs)], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.end)
        cls.link = json.loads(cls.process.stdout.readline())

    @classmethod
    def end(cls):
        cls.process.stdin.close()
        cls.process.wait(START_S_MAX)
        cls.process.stdout.close()

    def setUp(self):
        self.stub = types.SimpleNamespace(address=self.link["url"].rstrip("/"))
        self.errors = []
        self.foreign = []

    def act(self, action, target):
        body = json.dumps({"action": action, "target": str(target)}).encode()
        request = urllib.request.Request(self.stub.address + "/api/action", body, {
            "Content-Type": "application/json", "Authorization": "Bearer " + self.link["token"]})
        urllib.request.urlopen(request, timeout=30).close()

    def hold_or_release(self, turn):
        """The last job, which waits, is held in even turns."""
        self.act("release" if turn % 2 else "hold", self.jobs)

    def assert_seen(self, page, condition, ms_max=pages_test.EVENT_MS_MAX):
        """Each of some changes leads to the condition of [turn, HELD] in time."""
        for turn in range(self.changes):
            time.sleep(1.1 + turn / 10)
            seen_ms = self.seen_ms(page, lambda: self.hold_or_release(turn), condition, [turn, HELD])
            self.assertLess(seen_ms, ms_max, "turn %d" % turn)

    def test_the_first_paint_is_within_a_second(self):
        for route in PAGES:
            self.assertLess(self.first_paint_ms(route), pages_test.FIRST_PAINT_MS_MAX, route)

    def test_an_event_is_seen_within_a_second(self):
        page = self.open("#/cluster")
        page.locator(".map-server").first.wait_for()
        self.assert_seen(page, "([turn, at]) => document.querySelector(at).textContent === String(1 - turn % 2)")

    def test_axe_finds_nothing_serious(self):
        self.assert_axe_finds_nothing_serious(self.link["token"])

    @long
    def test_memory_stays_flat_over_an_hour(self):
        def change(turn):
            self.hold_or_release(turn)
            page.wait_for_timeout(700)  # until the event has come

        for route in self.routes_of_an_hour:
            page = self.open(route, clock=True)
            self.shown(page, route)
            self.assert_memory_is_flat_for_an_hour(page, TURNS_OF_AN_HOUR, change)
            page.context.close()


class TwoHundred(CoordinatorTest):
    jobs = 200
    changes = 4

    def test_the_row_of_a_job_follows(self):
        page = self.open("#/jobs?q=job-%d" % (self.jobs - 1))
        page.locator(".window tbody a").first.wait_for()
        self.assert_seen(page, """([turn]) => (document.querySelector('.window tbody .state').textContent === 'held') ===
            (turn % 2 === 0)""", LIST_MS_MAX)


@long
class TenThousand(CoordinatorTest):
    jobs = 10000
    routes_of_an_hour = ["#/jobs"]


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PROGRAM = sys.argv.pop(1)
    pages_test.main()
