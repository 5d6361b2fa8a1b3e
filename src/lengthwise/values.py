"""Error messages for invalid values of settings and unknown names, and what is an address."""

import difflib
import os
import re
import typing
from collections.abc import Iterable, Sequence
from decimal import Decimal


class ConfigError(ValueError):
    """An invalid setting. The message is one line with the problem, the expectation and the fix."""


class ArgumentError(ConfigError, TypeError):
    """An argument or setting that the called function or class does not have."""


# The names of our settings in other libraries and papers. If several settings of ours have a name, the first is
# suggested.
NAMES_ELSEWHERE: dict[str, tuple[str, ...]] = {
    "base": ("theta", "rope_theta", "rope_base", "rotary_emb_base", "freq_base", "max_period"),
    "factor": ("scaling_factor", "scale_factor", "rope_factor", "alpha"),
    "rotary_fraction": ("rotary_pct", "rotary_percent", "partial_rotary_factor"),
    "layout": ("interleaved", "is_neox_style"),
    "head_dim": ("dim", "dim_head", "d_head", "head_size"),
    "num_heads": ("heads", "n_heads", "n_head", "nhead", "num_attention_heads"),
    "num_kv_heads": ("n_kv_heads", "num_key_value_heads"),
    "d_model": ("dim", "embed_dim", "n_embd", "hidden_size"),
    "width": ("hidden_size", "hidden_dim", "mlp_width"),
    "d_ff": ("hidden_dim", "intermediate_size"),
    "hidden_layers": ("depth",),
    "num_layers": ("depth", "n_layers", "n_layer", "num_hidden_layers"),
    "max_length": ("max_position_embeddings", "max_seq_len", "max_seq_length", "max_len"),
    "train_length": ("max_position_embeddings", "original_max_position_embeddings", "max_seq_len", "max_seq_length"),
    "num_buckets": ("relative_attention_num_buckets",),
    "max_distance": ("relative_attention_max_distance",),
    "learned": ("learnable", "trainable"),
    "c": ("init_c",),
    "L": ("init_L",),
}


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean 'base'?` for a name of other libraries such as `theta`, or else `near_miss`."""
    names = list(names)
    our_name = next((ours for ours, others in NAMES_ELSEWHERE.items() if name in others and ours in names), None)
    return near_miss(name, names) if our_name is None else f"; did you mean {our_name!r}?"


def folded(name: str) -> str:
    """Return a name in the spelling in which names are compared: without case, dashes and underscores."""
    return name.lower().replace("-", "").replace("_", "")


SIMILARITY = 0.72  # of a near miss (`difflib`): it accepts "sauce" for "source", but not "logslopes" for "longrope"


def near_miss(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean 'alibi'?` if a known name is similar, begins with `name` or has its letters, or ""."""
    spellings, start = {folded(k): k for k in names}, folded(name)
    near = difflib.get_close_matches(start, spellings, 1, SIMILARITY)
    near = near or [k for k in spellings if sorted(k) == sorted(start) or (len(start) >= 3 and k.startswith(start))]
    return f"; did you mean {spellings[near[0]]!r}?" if near else ""


def unlisted(name: object, names: Iterable[str]) -> str:
    """Return `'fier'; did you mean 'fire'?; available: fire, rope`, the end of a message about an unknown name.

    A suggestion takes the place of a long list.
    """
    names, near = list(names), near_miss(str(name), names)
    return f"{name!r}{near}" if near and len(names) > 12 else f"{name!r}{near}; available: {', '.join(names)}"


def require_known(owner: str, names: Iterable[str], settings: Iterable[str]) -> None:
    """Raise `ArgumentError`, with a suggestion, for the first of `names` that is not in `settings`."""
    settings = list(settings)
    for name in names:
        if name not in settings:
            available = f"its settings are: {', '.join(settings)}" if settings else "it has no settings"
            raise ArgumentError(f"{owner} has no setting {name!r}{suggestion(name, settings)}; {available}")


def install_extra(extra: str) -> str:
    """Return how to install an extra (optional dependencies) from a clone, as no index has the package."""
    return f"install the extra {extra}: pip install '.[{extra}]' in a clone of Lengthwise"


def missing_package(what: str, package: str, extra: str, error: ImportError) -> ConfigError:
    """Return the error that `what` needs a package of an extra, which cannot be imported."""
    return ConfigError(
        f"{what} needs the package {package}, which cannot be imported ({error}); {install_extra(extra)}"
    )


RESULTS = "lengthwise-results"  # the results folder of commands
SCORES, TRAINING = "scores", "training"  # measurements that every finished run has
WEIGHTS = "weights.safetensors"  # in the folder of a run
CHECKPOINT = re.compile(r"checkpoint-([0-9]{8,16})\.safetensors")
EXAMPLE = "postgresql://user@host/name"  # an address in help texts, which contains no secret
_SCHEME = (
    r"(?:postgres(?:ql)?|mysql|mariadb|mssql|oracle|sqlite|mongodb|redis|https?|ftps?|sftp|ssh)(?:\+[A-Za-z0-9_.]+)?:"
)
_PASSWORD = r"(?:passw(?:or)?d|pwd)\s*="  # in a connection string, with or without an address
_ADDRESS = re.compile(
    # The second alternative finds addresses whose double slash `Path` has reduced to one; C:/ is a drive.
    rf"://|^[A-Za-z][A-Za-z0-9+.-]+:/|(?:^|/){_SCHEME}|{_PASSWORD}|^(?![A-Za-z]:[/\\]).*:.*@",
    re.DOTALL | re.IGNORECASE,
)
_REST = r"""\S*?(?=["'`]?[.,;:)]*(?:\s|$))"""  # to the end of the word, without a closing quote and punctuation
_SECRETS = (  # each with a text that it has; without that, searching a long text would take minutes
    ("@", re.compile(rf"(?:\b{_SCHEME}|[A-Za-z][A-Za-z0-9+.-]*:/).*@{_REST}", re.DOTALL | re.IGNORECASE)),
    ("@", re.compile(rf"""[^\s:/'"`]{{1,200}}:\S*@{_REST}""")),
    (  # to the closing quote
        "=",
        re.compile(rf"""[^\s"'`]{{0,500}}{_PASSWORD}\s*(?:'[^']*'|[^"]*(?=")|[^']*(?=')|{_REST})""", re.IGNORECASE),
    ),
)


def require_no_address(name: str, path: str | os.PathLike[str]) -> None:
    """Raise `ConfigError` for the address of a database or a web page where a folder or file is needed.

    The message contains nothing of the address except a known scheme, because any other part may be a password. Raise
    `ArgumentError` if `path` is neither a string nor a path.
    """
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise ArgumentError(f"{name} must be a path, as a string or a Path, got {type(path).__name__}")
    if _ADDRESS.search(text):
        scheme = re.match(_SCHEME, text, re.IGNORECASE)
        visible = f" ({scheme[0].partition('+')[0].rstrip(':')}://...)" if scheme else ""
        raise ConfigError(
            f"{name} must be a folder on this machine, or a file in one, got an address{visible}; only --store takes "
            "the address of a database, and only --results one of files, such as s3://bucket/folder"
        )


def is_remote(results: object) -> typing.TypeGuard[str]:
    """Return whether results are at an address such as s3://bucket/folder, and not on this machine."""
    return is_url(results) and re.match(_SCHEME, results, re.IGNORECASE) is None and not results.startswith(":")


def require_results(results: str | os.PathLike[str], with_store: bool) -> None:
    """Raise `ConfigError` unless `results` is a folder on this machine or, `with_store`, an address such as
    s3://bucket/folder.

    `with_store`: the database has an address of its own. The messages contain nothing of the address, which may have a
    password.
    """
    if not str(results).strip():
        raise ConfigError("the results folder has no name; give a folder")
    if not is_remote(results):
        require_no_address("the results folder", results)
    elif re.search(r"[@?#\\]|::", results) or not results.isprintable():
        raise ConfigError(
            "the results folder must be a folder on this machine, or an address such as s3://bucket/folder without "
            "credentials, got an address with a user, a query or several parts; store credentials where the tools of "
            "your service look for them"
        )
    elif not with_store:
        raise ConfigError(
            "the results folder must be a folder on this machine if it has the database too, got an address; add "
            f"--store {EXAMPLE} (store=... in Python), or give a folder"
        )


def is_url(value: object) -> typing.TypeGuard[str]:
    return isinstance(value, str) and re.match("[A-Za-z0-9+_.-]*://", value) is not None


def require_address(value: object) -> None:
    """Raise `ConfigError` unless the value is a URL. The message does not show it: it may be a password."""
    if not is_url(value):
        raise ConfigError(
            f"store must be the address of a database, such as {EXAMPLE}; for a folder on this machine, use --results"
        )


def without_secrets(text: str) -> str:
    """Return `text` with `***` in place of addresses that may contain a password. `EXAMPLE` stays."""
    texts = text.split(EXAMPLE)
    for needed, secret in _SECRETS:
        texts = [secret.sub("***", piece) if needed in piece else piece for piece in texts]
    return EXAMPLE.join(texts)


def shown(value: object) -> str:
    """Return the `repr` of a value, but of large whole numbers `1.000e+400`, and tuples in square brackets."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(shown, value))}]"
    return f"{Decimal(value):.3e}" if isinstance(value, int) and abs(value) >= 10**30 else repr(value)


def require_integer(owner: str, low: int, **values: object) -> None:
    """Raise `ConfigError` unless each value is a whole number of at least `low`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise ConfigError(f"{owner}: {name} must be a whole number of at least {low}, got {shown(value)}")


def require_at_most(owner: str, high: int, **values: int) -> None:
    """Raise `ConfigError` unless each value is at most `high`."""
    for name, value in values.items():
        if value > high:
            raise ConfigError(f"{owner}: {name} must be at most {high:,}, got {shown(value)}")


def require_bool(owner: str, **values: object) -> None:
    """Raise `ConfigError` unless each value is True or False."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{owner}: {name} must be true or false, got {shown(value)}")


def join_names(names: Sequence[str]) -> str:
    """Return the names as a list in a sentence: `ALiBi, FIRE and T5`."""
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"
