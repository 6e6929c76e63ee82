"""``trainyard doctor --cluster NAME``: a profile's mistakes, found by trying each thing that a run needs, in turn.

:mod:`examination` has the list and its order; each other module has the checks of one subject, small functions that yield
:class:`~trainyard.upkeep.examining.finding.Finding`. What needs a pod gets a real one, in a namespace that is made for it and goes at
the end (:mod:`probes`); what runs in it is :mod:`probe`. Nothing here mends anything: that is ``trainyard sync``, or the administrator.
"""
