"""Tables and plots of timings: @perf_report(Benchmark(...)), as in Triton's testing module."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelpack.errors import LaunchError


@dataclass(frozen=True)
class Benchmark:
    """What a benchmark runs over, and how its figures are shown.

    The function is called with each of `x_vals` as every argument of `x_names` (a tuple gives each its own), each of `line_vals`
    as `line_arg`, called `line_names` in tables and plots, and `args`.
    """

    x_names: Sequence[str]
    x_vals: Sequence[Any]
    line_arg: str
    line_vals: Sequence[Any]
    line_names: Sequence[str]
    plot_name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    xlabel: str = ""
    ylabel: str = ""
    x_log: bool = False
    y_log: bool = False
    styles: Sequence[tuple[str, str]] | None = None


Row = tuple[float, float | None, float | None]
"""A figure, and the least and the most of it where the function gives them."""


class Mark:
    """A function with benchmarks; `run` runs them."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Benchmark | Iterable[Benchmark]) -> None:
        self.fn = fn
        self.benchmarks = benchmarks

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        diff_col: bool = False,
        save_precision: int = 6,
        **kwargs: Any,
    ) -> Any:
        """Runs every benchmark; prints tables, and writes NAME.csv, NAME.png and results.html into `save_path`.

        Plots need matplotlib. With `return_df` it returns pandas data frames, one or a list. `diff_col` adds the difference of
        two lines. `kwargs` go to the function.
        """
        alone = isinstance(self.benchmarks, Benchmark)
        benchmarks = [self.benchmarks] if isinstance(self.benchmarks, Benchmark) else list(self.benchmarks)
        tables = []
        for bench in benchmarks:
            table = self._table(bench, kwargs)
            header = [*bench.x_names, *bench.line_names] + (["Diff"] if diff_col and len(bench.line_vals) == 2 else [])
            lines = [
                [*xs, *(row[0] for row in rows)] + ([rows[1][0] - rows[0][0]] if len(header) > len(xs) + len(rows) else [])
                for xs, rows in table
            ]
            if show_plots or save_path:
                _plot(bench, table, save_path, show_plots)
            if print_data:
                sys.stdout.write(f"{bench.plot_name}:\n{_text(header, lines)}\n")
            if save_path:
                _save(bench, header, lines, Path(save_path), save_precision)
            tables.append((header, lines))
        if save_path:
            _html(Path(save_path), benchmarks)
        if not return_df:
            return None
        frames = [_frame(header, lines) for header, lines in tables]
        return frames[0] if alone else frames

    def _table(self, bench: Benchmark, kwargs: Mapping[str, Any]) -> list[tuple[list[Any], list[Row]]]:
        table = []
        for x in bench.x_vals:
            xs = list(x) if isinstance(x, (list, tuple)) else [x] * len(bench.x_names)
            if len(xs) != len(bench.x_names):
                raise LaunchError(f"{bench.plot_name}: expected {len(bench.x_names)} values, got {x}")
            rows: list[Row] = []
            for line in bench.line_vals:
                arguments = dict(zip(bench.x_names, xs, strict=True))
                figure = self.fn(**arguments, **{bench.line_arg: line}, **bench.args, **kwargs)
                rows.append(tuple(figure) if isinstance(figure, (list, tuple)) else (figure, None, None))
            table.append((xs, rows))
        return table


def perf_report(benchmarks: Benchmark | Iterable[Benchmark]) -> Callable[[Callable[..., Any]], Mark]:
    """Decorator: `function.run(print_data=True)` calls the function for all values of its benchmarks and shows what it returns:
    a number, or (number, least, most)."""
    return lambda fn: Mark(fn, benchmarks)


def _text(header: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    shown = [["", *header], *([str(place), *map(_number, line)] for place, line in enumerate(lines))]
    widths = [max(len(line[column]) for line in shown) for column in range(len(shown[0]))]
    return "\n".join("  ".join(entry.rjust(width) for entry, width in zip(line, widths, strict=True)) for line in shown)


def _number(value: Any) -> str:
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def _save(bench: Benchmark, header: Sequence[str], lines: Iterable[Sequence[Any]], folder: Path, digits: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{bench.plot_name}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([f"{entry:.{digits}f}" if isinstance(entry, float) else entry for entry in line] for line in lines)


def _html(folder: Path, benchmarks: Iterable[Benchmark]) -> None:
    images = "".join(f'<image src="{bench.plot_name}.png"/>\n' for bench in benchmarks)
    (folder / "results.html").write_text(f"<html><body>\n{images}</body></html>\n")


def _plot(bench: Benchmark, table: Sequence[tuple[list[Any], list[Row]]], save_path: str, show: bool) -> None:
    """Draws one line for each of the benchmark's, where there is matplotlib to do so."""
    try:
        from matplotlib import pyplot
    except ImportError:
        if show:
            raise LaunchError("plots need matplotlib", cure="pip install matplotlib") from None
        return
    figure = pyplot.figure()
    axes = figure.add_subplot()
    first = [xs[0] for xs, _ in table]
    for place, name in enumerate(bench.line_names):
        values = [rows[place] for _, rows in table]
        color, style = bench.styles[place] if bench.styles else (None, None)
        axes.plot(first, [value[0] for value in values], label=name, color=color, ls=style)
        if all(value[1] is not None for value in values):
            axes.fill_between(first, [value[1] for value in values], [value[2] for value in values], alpha=0.15, color=color)
    axes.legend()
    axes.set_xlabel(bench.xlabel or bench.x_names[0])
    axes.set_ylabel(bench.ylabel)
    axes.set_xscale("log" if bench.x_log else "linear")
    axes.set_yscale("log" if bench.y_log else "linear")
    if save_path:
        Path(save_path).mkdir(parents=True, exist_ok=True)
        figure.savefig(Path(save_path) / f"{bench.plot_name}.png")
    if show:
        pyplot.show()
    pyplot.close(figure)


def _frame(header: Sequence[str], lines: Sequence[Sequence[Any]]) -> Any:
    try:
        import pandas
    except ImportError:
        raise LaunchError("return_df needs pandas", cure="pip install pandas") from None
    return pandas.DataFrame([list(line) for line in lines], columns=list(header))
