"""llir -> LLVM IR for the host: no address spaces, every machine operation a call, every access to memory announced.

The site of an operation is its line in the llir, counted from 1. Planted faults are sites that are switched off while the code
runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernelpack.errors import UnsupportedError
from kernelpack.simt import machine
from kernelpack.simt.accumulators import Accumulators
from kernelpack.simt.assembly_code import Slots, function_of, members

SHARED_BASE = 0x60000000 + 1024
"""Where a block's shared memory begins: csrc/simt/simt.h."""
ENTRY = "simt_entry"
_READ, _WRITE, _ATOMIC = 0, 1, 2

_OWN_MEMORY = re.compile(
    r"@(?P<name>[\w.]+) = internal addrspace\(1\) (?P<kind>global|constant) \[(?P<count>\d+) x (?P<element>\w+)\]"
)
_DEBUG = re.compile(r",? !dbg !(\d+)")
_CALL = re.compile(
    r"call (?P<result>void|\{[^}]*\}|<[^>]*>|\w+) @llvm\.nvvm\.(?P<name>[\w.]+)\((?P<arguments>.*)\)(?P<rest>[^)]*)$"
)
_ASM = re.compile(
    r'call (?P<result>void|\{[^}]*\}|<[^>]*>|\w+) asm (?:sideeffect )?"(?P<text>[^"]*)", "(?P<constraints>[^"]*)"'
    r"\((?P<arguments>.*)\)(?P<rest>[^)]*)$"
)
_PLACE = r"ptr(?: addrspace\((?P<space>\d)\))? (?P<pointer>[^,]+)"
_LOAD = re.compile(rf"= load (?:volatile |atomic )?(?P<kind>[^,]+), {_PLACE}(?:.*, align (?P<align>\d+))?")
_STORE = re.compile(rf"store (?:volatile |atomic )?(?P<value>.+), {_PLACE}(?:.*, align (?P<align>\d+))?$")
_ATOMIC_RMW = re.compile(rf"(?:= )?(?:atomicrmw (?:volatile )?\w+|cmpxchg (?:weak |volatile )*) ?{_PLACE}, (?P<kind>\S+)")
_MASKED_BRANCH = re.compile(r"br i1 (?P<condition>[^,]+), label %(?:if|atomic)\d+,")


@dataclass(frozen=True)
class Removable:
    """What a planted fault can remove: a `kind` of synchronisation, or the masks of one operation of the source."""

    kind: str
    sites: tuple[int, ...]


@dataclass(frozen=True)
class OwnMemory:
    """Global memory that belongs to the kernel's module. What is not `constant` begins as zeros."""

    name: str
    bytes: int
    constant: bool


@dataclass(frozen=True)
class Translated:
    """Host LLVM IR with what the launcher and reports need. `debug` maps sites to numbers of debug locations."""

    text: str
    parameters: tuple[str, ...]
    debug: dict[int, int]
    removable: tuple[Removable, ...]
    functions: tuple[str, ...]
    """Functions that the kernel calls and does not define."""
    memory: tuple[OwnMemory, ...]


SYNCHRONISATION = {
    "bar_sync": "barrier", "bar_arrive": "barrier", "bar_warp": "barrier", "cp_wait": "wait", "bulk_wait": "wait",
    "mbarrier_wait": "wait", "wgmma_wait": "wait", "fence_proxy": "fence", "wgmma_fence": "fence",
    "tensormap_publish": "fence", "tensormap_acquire": "fence", "mbarrier_arrive": "arrival", "wgmma_commit": "commit",
}  # fmt: skip


def size_of(kind: str) -> int:
    """Returns the bytes of an LLVM type in memory."""
    kind = kind.strip()
    if match := re.fullmatch(r"<(\d+) x (.+)>", kind):
        return int(match[1]) * size_of(match[2])
    if match := re.fullmatch(r"i(\d+)", kind):
        return max(1, int(match[1]) // 8)
    sizes = {"float": 4, "double": 8, "half": 2, "bfloat": 2, "ptr": 8}
    if kind not in sizes:
        raise UnsupportedError(f"the emulator does not know the size of LLVM type {kind}")
    return sizes[kind]


def split_arguments(text: str) -> list[tuple[str, str]]:
    """Returns types and values of `float %a, <2 x half> %b, ptr nonnull %c`."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text + ","):
        depth += letter in "<{[("
        depth -= letter in ">}])"
        if letter == "," and not depth:
            parts.append(text[start:index].strip())
            start = index + 1
    found = []
    for part in filter(None, parts):
        match = re.match(r"(<[^>]*>|\{[^}]*\}|\w+)\s+(?:.*\s)?(\S+|splat \(.*\))$", part)
        assert match is not None, part
        found.append((match[1], match[2]))
    return found


def translate(llir: str) -> Translated:
    """Translates a kernel. Raises UnsupportedError for a machine operation that the emulator does not model."""
    return _Translation(llir).run()


class _Translation:
    def __init__(self, llir: str) -> None:
        self.lines = llir.splitlines()
        self.functions: dict[tuple[object, ...], str] = {}
        self.texts: list[str] = []
        self.called: set[str] = {"wgmma_written"}
        self.debug: dict[int, int] = {}
        self.kinds: dict[int, str] = {}
        self.masks: dict[int, int | None] = {}
        self.parameters: list[str] = []
        self.external: list[str] = []
        self.memory: list[OwnMemory] = []
        self.shared = ""
        self.fresh = 0
        self.accumulators = Accumulators(self.lines)

    def run(self) -> Translated:
        body: list[str] = []
        for site, line in enumerate(self.lines, 1):
            if match := _DEBUG.search(line):
                if not line.startswith("define"):
                    self.debug[site] = int(match[1])
                line = _DEBUG.sub("", line)
            translated = self.line(site, line)
            if translated is not None:
                body.append(translated)
        text = "\n".join([*body, *self.texts, *self.declarations(), self.start()])
        return Translated(text, tuple(self.parameters), self.debug, self.removable(), tuple(self.external), tuple(self.memory))

    def removable(self) -> tuple[Removable, ...]:
        found = [Removable(kind, (site,)) for site, kind in self.kinds.items()]
        by_place: dict[object, list[int]] = {}
        for site, place in self.masks.items():
            by_place.setdefault(("at", site) if place is None else place, []).append(site)
        return (*found, *(Removable("mask", tuple(sites)) for sites in by_place.values()))

    def declarations(self) -> list[str]:
        return [
            "@simt_off = external global [1048576 x i8]",
            "declare void @simt_access(i64, i32, i32, i32, i32, i32)",
            "declare void @simt_wgmma_used(i32, i32)",
            *(f"declare void @simt_{function}(i32, ptr, ptr)" for function in sorted(self.called)),
        ]

    def start(self) -> str:
        """A function that takes the arguments as slots."""
        lines = [f"define void @{ENTRY}(ptr %arguments) {{"]
        values = []
        for index, kind in enumerate(self.parameters):
            lines += [
                f"  %p{index} = getelementptr i64, ptr %arguments, i64 {index}",
                f"  %v{index} = load {kind}, ptr %p{index}",
            ]
            values.append(f"{kind} %v{index}")
        return "\n".join([*lines, f"  call void @simt_kernel({', '.join(values)})", "  ret void", "}"])

    # ---- lines ----

    def line(self, site: int, line: str) -> str | None:
        if line.startswith("target ") or re.match(
            r"!(llvm\.(dbg|module|ident)|\d+ = (distinct )?!DI|\d+ = !\{i32 \d, !\")", line
        ):
            return None
        line = line.replace("@vprintf(", "@simt_vprintf(")
        if "@__assertfail(" in line:  # where it stands, for the report
            line = line.replace(
                "@__assertfail(", "@simt_assertfail(" + ("i32, " if line.startswith("declare") else f"i32 {site}, ")
            )
        if line.startswith("declare"):
            if match := re.search(r"@((?!llvm\.)[\w$.]+)\(", line):
                self.external.append(match[1])
            return None if "@llvm.nvvm." in line else self.plain(line)
        if match := re.match(r"@([\w.]+) = external addrspace\(3\) global", line):
            self.shared = match[1]
            return None
        if line.startswith("define"):
            return self.definition(line)
        if match := _OWN_MEMORY.match(line):
            size = int(match["count"]) * size_of(match["element"])
            self.memory.append(OwnMemory(match["name"], size, match["kind"] == "constant"))
            return self.plain(line).replace(" internal", "", 1)  # Python asks where it lies
        if not line.startswith((" ", "\t")):
            return self.plain(line)
        if " asm " in line:
            return self.before(site, line) + self.plain(_ASM.sub(lambda match: self.assembly(site, match), line))
        if "@llvm.nvvm." in line:
            return self.before(site, line) + self.plain(_CALL.sub(lambda match: self.intrinsic(site, match), line))
        return self.before(site, line) + self.announced(site, self.plain(line), line)

    def plain(self, line: str) -> str:
        if self.shared:
            line = re.sub(rf"@{re.escape(self.shared)}\b", f"inttoptr (i64 {SHARED_BASE} to ptr)", line)
        line = re.sub(r" addrspace\(\d\)", "", line)
        line = re.sub(r' syncscope\("[^"]*"\)', "", line)
        line = re.sub(r"addrspacecast ptr (\S+) to ptr", r"getelementptr i8, ptr \1, i64 0", line)
        return re.sub(r" #\d+$", "", line)

    def definition(self, line: str) -> str:
        head = re.match(r"define (?P<kind>.*?)@(?P<name>[\w$.]+)\((?P<parameters>.*?)\)(?= \"| \{| #| !| noinline|$)", line)
        assert head is not None, line
        parameters = re.sub(r" (byval\([^)]*\)|align \d+|\"[^\"]*\")", "", self.plain(head["parameters"]))
        if "ptx_kernel" not in head["kind"]:
            return f"define {self.plain(head['kind'])}@{head['name']}({parameters}) {{"
        self.parameters = [part.split()[0] for part in parameters.split(", ") if part]
        return f"define internal void @simt_kernel({parameters}) {{"

    def before(self, site: int, line: str) -> str:
        """Returns checks of accumulators of asynchronous products that a line uses, each on a line of its own."""
        text = ""
        for value, kind in self.accumulators.used_at(site):
            name = self.name()
            word = f"  {name} = bitcast {kind} {value} to i32\n" if kind != "i32" else f"  {name} = or i32 {value}, 0\n"
            text += word + f"  call void @simt_wgmma_used(i32 {name}, i32 {site})\n"
        if self.accumulators.written_before(site):
            text += f"  call void @simt_wgmma_written(i32 {site}, ptr null, ptr null)\n"
        return text

    def name(self) -> str:
        self.fresh += 1
        return f"%simt{self.fresh}"

    def announced(self, site: int, line: str, original: str) -> str:
        """Returns a line with a check of the access that it makes before it."""
        if match := _LOAD.search(original):
            return self.access(site, match, match["kind"], _READ) + line
        if match := _ATOMIC_RMW.search(original):
            return self.access(site, match, match["kind"], _ATOMIC) + line
        if original.lstrip().startswith("store "):
            match = _STORE.search(original)
            assert match is not None, original
            kind = re.match(r"<[^>]*>|\w+", match["value"])
            assert kind is not None
            return self.access(site, match, kind[0], _WRITE) + line
        if match := _MASKED_BRANCH.search(original):
            self.masks[site] = self.debug.get(site)
            off, removed, condition = self.name(), self.name(), self.name()
            return (
                f"  {off} = load i8, ptr getelementptr (i8, ptr @simt_off, i64 {site})\n"
                f"  {removed} = icmp ne i8 {off}, 0\n"
                f"  {condition} = or i1 {match['condition']}, {removed}\n"
            ) + line.replace(f"br i1 {match['condition']}", f"br i1 {condition}", 1)
        return line

    def access(self, site: int, match: re.Match[str], kind: str, access: int) -> str:
        pointer, space = self.plain(match["pointer"]), match["space"] or "0"
        if space == "0" and re.match(r"%(slot|stack)", pointer):
            return ""
        size = size_of(self.plain(kind))
        align = match.groupdict().get("align") or str(size)
        address = self.name()
        return (
            f"  {address} = ptrtoint ptr {pointer} to i64\n"
            f"  call void @simt_access(i64 {address}, i32 {size}, i32 {align}, i32 {access}, i32 {space}, i32 {site})\n"
        )

    # ---- machine operations ----

    def intrinsic(self, site: int, match: re.Match[str]) -> str:
        arguments = split_arguments(self.plain(match["arguments"]))
        plan = machine.intrinsic(match["name"])
        self.note(site, plan.function)
        kinds = tuple(kind for kind, _ in arguments)
        result = self.plain(match["result"])
        key = (plan, result, kinds)
        if key not in self.functions:
            self.functions[key] = f"simt_do_{len(self.functions)}"
            self.texts.append(self.wrapper(self.functions[key], plan, result, kinds))
        return self.call(result, self.functions[key], site, arguments)

    def wrapper(self, name: str, plan: machine.CallPlan, result: str, kinds: Sequence[str]) -> str:
        slots = Slots()
        given = [slots.to_slot(f"%a{index}", kind) for index, kind in enumerate(kinds)]
        if plan.inputs is not None:
            given = [str(pick.value) if isinstance(pick, machine.Constant) else given[pick] for pick in plan.inputs]
        self.called.add(plan.function)
        slots.give(slots.call(plan.function, [*given, *map(str, plan.constants)], len(members(result))), result)
        parameters = ", ".join(["i32 %site", *(f"{kind} %a{index}" for index, kind in enumerate(kinds))])
        lines = [f"define internal {result} @{name}({parameters}) noinline {{", *slots.allocas, *slots.lines, "}"]
        return "\n".join(lines)

    def assembly(self, site: int, match: re.Match[str]) -> str:
        arguments = split_arguments(self.plain(match["arguments"]))
        kinds = tuple(kind for kind, _ in arguments)
        result = self.plain(match["result"])
        key = (match["text"], match["constraints"], result, kinds)
        if key not in self.functions:
            self.functions[key] = f"simt_do_{len(self.functions)}"
            text, called = function_of(self.functions[key], match["text"], match["constraints"], result, kinds)
            self.texts.append(text)
            self.called |= called
        for function in _functions_in(self.texts, self.functions[key]):
            self.note(site, function)
        if re.match(r"@\$\d+ (ld|st|atom)\b", match["text"]):
            self.masks[site] = self.debug.get(site)
        return self.call(result, self.functions[key], site, arguments)

    def note(self, site: int, function: str) -> None:
        if function in SYNCHRONISATION:
            self.kinds[site] = SYNCHRONISATION[function]
        if function == "cp_async":
            self.masks[site] = self.debug.get(site)

    def call(self, result: str, function: str, site: int, arguments: Sequence[tuple[str, str]]) -> str:
        given = ", ".join([f"i32 {site}", *(f"{kind} {value}" for kind, value in arguments)])
        return f"call {result} @{function}({given})"


def _functions_in(texts: Sequence[str], name: str) -> list[str]:
    text = next(text for text in texts if f" @{name}(" in text.partition("\n")[0])
    return re.findall(r"call void @simt_(\w+)\(i32 %site, ptr", text)
