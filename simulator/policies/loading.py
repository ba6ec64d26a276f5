"""From a `policy` node to a policy object, fitted to a workload's fitting splits."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from simulator.orders.specs import OrderError
from simulator.policy import Policy
from traces.common.errors import InputError, unknown


def make_policy(node: Mapping[str, Any]) -> Policy:
    """The object that the node's `_target_` names, built from its other keys (`name` aside).

    Raises:
        InputError: no or an unknown `_target_`, settings it refuses, or something not a Policy.
    """
    from hydra.errors import InstantiationException
    from hydra.utils import instantiate

    target = node.get("_target_")
    if not isinstance(target, str):
        raise InputError(f"policy._target_ is {target!r}; accepted: the import path of a Policy")
    settings = {key: value for key, value in node.items() if key != "name"}
    _check_targets(settings)
    try:
        policy = instantiate(settings, _convert_="all")
    except InstantiationException as error:
        raise InputError(_reason(target, settings, error)) from error
    if not isinstance(policy, Policy):
        raise InputError(f"policy._target_ is {target!r}; accepted: a subclass of Policy")
    return policy


def _check_targets(value: Any) -> None:
    """InputError for a `_target_`, however deep, that is no policy: it could do anything."""
    from hydra.utils import get_object

    inner = value.values() if isinstance(value, Mapping) else value
    for one in inner if isinstance(value, Mapping | list | tuple) else ():
        _check_targets(one)
    target = value.get("_target_") if isinstance(value, Mapping) else None
    if target is None:
        return
    log = logging.getLogger("hydra.utils")  # which says in three lines what is said in one
    disabled, log.disabled = log.disabled, True
    try:
        found = get_object(str(target))
    except Exception:  # whatever importing it raises; `instantiate` says it better
        return
    finally:
        log.disabled = disabled
    ours = isinstance(found, type) and found.__module__.startswith("simulator.")
    if not ours and not (isinstance(found, type) and issubclass(found, Policy)):
        raise InputError(f"policy._target_ is {target!r}; accepted: a subclass of Policy")


def _reason(target: str, settings: Mapping[str, Any], error: Exception) -> str:
    """The first InputError behind `error`, else its first cause, in one line."""
    from hydra.utils import get_object

    cause = error.__cause__
    while cause is not None and not isinstance(cause, InputError) and cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, InputError):
        ours = isinstance(cause, OrderError) and cause.field in settings
        return str(cause.under("policy") if ours else cause)
    if isinstance(cause, TypeError):
        accepted = inspect.signature(get_object(target)).parameters
        strange = [key for key in settings if key not in accepted and not key.startswith("_")]
        if strange:
            return unknown(f"policy.{strange[0]}", [f"policy.{name}" for name in accepted])
    return f"policy._target_ {target!r}: {' '.join(str(cause or error).split())}"


def named_refusal(error: InputError, node: Mapping[str, Any]) -> InputError:
    """`error` of the node's policy, about the setting that it is of; else with the policy's name.

    An empty node: as it is.
    """
    if not node:
        return error
    if isinstance(error, OrderError) and error.field in node:
        return error.under("policy")
    named = str(error).startswith("policy.")
    return error if named else InputError(f"policy {policy_name(node)}: {error}")


def reason_of(refused: InputError, node: Mapping[str, Any]) -> str:
    """The line of a `named_refusal`, for where the policy's name stands already."""
    return str(refused).removeprefix(f"policy {policy_name(node)}: ")


def policy_name(node: Mapping[str, Any]) -> str:
    """The node's `name`, else its class's."""
    return str(node.get("name") or str(node.get("_target_")).rpartition(".")[2])


def check_verbs(policy: Policy) -> None:
    """InputError for a prepared policy that would stop in its first step, or never draft."""
    if not policy.drafts:
        return
    name, own = type(policy).__name__, type(policy)
    allocates, plans = own.allocate is not Policy.allocate, own.plan is not Policy.plan
    drafts = plans or policy.order is not None
    if drafts and not allocates:
        near = get_close_matches("allocate", [one for one in dir(own) if not hasattr(Policy, one)])
        raise InputError(
            f"policy {name}: no method allocate{f' (but {near[0]})' if near else ''}; accepted: "
            "allocate(step), nodes to verify per request"
        )
    if allocates and not drafts:
        raise InputError(
            f"policy {name}: order is None and there is no method plan, so it would never draft; "
            "accepted: order = an order of simulator.orders.specs, such as ChainOrder()"
        )
