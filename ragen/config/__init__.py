"""Configuration: YAML and overrides in, one typed, checked, frozen Config out. Imports without torch and without Hydra.

schema.py, actor_rollout_ref.py, trainer.py   the keys: type, sentence, bound (bounds.py)
load.py, strict.py, hints.py                  from files and `key=value` words to that Config
validate.py                                   keys against each other
estimators.py                                 what each advantage estimator needs
extensions.py                                 parts of one's own, by module:name or entry point

One more key: a field with a sentence (and a bound) in its dataclass, its value in config/base.yaml, and, where it
contradicts others, a check in validate.py with a row in tests/config/test_validate.py.
"""

from ragen.config.load import argument_parser, build_config, config_from_args, load_config
from ragen.config.schema import Config

__all__ = ["Config", "argument_parser", "build_config", "config_from_args", "load_config"]
