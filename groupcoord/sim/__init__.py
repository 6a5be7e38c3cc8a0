"""Simulator of consumers, coordinators, a network and faults on a virtual clock; a seed determines the run."""

from groupcoord.laws import LawBrokenError as LawBrokenError
from groupcoord.sim.actors.applications import ShareWorkers as ShareWorkers, StreamsApplication as StreamsApplication
from groupcoord.sim.actors.clients import (
    AdminAction as AdminAction,
    Administrator as Administrator,
    Fault as Fault,
    ForeignRecords as ForeignRecords,
    SimpleConsumer as SimpleConsumer,
    TransactionalProducer as TransactionalProducer,
)
from groupcoord.sim.actors.environment import (
    ClientOperation as ClientOperation,
    GroupOptions as GroupOptions,
    GroupProtocol as GroupProtocol,
)
from groupcoord.sim.cluster.leading import ClusterOptions as ClusterOptions, ReplicaOptions as ReplicaOptions
from groupcoord.sim.reports.page import comparison_page as comparison_page, report_page as report_page
from groupcoord.sim.reports.runs import (
    Comparison as Comparison,
    Difference as Difference,
    FleetReport as FleetReport,
    Run as Run,
    collect as collect,
    run_seed as run_seed,
    run_seeds as run_seeds,
)
from groupcoord.sim.scenarios.faults import (
    BrokenConnections as BrokenConnections,
    BusyApplication as BusyApplication,
    ClockJump as ClockJump,
    ConsumerCrash as ConsumerCrash,
    ConsumerPause as ConsumerPause,
    ConsumerStop as ConsumerStop,
    CutOff as CutOff,
    LogTrouble as LogTrouble,
    LossyNetwork as LossyNetwork,
    Migration as Migration,
    NodeCrash as NodeCrash,
    NodeStall as NodeStall,
    ProtocolChange as ProtocolChange,
    TopicCreation as TopicCreation,
    TopicDeletion as TopicDeletion,
    TopicGrowth as TopicGrowth,
    WorldOptions as WorldOptions,
    rolling_restart as rolling_restart,
)
from groupcoord.sim.scenarios.file import (
    Scenario as Scenario,
    parse_scenario as parse_scenario,
    parse_variants as parse_variants,
    read_setting as read_setting,
)
from groupcoord.sim.scenarios.swarm import swarm_options as swarm_options
from groupcoord.sim.scenarios.table_reader import ScenarioError as ScenarioError
from groupcoord.sim.world import LEGEND as LEGEND, Outcome as Outcome, World as World, picture as picture
