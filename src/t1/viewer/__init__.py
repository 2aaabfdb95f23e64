"""A local web page over a run: curves, steps, rollouts, and one rollout token by token.

runs       which directories are runs, and what a run says of itself           metrics, config, pins, report
index      one light row a rollout, kept in memory and refreshed by file       what the list filters and sorts
findings   the auditor over every stored rollout, in the background
detail     one rollout as the page shows it: turns, assertions, evidence
screen     output of a terminal, its control sequences replayed or made visible                        runs of text
columns    the tokens of a segment, and what engine and trainer said of each
app        the routes, and the guard before them: loopback names only, GET only, no inline code

Boundary: reads what a run left and writes nothing. What a trajectory holds is hostile text: it leaves here as JSON
strings and enters the page as text nodes, never as markup.
"""

from t1.viewer.app import app, serve
from t1.viewer.runs import Run, find_runs

__all__ = ["Run", "app", "find_runs", "serve"]
