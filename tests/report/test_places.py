"""Readers of line information take it from each kind of text, and out of it."""

from __future__ import annotations

from kernelpack.report.places import Places, Text, assembly_lines, ir_lines, llvm_lines, sass_lines, with_callers


def test_ir_says_its_lines_by_locations() -> None:
    plain = "module {\n  %0 = a : i32\n  %1 = b\n}\n"
    located = 'module {\n  %0 = a : i32 loc("/home/x/k.py":3:5)\n  %1 = b loc(callsite("/home/x/k.py":9:1 at "/home/x/k.py":12:2))\n}\n'
    assert ir_lines(plain, located) == Text(
        ("module {", "  %0 = a : i32", "  %1 = b", "}"), ((), (("k.py", 3),), (("k.py", 9), ("k.py", 12)), ())
    )


def test_llvm_ir_says_them_by_metadata() -> None:
    text = (
        "define void @k() !dbg !2 {\n  %a = add i32 1, 2, !dbg !4\n  %b = mul i32 1, 2, !dbg !6\n  ret void\n}\n"
        '!0 = distinct !{!0, !1}\n!1 = !DIFile(filename: "k.py", directory: "")\n'
        '!2 = distinct !DISubprogram(name: "k", scope: !1, file: !1, line: 7)\n'
        "!3 = !DILexicalBlockFile(scope: !2, file: !1, discriminator: 0)\n!4 = !DILocation(line: 8, column: 1, scope: !3)\n"
        '!5 = !DIFile(filename: "a\\22b.py", directory: "")\n'
        "!6 = !DILocation(line: 20, column: 1, scope: !7, inlinedAt: !4)\n"
        '!7 = distinct !DISubprogram(name: "f", scope: !5, file: !5, line: 1)\n'
    )
    found = llvm_lines(text)
    assert found.lines == (
        "define void @k() !dbg !2 {", "  %a = add i32 1, 2", "  %b = mul i32 1, 2", "  ret void", "}", "!0 = distinct !{!0, !1}",
    )  # fmt: skip
    assert found.chains == ((("k.py", 7),), (("k.py", 8),), (("a\\22b.py", 20), ("k.py", 8)), (), (), ())


def test_metadata_that_is_not_there_says_nothing() -> None:
    assert llvm_lines("  %a = add i32 1, 2, !dbg !4").chains == ((),)


def test_assembly_says_them_by_directives() -> None:
    text = (
        "k:\n\t.loc\t1 3 0\n\tadd r1\n\t.loc\t2 5 1\n\tmul r2\nlabel:\n\tsub r3\n\t.loc\t2 0 1\n\tdiv r4\n"
        '\t.file\t1 "k.py"\n\t.file\t2 "folder" "f.py"\n'
    )
    assert assembly_lines(text) == Text(
        ("k:", "\tadd r1", "\tmul r2", "label:", "\tsub r3", "\tdiv r4"),
        ((), (("k.py", 3),), (("folder/f.py", 5),), (), (("folder/f.py", 5),), ()),
    )


def test_sass_says_them_by_remarks() -> None:
    text = (
        '\t.section .text.k\n\t//## File "k.py", line 3\n        /*0000*/                   MOV R1 ;\n.L_x_1:\n'
        '\t//## File "f.py", line 9 inlined at "k.py", line 4\n        /*0010*/                   EXIT ;\n'
        "\t.section .text.g\n        /*0000*/                   RET ;\n"
    )
    found = sass_lines(text)
    assert [line.split()[0] for line in found.lines] == [".section", "/*0000*/", ".L_x_1:", "/*0010*/", ".section", "/*0000*/"]
    assert found.chains == ((), (("k.py", 3),), (), (("f.py", 9), ("k.py", 4)), (), ())


def test_callers_are_added_where_there_is_one_way_to_a_line() -> None:
    once, twice, plain = ("f.py", 1), ("f.py", 2), ("k.py", 3)
    known = [(once, plain), (twice, plain), (twice, ("k.py", 4)), (plain,)]
    text = Text(("a", "b", "c", "d"), ((once,), (twice,), (plain,), ()))
    assert with_callers(text, known).chains == ((once, plain), (twice,), (plain,), ())


def test_a_place_is_kept_once_and_knows_its_caller() -> None:
    places = Places()
    assert places.number(()) == 0
    outer = places.number((("k.py", 4),))
    inner = places.number((("f.py", 9), ("k.py", 4)))
    assert places.number((("f.py", 9), ("k.py", 4))) == inner
    assert places.number((("f.py", 9),)) not in (0, inner)
    assert places.rows[inner - 1] == (places.files.index("f.py"), 9, outer)
