# SPDX-License-Identifier: GPL-2.0
"""What is measured: workloads, scenarios, and what becomes of them on each variant."""

from dataclasses import dataclass

# Four keys, of which QEMU counts two; the others take counters like any.
FOUR = "cycles,instructions,r10,r3"
EIGHT = FOUR + ",r4,r5,r12,r14"
SIX_EQUAL = ",".join(["cycles"] * 6)
DIFFERENT = (FOUR, "r4,r5,r12,r14", "r16,r17,r18,r19")
TEN = EIGHT + ",r16,r17"

# The cgroups of the largest scenario; the workload runs in the first two.
CGROUPS = ("a", "b", *(f"c{number}" for number in range(3, 201)))


@dataclass(frozen=True)
class Workload:
    """A command that does OPERATIONS in each loop and tells its time."""
    command: str
    loops: int
    unit: str
    operations: int = 1


WORKLOADS = {
    "pipe": Workload("perf bench sched pipe -l $loops", 10000, "a context switch"),
    "pipe-ab": Workload("perf bench sched pipe -l $loops -G a,b", 10000,
                        "a context switch from one cgroup to the other"),
    "fork": Workload("perf bench syscall fork -l $loops", 500, "fork, exit and wait"),
    # 20 senders, 20 receivers.
    "messaging": Workload("perf bench sched messaging -g 1 -l $loops", 200, "a message", 400),
}


@dataclass(frozen=True)
class Scenario:
    """SESSIONS run beside the workload; TASK are those that are wrapped around it, the
    options of a perf stat each. DUP is the sysctl where it is not to be 1, REPEAT how many
    times as often as the others it is measured. Without a workload it is only about
    memory."""
    name: str
    title: str
    workload: str = "pipe"
    sessions: tuple = ()
    task: tuple = ()
    dup: int = 1
    quick: bool = False
    repeat: int = 1

    def runs_on(self, variant):
        """Where nothing is counted BPF programs have nothing to do; and their memory is
        not only that of events."""
        return not variant.bpf or bool(self.workload and (self.sessions or self.task))

    def lines(self, variant):
        """What bench/guest.sh is to do."""
        yield f"begin {self.name}" + (f" {self.dup}" if variant.dup == "1" else "")
        for options in self.sessions:
            yield f"session {options}"
        if self.workload:
            work = WORKLOADS[self.workload]
            command = work.command
            for number, options in enumerate(self.task, 1):
                command = (f"perf stat $BPF -j -o $place/task$n-$loops-{number}.json "
                           f"{options} -- {command}")
            yield f"measure {work.loops} '{command}' {self.repeat}"
        else:
            yield "take"
        yield "end"


def cpu(events=FOUR):
    return f"-a -e {events}"


def cgroups(number, events=FOUR):
    return f"-a -e {events} --for-each-cgroup {','.join(CGROUPS[:number])}"


def task(events=FOUR):
    return f"-e {events}"


def cgroup_scenarios():
    for count, events in ((4, FOUR), (8, EIGHT)):
        for number in (2, 16, 200):
            for beside in (False, True):
                yield Scenario(
                    f"cgroups-{number}x{count}" + ("-cpu" if beside else ""),
                    f"{count} events on {number} cgroups"
                    + (", beside an -a session" if beside else ""), "pipe-ab",
                    (cgroups(number, events), *([cpu(events)] if beside else [])),
                    quick=(count, number) == (4, 2))


SCENARIOS = (
    # For these the bar is 0.05 %, which now and then a run misses: the median counts.
    Scenario("none", "no events", quick=True, repeat=3),
    Scenario("none-ab", "no events, cgroups a and b", "pipe-ab", quick=True, repeat=3),
    Scenario("cpu-1", "an -a session", sessions=(cpu(),), quick=True),
    *(Scenario(f"cpu-{number}", f"{number} equal -a sessions", sessions=(cpu(),) * number,
               quick=number == 3) for number in (2, 3, 8)),
    Scenario("cpu-different", "3 different -a sessions, 12 keys",
             sessions=tuple(map(cpu, DIFFERENT)), quick=True),
    Scenario("task-1", "a session on the task", task=(task(),), quick=True),
    *(Scenario(f"task-{number}", f"{number} equal sessions on the task",
               task=(task(),) * number, quick=number == 3) for number in (2, 3)),
    Scenario("task-cpu", "a session on the task, beside an -a session", sessions=(cpu(),),
             task=(task(),), quick=True),
    *cgroup_scenarios(),
    Scenario("rotation-1", "an -a session of 10 keys", sessions=(cpu(TEN),)),
    Scenario("rotation-2", "2 equal -a sessions of 10 keys", sessions=(cpu(TEN),) * 2),
    Scenario("fork-none", "no events, fork and exit", "fork"),
    Scenario("fork-1", "a session that each fork inherits", "fork", task=(task(),)),
    Scenario("fork-2", "2 equal sessions that each fork inherits", "fork", task=(task(),) * 2),
    Scenario("messaging-none", "no events, messages", "messaging"),
    Scenario("messaging-6", "6 equal events of an -a session, messages (patched: sysctl 2)", "messaging",
             sessions=(cpu(SIX_EQUAL),), dup=2),
    Scenario("messaging-6x2", "the same events of 2 -a sessions, messages", "messaging",
             sessions=(cpu(SIX_EQUAL),) * 2),
)


# What a thousand equal events take. The first process is one that hardly does anything.
def thousand(options):
    return (f"{options} -e {','.join(['cycles'] * 1000)}",)


MEMORY = (
    Scenario("memory-cpu", "1000 equal events of a CPU and one opener", "",
             thousand("-a")),
    Scenario("memory-cpu-shared", "the same at sysctl 2, where they share", "", thousand("-a"), dup=2),
    Scenario("memory-task", "1000 equal events of a task and one opener", "",
             thousand("-i -p 1")),
    Scenario("memory-task-shared", "the same at sysctl 2, where they share", "", thousand("-i -p 1"), dup=2),
)


@dataclass(frozen=True)
class Variant:
    """A kernel, what its sysctl is, and who counts: the kernel, or BPF programs."""
    name: str
    title: str
    kernel: str
    dup: str = ""
    bpf: bool = False


VARIANTS = (
    Variant("unpatched", "unpatched", "unpatched"),
    Variant("dup-0", "patched, sysctl 0", "patched", "0"),
    Variant("dup-1", "patched", "patched", "1"),
    Variant("bpf", "BPF counters, unpatched", "unpatched", bpf=True),
)

# Those where the kernel itself counts.
KERNELS = tuple(variant for variant in VARIANTS if not variant.bpf)
# With 2, equal events of one process share as well.
DUP_2 = Variant("dup-2", "patched, sysctl 2", "patched", "2")

# bench/open.c: its arguments, target and openers.
OPENS = tuple((target, openers) for target in ("cpu", "task")
              for openers in ("many", "one", "keys"))
