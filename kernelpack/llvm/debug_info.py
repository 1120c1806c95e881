"""Which line of Python each LLVM instruction comes from, as metadata that ends up in PTX, cubins and profilers.

Only directives (`emissionKind: DebugDirectivesOnly`): no variables or types, nothing that changes the code. Files are named
relative to the folder that holds their outermost package, so that equal sources give equal bytes wherever they lie. What the
language's own functions (tl.sum, tl.softmax) compute is shown at the line that calls them.
"""

from __future__ import annotations

from pathlib import Path

from kernelpack.errors import SourceLocation
from kernelpack.ir.core import Location
from kernelpack.ir.locations import relative_name, user_location


class DebugInfo:
    """The source locations of one LLVM module. Metadata numbers start at `first`; lower ones are the caller's."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._known: dict[tuple[int, Location, bool], int] = {}
        self._unit: int | None = None

    def function(self, name: str, location: Location) -> int | None:
        """Returns the number to attach to a definition (`!dbg !7`); None where nobody knows its source."""
        return None if location.source is None else self._subprogram(name, location.source)

    def at(self, function: int | None, location: Location) -> str:
        """Returns what to write after an instruction of a function, `, !dbg !9`, or nothing."""
        location = user_location(location)
        if function is None or location.source is None:
            return ""
        return f", !dbg !{self._location(function, location, False)}"

    def lines(self, *flags: str) -> list[str]:
        """Returns the module's metadata: the caller's `flags` of the module, and where code comes from if any function has a source."""
        numbers = [self._add(flag) for flag in flags]
        units = []
        if self._unit is not None:
            numbers.append(self._add('!{i32 2, !"Debug Info Version", i32 3}'))
            units.append(f"!llvm.dbg.cu = !{{!{self._unit}}}")
        return [
            *units,
            *([f"!llvm.module.flags = !{{{', '.join(f'!{number}' for number in numbers)}}}"] if numbers else []),
            *(f"!{number} = {text}" for number, text in enumerate(self._texts, self._first)),
        ]

    def _add(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = self._first + len(self._texts)
            self._texts.append(text)
        return self._numbers[text]

    def _file(self, name: str) -> int:
        return self._add(f'!DIFile(filename: "{relative_name(name)}", directory: "")')

    def _subprogram(self, name: str, source: SourceLocation) -> int:
        file = self._file(source.file)
        if self._unit is None:
            self._unit = self._add(
                f'distinct !DICompileUnit(language: DW_LANG_Python, file: !{file}, producer: "kernelpack", isOptimized: true, '
                "runtimeVersion: 0, emissionKind: DebugDirectivesOnly)"
            )
        nothing = self._add("!DISubroutineType(types: null)")
        return self._add(
            f'distinct !DISubprogram(name: "{name}", scope: !{file}, file: !{file}, line: {source.line}, type: !{nothing}, '
            f"scopeLine: {source.line}, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !{self._unit})"
        )

    def _location(self, function: int, location: Location, is_call: bool) -> int:
        """Returns the number of a location; code that was inlined is in a scope of its file, and knows where it was called."""
        key = (function, location, is_call)
        if key in self._known:
            return self._known[key]
        source = location.source
        assert source is not None
        caller = location.callsite
        if caller is not None and caller.source is not None:
            stem = Path(source.file).stem
            scope = self._subprogram(stem, SourceLocation(source.file, 1))
            inlined = f", inlinedAt: !{self._location(function, caller, True)}"
        else:
            scope = self._add(f"!DILexicalBlockFile(scope: !{function}, file: !{self._file(source.file)}, discriminator: 0)")
            inlined = ""
        text = f"!DILocation(line: {source.line}, column: {source.column}, scope: !{scope}{inlined})"
        self._known[key] = self._add(f"distinct {text}" if is_call else text)
        return self._known[key]
