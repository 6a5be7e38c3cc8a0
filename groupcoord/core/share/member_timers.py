"""Sessions of members of share groups."""

from __future__ import annotations

from groupcoord.core.modern.member_timers import MemberTimers
from groupcoord.core.share.group import ShareGroup
from groupcoord.core.share.records import ShareGroupMemberMetadataRecord
from groupcoord.core.share.state import ShareMember


class ShareTimers(MemberTimers[ShareGroup, ShareMember]):
    """Arms and cancels the sessions of members of share groups."""

    __slots__ = ()

    MEMBER_RECORD = ShareGroupMemberMetadataRecord
    MEMBER_RECORD_TYPE = 10
