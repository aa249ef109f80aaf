"""The command line: tyro reads the words into a verb, and every error becomes one sentence.

Wrong input gives one sentence on stderr and exit code 2, before anything is written. Modules that need torch are
imported where they are used, so that help is quick.
"""

import contextlib
import dataclasses
import difflib
import errno
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import tyro

from npdraw.cli.train import Brief, Early, Train
from npdraw.cli.verbs import VERBS, Verb
from npdraw.config import Config, Reading
from npdraw.distributed import this_process
from npdraw.errors import InputError, TrainingError
from npdraw.words import cut, first_line

T = TypeVar("T")
HELP = ("-h", "--help", "help")
SPINS = "3000"  # how often a thread of torch checks for work before it sleeps. The default is so high that two programs
# on two cores each take six times as long. With 3000 they take twice as long, and one alone is as fast as before
# (docs/performance.md).
HELP_ALL = "--help-all"  # of `train`
SHORT = {  # options of `train`, and what they are short for
    **{f"--{field.name}": f"--reading.{field.name}" for field in dataclasses.fields(Reading)},
    "--epochs": "--model-stage.epochs",
}
CHOSEN = ("--model-stage.epochs", "--model-stage.guide-epochs", "--prior-stage.epochs")  # by --minutes


def main(argv: list[str] | None = None) -> int:
    """Run one command. The exit code is 0, 1 (failed), 2 (wrong input) or 130 (interrupted)."""
    words = sys.argv[1:] if argv is None else argv
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    try:
        with _sentences():
            if not words or words[0] in HELP or (words[0] == "data" and words[1:2] and words[1] in HELP):
                print(_help())
            elif words[0] == "--version":
                from npdraw import __version__

                print(f"npdraw {__version__}")
            else:
                _read(*_verb(words)).run()
            sys.stdout.flush()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    except KeyboardInterrupt as stop:
        return _complain(str(stop) or "stopped", 130)
    return 0


@contextlib.contextmanager
def _sentences() -> Iterator[None]:
    """Turn each kind of error into one sentence and an exit code."""
    try:
        yield
    except InputError as error:
        sys.exit(_complain(str(error), 2))
    except TrainingError as error:
        sys.exit(_complain(str(error), 1, everywhere=True))
    except BrokenPipeError:  # the reader of our output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        where = f" {error.filename}" if error.filename else ""
        sys.exit(_complain(f"cannot read or write{where}: {error.strerror or error}", 1 if full else 2))
    except MemoryError:
        sys.exit(_complain("there is too little memory for this; use fewer or smaller images", 1))
    except Exception as error:
        # These two are recognised by name: importing their packages here would slow down every command.
        if type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(error):
            sys.exit(_complain("the device has too little memory for this; use fewer images or --device cpu", 1))
        if isinstance(error, ValueError) and "null byte" in str(error):  # words of a shell have none, but YAML may
            sys.exit(_complain("the name of a file or folder holds a null byte; choose another name", 2))
        if type(error).__name__ == "SafetensorError":
            sys.exit(_complain(f"cannot write: {first_line(error)}", 1))
        raise


def _complain(sentence: str, code: int, everywhere: bool = False) -> int:
    """Print one line on stderr. On each machine only the first process prints, unless `everywhere` is set."""
    if everywhere or this_process().local_rank == 0:
        print(f"npdraw: {cut(' '.join(sentence.split()))}", file=sys.stderr)
    return code


def _help() -> str:
    lines = [f"  {name:12} {(verb.__doc__ or '').splitlines()[0]}" for name, verb in VERBS.items()]
    return "\n".join(
        ["usage: npdraw VERB ...", "", "Draw images part by part.", "", *lines, "",
         "npdraw VERB --help shows options and an example. Begin with: npdraw demo"]
    )  # fmt: skip


def _verb(words: list[str]) -> tuple[str, list[str]]:
    """The verb (one or two words) and the words after it."""
    for n in (2, 1):
        if " ".join(words[:n]) in VERBS:
            return " ".join(words[:n]), words[n:]
    if words[0] == "data":
        raise InputError("npdraw data needs show or info, as in npdraw data info mnist")
    raise InputError(f"there is no {words[0]}; did you mean {_nearest(words[0], VERBS)}? See npdraw --help")


def _read(name: str, words: list[str]) -> Verb:
    """The verb with its options, read by tyro. An error becomes one sentence."""
    verb: type = VERBS[name]
    options = _options(verb)
    if verb is Train:
        words = [_long(word) for word in words]
        options |= {**dict.fromkeys(SHORT, False), HELP_ALL: True}
    for word in words:
        option = word.split("=")[0].replace("_", "-")
        if option.startswith("--") and option not in (*options, "--help"):
            near = f"; did you mean {_nearest(option, options)}?" if options else "; it has none"
            raise InputError(f"npdraw {name} has no option {option}{near}")
    paragraphs = [" ".join(p.split()) for p in (verb.__doc__ or "").split("\n\n")]
    settings: dict[str, Any] = {"prog": f"npdraw {name}", "description": "\n\n".join(paragraphs), "args": words}
    if verb is Train and {"-h", "--help"} & set(words) and HELP_ALL not in words:
        verb, settings["args"] = Brief, ["--help"]
    elif verb is Train:
        _refuse_both(words)
        settings["args"] = ["--help" if word == HELP_ALL else word for word in words]
        with contextlib.suppress(_NotUnderstood):  # the call below reads the same words and reports the error
            settings["default"] = Train(target=tyro.MISSING, config=_defaults(words, options))
    try:
        return _parse(lambda: tyro.cli(verb, **settings))
    except _NotUnderstood as error:
        sentence = str(error)
    typed = {long: short for short, long in SHORT.items()} if verb is Train else {}
    if wrong := re.fullmatch(r"Error parsing (--\S+): .*?(INT|FLOAT|int\(|float:).*'([^']*)'\]?", sentence):
        kind = "a whole number" if wrong[2].lower().startswith("int") else "a number"
        sentence = f"{typed.get(wrong[1], wrong[1])} must be {kind}, not {wrong[3]}"
    elif missing := re.match(r"Missing value for argument '([^']*)'", sentence):
        sentence = f"{typed.get(missing[1], missing[1])} needs a value"
    elif sentence.startswith("Missing"):
        needed = [f.name for f in dataclasses.fields(verb) if f.default is f.default_factory and f.name != "config"]
        written = [f"--{n}" if f"--{n}" in options else _metavar(verb, n) for n in needed]
        lacking = [w for w in written if re.search(rf"(: |\(required\) ){re.escape(w)} ", sentence)]
        sentence = f"npdraw {name} needs {' and '.join(lacking or written)}"
    raise InputError(f"{sentence}; see npdraw {name} --help")


def _metavar(verb: type, field: str) -> str:
    """What the help calls a positional argument."""
    marks = get_args(get_type_hints(verb, include_extras=True)[field])
    return next((mark.metavar for mark in marks if getattr(mark, "metavar", None)), field.upper())


class _NotUnderstood(Exception):
    """The error message of tyro."""


def _parse(call: Callable[[], T]) -> T:
    """What tyro reads. Its error message is caught; its help is printed."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return call()
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise _NotUnderstood(_first_section(complaint.getvalue())) from None


def _long(word: str) -> str:
    """`--size` as `--reading.size`, and so on."""
    option, equals, value = word.partition("=")
    return f"{SHORT.get(option, option)}{equals}{value}"


def _refuse_both(words: list[str]) -> None:
    """Refuse minutes together with the epochs that they choose."""
    given = {word.partition("=")[0].replace("_", "-") for word in words}
    if "--minutes" in given and (chosen := [option for option in CHOSEN if option in given]):
        option = "--epochs" if chosen[0] == SHORT["--epochs"] else chosen[0]
        raise InputError(f"--minutes chooses the epochs; omit it, or {option}")


def _first_section(box: str) -> str:
    """The message without the frame that tyro draws around it, in Unicode or, on a plain terminal, in ASCII."""
    lines: list[str] = []
    for line in box.splitlines()[1:]:  # after the title
        text = line.strip("│|╭╮╰╯+ ")
        if text.strip("─-"):
            lines.append(text)
        elif lines:
            break
    text = re.sub(r"^Error parsing (?!--)[^:]*: ", "", " ".join(lines))  # an `InputError` that a dataclass raised
    return text.rstrip(".") or "the arguments are not understood"


def _options(verb: type, prefix: str = "--") -> dict[str, bool]:
    """All options of a verb, and whether each is a flag that takes no value."""
    found: dict[str, bool] = {}
    for field, hint in get_type_hints(verb, include_extras=True).items():
        kind, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        name = field.replace("_", "-")
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            flat = any(getattr(mark, "name", None) == "" for mark in marks)
            found |= _options(kind, prefix if flat else f"{prefix}{name}.")
        elif tyro.conf.Positional not in marks:
            found[prefix + name] = kind is bool
            if hint is bool:  # a field of the config: a preset may have turned it on
                found[f"{prefix}no-{name}"] = True
    return found


def _defaults(words: list[str], options: dict[str, bool]) -> Config:
    """The config that `train` overrides. The target determines it, so the target must be found before the options are
    read. It is the first word that is neither an option nor the value of one."""
    pairs = zip(["", *words], words)
    free = (w for before, w in pairs if not w.startswith("-") and options.get(before.replace("_", "-"), True))
    target = next(free, None)
    if target is None:
        return Config()
    from npdraw.derive import HOUR, base
    from npdraw.device import pick_device

    rest = [word for word in words if word not in (*HELP, HELP_ALL)]
    early, _ = _parse(lambda: tyro.cli(Early, args=rest, return_unknown_args=True, add_help=False))
    shown = HELP_ALL in words  # then nothing is downloaded or said, and an error is no reason to show nothing
    given = (early.reading, early.split, early.data_dir, early.quiet or shown, early.dry_run or shown, early.init)
    try:
        long = (early.minutes or 0) >= HOUR or pick_device(early.device) == "cuda"
        return base(target, *given, early.epochs, long, early.distilled)
    except InputError:
        if shown:
            return Config()
        raise


def _nearest(word: str, names: Iterable[str]) -> str:
    return difflib.get_close_matches(word, list(names), n=1, cutoff=0.0)[0]
