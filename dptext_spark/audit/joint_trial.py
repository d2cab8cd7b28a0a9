"""The audit of joint releases: do they lose more than the contexts of their noise account for?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from dptext_spark.audit.bounds import Losses, code_losses
from dptext_spark.audit.joint_releases import Draw, Settings
from dptext_spark.audit.power import DRAWS, Share
from dptext_spark.audit.scenarios import SCENARIOS, Comparison, Release, Scenario
from dptext_spark.audit.trial import SHOWN_OUTPUTS, TOLERANCE, Witness, noise_key, repeating
from dptext_spark.audit.worlds import World
from dptext_spark.options import AuditOptions


@dataclass(frozen=True, kw_only=True)
class ScenarioOutcome:
    """What one pair of joint releases showed.

    Attributes:
        name: Of the scenario.
        nats: Loss that is shown, of the input that shows more.
        claim: Loss that is claimed at most.
        fault: A way to break the claim, in words.
        caught: In how many draws of their own that was found.
    """

    name: str
    nats: float
    claim: float
    fault: str
    caught: Share

    def describe(self) -> str:
        """Say it in plain words."""
        would = f"would have caught {self.fault}" if self.caught.found else f"has not caught {self.fault}"
        return (
            f"  {self.name}: loses {self.nats:.3g} nats or more, at most {self.claim:.3g} claimed; "
            f"{would} {self.caught.describe()}"
        )


@dataclass(frozen=True, kw_only=True)
class JointOutcome:
    """What the world of joint releases showed.

    Attributes:
        world: Its name.
        dimension: Dimension of its vectors.
        words: Words in its vocabulary.
        runs: Joint outputs of each input in a draw, half of which choose events.
        scenarios: What was compared.
        alarms: In how many other draws anything was found against the running code.
        witnesses: What was found in the audit's own draw.
    """

    world: str
    geometry: str
    dimension: int
    words: int
    runs: int
    scenarios: tuple[ScenarioOutcome, ...]
    alarms: Share
    witnesses: tuple[Witness, ...]

    def describe(self) -> str:
        """Say it in plain words."""
        what = f"{self.world} ({self.geometry}, {self.words:,} words, n={self.dimension}, {self.runs:,} runs)"
        seen = f"{len(self.scenarios)} pairs of joint releases; "
        seen += "VIOLATION" if self.witnesses else f"false alarms {self.alarms.describe()}"
        return "\n".join([f"{what}: {seen}", *(scenario.describe() for scenario in self.scenarios)])


@dataclass(frozen=True, kw_only=True)
class JointTrial:
    """The audit of the world of joint releases.

    Attributes:
        runs: Joint outputs of each input in a draw, an even number; half of them choose events.
        alpha: Probability with which something may be found in a draw although there is nothing.
        draws: How many draws there are beside the audit's own.
    """

    world: World
    options: AuditOptions
    runs: int
    alpha: float
    draws: int = DRAWS

    def run(self) -> JointOutcome:
        """Look for violations in one draw; in others for false alarms, and for the faults."""
        own, alarms, caught = self._draw(0), 0, Counter[str]()
        shown = [(scenario, self._judge(own, scenario.released)) for scenario in self._scenarios]
        for number in range(1, self.draws + 1):
            draw = self._draw(number)
            alarms += any(self._judge(draw, scenario.released).exceeded for scenario in self._scenarios)
            for scenario in self._scenarios:
                fault, claimed = scenario.fault, scenario.fault.claimed or scenario.released
                caught[scenario.name] += self._judge(draw, fault.released, claimed).exceeded
        embedding = self.world.embedding
        return JointOutcome(
            world=self.world.name,
            geometry=embedding.space.geometry,
            dimension=embedding.dimension,
            words=len(embedding.words),
            runs=self.runs,
            scenarios=tuple(
                ScenarioOutcome(
                    name=scenario.name,
                    nats=verdict.nats,
                    claim=verdict.claim,
                    fault=scenario.fault.what,
                    caught=Share.of(caught[scenario.name], self.draws),
                )
                for scenario, verdict in shown
            ),
            alarms=Share.of(alarms, self.draws),
            witnesses=tuple(self._witness(*found) for found in shown if found[1].exceeded),
        )

    @cached_property
    def _scenarios(self) -> list[Scenario]:
        return [scenario for scenario in SCENARIOS if scenario.suits(self.world.mechanism)]

    @cached_property
    def _settings(self) -> Settings:
        return Settings(world=self.world, options=self.options)

    @cached_property
    def _claims(self) -> dict[Comparison, tuple[float, float]]:
        """What may be lost, and up to which probability, by all that is claimed."""
        made = [(scenario.released, scenario.fault.claimed) for scenario in self._scenarios]
        return {claimed: self._settings.claim(claimed) for pair in made for claimed in pair if claimed}

    def _draw(self, number: int) -> Draw:
        key = noise_key(self.options.noise_seed).derive(b"joint", number.to_bytes(8, "little"))
        return Draw(self._settings, key, self.runs)

    def _judge(self, draw: Draw, released: Comparison, claimed: Comparison | None = None) -> _Verdict:
        claim, delta = self._claims[claimed or released]
        outputs = pa.chunked_array(draw.outputs(released)).combine_chunks().dictionary_encode()
        one, other = np.split(outputs.indices.to_numpy().astype(np.int64), 2)
        half = self.runs // 2
        level = self.alpha / len(self._scenarios) / 4.0  # two ways, two bounds
        chosen, tested = [one[:half], other[:half]], [one[half:], other[half:]]
        losses = code_losses(chosen, tested, level, delta)
        return _Verdict(losses=losses, outputs=outputs.dictionary, claim=claim)

    def _witness(self, scenario: Scenario, verdict: _Verdict) -> Witness:
        way = verdict.way
        ways = [scenario.released.one, scenario.released.other]
        one, other = (_inputs(ways[w]) for w in (way, 1 - way))
        hits, misses = verdict.losses.evidence[way].tolist()
        event = verdict.losses.events[way]
        outputs = tuple(verdict.outputs.take(pa.array(event[:SHOWN_OUTPUTS])).to_pylist())
        listed = ", ".join(f"({output})" for output in outputs) + (
            ", ..." if len(event) > len(outputs) else ""
        )
        return Witness(
            world=self.world.name,
            kind="joint",
            pair=(one, other),
            event=outputs,
            event_words=len(event),
            evidence=(hits, misses),
            runs=self.runs,
            nats=verdict.nats,
            claim=verdict.claim,
            message=f"{scenario.name}: ({one}) comes out as one of {len(event)} joint outputs ({listed}) "
            f"{hits:,.0f} times of {self.runs // 2:,}, ({other}) {misses:,.0f} times: a loss of "
            f"{verdict.nats:.4g} nats or more, where at most {verdict.claim:.4g} are claimed",
            command=repeating(self.options, self.world.name, self.options.runs),
        )


@dataclass(frozen=True, kw_only=True)
class _Verdict:
    """What is shown about releases, both ways, and claimed."""

    losses: Losses
    outputs: pa.Array
    claim: float

    @property
    def way(self) -> int:
        return int(self.losses.nats.argmax())

    @property
    def nats(self) -> float:
        return float(self.losses.nats[self.way])

    @property
    def exceeded(self) -> bool:
        return self.nats > self.claim + TOLERANCE


def _inputs(releases: Sequence[Release]) -> str:
    return " | ".join(" ".join(release.row) for release in releases)
