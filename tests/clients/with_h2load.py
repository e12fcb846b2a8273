"""h2load: thousands of requests, none of which may fail, and a limit that is met exactly."""

import hashlib
import re
import subprocess
import tempfile

from harness import DEADLINE, case_for, holds, key, metric, place, run_cases, same

HTTP, HTTPS = place("http"), place("https")
MODES = [("h1", ["--h1"], HTTP), ("h1 over TLS", ["--h1"], HTTPS), ("h2c", [], HTTP), ("h2", [], HTTPS)]


def h2load(mode, path, *args):
    """Statuses by class, after a look that all requests were answered."""
    command = ["h2load", *mode[1], *args, mode[2] + path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * DEADLINE)
    asked = int(args[args.index("-n") + 1])
    counts = r"requests: (\d+) total, (\d+) started, (\d+) done, \d+ succeeded, \d+ failed, (\d+) errored, (\d+) timeout"
    line = re.search(counts, done.stdout)
    holds(line, done.stdout + done.stderr)
    same([int(number) for number in line.groups()], [asked, asked, asked, 0, 0], line.group())
    return [int(number) for number in re.findall(r"(\d+) [2345]xx", done.stdout)]


def name(mode):
    return mode[0]


@case_for(MODES, name)
def has_4000_answers(mode):
    same(h2load(mode, "/local/", "-n", "4000", "-c", "16", "-m", "20"), [4000, 0, 0, 0])


@case_for(MODES, name)
def has_500_answers_of_the_upstream(mode):
    same(h2load(mode, "/echo", "-n", "500", "-c", "8", "-m", "8"), [500, 0, 0, 0])


@case_for(MODES, name)
def sends_200_bodies(mode):
    with tempfile.NamedTemporaryFile() as body:
        body.write(hashlib.shake_128(b"h2load").digest(256 << 10))
        body.flush()
        same(h2load(mode, "/echo", "-n", "200", "-c", "4", "-m", "8", "-d", body.name), [200, 0, 0, 0])


@case_for(MODES, name)
def meets_its_limit_exactly(mode):
    before = metric("tollgate_limited_total", limit="counted")
    statuses = h2load(mode, "/counted/", "-n", "3000", "-c", "16", "-m", "20", "-H", f"x-case: {key()}")
    same(statuses, [500, 0, 2500, 0], "2xx, 3xx, 4xx, 5xx")
    same(metric("tollgate_limited_total", limit="counted") - before, 2500.0, "tollgate_limited_total")


run_cases()
