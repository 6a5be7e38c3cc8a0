"""Simulator of consumers, coordinators, a network and faults on a virtual clock; a seed determines the run."""

from groupcoord.laws import LawBrokenError
from groupcoord.sim.actors.applications import ShareWorkers, StreamsApplication
from groupcoord.sim.actors.clients import (
    AdminAction,
    Administrator,
    Fault,
    ForeignRecords,
    SimpleConsumer,
    TransactionalProducer,
)
from groupcoord.sim.actors.environment import ClientOperation, GroupOptions, GroupProtocol
from groupcoord.sim.cluster.leading import ClusterOptions, ReplicaOptions
from groupcoord.sim.reports.page import comparison_page, report_page
from groupcoord.sim.reports.runs import Comparison, Difference, FleetReport, Run, collect, run_seed, run_seeds
from groupcoord.sim.scenarios.faults import (
    BrokenConnections,
    BusyApplication,
    ClockJump,
    ConsumerCrash,
    ConsumerPause,
    ConsumerStop,
    CutOff,
    LogTrouble,
    LossyNetwork,
    Migration,
    NodeCrash,
    NodeStall,
    ProtocolChange,
    TopicCreation,
    TopicDeletion,
    TopicGrowth,
    WorldOptions,
    rolling_restart,
)
from groupcoord.sim.scenarios.file import Scenario, parse_scenario, parse_variants, read_setting
from groupcoord.sim.scenarios.swarm import swarm_options
from groupcoord.sim.scenarios.table_reader import ScenarioError
from groupcoord.sim.world import LEGEND, Outcome, World, picture

__all__ = [
    "LEGEND",
    "AdminAction",
    "Administrator",
    "BrokenConnections",
    "BusyApplication",
    "ClientOperation",
    "ClockJump",
    "ClusterOptions",
    "Comparison",
    "ConsumerCrash",
    "ConsumerPause",
    "ConsumerStop",
    "CutOff",
    "Difference",
    "Fault",
    "FleetReport",
    "ForeignRecords",
    "GroupOptions",
    "GroupProtocol",
    "LawBrokenError",
    "LogTrouble",
    "LossyNetwork",
    "Migration",
    "NodeCrash",
    "NodeStall",
    "Outcome",
    "ProtocolChange",
    "ReplicaOptions",
    "Run",
    "Scenario",
    "ScenarioError",
    "ShareWorkers",
    "SimpleConsumer",
    "StreamsApplication",
    "TopicCreation",
    "TopicDeletion",
    "TopicGrowth",
    "TransactionalProducer",
    "World",
    "WorldOptions",
    "collect",
    "comparison_page",
    "parse_scenario",
    "parse_variants",
    "picture",
    "read_setting",
    "report_page",
    "rolling_restart",
    "run_seed",
    "run_seeds",
    "swarm_options",
]
