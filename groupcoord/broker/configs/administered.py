"""What administrators have set of the cluster: settings of brokers, quotas, features, subscriptions to metrics."""

from __future__ import annotations

from groupcoord.broker.cluster.features import Features
from groupcoord.broker.cluster.quotas import Quotas
from groupcoord.broker.configs.brokers import BrokerConfigs
from groupcoord.broker.configs.client_metrics import ClientMetrics
from groupcoord.broker.json_file import Place


class Administered:
    """What was set, each kind in a file of its own.

    Args:
        place: where the files lie or will lie; None keeps everything in memory.

    Raises:
        DataFileError: one of the files can't be read or does not hold what it should.
    """

    def __init__(self, place: Place | None = None) -> None:
        self.brokers = BrokerConfigs(place)
        self.client_metrics = ClientMetrics(place)
        self.quotas = Quotas(place)
        self.features = Features(place)
