"""Compiles the attention kernel while the package is built: into wheels, and beside the source for editable installs.

How it is compiled: src/lengthwise/native/building.py. Without a compiler the installation goes on; the first use then
says what is missing.
"""

import importlib.util
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "src/lengthwise"
FOLDER = "native"  # in the package


def load(path: Path) -> ModuleType:
    """A module by its path: neither the package nor torch can be imported here."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class CompileAttention(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        package = Path(self.root, PACKAGE)
        building, files = load(package / FOLDER / "building.py"), load(package / "cache_folder.py")
        folder = package / FOLDER
        try:
            intact = (path for path in building.candidates(folder) if building.name(path.read_bytes()) == path.name)
            library = next(intact, None)
            if library is None:
                content = building.compiled()
                library = folder / building.name(content)
                files.write(library, content)
                building.remove_outdated(folder)
        except (building.CannotBuild, OSError) as error:
            self.app.display_warning(f"the fused CPU attention is left out: {error}")
            return
        if version == "standard":  # a wheel with a library belongs to one system, but to every Python
            system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{system}"
            build_data["force_include"][str(library)] = f"lengthwise/{FOLDER}/{library.name}"

    def clean(self, versions: list[str]) -> None:
        for library in Path(self.root, PACKAGE, FOLDER).glob("attention-*.so"):
            library.unlink()
