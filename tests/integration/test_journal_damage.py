"""A journal that is damaged under a running job is refused, kept and reported; the job resumes from its checkpoint."""

from __future__ import annotations

from pathlib import Path

from elasticdl.spec.directory import read_json
from tests.integration.job import Job, Jobs


def flip_a_bit(path: Path, offset: int) -> bytes:
    content = bytearray(path.read_bytes())
    content[offset] ^= 16
    with path.open("r+b") as file:  # in place: the master has it open
        file.seek(offset)
        file.write(content[offset : offset + 1])
    return bytes(content)


def check_refusal(job: Job) -> None:
    result = job.result()
    assert (result["phase"], result["exit_code"]) == ("failed", 1)
    assert "the master refused its journal" in result["reason"]
    assert f"{job.directory.journal} is damaged at byte" in result["reason"]
    assert "elasticdl journal verify JOB" in result["reason"] and "--resume" in result["reason"]
    job.wait_gone()


def test_a_flipped_bit_is_refused_and_the_job_resumes_from_its_checkpoint(jobs: Jobs, undisturbed: str) -> None:
    job = jobs.train("damaged", 2, "--checkpoint_steps", "5", slow=True)
    job.wait_event("checkpoint")
    content = flip_a_bit(job.directory.journal, 300)
    job.kill_master()
    check_refusal(job)

    damaged = job.directory.journal.read_bytes()
    verified = job.command("journal", "verify", "damaged")
    again = jobs.train("damaged", 2, "--resume")

    assert damaged[: len(content)] == content, "as it was, with what the master wrote until it was killed"
    assert verified.returncode == 1
    assert "lost: " in verified.stdout
    assert "resume from the newest checkpoint: elasticdl train --resume --job_name=damaged" in verified.stdout
    assert again.digest() == undisturbed
    assert (again.directory.root / "previous-1" / "journal").read_bytes() == damaged
    assert again.command("journal", "verify", "damaged").returncode == 0


def test_a_deleted_or_truncated_journal_is_not_recreated(jobs: Jobs) -> None:
    job = jobs.train("deleted", 1, slow=True)
    job.wait_members(1, step=2)
    job.directory.journal.unlink()
    job.kill_master()

    check_refusal(job)
    assert "its end is missing, or all of it" in (read_json(job.directory.result) or {})["reason"]
    assert not job.directory.journal.exists()
