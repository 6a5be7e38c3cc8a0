"""Bugs that really happened: the plants of the museum's exhibits, each of which the suite must notice."""

from __future__ import annotations

from posixpath import relpath

from groupcoord.testing.museum.exhibit import Exhibit, Plant, exhibit, exhibits
from tests.mutants.catalogue import Mutant


def mutant_of(shown: Exhibit, plant: Plant) -> Mutant:
    """Return the bug of an exhibit as one of the seeded bugs."""
    return Mutant(f"{shown.id}: {shown.title}", relpath(plant.file, "core"), plant.old, plant.new)


def mutant_named(name: str) -> Mutant:
    """Return the bug of the exhibit of this id."""
    shown = exhibit(name)
    assert shown.plant is not None
    return mutant_of(shown, shown.plant)


_FIRST_OF_PLANT = {shown.plant: shown for shown in reversed(exhibits()) if shown.plant is not None}
"""Two peers had the same bug: one of them stands for both."""

MUSEUM_MUTANTS = tuple(mutant_of(shown, plant) for plant, shown in reversed(_FIRST_OF_PLANT.items()))
