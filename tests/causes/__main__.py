"""Run the corpus under a launcher and score it, or score what another launcher said.

    python -m causes torchyard|torchrun [NAME…] [--held-back] [--kind KIND] [--show] [--out FILE]
    python -m causes score --answers ANSWERS.jsonl [--held-back] [--show]
    python -m causes list [--held-back]

Owns: the command line.
Leaves: everything else to the modules beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from causes import score
from causes.fault import HELD_BACK, OPEN, Fault, all_in
from causes.score import Answer


def main(arguments: Sequence[str]) -> int:
    chosen = _parser().parse_intermixed_args(arguments)
    faults = all_in(HELD_BACK if chosen.held_back else OPEN, chosen.names)
    faults = [fault for fault in faults if chosen.kind in ("", fault.kind)]
    if chosen.what == "list":
        for fault in faults:
            print(f"{fault.kind:12}{fault.name:40}{'' if chosen.held_back else fault.about}")
        return 0
    started = time.monotonic()
    by_name = {fault.name: fault for fault in faults}

    def tell(answer: Answer) -> None:
        # What the held-back ones get wrong is seen by nobody who mends the diagnosis.
        if chosen.show or not chosen.held_back:
            print(score.transcript(score.judge(by_name[answer.fault], answer)), flush=True)

    answers = _answers(chosen.what, faults, chosen, tell)
    judged = [score.judge(by_name[answer.fault], answer) for answer in answers]
    if chosen.out:
        lines = [json.dumps(asdict(answer)) for answer in answers]
        Path(chosen.out).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(score.by_kind(judged))
    print(f"took {time.monotonic() - started:.0f} s")
    return 0 if all(each.is_right for each in judged) else 1


def _answers(
    what: str,
    faults: Sequence[Fault],
    chosen: argparse.Namespace,
    tell: Callable[[Answer], None],
) -> list[Answer]:
    if what == "score":
        lines = Path(chosen.answers).read_text(encoding="utf-8").splitlines()
        answers = [Answer(**json.loads(line)) for line in lines if line.strip()]
        return [answer for answer in answers if answer.fault in {fault.name for fault in faults}]
    from causes import sites  # It imports torchyard, which `score` can do without.

    return sites.run(what, faults, tell)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("causes", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("torchyard", "torchrun", "score", "list"))
    parser.add_argument("names", nargs="*", help="of faults; all without any")
    parser.add_argument("--answers", help="with `score`: a file of one JSON object a line")
    parser.add_argument("--held-back", action="store_true", help="the third that nobody mends by")
    parser.add_argument("--kind", default="", help="only faults of this kind")
    parser.add_argument("--show", action="store_true", help="transcripts also of held-back ones")
    parser.add_argument("--out", help="write the answers to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
