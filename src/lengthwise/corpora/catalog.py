"""Ready configurations of published corpora. `docs/corpora.md` says what they contain, and their licences."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """A published corpus on the Hugging Face hub.

    `source`: as `lengthwise tokenize` takes it. `field`: the field of the text. `origin`: the field that groups
    documents.
    `files`: the files to download for use without a network.
    """

    source: str
    field: str
    origin: str
    files: str

    @property
    def dataset(self) -> str:
        """The name of the dataset on the hub."""
        return self.source.removeprefix("hf:").partition(":")[0]

    @property
    def options(self) -> str:
        """The options of `lengthwise tokenize` that a copy in a folder needs."""
        field = f" --field {self.field}" if self.field != "text" else ""
        return field + (f" --origin {self.origin}" if self.origin else "")

    def download(self, folder: str) -> str:
        """Return the command that copies the corpus into a folder, on a machine with a network."""
        return f"hf download --repo-type dataset {self.dataset} --include '{self.files}' --local-dir {folder}"


CATALOG = {
    "c4": Published(
        source="hf:allenai/c4:en",
        field="text",
        origin="",
        files="en/c4-train.*.json.gz",
    ),
    "pg19": Published(
        source="hf:emozilla/pg19",
        field="text",
        origin="",
        files="data/train-*.parquet",
    ),
    "arxiv": Published(
        source="hf:common-pile/arxiv_papers",
        field="text",
        origin="",
        files="**/*.json.gz",
    ),
    "github": Published(
        source="hf:codeparrot/codeparrot-clean",
        field="content",
        origin="repo_name",
        files="*.json.gz",
    ),
}
