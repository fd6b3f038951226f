#!/usr/bin/env python3
"""A port in use: each program says so in one line, ends with exit code 1 and leaves no address file behind."""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile

PATIENCE_SECONDS = 30


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="coordinator and parameter server")
    arguments = parser.parse_args()
    failures = []
    with tempfile.TemporaryDirectory(prefix="downpour-port-") as folder, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = os.path.join(folder, "config.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"jobUid": "0" * 31 + "1", "psReplicas": 1, "epochs": 1, "batchSize": 1}, file)
        roles = {"coordinator": [], "ps": ["--index", "0", "--coordinator", "127.0.0.1:1"]}
        for role, flags in roles.items():
            for option in ("--listen", "--metrics-listen"):
                address_file = os.path.join(folder, "address")
                command = [arguments.server, role, "--config", config, "--incarnation", "1", "--address-file",
                           address_file, option, address] + flags
                result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
                lines = result.stderr.splitlines()
                name = f"{role} {option}"
                print(f"{name}: {result.returncode}: {result.stderr.rstrip()}")
                if result.returncode != 1:
                    failures.append(f"{name}: exit code {result.returncode}, expected 1")
                if len(lines) != 1 or f"cannot listen on {address}" not in lines[0]:
                    failures.append(f"{name}: {len(lines)} lines, expected one that names {address}")
                if os.path.exists(address_file):
                    failures.append(f"{name}: left an address file behind")
    for failure in failures:
        print(f"port_in_use: {failure}", file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
