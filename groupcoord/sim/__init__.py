"""Whole worlds on a virtual clock: consumers, coordinators, a network, and what goes wrong. One seed, one story."""

from groupcoord.laws import LawBrokenError
from groupcoord.sim.options import ClusterOptions, GroupOptions, WorldOptions
from groupcoord.sim.page import report_page
from groupcoord.sim.picture import LEGEND, picture
from groupcoord.sim.runs import FleetReport, Run, collect, run_seed, run_seeds
from groupcoord.sim.scenario import Scenario, parse_scenario
from groupcoord.sim.scenario_reader import ScenarioError
from groupcoord.sim.swarm import swarm_options
from groupcoord.sim.world import Deed, Outcome, World

__all__ = [
    "LEGEND",
    "ClusterOptions",
    "Deed",
    "FleetReport",
    "GroupOptions",
    "LawBrokenError",
    "Outcome",
    "Run",
    "Scenario",
    "ScenarioError",
    "World",
    "WorldOptions",
    "collect",
    "parse_scenario",
    "picture",
    "report_page",
    "run_seed",
    "run_seeds",
    "swarm_options",
]
