"""The runner: from a deployed topology to a finished run directory.

`run` goes the way: `steady_state`, `clean_start`, `method` (with `probes` and `injections`), `drain`; `healing` ends
what a killed runner left. The rooms hold what these use:

- `load`: which worker runs which clients, the worker processes, their clocks;
- `watching`: what is observed of the drilled system meanwhile and written down;
- `guards`: what may end a run early;
- `evidence`: what a run leaves in its directory.
"""
