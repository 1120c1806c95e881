"""Products of warpgroups that are in flight: how they are issued, and waited for in a loop, at the end of an iteration, after the loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kernelpack.backends.cuda.machine.dialect import WAIT
from kernelpack.backends.cuda.schedule.loop_schedule import Products, Wait
from kernelpack.ir.core import Block, Builder, Location, Operation, Region, Value
from kernelpack.ir.types import I1


def issue(build: Builder, op: Operation, mapping: dict[Value, Value], products: Products) -> None:
    """Copies an operation of a loop to a new one; a product that is awaited later runs on."""
    clone = build.insert(op.clone(mapping))
    if op in products.awaited:
        clone.attributes["isAsync"] = True


def waits_before(build: Builder, op: Operation, mapping: dict[Value, Value], products: Products) -> Iterator[Wait]:
    """Waits for the products that an operation of a loop is the first to read, and yields each wait when it stands."""
    for wait in products.waits:
        if wait.before is op:
            awaited = build.create(WAIT, [mapping[wait.value]], {"pendings": wait.pendings})
            if op.name != "scf.yield":
                awaited.location = op.location
            mapping[wait.value] = awaited.result
            yield wait


def run_on_in_place(products: Products) -> None:
    """Lets products of a loop run on, which else stays as it is."""
    for product in products.awaited:
        product.attributes["isAsync"] = True
    for wait in products.waits:
        awaited = Builder.before(wait.before).create(WAIT, [wait.value], {"pendings": wait.pendings})
        wait.value.replace_all_uses_with(awaited.result)
        awaited.set_operands([wait.value])


def keep_in_flight(build: Builder, mapping: Mapping[Value, Value], deferred: Sequence[Operation]) -> None:
    """At the end of a new loop's body, lets its copies of deferred products run on; those of the iteration before are done."""
    for dot in deferred:
        product = mapping[dot.result].defining_op
        assert product is not None
        product.attributes["isAsync"] = True
    if deferred:
        build.create(WAIT, (), {"pendings": len(deferred)})


def await_products(build: Builder, results: Iterable[Value], products: Sequence[Operation]) -> list[Value]:
    """Waits for all products. Returns the results of a loop, of which those of `products`, that its old body yields, are done."""
    done = list(results)
    if not products:
        return done
    places = [product.result.uses[0][1] for product in products]
    waited = build.create(WAIT, [done[place] for place in places], {"pendings": 0})
    for place, value in zip(places, waited.results, strict=True):
        done[place] = value
    return done


def branch_if_iterates(build: Builder, operands: Sequence[Value], location: Location) -> tuple[Operation, Block]:
    """Creates a branch that is taken if a loop of these operands has an iteration. Returns it and its block, which lacks its
    `scf.yield`; where there is no iteration, its results are the loop's initial values.

    Products that are in flight after a loop are waited for in such a branch, on the way out of an iteration: where accumulators meet
    those of no iteration, the assembler finds that they are written before the wait by something other than products, and waits for
    every product (messages C7514 and C7515).
    """
    lower, upper, _, *initial = operands
    iterates = build.value("arith.cmpi", [lower, upper], {"predicate": "slt"}, I1)
    then, otherwise = Block(), Block()
    types = [value.type for value in initial]
    whole = build.create("scf.if", [iterates], {}, types, [Region([then]), Region([otherwise])])
    Builder(otherwise, location=location).create("scf.yield", initial)
    return whole, then


def where_it_iterates(loop: Operation) -> Block:
    """Puts a loop into a branch that is taken if there is an iteration, whose results take the place of the loop's. Returns the
    branch's block, which lacks its `scf.yield`."""
    whole, then = branch_if_iterates(Builder.before(loop), loop.operands, loop.location)
    for old, new in zip(loop.results, whole.results, strict=True):
        new.name = old.name
        old.replace_all_uses_with(new)
    loop.detach()
    then.append(loop)
    return then
