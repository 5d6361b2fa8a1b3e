"""The compiled CPU kernel: where it is found, what is loaded, and what is compiled again."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lengthwise import cache_folder, native
from lengthwise.native import building, library
from lengthwise.native.building import CannotBuild

pytestmark = pytest.mark.skipif(
    native.unsupported_reason() is not None, reason=f"no kernel here: {native.unsupported_reason()}"
)


@pytest.fixture
def real() -> bytes:
    """What was compiled of these sources."""
    found = [*building.candidates(building.FOLDER), *building.candidates(cache_folder.folder())]
    return found[0].read_bytes()


class Places:
    """Folders in place of those of the source and of the cache, and a compiler in place of the machine's."""

    def __init__(self, tmp_path, monkeypatch, makes):
        self.beside, self.cache, self.times = tmp_path / "beside", tmp_path / "cache", 0
        self.makes = makes
        self.beside.mkdir()
        monkeypatch.setattr(building, "FOLDER", self.beside)
        monkeypatch.setenv("LENGTHWISE_CACHE", str(self.cache))
        monkeypatch.setattr(building, "compiled", self.compiled)

    def compiled(self):
        self.times += 1
        return self.makes

    def put(self, folder, content, name=None):
        folder.mkdir(exist_ok=True, mode=0o755)
        path = folder / (name or building.name(content))
        path.write_bytes(content)
        path.chmod(0o755)
        return path

    def load(self):
        return library.load()


@pytest.fixture
def places(tmp_path, monkeypatch, real):
    return Places(tmp_path, monkeypatch, real)


def test_it_is_compiled_once_into_the_cache_and_found_afterwards_in_either_place(places, monkeypatch):
    assert places.load()._name == str(places.cache / building.name(places.makes))
    assert places.load() and places.times == 1
    assert not list(places.beside.iterdir()), "uninstalling would leave it"
    (places.cache / building.name(places.makes)).rename(places.beside / building.name(places.makes))
    assert places.load()._name == str(places.beside / building.name(places.makes)) and places.times == 1


@pytest.mark.parametrize("size", [0, 100, 20_000, 300_000], ids=str)
@pytest.mark.parametrize("where", ["beside", "cache"])
def test_one_that_was_cut_short_is_compiled_again(places, where, size):
    """Loading it would end the process with SIGBUS."""
    folder = getattr(places, where)
    damaged = places.put(folder, places.makes[:size], building.name(places.makes))
    assert places.load() and places.times == 1
    assert places.load() and places.times == 1
    assert not damaged.exists() or damaged.read_bytes() == places.makes


def test_it_says_that_it_waits_for_another_process_that_compiles(places, monkeypatch, capsys):
    monkeypatch.setattr(library, "_LOCKED", 0.1)
    places.cache.mkdir(mode=0o700)
    with cache_folder.locked(places.cache / ".lengthwise.lock", 0, what="busy"):
        assert places.load()
    waits, compiles = capsys.readouterr().err.splitlines()
    assert waits == "lengthwise: waiting for another process, which is compiling the attention kernel"
    assert compiles == "lengthwise: compiling the attention kernel (once; 10 to 60 seconds)"


@pytest.mark.medium
def test_one_that_was_cut_short_does_not_end_a_process_either(tmp_path, real):
    """The same with nothing replaced: a source folder of its own, with a library that was cut short beside it."""
    package = Path(native.__file__).parents[1]
    copied = shutil.copytree(package, tmp_path / "lengthwise", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    damaged = copied / "native" / building.name(real)
    damaged.write_bytes(real[:300_000])
    program = """
import sys, torch, lengthwise
from lengthwise.native import building
building.compiled = open(sys.argv[1], "rb").read  # the real one takes ten seconds
q = torch.ones(1, 1, 4, 8)
print(lengthwise.__file__, lengthwise.attend(q, q, q, backend="fused").sum().item())
"""
    (tmp_path / "real.so").write_bytes(real)
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "LENGTHWISE_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", program, str(tmp_path / "real.so")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert done.stdout.split() == [str(copied / "__init__.py"), "32.0"]
    assert not damaged.exists() and (tmp_path / "cache" / damaged.name).read_bytes() == real


def test_a_changed_byte_is_noticed(places):
    changed = bytearray(places.makes)
    changed[len(changed) // 2] ^= 1
    places.put(places.beside, bytes(changed), building.name(places.makes))
    assert places.load() and places.times == 1


def test_what_another_machine_made_stays_and_does_not_hinder(places):
    """A home folder may be shared by machines with other C libraries."""
    foreign = b"\x7fELF of another machine"
    path = places.put(places.beside, foreign)
    assert places.load() and places.times == 1 and path.exists()
    assert places.load() and places.times == 1


def test_without_a_place_it_is_compiled_for_the_process_and_says_so(places, monkeypatch, real):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_folder.os, "replace", full)
    with pytest.warns(UserWarning, match="in every process") as seen:
        loaded = places.load()
    assert loaded.lengthwise_target() >= 0 and places.times == 1
    assert not Path(loaded._name).exists(), "nothing is left"
    said = str(seen[0].message)
    assert len(seen) == 1 and "\n" not in said
    assert "LENGTHWISE_CACHE" in said
    assert "No space left on device" in said and str(places.cache) in said
    assert [path.name for path in places.cache.iterdir()] == [".lengthwise.lock"]
    assert not list(places.beside.iterdir())


def test_a_cache_that_cannot_be_created_is_said(places):
    places.cache.touch()
    with pytest.warns(UserWarning, match=r"in every process.*cache \(File exists\).*LENGTHWISE_CACHE"):
        loaded = places.load()
    assert places.times == 1 and not Path(loaded._name).exists()


def test_without_a_home_it_is_found_beside_its_source(places, monkeypatch, capsys):
    places.put(places.beside, places.makes)
    monkeypatch.setattr(cache_folder, "location", _no_home)
    assert places.load() and places.times == 0
    shutil.rmtree(places.beside)
    with pytest.warns(UserWarning, match="in every process.*no home folder") as seen:
        assert places.load() and places.times == 1
    assert "once" not in capsys.readouterr().err
    assert seen[0].filename == __file__


def _no_home():
    raise cache_folder.CacheError("this user has no home folder, neither in HOME nor in the system's list of users")


def test_what_hinders_compiling_is_not_taken_for_a_place_that_cannot_be_written(monkeypatch, tmp_path):
    monkeypatch.setattr(building, "FOLDER", tmp_path)
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "cache"))
    with monkeypatch.context() as patch:
        patch.setattr(building.tempfile, "TemporaryDirectory", lambda **_: os.listdir(tmp_path / "nowhere"))
        with pytest.raises(CannotBuild, match=r"cannot compile the attention kernel: .*No such file"):
            library.load()
    monkeypatch.setenv("CXX", "g++ 'x")
    with pytest.raises(CannotBuild, match=r"CXX.*quotation"):
        library.load()
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(CannotBuild, match="false failed: exit status 1, without a word"):
        library.load()
    monkeypatch.setenv("CXX", "true")
    with pytest.raises(CannotBuild, match=r"true cannot compile the attention kernel: .*No such file"):
        library.load()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".lengthwise.lock"]


class Processes:
    """Processes that need the library at the same time, with a compiler that takes a while."""

    def __init__(self, tmp_path, real):
        self.cache, self.log = tmp_path / "cache", tmp_path / "log"
        (tmp_path / "real.so").write_bytes(real)
        (tmp_path / "nowhere").mkdir()
        self.program = f"""
import pathlib, sys, time
from lengthwise.native import building, library

def compiled():
    with open({str(self.log)!r}, "a") as log:
        log.write("x")
    time.sleep(float(sys.argv[1]))
    return pathlib.Path({str(tmp_path / "real.so")!r}).read_bytes()

building.compiled = compiled
building.FOLDER = pathlib.Path({str(tmp_path / "nowhere")!r})
print(library.load().lengthwise_target())
"""

    def start(self, seconds):
        env = {**os.environ, "LENGTHWISE_CACHE": str(self.cache)}
        command = [sys.executable, "-c", self.program, str(seconds)]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @property
    def times(self):
        return len(self.log.read_text()) if self.log.exists() else 0


@pytest.mark.medium
def test_processes_that_start_together_compile_once(tmp_path, real):
    processes = Processes(tmp_path, real)
    started = [processes.start(seconds=2) for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert processes.times == 1
    assert {path.name for path in processes.cache.iterdir()} == {".lengthwise.lock", building.name(real)}


@pytest.mark.medium
def test_a_process_that_is_killed_while_it_compiles_leaves_nothing_that_hinders(tmp_path, real):
    processes = Processes(tmp_path, real)
    killed = processes.start(seconds=600)
    end = time.monotonic() + 60
    while not processes.times and time.monotonic() < end:
        time.sleep(0.05)
    other = processes.start(seconds=0)
    time.sleep(0.5)
    killed.kill()
    killed.communicate()
    out, error = other.communicate(timeout=120)
    assert other.returncode == 0 and out.strip().isdigit(), error
    assert processes.times == 2 and building.name(real) in {path.name for path in processes.cache.iterdir()}


def test_every_file_of_the_source_is_in_the_name(monkeypatch, tmp_path):
    """A change of any file, a new file and a file under another name: each gives the library another name."""
    copy = tmp_path / "csrc"
    shutil.copytree(building.CSRC, copy)
    names = {building.name(b"")}
    monkeypatch.setattr(building, "CSRC", copy)
    assert building.name(b"") in names
    files = sorted(path for path in copy.iterdir() if path.is_file())
    assert files == building.sources() and {building.KERNEL, *building.COMPILED_ONCE} <= {path.name for path in files}
    for path in files:
        content = path.read_bytes()
        path.write_bytes(content + b"\n")
        names.add(building.name(b""))
        path.write_bytes(content)
    (copy / "new.h").touch()
    names.add(building.name(b""))
    (copy / "new.h").rename(copy / "other.h")
    names.add(building.name(b""))
    assert len(names) == len(files) + 3


def test_every_source_that_is_compiled_alone_is_listed():
    assert {path.name for path in building.CSRC.glob("*.cpp")} == {building.KERNEL, *building.COMPILED_ONCE}


@pytest.mark.medium
@pytest.mark.parametrize("call", ["lengthwise.attend(q, q, q, fire)", "model(torch.zeros(1, 4, dtype=torch.long))"])
@pytest.mark.parametrize("cxx", ["/nowhere/c++", ""])
def test_without_a_compiler_one_warning_points_at_the_line_that_needs_it(tmp_path, cxx, call):
    """In a fresh process, with a source whose library is nowhere. Nothing is announced, and nothing is created."""
    program = tmp_path / "program.py"
    program.write_text(f"""
import pathlib, torch, lengthwise
from lengthwise.config import ModelConfig
from lengthwise.native import building
building.FOLDER = pathlib.Path({str(tmp_path)!r})
fire = lengthwise.encodings.FIRE(num_heads=1)
q = torch.ones(1, 1, 4, 8)
size = ModelConfig(d_model=8, num_layers=1, num_heads=1)
choice = lengthwise.choose(lengthwise.encodings.FIRE)
model = lengthwise.models.Decoder(size, choice, vocab_size=2, output_size=2, train_length=4)
for _ in range(2):
    {call}  # line 12
modifiers = lengthwise.forms.AttentionModifiers()
print(lengthwise.attention.unsupported_reason("fused", modifiers, lengthwise.span.Span.of(2)))
""")
    environment = {**os.environ, "CXX": cxx, "LENGTHWISE_CACHE": str(tmp_path / "cache"), "PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-P", str(program)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    why = "CXX names the C++ compiler /nowhere/c++, which does not exist; correct it" if cxx else (
        "there is no C++ compiler, neither on PATH (c++, g++ or clang++) nor named in CXX; install one (Debian and "
        "Ubuntu: apt install g++)"
    )  # fmt: skip
    first, *source = done.stderr.splitlines()
    assert first == (
        f"{program}:12: UserWarning: lengthwise computes attention on the CPU several times more slowly, with the same "
        f"results: {why} and restart"
    )
    assert source == [f"  {call}  # line 12"]
    assert done.stdout == f"its compiled kernel is not available: {why} and restart\n"
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]
