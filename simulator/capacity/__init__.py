"""The largest load at which every objective is met (`task=capacity`).

A load is a request rate (open loop) or a number of clients (closed loop). It is searched for once
per seed: a bracket that grows exponentially, then bisection, then a few larger loads, because
nothing says that a load above one that misses an objective misses it too.

An open loop that is not steady never passes: it must last ten times as long as a request stays,
and requests of its second half must not stay longer than those of its first
(`simulator.capacity.steady`).
"""
