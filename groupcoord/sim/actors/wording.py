"""Words for the trace."""

from __future__ import annotations

from groupcoord.member import TopicPartition


def listed(partitions: tuple[TopicPartition, ...]) -> str:
    """Return partitions in few words: each topic with its numbers, ranges as such."""
    numbers: dict[str, list[int]] = {}
    for partition in partitions:
        numbers.setdefault(partition.topic, []).append(partition.partition)
    return " ".join(f"{topic}[{_ranges(sorted(found))}]" for topic, found in numbers.items())


def _ranges(numbers: list[int]) -> str:
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
