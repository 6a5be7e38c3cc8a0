"""What the rules of consumer groups look at besides the group: regular expressions, too."""

from __future__ import annotations

from attrs import define

from groupcoord.config.group_settings import ConsumerGroupSettings
from groupcoord.core.groups.base.assignor import Assignor
from groupcoord.core.groups.base.environment import GroupEnvironment
from groupcoord.core.groups.base.refusal import RefusedError
from groupcoord.core.topics import RegexResolver
from groupcoord.errors import ErrorCode


@define(eq=False)
class ConsumerGroupEnvironment(GroupEnvironment[ConsumerGroupSettings, Assignor]):
    """The surroundings of all consumer groups of one coordinator.

    Attributes:
        regexes: matches regular expressions against the topics, again when there are new ones.
    """

    regexes: RegexResolver

    def check_regex(self, regex: str) -> None:
        """Check that an expression can be matched.

        Raises:
            RefusedError: INVALID_REGULAR_EXPRESSION.
        """
        problem = self.regexes.problem(regex)
        if problem is not None:
            raise RefusedError(ErrorCode.INVALID_REGULAR_EXPRESSION, problem)
