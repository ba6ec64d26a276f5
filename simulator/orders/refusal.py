"""What an order refuses about one of its fields, so that whoever set it can name their own key."""

from __future__ import annotations

from typing import Any

from traces.errors import InputError


class OrderError(InputError):
    """A field's value that an order, or the recording it is built on, does not take."""

    field = ""
    value: Any = None
    accepted = ""

    def under(self, where: str) -> InputError:
        """The same, of the key ``where.field``."""
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        return InputError(f"{where}.{self.field} is {value!r}; accepted: {self.accepted}")


def refusal(
    order: str, field: str, value: Any, accepted: str, message: str | None = None
) -> OrderError:
    """The error of an order's field.

    Args:
        message: in place of ``ORDER FIELD: VALUE, accepted: ACCEPTED``.
    """
    error = OrderError(message or f"{order} {field}: {value!r}, accepted: {accepted}")
    error.field, error.value, error.accepted = field, value, accepted
    return error
