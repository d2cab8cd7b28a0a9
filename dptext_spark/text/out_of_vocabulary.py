"""What becomes of tokens outside the vocabulary: a policy is one class, which its name makes an option."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from dptext_spark.errors import InputError
from dptext_spark.text.named_policy import NamedPolicy
from dptext_spark.text.token_columns import AS_IT_IS, LEFT_OUT, MASKED, PLACEHOLDER


@dataclass(frozen=True, kw_only=True)
class UnknownTokens:
    """The protected tokens of a batch of rows that the vocabulary lacks.

    Attributes:
        column: The column's name.
        count: How many there are, t > 0.
        release_words: Size of the release vocabulary.
        uniforms: Gives float64 (t, k) in (0, 1), uniforms of their own, for k uniforms per token.
    """

    column: str
    count: int
    release_words: int
    uniforms: Callable[[int], NDArray[np.float64]]


class OovPolicy(NamedPolicy):
    """A policy for tokens outside the vocabulary.

    Attributes:
        stand_in: What is released in place of each: ``MASKED``, ``LEFT_OUT`` or ``AS_IT_IS``.
    """

    kind = "out-of-vocabulary policy"
    option = "--oov"
    policies: ClassVar[dict[str, type[OovPolicy]]] = {}
    stand_in: ClassVar[int] = MASKED

    def release(self, unknown: UnknownTokens) -> NDArray[np.int64] | int:
        """Give what is released in place of each token, int64 (t,): a word id or a stand-in; or one for all.

        Raises:
            InputError: The policy refuses the column.
        """
        return self.stand_in


class Mask(OovPolicy):
    """A fixed placeholder."""

    name = "mask"
    scope = f"Words outside the vocabulary become {PLACEHOLDER}: their positions are visible."


class Drop(OovPolicy):
    """Nothing."""

    name = "drop"
    scope = "Words outside the vocabulary are left out."
    stand_in = LEFT_OUT


class RandomWord(OovPolicy):
    """A word drawn uniformly from the release vocabulary."""

    name = "random"
    scope = "Words outside the vocabulary become a uniformly random word."

    def release(self, unknown: UnknownTokens) -> NDArray[np.int64]:
        """See :meth:`OovPolicy.release`."""
        return (unknown.uniforms(1)[:, 0] * unknown.release_words).astype(np.int64)


class Fail(OovPolicy):
    """There must be none."""

    name = "fail"
    scope = "Words outside the vocabulary fail the run: there are none."

    def release(self, unknown: UnknownTokens) -> NoReturn:
        """See :meth:`OovPolicy.release`."""
        raise InputError(
            f"Column {unknown.column} has words outside the vocabulary, which --oov fail forbids",
            allowed="words of the embedding bundle",
            got=f"{unknown.count} unknown words in one batch of rows",
            do="Choose another --oov policy or a bundle with a larger vocabulary",
        )


class KeepUnprotected(OovPolicy):
    """The token itself, without any protection."""

    name = "keep-unprotected"
    scope = "Words outside the vocabulary ARE RELEASED AS THEY ARE, WITHOUT ANY PROTECTION."
    stand_in = AS_IT_IS
