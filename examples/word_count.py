"""Word count over files: drop text files into a folder, counts appear beside it.

    python -m examples.word_count [FOLDER]
    riverlock run examples/word_count.py --store store/words

Run it again after adding a file: only the new file is read, counts go on.
"""

import os
import sys
from pathlib import Path

import riverlock as rl


def build(folder: str, out: str) -> rl.Flow:
    flow = rl.Flow("words")
    lines = flow.read(rl.sources.files(folder, format="text"), uid="lines")
    words = lines.select("explode(split(lower(value), '[^a-z]+')) as word")
    counts = words.where("word != ''").key_by("word").agg(n="count(*)", uid="counts")
    counts.write(rl.sinks.files(out, format="json"), uid="totals")
    return flow


flow = build(
    os.environ.get("WORDS_IN", str(Path("in/words").absolute())),
    os.environ.get("WORDS_OUT", str(Path("out/words").absolute())),
)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "in/words").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        (folder / "sample.txt").write_text("to be or not to be\nthat is the question\n")
    counts = build(str(folder), str(Path("out/words").absolute()))
    status = counts.run("store/words", available_now=True)
    print(f"out/words holds the counts up to epoch {status.epoch}")


if __name__ == "__main__":
    main()
