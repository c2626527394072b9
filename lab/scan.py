# SPDX-License-Identifier: GPL-2.0
"""Find reports of kernel trouble in a guest's console log.

A run whose log holds one fails even when all its tests passed.  Reports that
are known and accepted stand in lab/known-reports.txt, one per line:

  regex | reason | link | expiry date (YYYY-MM-DD)

An entry past its date, or without a reason and a link, is an error.
"""

import datetime
import re
from pathlib import Path

KNOWN = Path(__file__).resolve().parent / "known-reports.txt"

STAMP = re.compile(r"\[\s*\d+\.\d{6}\](?:\[[^]]*\])? ?(.*)")

# Words that programs use too: only after the time stamp of a kernel message.
KERNEL = [
    r"\bWARNING:",
    r"\bBUG\b",
    r"\bOops\b",
    r"\bKASAN\b:",
    r"\bRCU\b.*\bstall",
    r"(?:^|\brcu: )INFO: ",
    r"^\*\*\* .* \*\*\*$",
]

# Words that only the kernel uses: anywhere.
ANYWHERE = [
    r"\bCall [Tt]race:",
    r"\bBUG: ",
    r"\bKASAN: (?!shadow)",
    r"\bKCSAN: ",
    r"\bKFENCE: ",
    r"\bUBSAN: ",
    r"\bODEBUG: ",
    r"Kernel panic - not syncing",
    r"Unable to handle kernel",
    r"Internal error: ",
    r"general protection fault",
    r"------------\[ cut here \]",
    r"possible recursive locking",
    r"possible circular locking",
    r"possible irq lock inversion",
    r"inconsistent lock state",
    r"bad unlock balance",
    r"held lock freed",
    r"Invalid wait context",
    r"trying to register non-static key",
    r"turning off the locking correctness validator",
    r"suspicious RCU usage",
    r"sleeping function called from invalid context",
    r"scheduling while atomic",
    r"using (?:smp_processor_id|__this_cpu_\w+)\(\) in preemptible",
    r"refcount_t: ",
    r"list_(?:add|del)\w* (?:corruption|double add)",
    r"detected (?:expedited )?stall",
    r"self-detected stall",
    r"blocked for more than",
    r"soft lockup",
    r"hard LOCKUP",
    r"workqueue lockup",
    r"Bad page state",
    r"unchecked MSR access",
    r"(?:Redzone|Padding|Poison|Object) overwritten",
    r"stack-protector: Kernel stack is corrupted",
    r"segfault at|unhandled (?:level \d )?\w+ fault",
]

_kernel = re.compile("|".join(KERNEL))
_anywhere = re.compile("|".join(ANYWHERE))


class BadList(Exception):
    """The list of known reports cannot be used as it stands."""


def known_reports(path=KNOWN, today=None):
    """The expressions of the list; BadList names the first bad entry."""
    today = today or datetime.date.today()
    expressions = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        fields = [field.strip() for field in line.rsplit("|", 3)]
        if len(fields) != 4 or not all(fields):
            raise BadList(f"{path.name}:{number}: "
                          "not 'regex | reason | link | expiry date'")
        try:
            expression = re.compile(fields[0])
            expires = datetime.date.fromisoformat(fields[3])
        except (re.error, ValueError) as error:
            raise BadList(f"{path.name}:{number}: {error}") from error
        if expires < today:
            raise BadList(f"{path.name}:{number}: expired on {expires}")
        expressions.append(expression)
    return expressions


def reports(lines, known=None):
    """The lines of a console log that report trouble."""
    if known is None:
        known = known_reports()
    found = []
    for line in lines:
        stamped = STAMP.search(line)
        hit = _anywhere.search(line) or (
            stamped and _kernel.search(stamped.group(1)))
        if hit and not any(expression.search(line) for expression in known):
            found.append(line.strip())
    return found
