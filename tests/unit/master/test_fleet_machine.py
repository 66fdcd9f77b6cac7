"""Random events of a fleet: no slot is lost, and the fleet settles once nothing happens."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from elasticdl.master.machine.state_machine import StateMachine
from elasticdl.master.ps_fleet import fleet as fleets
from elasticdl.master.ps_fleet.fleet import PsReplicaState
from elasticdl.spec import PsId
from tests.properties import examples
from tests.unit.master.driver import Driver, job_spec
from tests.unit.master.ps_world import World

NUMBERS = st.integers(0, 9)


class FleetMachine(RuleBasedStateMachine):
    """Rules pick a ps by number among those to which they apply."""

    @initialize(ps=st.integers(2, 3), backups=st.integers(0, 1))
    def start(self, ps: int, backups: int) -> None:
        self.backups = backups
        self.world = World(Driver(job_spec(workers=1, ps=ps, backups=backups, budget=1000)))

    def pick(self, number: int, *, greeted: bool = True) -> PsId | None:
        candidates = [name for name, process in self.world.processes.items() if process.is_connected is greeted]
        return candidates[number % len(candidates)] if candidates else None

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.5, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.apply(self.world.driver.wait(seconds))

    @rule(number=NUMBERS)
    def greets(self, number: int) -> None:
        if (name := self.pick(number, greeted=False)) is not None:
            self.world.connect(name)

    @rule()
    def all_greet(self) -> None:
        for name, process in list(self.world.processes.items()):
            if not process.is_connected:
                self.world.connect(name)

    @rule()
    def all_beat(self) -> None:
        self.world.beat_all()

    @rule(failure=st.sampled_from(["", "", "", "its memory is full"]))
    def performs(self, failure: str) -> None:
        for name, process in list(self.world.processes.items()):
            if process.tasks:
                self.world.perform(name, failure)

    @rule()
    def says_so(self) -> None:
        for name, process in list(self.world.processes.items()):
            if process.unreported_tasks:
                self.world.report_task(name)

    @rule(number=NUMBERS, is_greeted=st.booleans(), is_told=st.booleans())
    def is_killed(self, number: int, is_greeted: bool, is_told: bool) -> None:
        if (name := self.pick(number, greeted=is_greeted)) is not None:
            self.world.kill(name, report=is_told)

    @rule(number=NUMBERS)
    def crashes(self, number: int) -> None:
        if (name := self.pick(number)) is not None:
            self.world.crash(name)

    @rule()
    def the_launcher_reports(self) -> None:
        self.world.report()

    @rule(number=NUMBERS)
    def is_preempted(self, number: int) -> None:
        if (name := self.pick(number)) is not None:
            self.world.leave(name)

    @rule(number=NUMBERS)
    def loses_its_copy(self, number: int) -> None:
        if (name := self.pick(number)) is not None and self.world.processes[name].backup:
            self.world.processes[name].backup = None
            self.world.beat(name, backup_failure="no answer")

    @rule()
    def the_released_go(self) -> None:
        for name in [name for name, process in self.world.processes.items() if process.is_released]:
            self.world.exit_released(name)

    @rule(ps=st.integers(2, 4))
    def is_scaled(self, ps: int) -> None:
        self.world.scale(ps)

    @rule()
    def the_master_dies_and_comes_back(self) -> None:
        self.world.restart_master()

    @invariant()
    def replay_equals_live(self) -> None:
        if hasattr(self, "world"):
            driver = self.world.driver
            assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()
            saved = StateMachine(driver.spec)
            saved.load_ledger(driver.machine.dump_ledger())
            assert saved.dump_ledger() == driver.machine.dump_ledger()

    @invariant()
    def whoever_owns_slots_has_their_rows(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.settle()

        fleet = self.world.fleet
        self.world.check()
        serving = fleet.serving_ids()
        assert fleet.task is None and len(serving) == fleet.desired
        assert {ps.id for ps in fleet.present_ps()} == set(serving), "a ps neither serves nor leaves"
        counts = Counter(fleet.slot_owners)
        assert set(counts) == set(serving)
        assert max(counts.values()) - min(counts.values()) <= 1
        if self.backups:
            assert fleet.backups == fleets.backup_ring(fleet)
        assert all(
            ps.state in (PsReplicaState.SERVING, PsReplicaState.LEFT, PsReplicaState.LOST) for ps in fleet.ps.values()
        )


TestFleetMachine = FleetMachine.TestCase
TestFleetMachine.settings = settings(max_examples=examples(60), stateful_step_count=30)
