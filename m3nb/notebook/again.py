"""A run made again, because an answer came too late: what was typed is given to the same question of the new run."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from m3nb.elicitation import ElicitationResponse, PendingElicitationRound, UrlElicitationRequest
from m3nb.errors import MCPError, StorageBusy

if TYPE_CHECKING:
    from m3nb.notebook.desk import Handle
    from m3nb.storage import SQLiteExecutionStore

log = logging.getLogger(__name__)

AUTOMATIC = "elicitation.automatic"
"""The kind of the event that marks an answer nobody typed for its round. Its payload: ``round_id``, ``given_for``."""


class StandingAnswer:
    """An answer given in advance, for the first round of an execution if that asks what ``failed`` asked.

    It is committed by the handle's ``respond_elicitation`` like any other, once, and marked by an `AUTOMATIC` event.
    Where something else is asked it is dropped, and a person decides. A visit to an address is never answered so: the
    address itself may be new.
    """

    def __init__(self, failed: PendingElicitationRound, responses: Mapping[str, ElicitationResponse]) -> None:
        self._failed = failed
        self._responses: Mapping[str, ElicitationResponse] | None = responses
        self._key = f"again-{secrets.token_hex(16)}"

    def meets(self, pending: PendingElicitationRound, handle: Handle, store: SQLiteExecutionStore | None) -> bool:
        """Answer the first round that is met. Whether that was committed; False ever after.

        Raises `StorageBusy`: the next look may try again.
        """
        responses = self._responses
        if responses is None or not self._asks_the_same(pending):
            self._responses = None
            return False
        try:
            handle.respond_elicitation(pending.round_id, responses, idempotency_key=self._key)
            self._responses = None
        except StorageBusy:
            raise
        except MCPError as error:  # answered elsewhere, or gone: the page shows what is
            log.debug("the answer given in advance was refused: %s", error)
            self._responses = None
            return False
        if store is not None:
            event = {"round_id": pending.round_id, "given_for": self._failed.round_id}
            store.append_event(pending.execution_id, AUTOMATIC, event)
        return True

    def _asks_the_same(self, pending: PendingElicitationRound) -> bool:
        from m3nb.runtime.asking import same_questions

        if any(isinstance(request, UrlElicitationRequest) for request in pending.requests.values()):
            return False
        return _place(pending) == _place(self._failed) and same_questions(pending.requests, self._failed.requests)


def _place(pending: PendingElicitationRound) -> tuple[str, str, str]:
    return pending.server, pending.operation_kind, pending.operation_name
