#!/usr/bin/env python3
"""A file that grows while it is read: no part of a line is taken for one."""

import tempfile

from counter_processes import check, whole_lines


def main():
    with tempfile.NamedTemporaryFile("w") as writer, open(writer.name, encoding="utf-8") as reader:
        writer.write('{"updates": 1}\n{"updates"')
        writer.flush()

        def lines():
            for line in reader:
                if not line.endswith("\n"):  # its rest comes just now
                    writer.write(': 2}\n')
                    writer.flush()
                yield line
        found = list(whole_lines(lines()))
        check(found == ['{"updates": 1}\n'], f"lines: {found}")


if __name__ == "__main__":
    main()
