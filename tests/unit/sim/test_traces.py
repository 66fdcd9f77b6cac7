"""Traces of all formats are read in order of time; errors name file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elasticdl.errors import DataError, SpecError
from elasticdl.sim.traces.source import open_trace

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
OWN = "name,submitted_s,duration_s,workers,minimum,maximum,priority\n"
REAL = Path(__file__).resolve().parents[4] / "shared" / "data" / "sched"


def write_trace(directory: Path, text: str, name: str = "trace.csv") -> str:
    path = directory / name
    path.write_text(text)
    return str(path)


def test_a_philly_trace_is_sorted_and_starts_at_its_first_job(tmp_path: Path) -> None:
    lines = "2017-10-09 07:00:10,60,2,120,a\n2017-10-09 07:00:00,30.5,1,30.5,b\n\n2017-10-09 08:00:00,5,4,20,a\n"
    path = write_trace(tmp_path, PHILLY + lines)

    jobs = list(open_trace(path).jobs())
    of_a = list(open_trace(f"{path}:cluster=a,max_scale=1").jobs())

    assert [(job.submitted_at, job.requested, job.max_workers) for job in jobs] == [(0, 1, 2), (10, 2, 4), (3600, 4, 8)]
    assert [(job.submitted_at, job.max_workers) for job in of_a] == [(0, 2), (3590, 4)]
    assert jobs[0].workload.isolated_duration_s(1) == 30.5


def test_a_tiresias_trace_is_read_unchanged(tmp_path: Path) -> None:
    jobs = list(
        open_trace(write_trace(tmp_path, TIRESIAS + "0,1,0,606,vgg19,164,30\n1,8,30,133,vgg11,147,23\n")).jobs()
    )

    assert [(job.name, job.submitted_at, job.requested, job.workload.name) for job in jobs] == [
        ("job-0", 0, 1, "vgg19"),
        ("job-1", 30, 8, "vgg11"),
    ]


def test_a_custom_trace_has_sizes_and_priorities(tmp_path: Path) -> None:
    (job,) = open_trace(write_trace(tmp_path, OWN + "mine,5,100,4,2,16,10\n")).jobs()

    assert (job.min_workers, job.requested, job.max_workers, job.priority, job.submitted_at) == (2, 4, 16, 10, 5)
    assert job.workload.isolated_duration_s(2) == 200
    assert job.workload.isolated_duration_s(8) == pytest.approx(100 / ((4 + 4 * 0.8) / 4))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (PHILLY + "yesterday,1,1,1,a\n", "trace.csv:2: timestamp: expected YYYY-MM-DD"),
        (
            PHILLY + "2017-10-09 07:00:00,nan,1,1,a\n",
            "trace.csv:2: duration: expected a number above 0, received 'nan'",
        ),
        (PHILLY + "2017-10-09 07:00:00,-4,1,1,a\n", "trace.csv:2: duration"),
        (
            PHILLY + "2017-10-09 07:00:00,4,0,1,a\n",
            "trace.csv:2: num_gpus: expected a whole number from 1 to 1,000,000",
        ),
        (PHILLY + f"2017-10-09 07:00:00,4,{2**63},1,a\n", "trace.csv:2: num_gpus: expected a whole number from 1 to"),
        (PHILLY + "2017-10-09 07:00:00,4,1\n", "trace.csv:2: expected 5 values .* received 3"),
        (PHILLY, "expected jobs, found none"),
        (TIRESIAS + "0,1,-1,606,vgg19,164,30\n", "trace.csv:2: submit_time: expected a number of at least 0"),
        (TIRESIAS + "0,1,9,6,vgg19,164,30\n1,1,8,6,vgg19,164,30\n", "trace.csv:3: expected jobs in order of time"),
        (TIRESIAS + "0,1,9,6,vgg19,164,30\n0,1,9,6,vgg19,164,30\n", "trace.csv:3: expected another name"),
        (OWN + "mine,5,100,4,8,2,0\n", "trace.csv:2: workers: expected minimum ≤ workers ≤ maximum"),
        ("a,b\n1,2\n", "trace.csv:1: expected a JSON document .* received 'a,b'"),
        ("", "trace.csv:1: expected"),
        ("{", "expected a JSON document"),
        ('{"v100": {"ResNet": {"null": 1}}}', r"v100: ResNet: expected \('job type', devices\)"),
        ('{"v100": {"(\'a\', 1)": {"null": -1}}}', "expected steps a second of 0 or more, received -1"),
        ('{"v100": {"(\'a\', 1)": {}}}', "expected a mapping with null"),
    ],
)
def test_an_error_names_its_location(tmp_path: Path, text: str, complaint: str) -> None:
    path = write_trace(tmp_path, text)

    with pytest.raises(DataError, match=complaint):
        list(open_trace(path).jobs())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("synthetic:jobs=0", "jobs: expected 1 or more"),
        ("synthetic:jobs=x", "jobs is an int, received 'x'"),
        ("synthetic:seed=-1", "seed: expected 0 or more"),
        ("synthetic:per_hour=nan", "per_hour: expected a number above 0"),
        ("synthetic:efficiency=2", "efficiency: expected 0 to 1"),
        ("synthetic:cluster=a", "has the parameters .* received cluster"),
        ("synthetic:jobs=1,seed", "expected KEY=VALUE, received 'seed'"),
        ("/nowhere/at/all.csv", "expected a file, or 'synthetic'"),
    ],
)
def test_wrong_parameters_of_a_trace_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        open_trace(text)


def test_an_unknown_application_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    measured = tmp_path / "traces" / "tiny"
    measured.mkdir(parents=True)
    (measured / "placements.csv").write_text("placement,local_bsz,step_time,sync_time\n1,8,0.1,0.0\n1,16,0.2,0.0\n")
    (measured / "scalability.csv").write_text(
        "num_nodes,num_replicas,local_bsz,step_time,sync_time\n1,1,8,0.1,0.0\n2,2,8,0.2,0.1\n"
    )
    (measured / "validation-8.csv").write_text("progress,grad_sqr,grad_var,iteration\n10,1,1,10\n")
    (tmp_path / "workloads").mkdir()
    path = write_trace(
        tmp_path / "workloads", "name,time,application,num_replicas,batch_size\na,0,tiny,1,8\nb,1,huge,1,8\n"
    )

    jobs = open_trace(path).jobs()

    assert next(jobs).workload.name == "tiny"
    with pytest.raises(DataError, match=r"trace.csv:3: application: expected one that was measured \(tiny\).*'huge'"):
        next(jobs)


def test_the_same_seed_gives_the_same_jobs() -> None:
    def summary(text: str) -> list[tuple[float, int, float]]:
        return [
            (job.submitted_at, job.requested, job.workload.work_to_next_change()) for job in open_trace(text).jobs()
        ]

    assert summary("synthetic:jobs=200,seed=3") == summary("synthetic:jobs=200,seed=3")
    assert summary("synthetic:jobs=200,seed=3") != summary("synthetic:jobs=200,seed=4")
    sizes = [size for _, size, _ in summary("synthetic:jobs=4000,seed=1")]
    assert 0.67 < sizes.count(1) / 4000 < 0.73 and 0.035 < sizes.count(8) / 4000 < 0.065


def test_the_speed_of_a_gavel_job_depends_on_the_kind_and_the_number_of_nodes(tmp_path: Path) -> None:

    shape = "('a', 1)"
    document = {"fast": {shape: {"null": 4.0, shape: [3.0, 3.0]}}, "slow": {shape: {"null": 1.0, shape: [0.5, 0.5]}}}
    document["fast"]["('a', 2)"] = document["slow"]["('a', 2)"] = {"null": 6.0}
    document["slow_unconsolidated"] = {"('a', 2)": {"null": 2.0}}
    for size in (4, 8):
        document["fast"][f"('a', {size})"] = document["slow"][f"('a', {size})"] = {"null": 8.0}
    path = write_trace(tmp_path, json.dumps(document), "throughputs.json")
    job = next(open_trace(f"{path}:jobs=1").jobs())
    rates = job.workload.report().rates

    assert rates is not None
    assert [float(rates.work_per_s(1, 1, kind)) for kind in ("fast", "slow")] == [4, 1]
    assert [float(rates.work_per_s(2, nodes, "slow")) for nodes in (1, 2)] == [6, 2]
    assert job.sizes == (1, 2, 4, 8)


@pytest.mark.skipif(not REAL.exists(), reason=f"the published traces are not in {REAL}")
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("pollux-osdi21/traces/philly.csv", 82247),
        ("pollux-osdi21/workloads/workload-1.csv", 160),
        ("tiresias-nsdi19/60_job.csv", 60),
        ("gavel-osdi20/simulation_throughputs.json", 100),
    ],
)
def test_the_published_traces_are_read_completely(name: str, count: int) -> None:
    times = [job.submitted_at for job in open_trace(str(REAL / name)).jobs()]

    assert len(times) == count
    assert times == sorted(times)
