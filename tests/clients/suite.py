"""Starts the upstreams and the gateway, runs the scripts one after the other, and counts: `suite.py GATEWAY INSTALLED [CLIENT...]`."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

from harness import ROOT, Gateway, Server

HERE = Path(__file__).parent

# Client, script, configuration. WebSockets have a configuration and a gateway of their own.
SCRIPTS = [
    ("curl", "with_curl.py", "gateway.yaml"),
    ("nghttp", "with_nghttp.py", "gateway.yaml"),
    ("h2load", "with_h2load.py", "gateway.yaml"),
    ("httpx", "with_httpx.py", "gateway.yaml"),
    ("grpcio", "with_grpcio.py", "gateway.yaml"),
    ("undici", "with_undici.mjs", "gateway.yaml"),
    ("websockets", "with_websockets.py", "websockets.yaml"),
    ("ws", "with_ws.mjs", "websockets.yaml"),
]

# Of a whole script. The longest takes a few seconds.
SCRIPT_DEADLINE = 90


class Count:
    passed = failed = 0

    def line(self, client, line):
        self.passed += line.startswith("ok ")
        self.failed += line.startswith("FAILED ")
        print(f"{client}: {line}", flush=True)


def main(binary, installed, wanted):
    # Whoever is asked to end takes along what he has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    unknown = set(wanted) - {client for client, *_ in SCRIPTS}
    if unknown:
        sys.exit(f"no such client: {', '.join(sorted(unknown))}")
    scripts = [script for script in SCRIPTS if not wanted or script[0] in wanted]
    count = Count()
    with ExitStack() as stack:
        filled = {"NOBODY": f"127.0.0.1:{nobody(stack)}", "NAMED": named(stack)}
        for name, script in ("ORIGIN", "origin.py"), ("GRPC", "grpc_origin.py"), ("SOCKETS", "ws_origin.py"):
            server = Server(script)
            stack.callback(server.stop)
            filled[name] = f"127.0.0.1:{server.port}"
        for config in dict.fromkeys(config for *_, config in scripts):
            serve(binary, installed, config, filled, [script for script in scripts if script[2] == config], count)
    print(f"{count.passed} passed, {count.failed} failed")
    sys.exit(0 if count.passed and not count.failed else 1)


def nobody(stack):
    """A port that refuses connections as long as the suite runs: bound, and nobody listens."""
    held = stack.enter_context(socket.socket())
    held.bind(("127.0.0.1", 0))
    return held.getsockname()[1]


def named(stack):
    """A certificate of the development CA for `localhost` and no address: where the other has `.crt` and `.key`.

    BoringSSL, which is in grpcio, refuses a certificate for addresses whose authority is bound to some: it has no such constraints.
    """
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    base, authority = str(folder / "named"), str(ROOT / "certs/ca")
    (folder / "extensions").write_text("subjectAltName = DNS:localhost\nextendedKeyUsage = serverAuth\n")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", base + ".key"]
    sign = ["-CA", authority + ".crt", "-CAkey", authority + ".key", "-set_serial", "1", "-days", "2"]
    for command in (
        ["req", "-new", "-subj", "/CN=localhost", *key, "-out", base + ".csr"],
        ["x509", "-req", "-in", base + ".csr", *sign, "-extfile", str(folder / "extensions"), "-out", base + ".crt"],
    ):
        subprocess.run(["openssl", *command], check=True, capture_output=True)
    return base


def serve(binary, installed, config, filled, scripts, count):
    """The scripts that want this configuration, before one gateway."""
    yaml = (HERE / config).read_text()
    for name, value in filled.items():
        yaml = yaml.replace(f"${{{name}}}", value)
    try:
        gateway = Gateway(binary, yaml)
    except RuntimeError as error:
        print(error)
        for client, *_ in scripts:
            count.line(client, f"FAILED all of it: the gateway did not start with {config}")
        return
    before = count.failed
    try:
        places = {
            "http": f"http://{gateway.address('clear')}",
            "https": f"https://localhost:{gateway.port('secure')}",
            "named": gateway.address("named"),
            "admin": f"http://{gateway.address('admin')}",
            "ca": str(ROOT / "certs/ca.crt"),
            "installed": installed,
            "gateway": binary,
            "yaml": yaml,
        }
        for client, script, _ in scripts:
            run(client, script, places, count)
        gateway.terminate()
        code = gateway.ended()
        log = gateway.log()
        whole = code == 0 and "panicked" not in log
        count.line(config, "ok the gateway drains and ends" if whole else f"FAILED the gateway drains and ends: exit code {code}")
    finally:
        gateway.kill()
    if count.failed > before:
        print(f"--- what the gateway with {config} said ---\n{gateway.log()}")


def run(client, script, places, count):
    """One script. Every line that it owes and does not write is a failure."""
    command = ["node"] if script.endswith(".mjs") else [sys.executable]
    process = subprocess.Popen(
        [*command, str(HERE / script)],
        env=os.environ | {"TOLLGATE_CLIENTS": json.dumps(places), "NODE_NO_WARNINGS": "1", "GRPC_VERBOSITY": "NONE"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    timer = threading.Timer(SCRIPT_DEADLINE, process.kill)
    timer.start()
    told, promised = 0, None
    try:
        for line in process.stdout:
            line = line.rstrip()
            if line.startswith("ran "):
                promised = int(line.removeprefix("ran "))
            else:
                told += line.startswith(("ok ", "FAILED "))
                count.line(client, line)
        code = process.wait()
    finally:
        timer.cancel()
        process.kill()
    if code != 0 or not told or told != promised:
        count.line(client, f"FAILED all of it: exit code {code}, {told} of {promised} cases reported")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
