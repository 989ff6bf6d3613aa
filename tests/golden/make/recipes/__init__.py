"""The recipes of all golden tables, by name."""

from tests.golden.make.recipe import Recipe
from tests.golden.make.recipes import (
    basics,
    changes,
    indexes,
    keys,
    merging,
    old_releases,
    schemas,
    services,
    special_basics,
    timelines,
    versions,
    versions_3_to_5,
    writers,
)

_MODULES = (
    basics,
    special_basics,
    merging,
    keys,
    old_releases,
    versions_3_to_5,
    schemas,
    services,
    writers,
    timelines,
    versions,
    indexes,
    changes,
)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe for module in _MODULES for recipe in module.RECIPES
}
