"""What the scripts share: cases and their report, and the gateway as a process."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import urllib.request
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# No wait within a case is longer, whatever goes wrong; a deadline, nothing that is measured.
DEADLINE = 20

_cases = []


def case(test):
    """Registers a case. Its name is what is reported."""
    _cases.append((test.__name__.replace("_", " "), test, ()))
    return test


def case_for(variants, name=str):
    """Registers a case once for each of the variants, which it takes as its argument."""

    def register(test):
        for variant in variants:
            _cases.append((f"{test.__name__.replace('_', ' ')} ({name(variant)})", test, (variant,)))
        return test

    return register


def run_cases():
    """Runs them all. The last line says how many there were, so that a script that ends early can't pass for one that ran."""
    for name, test, args in _cases:
        try:
            test(*args)
            print(f"ok {name}", flush=True)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
            place = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
            text = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"FAILED {name}: {place}: {text}", flush=True)
    print(f"ran {len(_cases)}", flush=True)


def same(found, expected, what=""):
    if found != expected:
        raise AssertionError(f"{what or 'value'}: {found!r} instead of {expected!r}")


def holds(condition, what):
    if not condition:
        raise AssertionError(what)


def key():
    """A name that nothing else has: a counter of its own, a meeting point of its own."""
    return uuid.uuid4().hex


def place(name):
    """What the suite has said of this name: `http`, `https`, `ca`…"""
    return json.loads(os.environ["TOLLGATE_CLIENTS"])[name]


def metric(name, **labels):
    """The sum of a metric's samples that carry these labels."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(place("admin") + "/metrics", timeout=DEADLINE) as response:
        samples = response.read().decode().splitlines()
    total = 0.0
    for line in samples:
        series, _, value = line.rpartition(" ")
        if series.partition("{")[0] == name and all(f'{label}="{wanted}"' in series for label, wanted in labels.items()):
            total += float(value)
    return total


def refusals(limit, call):
    """How often the limit has refused within a call. If the machine was too slow for that, once more with another counter."""
    for _ in range(5):
        before = metric("tollgate_limited_total", limit=limit)
        call(key())
        if refused := metric("tollgate_limited_total", limit=limit) - before:
            return refused
    raise AssertionError("nothing was refused")


class Gateway:
    """The real binary with a configuration of its own, on free ports."""

    def __init__(self, binary, yaml):
        self.folder = tempfile.TemporaryDirectory(prefix="tollgate-clients-")
        config = Path(self.folder.name) / "gateway.yaml"
        config.write_text(yaml)
        self.stderr = []
        self.news = threading.Condition()
        self.process = subprocess.Popen(
            [binary, "run", "--config", str(config)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        threading.Thread(target=self._collect, daemon=True).start()
        with self.news:
            self.news.wait_for(lambda: self.address("admin") or self.process.poll() is not None, DEADLINE)
        if not self.address("admin"):
            self.kill()
            raise RuntimeError("the gateway did not start:\n" + self.log())

    def _collect(self):
        for line in self.process.stderr:
            with self.news:
                self.stderr.append(line)
                self.news.notify_all()
        self.process.wait()
        with self.news:
            self.news.notify_all()

    def log(self):
        return "".join(self.stderr)

    def address(self, listener):
        found = re.search(rf"listening on {listener} +\w+://(\S+)", self.log())
        return found and found.group(1)

    def port(self, listener):
        return int(self.address(listener).rpartition(":")[2])

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def ended(self):
        """Its exit code, after it has been asked to end."""
        try:
            return self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def kill(self):
        self.process.kill()
        self.process.wait()


def announce(port):
    """For the upstreams: here it is. From now on the process ends with whoever has started it."""
    print(port, flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()


class Server:
    """One of the upstreams beside this file, as a process; its first line is its port."""

    def __init__(self, script):
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        if not line.strip().isdigit():
            raise RuntimeError(f"{script} did not start")
        self.port = int(line)

    def stop(self):
        self.process.kill()
        self.process.wait()
