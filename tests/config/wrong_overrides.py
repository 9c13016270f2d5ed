"""Overrides that cannot work, made from the schema: every key with values of every wrong kind."""

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from ragen.config.schema import Config, EnvTag

NEGATIVE_MEANS_SOMETHING = {
    "actor_rollout_ref.actor.optim.lr_warmup_steps",
    "actor_rollout_ref.rollout.rollout_filter_empty_stop_steps",
    "critic.optim.lr_warmup_steps",
    "trainer.test_freq",
    "trainer.save_freq",
    "trainer.save_episodes_every",
    "trainer.gradient_analysis_every",
    "agent_proxy.max_context_window",
    "es_manager.format_penalty",
    "collapse_detection.compute_freq",
}
"""Keys that take -7: off, all, or a number below zero."""

EMPTY_MEANS_SOMETHING = {"system.CUDA_VISIBLE_DEVICES", "custom_envs.Bandit.env_instruction"}
"""Texts that may be empty."""
NULL_MEANS_SOMETHING = {"seed.val"}
"""Numbers that null stands for."""

HUGE = str(10**24)

WRONG: dict[Any, tuple[str, ...]] = {
    int: (
        "many",
        "1.5",
        "1e3",
        "nan",
        "inf",
        "-inf",
        HUGE,
        f"-{HUGE}",
        "[1]",
        "{a:1}",
        "True",
        "",
        "'3'",
        "été",
    ),
    float: ("much", "nan", "inf", "-inf", "1e300", "-1e300", "1e999", HUGE, "[0.1]", "{a:1}", "True", "", "'0.1'", "½"),
    bool: ("1", "0", "yes", "on", "1.0", "null", "[True]", "{a:True}", "", "'True'", "wahr"),
    str: ("5", "1.5", "True", "null", "[a]", "{a:b}", "nan", "1e3", "''", "'", "[", "{", '"'),
    list: ("5", "a_word", "True", "{a:1}", "", "null", "[[1]]", "[{a:1}]", "[null]", "[nan]", "1.5"),
    Literal: ("nope", "1", "1.5", "True", "null", "[]", "{}", "", "Été", "' '"),
}
"""What no key of a type takes."""

ANY_KEY = (
    "${nope}",
    "${nope.nope}",
    "${%s}",
    "${oc.env:RAGEN_IS_NOT_SET}",
    "${",
    "${trainer}",
    "???",
    "a,b",
    "{a:",
)
"""What no key takes; %s is the key itself."""


def wrong_overrides() -> list[str]:
    """Every wrong override once, in the order of the schema."""
    found: list[str] = [*broken_words()]
    for key, annotation in leaves(Config):
        found += wrong_values(key, annotation)
        found += wrong_names(key)
    for key in sections(Config):
        found += [f"{key}=5", f"{key}=null", f"{key}=[]", f"{key}=a_word", f"~{key}", f"{key}.nope=1", f"+{key}.nope=1"]
    found += wrong_environments()
    return list(dict.fromkeys(found))


def broken_words() -> Iterator[str]:
    yield from (
        "=5",
        "=",
        "trainer",
        "trainer.=5",
        ".trainer=5",
        "trainer..test_freq=5",
        "a b=1",
        "+",
        "~",
        "++",
        "+=1",
    )
    yield from ("trainer.test_freq==5", "trainer/test_freq=5", "trainer.test_freq:5", "🙂=1", "[0]=1", "trainer[0]=1")
    yield from ("'trainer.test_freq'=5", "nope=1", "+nope=1", "++nope=1", "~nope", "~trainer.nope", "hydra.run.dir=x")
    yield from ("hydra/launcher=x", "+hydra/launcher=x", "defaults=[x]", "envs=x", "base=x", "@x=1", "trainer@x=1")
    yield from ("trainer.test_freq=5,6", "trainer.test_freq=range(1,5)", "trainer.test_freq=choice(1,2)", "trainer.*=1")
    yield from ("trainer.test_freq=int(x)", "trainer.test_freq=glob(*)", "trainer.test_freq=" + "[" * 200, "\\=1")


def wrong_values(key: str, annotation: Any) -> Iterator[str]:
    kind, is_optional = plain_kind(annotation)
    is_optional |= key in NULL_MEANS_SOMETHING
    for value in WRONG[kind] + ANY_KEY:
        if (value == "null" and is_optional) or (value in ("''", "") and key in EMPTY_MEANS_SOMETHING):
            continue
        if value == "[a]" and key == "lora.target_modules":  # a name, which only a model can refuse
            continue
        yield f"{key}={value % key if '%s' in value else value}"
    if kind in (int, float) and key not in NEGATIVE_MEANS_SOMETHING:
        yield f"{key}=-7"
    if not is_optional and kind not in (bool, str, list, Literal):
        yield f"{key}=null"
    yield f"{key}.x=1"
    yield f"+{key}.x=1"
    yield f"++{key}.x.y=1"


def wrong_names(key: str) -> Iterator[str]:
    parent, _, last = key.rpartition(".")
    prefix = f"{parent}." if parent else ""
    yield f"{prefix}{last}x=1"
    yield f"{prefix}{last[1:]}_=1"
    yield f"+{prefix}{last}_new=1"
    yield f"~{key}"


def wrong_environments() -> Iterator[str]:
    options = {
        "Bandit": ("lo_arm_name=5", "action_space_start=-1"),
        "CoordSokoban": ("dim_x=2", "dim_y=1.5", "num_boxes=0", "num_boxes=100", "max_steps=0", "symbols={wall:ab}"),
        "CoordFrozenLake": ("size=1", "size=0", "p=2", "success_rate=2", "is_slippery=5", "size=1000000"),
    }
    for tag, wrong in options.items():
        yield from (f"++custom_envs.{tag}.env_config.{option}" for option in wrong)
        yield from (f"+custom_envs.{tag}.env_config.nope=1", f"custom_envs.{tag}.env_config=5")
        yield from (f"custom_envs.{tag}.env_config=[]", f"+custom_envs.{tag}.x=1")
    yield from ("custom_envs.FrozenLake.env_type=nope", "custom_envs.FrozenLake.env_type=frozenlake")
    yield from ("+custom_envs.Mine={env_type:bandit}", "+custom_envs.Mine=5", "custom_envs.Bandit=null")


def leaves(cls: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of a dataclass that is no section, with its type; of the table of environments, one row."""
    for name, hint in get_type_hints(cls, include_extras=True).items():
        annotation = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if name == "custom_envs":
            yield from leaves(EnvTag, f"{prefix}{name}.Bandit.")
        elif is_section(annotation):
            yield from leaves(annotation, f"{prefix}{name}.")
        elif name != "env_config":
            yield prefix + name, annotation


def sections(cls: type, prefix: str = "") -> Iterator[str]:
    for name, annotation in get_type_hints(cls).items():
        if is_section(annotation):
            yield prefix + name
            yield from sections(annotation, f"{prefix}{name}.")


def is_section(annotation: Any) -> bool:
    return hasattr(annotation, "__dataclass_fields__")


def plain_kind(annotation: Any) -> tuple[Any, bool]:
    """The row of WRONG for a type, and whether null is one of its values."""
    if get_origin(annotation) is Annotated:
        return plain_kind(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        return plain_kind(members[0])[0], type(None) in get_args(annotation)
    if get_origin(annotation) is Literal:
        return Literal, False
    if get_origin(annotation) in (tuple, list, dict, Mapping):
        return list, False
    return annotation, False
