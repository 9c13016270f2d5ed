"""The build step that pyproject.toml cannot name: config/ of the repository becomes ragen/config/files of the wheel.

The YAML files have one home, the repository's config/. An editable install reads them there.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConfigs(build_py):
    """Copies the packages, then the configurations."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "ragen", "config", "files")
        shutil.rmtree(target, ignore_errors=True)  # a build folder of before may hold files that have left
        shutil.copytree("config", target, ignore=lambda folder, names: [n for n in names if not keep(folder, n)])


def keep(folder: str, name: str) -> bool:
    return name.endswith(".yaml") or Path(folder, name).is_dir()


setup(cmdclass={"build_py": BuildWithConfigs})
