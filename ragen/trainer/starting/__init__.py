"""Before the first step: `start` plans without loading anything, `folder` takes the run directory, `devices` the GPUs.

`changes` says what a resumed run may change (MAY_CHANGE), `own_parts` and `own_functions` try parts of the user's own,
`memory` estimates before anything is loaded, `preflight` asks what silence, chance and the solver earn (`earnings`).
"""
