"""Plug-ins for Harbor (Python ≥ 3.12): our sandboxes as its environment, our verification as its verifier.

    harbor run -p TASKS -a oracle -e t1.harbor.environment:T1Environment --verifier t1.harbor.verifier:T1Verifier

Boundary: the only folder that imports `harbor`. It imports no torch, and nothing else in T1 imports it.
"""
