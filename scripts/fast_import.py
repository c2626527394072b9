# SPDX-License-Identifier: GPL-2.0
"""A tar archive (stdin) as one commit for git fast-import (stdout)."""

import sys
import tarfile

from source import IMPORTED, without_debian_ignores

NOTE = b"imported"


def main():
    out = sys.stdout.buffer
    out.write(b"commit %s\ncommitter tar <tar@localhost> 0 +0000\ndata %d\n%s\n"
              % (IMPORTED.encode(), len(NOTE), NOTE))
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|", bufsize=1 << 20) as archive:
        for member in archive:
            path = member.name.removeprefix("./").partition("/")[2].encode()
            if member.issym():
                mode, content = b"120000", member.linkname.encode()
            elif member.isreg():
                mode = b"100755" if member.mode & 0o100 else b"100644"
                content = archive.extractfile(member).read()
            elif member.isdir():
                continue
            else:
                raise SystemExit(f"{member.name} is neither file, directory nor symbolic link")
            if path == b".gitignore":
                content = without_debian_ignores(content.decode()).encode()
            path = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
            out.write(b'M %s inline "%s"\ndata %d\n' % (mode, path, len(content)))
            out.write(content)
            out.write(b"\n")


if __name__ == "__main__":
    main()
